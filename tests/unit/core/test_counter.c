/* The progress counter: wrap-around, time-outs, and wake-ups across threads. */
#include "runtime/core/counter.h"
#include "runtime/core/log.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

Test(counter, compares_modulo_2_32)
{
    struct tri_counter c = {0};

    cr_assert(tri_counter_reached(&c, 0));
    cr_assert_not(tri_counter_reached(&c, 1));
    cr_assert(tri_counter_reached(&c, UINT32_MAX)); /* one behind */
    tri_counter_set(&c, 5);
    cr_assert(tri_counter_reached(&c, 4));
    cr_assert_not(tri_counter_reached(&c, 6));
}

Test(counter, times_out)
{
    struct tri_counter c = {0};
    const int64_t start = tri_now_ns();

    cr_assert_eq(tri_counter_wait(&c, 1, 20), TRI_ERR_TIMEOUT);
    cr_assert_geq(tri_now_ns() - start, 20 * 1000000);
    cr_assert_eq(tri_counter_wait(&c, 1, 0), TRI_ERR_TIMEOUT);
    cr_assert_eq(tri_counter_wait(&c, 0, 0), TRI_OK);
}

enum { TURNS = 2000 };

struct pair {
    struct tri_counter ping, pong;
};

static void *answer(void *arg)
{
    struct pair *p = arg;

    for (uint32_t i = 1; i <= TURNS; i++) {
        if (tri_counter_wait(&p->ping, i, -1) != TRI_OK)
            return p;
        tri_counter_set(&p->pong, i);
    }
    return NULL;
}

/* No wake-up is lost in 2000 turns; some of them sleep, some are still polling. */
Test(counter, ping_pong)
{
    struct pair p = {0};
    pthread_t thread;
    void *failed = NULL;

    cr_assert_eq(pthread_create(&thread, NULL, answer, &p), 0);
    for (uint32_t i = 1; i <= TURNS; i++) {
        if (i % 500 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        tri_counter_set(&p.ping, i);
        cr_assert_eq(tri_counter_wait(&p.pong, i, 10000), TRI_OK, "lost in turn %u", i);
    }
    pthread_join(thread, &failed);
    cr_assert_null(failed);
}

Test(counter, kick_changes_nothing)
{
    struct tri_counter c = {0};

    tri_counter_kick(&c);
    cr_assert_not(tri_counter_reached(&c, 1));
}
