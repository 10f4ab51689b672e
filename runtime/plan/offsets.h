/* Offsets of blocks with known lifetimes inside one arena. */
#ifndef TRI_RUNTIME_PLAN_OFFSETS_H
#define TRI_RUNTIME_PLAN_OFFSETS_H

#include "runtime/core/status.h"

#include <stddef.h>
#include <stdint.h>

/* One block: needed at every position of [first, last], both included. */
struct tri_block {
    size_t bytes; /* a multiple of TRI_ALIGN_BYTES, > 0 */
    uint32_t first, last;
    size_t offset; /* result */
};

/* Sets every offset so that blocks whose lifetimes meet do not overlap. *arena_bytes: the size
 * needed; *live_bytes: the largest sum of blocks needed at one position, the lower bound of any
 * arena. Several orders of lowest-fit placement are tried until one comes within 2 % of the bound;
 * the best is kept. The result depends on the input alone. Local. */
tri_status tri_plan_offsets(struct tri_block *block, int n, size_t *arena_bytes,
                            size_t *live_bytes) TRI_CHECKED;

#endif
