/* Compression as ops: what the exchange pass puts in place of the sum of a bucket, and what the
 * update pass does with residuals. */
#ifndef TRI_OPTIM_COMPRESS_PASS_H
#define TRI_OPTIM_COMPRESS_PASS_H

#include "optim/optim_options.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"
#include "runtime/graph/graph.h"

/* The link that the exchange crosses, for the estimate. */
struct tri_link_rate {
    double bytes_per_s, latency_s;
};

struct tri_compress_spec {
    const char *name;                    /* for reports; NULL: not asked for */
    const char *off;                     /* why it is asked for but cannot be; NULL: it can */
    const struct tri_compressor *method; /* NULL: none, or low rank */
    int64_t low_rank;                    /* powersgd: its rank; 0: another method */
    double ratio;                        /* topk, randk */
    double last_ratio; /* what the estimate judges by: of the end of a warm-up, else `ratio` */
    double momentum;   /* of the correction; 0: plain error feedback */
    bool nesterov;
    bool force;           /* without asking the estimate, and on one rank too */
    uint64_t seed;        /* of random choices */
    enum tri_level level; /* INTER: the slices of nodes, in two levels; else ALL */
    int rank, ranks;      /* contributors: data ranks, or nodes */
    int slices, slice;    /* INTER: of a node, and this rank's (none from `slices` on) */
    struct tri_link_rate link;
};

/* What a job looks like to compression. */
struct tri_compress_layout {
    int rank, ranks, node, nodes;
    int slices; /* of the exchange in two levels; 0: flat */
    int local_rank;
};

/* What gradient.compress asks for in a job; sgd's momentum is
 * corrected where topk or randk send few elements of it, unless momentum_correction says no.
 * Without a name: no compression. Local. */
struct tri_compress_spec tri_compress_spec_make(const struct tri_gradient_options *gradient,
                                                const struct tri_optimizer_options *optimizer,
                                                uint64_t seed,
                                                const struct tri_compress_layout *layout);

/* The stages of a warm-up (gradient.compress.warmup). Compression that chooses elements keeps 1/4
 * of them in stage 0, 1/16 in stage 1 ... while that is more than its ratio (Lin, Han, Mao, Wang,
 * Dally: "Deep Gradient Compression", ICLR 2018, section 3.4), on the same gradients and with the
 * same states as behind it; other compression has one stage, without any, which leaves its states
 * as they are. 0: no compression is asked for, or the ratio is not below 1/4. Local. */
int tri_compress_stages(const struct tri_compress_spec *spec);
/* Of stage k, 0 <= k < tri_compress_stages(spec). Local. */
struct tri_compress_spec tri_compress_stage(const struct tri_compress_spec *spec, int k);

#define TRI_COMPRESS_MAX_STAGES 6

/* Bytes before and behind compression, and estimated seconds of an exchange without and with it. */
struct tri_compress_estimate {
    int64_t bytes, payload;
    double plain_s, compressed_s;
};

/* The sum can be compressed at all: a gradient in f32, for low rank a matrix that shrinks.
 * Local. */
bool tri_compress_can(const struct tri_graph *g, const struct tri_sum *s,
                      const struct tri_compress_spec *spec);
/* Adds the gradient of s to e; a gradient of count > 0 elements, without low rank. Local. */
void tri_compress_estimate_add(const struct tri_graph *g, const struct tri_sum *s,
                               const struct tri_compress_spec *spec,
                               struct tri_compress_estimate *e);
void tri_compress_estimate_count(const struct tri_compress_spec *spec, int64_t count,
                                 struct tri_compress_estimate *e);
/* A line about compression, where it was asked for. report may be NULL. Local. */
void tri_compress_report(const struct tri_compress_spec *spec,
                         const struct tri_compress_estimate *e, struct tri_text *report);
/* What encoding and decoding need of spec; without stream, offset, stride and shape. Local. */
struct tri_attr_compress tri_compress_attributes(const struct tri_compress_spec *spec);

/* Appends the exchange of the gradients sum[0..n) (indices in g->sum) over the data axis and
 * replaces their values by the sums. Makes the states "compress/<parameter>/residual" and
 * "velocity" (by rank), or for low rank "right" (the same on all ranks). Same on all ranks: all but
 * spec->rank. */
void tri_compress_bucket(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                         const struct tri_compress_spec *spec);
/* The same for the slice [first, first + count) of the flat bucket x of those gradients, which
 * holds the sum of this rank's node: returns x with the sum of all nodes there. A gradient's state
 * is the part of it that lies in the slice. count 0: only makes the states. */
tri_vid tri_compress_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                           tri_vid x, int64_t first, int64_t count,
                           const struct tri_compress_spec *spec);

/* Appends a COMMIT for each state of compression, behind the decision in `scalars`. Local. */
void tri_compress_commit(struct tri_graph *g, tri_vid scalars);

#endif
