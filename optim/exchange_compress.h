/* Compression of the exchange of a foreign model (optim/exchange.h): the compressors of
 * optim/compressors/ and their error feedback, without a graph. */
#ifndef TRI_OPTIM_EXCHANGE_COMPRESS_H
#define TRI_OPTIM_EXCHANGE_COMPRESS_H

#include "collectives/topology.h"
#include "optim/compress_pass.h"
#include "optim/exchange_layout.h"
#include "runtime/exec/comm.h"

/* What this contributor sends of a gradient. */
struct tri_exchange_piece {
    uint64_t stream;   /* of the gradient's name */
    int64_t at, count; /* elements of the exchange memory; count 0: nothing */
};

/* Zeroed: nothing is compressed. */
struct tri_exchange_compress {
    struct tri_compress_spec spec;
    int64_t round;                     /* the key of random choices, from 1 on */
    struct tri_exchange_piece *piece;  /* owned: by order of exchange */
    bool *chosen;                      /* owned: the bucket is compressed */
    float *residual, *next;            /* owned: of each element of the exchange memory, before and
                                          behind this round */
    unsigned char *payload, *gathered; /* owned: of a bucket, this contributor's and all */
};

/* Compares what the options say about compression. Collective. */
tri_status tri_exchange_compress_agree(const struct tri_gradient_options *gradient,
                                       struct tri_comm *comm) TRI_CHECKED;
/* What they ask for on these nodes; slices: of the exchange in two levels, 0: flat. Without
 * momentum; the link's rate is assumed, nothing is measured. Local. */
struct tri_compress_spec tri_exchange_compress_spec(const struct tri_gradient_options *gradient,
                                                    const struct tri_topology *t, int slices);

/* Chooses the buckets: those where the estimate says that it pays, or all by force. count[i] and
 * stream[i]: of gradient i of n by registration; local_rank: this rank's slice of a bucket where
 * spec->level is INTER. Appends a line to report. Fails with TRI_ERR_NOMEM, then finish c all the
 * same. Local. Same on all ranks: all but spec->rank and local_rank. */
tri_status tri_exchange_compress_init(struct tri_exchange_compress *c,
                                      const struct tri_compress_spec *spec,
                                      const struct tri_exchange_layout *layout,
                                      const int64_t *count, const uint64_t *stream, int n,
                                      int local_rank, struct tri_text *report) TRI_CHECKED;
void tri_exchange_compress_finish(struct tri_exchange_compress *c);

/* Bucket b is compressed between the ranks of `level`. Local. */
static inline bool tri_exchange_compresses(const struct tri_exchange_compress *c, int b,
                                           enum tri_level level)
{
    return c->chosen != NULL && c->chosen[b] && c->spec.level == level;
}

/* Replaces this contributor's pieces of bucket b in the exchange memory by their sums over comm,
 * whose ranks are the contributors. Collective. */
tri_status tri_exchange_compress_sum(struct tri_exchange_compress *c, struct tri_comm *comm,
                                     const struct tri_bucket_range *b, float *memory) TRI_CHECKED;

/* Ends a round: residuals move on, unless it is skipped. Local. Same on all ranks: skipped. */
void tri_exchange_compress_end(struct tri_exchange_compress *c, bool skipped);
/* No infinity and no NaN among count elements of f32, bf16 or f16. Local. */
bool tri_exchange_is_finite(const void *x, int64_t count, enum tri_dtype dtype);

#endif
