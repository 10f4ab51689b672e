/* How a thread waits for another process: it polls for some microseconds, then gives the core away,
 * then sleeps for short times, so that a core that computes is left alone. */
#ifndef TRI_COLLECTIVES_WAIT_H
#define TRI_COLLECTIVES_WAIT_H

#include "runtime/core/log.h"

#include <stdbool.h>
#include <stdint.h>

struct tri_wait {
    int64_t deadline_ns; /* on the clock of tri_now_ns; INT64_MAX: none */
    int turns;           /* polls in vain */
};

/* timeout_ms < 0: without a deadline. Local. */
static inline struct tri_wait tri_wait_begin(int64_t timeout_ms)
{
    struct tri_wait w = {.deadline_ns = INT64_MAX};

    if (timeout_ms >= 0)
        w.deadline_ns = tri_now_ns() + timeout_ms * 1000000;
    return w;
}

/* After a poll in vain: pauses; false when the deadline has passed. Local. */
bool tri_wait_pause(struct tri_wait *w);

#endif
