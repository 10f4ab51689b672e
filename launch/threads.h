/* How many compute threads a rank gets. */
#ifndef TRI_LAUNCH_THREADS_H
#define TRI_LAUNCH_THREADS_H

#include "collectives/world.h"

#include <stdint.h>

/* `wanted` if above 0, else `env` (OMP_NUM_THREADS) if above 0, else the CPUs of this rank's
 * affinity mask divided by the ranks of its node with the same mask, at least 1. Collective when
 * world is not NULL. */
tri_status tri_threads_choose(int64_t wanted, int64_t env, const struct tri_world *world,
                              int *threads) TRI_CHECKED;

#endif
