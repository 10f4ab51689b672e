/* Stages of a wait. The numbers: a poll of MPI takes about 0.2 us, a system call 0.3 us, a sleep at
 * least 50 us. On a core that computes each yield may last until the other thread's turn ends, so
 * there are few. */
#include "collectives/wait.h"

#include <sched.h>
#include <time.h>

enum {
    POLLS = 50,       /* back to back: about 10 us */
    YIELDS = 20,      /* with the core offered to others */
    SLEEP_NS = 20000, /* first sleep */
    SLEEP_MORE =
        20000, /* each is so much longer: a poll over TCP costs 10 us of a core that computes */
    SLEEP_MAX = 300000 /* longest: the delay that a late message may see */
};

bool tri_wait_pause(struct tri_wait *w)
{
    struct timespec t = {0};
    int64_t ns;

    w->turns++;
    if (w->turns < POLLS)
        return true;
    if (w->turns < POLLS + YIELDS) {
        (void)sched_yield();
    } else {
        ns = SLEEP_NS + (int64_t)(w->turns - POLLS - YIELDS) * SLEEP_MORE;
        t.tv_nsec = ns < SLEEP_MAX ? ns : SLEEP_MAX;
        (void)nanosleep(&t, NULL);
    }
    return tri_now_ns() < w->deadline_ns;
}
