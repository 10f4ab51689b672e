/* A sum over MPI under way. A long one is cut into pieces that alternate between two lanes: while
 * one waits or adds, the other's messages keep the link busy.
 *
 * Algorithm of a piece: few elements by recursive doubling; more by halving and doubling when the
 * size is a power of two, else by the ring. */
#ifndef TRI_COLLECTIVES_MPI_SUM_H
#define TRI_COLLECTIVES_MPI_SUM_H

#include "collectives/mpi_lane.h"
#include "collectives/plan_cache.h"
#include "runtime/exec/comm.h"

enum { TRI_LANES = 2 };

/* A part of a sum, in a lane. */
struct tri_mpi_piece {
    struct tri_run run;
    void *at;      /* as stored */
    void *data;    /* as summed: at, or widened */
    int64_t count; /* elements */
    int64_t next;  /* first element of the lane's next piece */
    bool busy;
};

/* Cut into pieces of equal length but for the last. */
struct tri_mpi_sum {
    struct tri_mpi_lane *lane; /* [TRI_LANES] of one port, borrowed */
    unsigned char *buf;
    int64_t count, length; /* elements; length: of a piece */
    enum tri_dtype dtype;
    size_t stored, elem; /* bytes of an element as stored and as summed */
    tri_reduce_fn *fn;
    const struct tri_rounds *plan, *last_plan;
    struct tri_mpi_piece piece[TRI_LANES];
};

/* Starts the sum of count elements in place at buf, borrowed until it is done; the plans stay in
 * `plans`, where nothing else may look meanwhile. forced: algorithm of all pieces; NULL: by size.
 * TRI_ERR_INVALID for a type that op does not take, TRI_ERR_NOMEM. Same on all ranks: count, dtype,
 * op, forced. */
tri_status tri_mpi_sum_begin(struct tri_mpi_sum *s, struct tri_mpi_lane *lane,
                             struct tri_plan_cache *plans, tri_rounds_make *forced, void *buf,
                             int64_t count, enum tri_dtype dtype, enum tri_reduce op) TRI_CHECKED;
/* Goes on without waiting; progress starts a new wait. Local. */
tri_status tri_mpi_sum_poll(struct tri_mpi_sum *s, struct tri_wait *wait, bool *done) TRI_CHECKED;

/* Bytes of scratch that calls need between `size` ranks: slices 0 for the sum of count elements,
 * else for its scattering half. A sum needs room for its pieces, a scattering half for all slices,
 * and 16-bit types for a widened copy. TRI_ERR_NOMEM. Local. */
tri_status tri_mpi_scratch(int size, int slices, int64_t count, enum tri_dtype dtype,
                           size_t *bytes) TRI_CHECKED;

#endif
