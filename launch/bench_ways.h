/* The ways in which `trireme bench allreduce` sums a buffer over all ranks, and the limits of what
 * is possible. */
#ifndef TRI_LAUNCH_BENCH_WAYS_H
#define TRI_LAUNCH_BENCH_WAYS_H

#include "collectives/comm_mpi.h"
#include "launch/bench_levels.h"
#include "launch/env.h"

enum { TRI_BENCH_MAX_WAYS = 8 };

struct tri_bench_ways;
struct tri_bench_way {
    const char *name;
    /* Sums the first `count` elements of buf, in place. Collective. */
    tri_status (*sum)(struct tri_bench_ways *all, const struct tri_bench_way *w, int64_t count,
                      enum tri_dtype dtype);
    void *buf;
    struct tri_comm *comm; /* borrowed; NULL: sum knows where */
    tri_rounds_make *make; /* set for rounds */
    bool summed;           /* buf holds the sum afterwards; a limit may leave it out */
    /* Nobody waits for anybody in it, so that ranks that share a core may run one after the other:
     * timed from the first rank's start to the last one's end, of one node. */
    bool takes_turns;
};

/* Zeroed before tri_bench_ways_open. */
struct tri_bench_ways {
    struct tri_bench_way way[TRI_BENCH_MAX_WAYS]; /* limits last */
    int count;
    struct tri_comm *library; /* of MPI_Allreduce, which has no 16-bit types */
    /* What follows is of bench_ways.c. */
    struct tri_topology topology; /* the world's, or pretended */
    bool pretended;
    struct tri_comm *shm, *mpi;
    struct tri_bench_levels *levels;
    void *window, *plain;
};

/* The ways that the ranks of env have, with buffers of `most` bytes. nodes: ranks of each pretended
 * node ("2,2"); NULL: the real ones. names: only these ways ("two-level,ring") and the limit; NULL:
 * all. Close it also after a failure, but for a rank that the others
 * may wait for: TRI_ERR_USAGE is shared, other failures are not. Collective. */
tri_status tri_bench_ways_open(struct tri_bench_ways *w, const struct tri_env *env,
                               const char *nodes, const char *names, size_t most) TRI_CHECKED;
void tri_bench_ways_close(struct tri_bench_ways *w);

#endif
