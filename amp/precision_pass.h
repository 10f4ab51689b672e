/* The precision pass: 16-bit activations and weights, f32 gradients of weights, loss scale. */
#ifndef TRI_AMP_PRECISION_PASS_H
#define TRI_AMP_PRECISION_PASS_H

#include "runtime/core/status.h"
#include "runtime/graph/graph.h"

TRI_BEGIN_DECLS

struct tri_precision_spec {
    enum tri_dtype compute;       /* TRI_BF16 or TRI_F16; TRI_F32: no type changes */
    bool tf32;                    /* with TRI_F32: products may round their operands to 10 bits */
    const char *const *keep_fp32; /* patterns of names of layers and parameters; borrowed */
    int nkeep;
    double initial_scale; /* first loss scale; 0: none */
    int64_t grains;       /* of a step, over all ranks */
};

#define TRI_LOSS_SCALE_STATE "loss_scale" /* f32[1] */
#define TRI_HALF_PREFIX      "half/"      /* 16-bit copy of parameter p: STATE "half/p" */

/* Runs over a grain's graph behind autodiff (a gradient op bears the name of its layer, so that
 * keep_fp32 takes both) and before the second fuse. By policy it
 *   - gives the values between ops the type `compute`, with a CAST where an f32 op and a 16-bit op
 *     meet (an input of the model is rounded once a grain);
 *   - puts a transient STATE, the 16-bit copy, in the place of each PARAM that a 16-bit op reads.
 *     The update pass writes it once a step and tri_precision_round at the start; the PARAM stays
 *     the f32 master. Gains and biases are read from the master: they are f32 inside their ops;
 *   - makes every gradient of a parameter f32, summed in f32 from 16-bit operands, so that running
 *     sums, exchange and update never see a 16-bit gradient;
 *   - with a loss scale, makes the STATE "loss_scale" an input of the loss's gradient. There the
 *     gradient is multiplied by scale / 2^ceil(log2 targets), targets being those of a full step:
 *     what the scale is a factor of is the mean loss to within 2, as in PyTorch, and the power of
 *     two costs no bit.
 * With tf32 nothing changes but the attribute of products and convolutions that are not kept.
 * A pattern that takes nothing is a TRI_ERR_USAGE naming it. Local. */
tri_status tri_pass_precision(struct tri_graph *g,
                              const struct tri_precision_spec *spec) TRI_CHECKED;

/* The power of two of the above in a graph with a loss scale; 1 without. Local. */
double tri_precision_unit(const struct tri_graph *g);
/* 16-bit copy of parameter v in g, or TRI_NONE. Local. */
tri_vid tri_precision_copy_of(const struct tri_graph *g, tri_vid v);
/* No op that reads parameter v of g, or v's copy, computes in 16 bit. Local. */
bool tri_precision_keeps(const struct tri_graph *g, tri_vid v);
/* count elements of f32 rounded to `type` (bf16 or f16). Local. */
void tri_precision_round(enum tri_dtype type, const float *from, void *to, int64_t count);

TRI_END_DECLS
#endif
