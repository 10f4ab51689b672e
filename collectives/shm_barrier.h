/* A barrier between processes of one node: an arrival counter per rank in shared memory.
 *
 * A rank adds one to its counter and waits until every peer's counter has reached the same number.
 * It polls for some microseconds and then sleeps in a futex on the counter of the rank that is
 * late, whose arrival wakes it. */
#ifndef TRI_COLLECTIVES_SHM_BARRIER_H
#define TRI_COLLECTIVES_SHM_BARRIER_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_SHM_FLAG_BYTES = 64 }; /* of each rank's part: one cache line */

struct tri_shm_flag;

struct tri_shm_barrier {
    struct tri_shm_flag **flag; /* owned table; the flags lie in the window */
    int rank, size;
    int polls;      /* before the core is offered to others */
    uint32_t epoch; /* barriers entered */
};

/* part[r]: TRI_SHM_FLAG_BYTES zeroed bytes of rank r, aligned to a cache line, shared by all ranks,
 * borrowed. crowded: ranks share cores, so that a rank in wait soon offers its own. Local. */
tri_status tri_shm_barrier_init(struct tri_shm_barrier *b, unsigned char *const *part, int rank,
                                int size, bool crowded) TRI_CHECKED;
void tri_shm_barrier_finish(struct tri_shm_barrier *b);

/* false after timeout_ms (< 0: never): *late is a rank that has not arrived, and the barrier is of
 * no more use. Collective. */
bool tri_shm_barrier_wait(struct tri_shm_barrier *b, int64_t timeout_ms, int *late);

#endif
