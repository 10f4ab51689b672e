/* Under the EEVDF scheduler a thread that wakes waits for the end of the running thread's slice, 3
 * ms by default, unless its own slice is shorter (Documentation/scheduler/sched-eevdf.rst; slices
 * of single threads since Linux 6.12). */
#include "runtime/core/turns.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLICE_NS = 100000 }; /* the kernel's smallest */

/* As the system call takes it; the C library has no name for it. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void tri_thread_short_turns(void)
{
    struct attributes a = {.size = sizeof(a), .policy = SCHED_OTHER, .runtime = SLICE_NS};

    if (sched_getscheduler(0) != SCHED_OTHER)
        return; /* somebody chose a policy for us */
    a.nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
