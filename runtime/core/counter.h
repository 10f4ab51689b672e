/* A monotone 32-bit progress counter that threads wait on: the event of the executor.
 *
 * One thread advances it, any number wait. A wait costs one load when the value is already reached;
 * else it polls for a few microseconds and then sleeps in a futex, so that a waiting thread burns
 * no core. Comparison is modulo 2^32 (differences below 2^31). */
#ifndef TRI_RUNTIME_CORE_COUNTER_H
#define TRI_RUNTIME_CORE_COUNTER_H

#include "runtime/core/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tri_counter {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers; /* threads in the futex; without any a signal is no system call */
};

/* Sets the value (release) and wakes sleepers. Local. */
void tri_counter_set(struct tri_counter *c, uint32_t value);
/* Reached already? (acquire) Local. */
bool tri_counter_reached(const struct tri_counter *c, uint32_t value);
/* Waits (acquire) until the value is reached; TRI_ERR_TIMEOUT (without message) after timeout_ms
 * (below 0: for ever). Local. */
tri_status tri_counter_wait(struct tri_counter *c, uint32_t value, int64_t timeout_ms) TRI_CHECKED;
/* Wakes sleepers without a change: they look again (used to pass on a failure). Local. */
void tri_counter_kick(struct tri_counter *c);

#endif
