/* Collective algorithms as data: rounds of SEND, RECV, REDUCE and COPY.
 *
 * A plan is made by a pure function of (rank, size, count) and says what one rank does. In a round
 * all sends and receives run at once; when they are complete, the local actions run in order. Ranks
 * need not be in the same round. Between two ranks messages arrive in the order in which they were
 * sent, and each has the count that the receiver expects, which the simulation (simulate.h) checks
 * for all algorithms and 1..33 ranks.
 *
 * Sources: ring and recursive halving-doubling as in Thakur, Rabenseifner, Gropp, "Optimization of
 * collective communication operations in MPICH", 2005; here halving starts at distance 1, so that a
 * sum over a power of two of ranks is the binary tree over contiguous ranks: ((0+1)+(2+3))+... */
#ifndef TRI_COLLECTIVES_ROUNDS_H
#define TRI_COLLECTIVES_ROUNDS_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tri_action_kind { TRI_ACT_SEND, TRI_ACT_RECV, TRI_ACT_REDUCE, TRI_ACT_COPY };

/* The two memories of a rank. */
enum tri_area { TRI_AREA_DATA, TRI_AREA_SCRATCH, TRI_AREA_COUNT };

struct tri_action {
    enum tri_action_kind kind;
    int peer; /* SEND: to; RECV: from; REDUCE: whose partial result lies in the scratch */
    enum tri_area from, to;
    int64_t from_at, to_at; /* elements from the start of the area */
    int64_t count;          /* elements, never 0 */
};

/* SEND reads `from`, RECV writes `to`, COPY does both; REDUCE: to = lower rank's op higher rank's,
 * of `from` and `to`. */
struct tri_rounds {
    struct tri_action *action;
    int32_t *end; /* end[r]: index behind the last action of round r */
    int32_t nactions, nrounds;
    int32_t action_cap, round_cap;
    int64_t scratch; /* elements of scratch that the plan needs */
};

/* Makes the plan of `rank` of `size` for `count` elements; what `count` means is said at each
 * function. TRI_ERR_NOMEM. Local. */
typedef tri_status tri_rounds_make(int rank, int size, int64_t count, struct tri_rounds *out);

/* All-reduce of count elements in place. Ring: any size. Halving: size a power of two, fixed tree.
 * Doubling: any size, the fixed tree when size is a power of two; for few elements. Bits are equal
 * on all ranks. */
tri_rounds_make tri_rounds_ring, tri_rounds_halving, tri_rounds_doubling;
/* Parts of the ring: block b of tri_rounds_block() ends, summed, on rank b; and blocks are spread
 * to all ranks. */
tri_rounds_make tri_rounds_reduce_scatter, tri_rounds_gather_blocks;
/* All-gather of size * count elements; rank r's part is in place at r * count. Ring. */
tri_rounds_make tri_rounds_allgather;
/* The halves of a sum over slices (tri_comm_slice; slice i is rank i's, 1 <= slices <= size), all
 * messages at once: each rank sends each owner its part, who sums by the binary tree over ranks
 * that halves [0, size); then each owner sends its slice to all. Scratch: size slices. */
tri_status tri_rounds_scatter_slices(int rank, int size, int slices, int64_t count,
                                     struct tri_rounds *out) TRI_CHECKED;
tri_status tri_rounds_gather_slices(int rank, int size, int slices, int64_t count,
                                    struct tri_rounds *out) TRI_CHECKED;
/* One token to and from everybody within ceil(log2(size)) rounds (dissemination); count is ignored;
 * data and scratch: 1 element. */
tri_rounds_make tri_rounds_barrier;
/* From root to all, binomial tree. */
tri_status tri_rounds_broadcast(int rank, int size, int root, int64_t count,
                                struct tri_rounds *out) TRI_CHECKED;

/* Cuts count elements into size nearly equal blocks, the larger ones first; block b is [*first,
 * *first + *n). Local. */
void tri_rounds_block(int64_t count, int size, int b, int64_t *first, int64_t *n);

void tri_rounds_finish(struct tri_rounds *r);

/* What rounds run over. Messages are non-blocking and ordered per pair. */
struct tri_link {
    tri_status (*send)(struct tri_link *l, int peer, const void *data, size_t bytes);
    tri_status (*recv)(struct tri_link *l, int peer, void *data, size_t bytes);
    /* *done: all that was posted is complete. */
    tri_status (*test)(struct tri_link *l, bool *done);
};

/* dst = a op b over count elements; dst may be a or b. */
typedef void tri_reduce_fn(void *dst, const void *a, const void *b, int64_t count);

/* A plan in execution. */
struct tri_run {
    const struct tri_rounds *plan;
    unsigned char *area[TRI_AREA_COUNT];
    size_t elem;           /* bytes of an element */
    tri_reduce_fn *reduce; /* NULL when the plan has no REDUCE */
    int rank;
    int32_t round; /* the current one */
    bool posted;   /* its messages are under way */
};

/* Goes as far as it can without waiting. *done: the plan is complete. */
tri_status tri_run_poll(struct tri_run *run, struct tri_link *link, bool *done) TRI_CHECKED;

#endif
