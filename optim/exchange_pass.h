/* The exchange pass: gradients of the ranks become one global sum, in flat buckets, while backward
 * goes on. */
#ifndef TRI_OPTIM_EXCHANGE_PASS_H
#define TRI_OPTIM_EXCHANGE_PASS_H

#include "optim/compress_pass.h"
#include "optim/optim_options.h"
#include "runtime/core/status.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/mesh.h"

struct tri_exchange_spec {
    int64_t bucket_bytes; /* > 0; a gradient larger than this gets a bucket of its own */
    bool spread; /* smaller ones, down to TRI_FIRST_BUCKET_BYTES, for TRI_SPREAD_BUCKETS of them */
    bool fixed_tree; /* sum ranks by the binary tree of deterministic runs */
    int slices;      /* > 0: in two levels, cut by so many ranks of each node; 0: flat */
    int local_rank;  /* this rank's among those of its node: the slice that it owns */
    struct tri_compress_spec compress;
    struct tri_text *report; /* a line about compression, where it was asked for; may be NULL */
};

/* What section gradient says, without its compression; where it leaves the size of buckets open,
 * at most TRI_BUCKET_BYTES and spread. Local. */
struct tri_exchange_spec tri_exchange_spec_make(const struct tri_gradient_options *gradient,
                                                bool deterministic);

/* Packs the totals in g->sum, in the order in which they become ready, into flat buckets of one
 * dtype each (the first of at most TRI_FIRST_BUCKET_BYTES, so that the exchange starts early), puts
 * an ALLREDUCE over the data axis right behind the op that completes a bucket, and replaces each
 * sum's value by its view of the reduced bucket. In two levels the reduction is REDUCE_SCATTER
 * inside the node, ALLREDUCE of the slice between nodes on the ranks that own one, ALLGATHER inside
 * the node. The gradients of a bucket that can be compressed are, where the estimate says that it
 * pays or it is forced (optim/compress_pass.h). With one data rank nothing else changes. Same on
 * all ranks: g, spec but local_rank. */
tri_status tri_pass_exchange(struct tri_graph *g, const struct tri_mesh *mesh,
                             const struct tri_exchange_spec *spec) TRI_CHECKED;

#define TRI_FIRST_BUCKET_BYTES (1 << 20)
#define TRI_BUCKET_BYTES       (25 << 20)
/* The last bucket has no backward pass to hide under: with a dozen it is a small part of the
 * exchange, and each is still large against the latency of a reduction. */
#define TRI_SPREAD_BUCKETS 12

#endif
