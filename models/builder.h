/* Layers: functions that append forward ops to a graph and name their parameters. No layer holds
 * backward code.
 *
 * A model is a function that calls these in order and ends with a loss. Shapes are those of one
 * grain: B samples. Errors are sticky: after the first one all calls return TRI_NONE and
 * tri_graph_status(b->graph) tells it. A parameter is created at the first use of its name; a
 * second use under the same name shares it (tied weights).
 *
 *     tri_vid x = tri_input(b, "x", TRI_F32, TRI_SHAPE(B, 784));
 *     tri_vid h = tri_relu(b, tri_linear(b, x, "layers.0", 256));
 *     tri_vid labels = tri_input(b, "labels", TRI_I32, TRI_SHAPE(B));
 *     tri_loss_softmax(b, tri_linear(b, h, "layers.1", 10), labels);
 *
 * The names of inputs tell the loader what to fill: "tokens" i32 [B,T], "targets" i32 [B,T]; "x"
 * f32 [B,...] (images [B,H,W,C]), "labels" i32 [B], "y" f32 [B,...]; "nreal" i32 [1]: how many of
 * the B samples are real. */
#ifndef TRI_MODELS_BUILDER_H
#define TRI_MODELS_BUILDER_H

#include "runtime/core/status.h"
#include "runtime/graph/graph.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_builder {
    struct tri_graph *graph; /* borrowed */
    bool training;           /* dropout acts, batch norm takes its own statistics */
    uint64_t seed;           /* of dropout */
};

#define TRI_SHAPE(...)                                                                             \
    tri_shape_list((const int64_t[]){__VA_ARGS__},                                                 \
                   sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
struct tri_shape tri_shape_list(const int64_t *dim, size_t n);

/* printf into the graph's pool: a name that lives as long as the graph. */
const char *tri_name(struct tri_builder *b, const char *fmt, ...) TRI_PRINTF(2, 3);

/* The input of that name, created at its first use. */
tri_vid tri_input(struct tri_builder *b, const char *name, enum tri_dtype dtype,
                  struct tri_shape shape);
/* The parameter of that name, created at its first use; a second use must give the same shape. */
tri_vid tri_param(struct tri_builder *b, const char *name, struct tri_shape shape,
                  struct tri_init init);

/* y [..., out] = x [..., in] W^T + c. Parameters <name>.weight [out, in] and <name>.bias [out],
 * both uniform in +-1/sqrt(in), as torch.nn.Linear starts. */
tri_vid tri_linear(struct tri_builder *b, tri_vid x, const char *name, int64_t out);
/* y [..., out] = x [..., in] W + c in GPT-2's layout: <name>.weight [in, out] normal(0, std),
 * <name>.bias [out] zero. */
tri_vid tri_linear_conv1d(struct tri_builder *b, tri_vid x, const char *name, int64_t out,
                          float std);
/* logits [..., V] = x [..., C] table^T: a head that shares the table of an embedding. */
tri_vid tri_linear_tied(struct tri_builder *b, tri_vid x, const char *name, tri_vid table);

/* Over the last dim C: <name>.weight (ones) and <name>.bias (zeros) [C]. eps 1e-5. */
tri_vid tri_layernorm(struct tri_builder *b, tri_vid x, const char *name);
/* x [B,H,W,C] or [B,C]: <name>.weight, <name>.bias [C] and the states <name>.running_mean,
 * <name>.running_var. Training: statistics of the grain's real samples; they move the running ones
 * once a step (momentum 0.1). Evaluation: the running ones. eps 1e-5. */
tri_vid tri_batchnorm(struct tri_builder *b, tri_vid x, const char *name);

/* x [B,H,W,I] -> [B,H',W',O], square window and stride, symmetric zero padding. <name>.weight
 * [O,I,k,k], normal(0, sqrt(2 / (k k O))): He et al. 2015, fan out. */
tri_vid tri_conv2d(struct tri_builder *b, tri_vid x, const char *name, int64_t out, int64_t k,
                   int64_t stride, int64_t pad);
tri_vid tri_maxpool(struct tri_builder *b, tri_vid x, int64_t k, int64_t stride, int64_t pad);
/* Mean over all positions: [B,H,W,C] -> [B,C]. */
tri_vid tri_avgpool(struct tri_builder *b, tri_vid x);

tri_vid tri_relu(struct tri_builder *b, tri_vid x);
tri_vid tri_gelu(struct tri_builder *b, tri_vid x);
tri_vid tri_add(struct tri_builder *b, tri_vid x, tri_vid y);
/* Keeps an element with probability 1 - p and scales it by 1/(1-p); x itself in evaluation or when
 * p is 0. `name` keys the randomness. */
tri_vid tri_dropout(struct tri_builder *b, tri_vid x, const char *name, double p);
tri_vid tri_reshape(struct tri_builder *b, tri_vid x, struct tri_shape shape);
/* x with all dims but the first in one: [B, n]. */
tri_vid tri_flatten(struct tri_builder *b, tri_vid x);

/* ids [B,T] -> [B,T,C]: row of table plus row t of positions (TRI_NONE: none); offset (i32 [1] or
 * TRI_NONE) shifts t. */
tri_vid tri_embedding(struct tri_builder *b, tri_vid ids, tri_vid table, tri_vid positions,
                      tri_vid offset);
/* Causal multi-head self-attention on qkv [B,T,3C] -> [B,T,C]; dropout p on
 * the attention weights. */
tri_vid tri_attention(struct tri_builder *b, tri_vid qkv, const char *name, int64_t heads,
                      double p);

/* Losses end the model: statistics become a sum over grains and ranks, the prediction can be read.
 * logits [..., V], targets i32 of V's leading dims. */
void tri_loss_softmax(struct tri_builder *b, tri_vid logits, tri_vid targets);
/* Squared error: mean over the components of a sample, mean over samples. */
void tri_loss_mse(struct tri_builder *b, tri_vid prediction, tri_vid y);

TRI_END_DECLS
#endif
