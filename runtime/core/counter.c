/* Progress counter: a short poll, then a futex sleep. */
#include "runtime/core/counter.h"
#include "runtime/core/log.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { POLLS = 64 }; /* a few microseconds with the pause instruction */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void wake_all(struct tri_counter *c)
{
    /* Sequentially consistent with the waiter's "sleepers + 1, then look at value": one of the two
     * sees the other. */
    if (atomic_load(&c->sleepers) > 0)
        syscall(SYS_futex, &c->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void tri_counter_set(struct tri_counter *c, uint32_t value)
{
    atomic_store(&c->value, value);
    wake_all(c);
}

static bool reached(uint32_t now, uint32_t value)
{
    return now - value < UINT32_C(1) << 31;
}

bool tri_counter_reached(const struct tri_counter *c, uint32_t value)
{
    return reached(atomic_load_explicit(&c->value, memory_order_acquire), value);
}

/* Sleeps until a wake-up, a change of the value from `seen`, or the timeout (NULL: none). */
static void sleep_once(struct tri_counter *c, uint32_t seen, const struct timespec *timeout)
{
    atomic_fetch_add(&c->sleepers, 1);
    syscall(SYS_futex, &c->value, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
    atomic_fetch_sub(&c->sleepers, 1);
}

tri_status tri_counter_wait(struct tri_counter *c, uint32_t value, int64_t timeout_ms)
{
    int64_t deadline;

    for (int i = 0; i < POLLS; i++) {
        if (tri_counter_reached(c, value))
            return TRI_OK;
        relax();
    }
    deadline = timeout_ms < 0 ? 0 : tri_now_ns() + timeout_ms * 1000000;
    for (;;) {
        const uint32_t now = atomic_load_explicit(&c->value, memory_order_acquire);
        struct timespec left = {0};
        int64_t ns;

        if (reached(now, value))
            return TRI_OK;
        if (timeout_ms < 0) {
            sleep_once(c, now, NULL);
            continue;
        }
        ns = deadline - tri_now_ns();
        if (ns <= 0)
            return TRI_ERR_TIMEOUT;
        left.tv_sec = (time_t)(ns / 1000000000);
        left.tv_nsec = (long)(ns % 1000000000);
        sleep_once(c, now, &left);
    }
}

void tri_counter_kick(struct tri_counter *c)
{
    wake_all(c);
}
