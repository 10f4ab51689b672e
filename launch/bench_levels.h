/* A sum in two levels as training makes it, for measurements: bucket by bucket, reduce-scatter
 * inside the node, sum of the slice between nodes, gather inside the node, with a thread for each
 * level, so that one bucket crosses the network while others move inside the node. */
#ifndef TRI_LAUNCH_BENCH_LEVELS_H
#define TRI_LAUNCH_BENCH_LEVELS_H

#include "collectives/topology.h"
#include "runtime/exec/comm.h"

struct tri_bench_levels;

/* Connects the levels of t, which is borrowed and has several nodes, and allocates a buffer of
 * `bytes`. Collective; a failure is not shared. */
tri_status tri_bench_levels_create(const void *mpi_comm, const struct tri_topology *t, size_t bytes,
                                   int64_t timeout_ms, struct tri_bench_levels **out) TRI_CHECKED;
/* Accepts NULL. Collective. */
void tri_bench_levels_destroy(struct tri_bench_levels *l);

/* The buffer that is summed. Local. */
void *tri_bench_levels_buffer(struct tri_bench_levels *l);
/* Sums the first `count` elements of all ranks' buffers. Collective. */
tri_status tri_bench_levels_sum(struct tri_bench_levels *l, int64_t count,
                                enum tri_dtype dtype) TRI_CHECKED;
/* The limit of the link: moves between nodes what a sum of `bytes` must move, 2 (nodes - 1) / nodes
 * x bytes out of each node and as much into it, by the same ranks and messages, and adds nothing.
 * Collective. */
tri_status tri_bench_levels_link(struct tri_bench_levels *l, size_t bytes) TRI_CHECKED;

#endif
