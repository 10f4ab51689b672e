/* Why no wake-up is lost: the sleeper announces itself before it looks at the counter again (in the
 * futex call), the arriving rank looks for sleepers after it has changed the counter; both orders
 * are sequentially consistent. */
#include "collectives/shm_barrier.h"

#include "collectives/wait.h"
#include "runtime/core/memory.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    POLLS = 100,       /* about 2 us with the pauses */
    POLLS_CROWDED = 2, /* where ranks share cores: the one that is late may wait for this core */
    YIELDS = 20,       /* a peer may be ready to run on this core */
    SLEEP_MS = 100     /* longest sleep: then the deadline is looked at */
};

struct tri_shm_flag {
    _Atomic uint32_t arrived; /* barriers that the rank has entered */
    _Atomic uint32_t sleepers;
};

_Static_assert(sizeof(struct tri_shm_flag) <= TRI_SHM_FLAG_BYTES, "a flag fits its line");

tri_status tri_shm_barrier_init(struct tri_shm_barrier *b, unsigned char *const *part, int rank,
                                int size, bool crowded)
{
    *b = (struct tri_shm_barrier){
        .rank = rank, .size = size, .polls = crowded ? POLLS_CROWDED : POLLS};
    b->flag = tri_calloc((size_t)size, sizeof(*b->flag), "flags of a barrier");
    if (b->flag == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the flags of %d ranks", size);
    for (int r = 0; r < size; r++)
        b->flag[r] = (struct tri_shm_flag *)(void *)part[r];
    return TRI_OK;
}

void tri_shm_barrier_finish(struct tri_shm_barrier *b)
{
    tri_free(b->flag);
    b->flag = NULL;
}

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool reached(const struct tri_shm_flag *f, uint32_t epoch)
{
    return (int32_t)(atomic_load_explicit(&f->arrived, memory_order_acquire) - epoch) >= 0;
}

/* Sleeps until the counter differs from `seen`, at most SLEEP_MS. */
static void sleep_on(struct tri_shm_flag *f, uint32_t seen)
{
    struct timespec t = {.tv_nsec = SLEEP_MS * 1000000L};

    (void)syscall(SYS_futex, &f->arrived, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* False when the deadline has passed. */
static bool wait_for(struct tri_shm_flag *f, uint32_t epoch, int polls, int64_t timeout_ms)
{
    struct tri_wait deadline;

    for (int i = 0; i < polls; i++) {
        if (reached(f, epoch))
            return true;
        pause_core();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (reached(f, epoch))
            return true;
        (void)sched_yield();
    }
    deadline = tri_wait_begin(timeout_ms);
    atomic_fetch_add(&f->sleepers, 1);
    while (!reached(f, epoch) && tri_now_ns() < deadline.deadline_ns) {
        uint32_t seen = atomic_load(&f->arrived);

        if ((int32_t)(seen - epoch) < 0)
            sleep_on(f, seen);
    }
    atomic_fetch_sub(&f->sleepers, 1);
    return reached(f, epoch);
}

bool tri_shm_barrier_wait(struct tri_shm_barrier *b, int64_t timeout_ms, int *late)
{
    struct tri_shm_flag *mine = b->flag[b->rank];

    b->epoch++;
    atomic_store(&mine->arrived, b->epoch);
    if (atomic_load(&mine->sleepers) > 0)
        (void)syscall(SYS_futex, &mine->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int i = 1; i < b->size; i++) {
        int r = (b->rank + i) % b->size;

        if (!wait_for(b->flag[r], b->epoch, b->polls, timeout_ms)) {
            *late = r;
            return false;
        }
    }
    return true;
}
