/* Passes over graphs that live in runtime/. The ordered list of all is in launch/compile.c. */
#ifndef TRI_RUNTIME_GRAPH_PASSES_H
#define TRI_RUNTIME_GRAPH_PASSES_H

#include "runtime/core/status.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/mesh.h"

TRI_BEGIN_DECLS

/* autodiff: appends backward ops for every parameter that is not frozen, and lists sums: the loss
 * statistics and batch-norm moments (already listed by the builders) stay, gradients are appended
 * in the order in which they become ready. The seed is d(sum of losses) = 1: a loss op's gradient
 * op takes no upstream gradient. Ops run in reverse order of the forward pass; contributions to one
 * value are added in that order, through an op's own acc input where it has one and the gradient so
 * far is nobody else's memory. Each TRI_SUM_GRAD has a value of its own. A parameter that the loss
 * does not depend on is a TRI_ERR_USAGE naming it; an op in the path without gradient a
 * TRI_ERR_UNSUPPORTED. */
tri_status tri_pass_autodiff(struct tri_graph *g) TRI_CHECKED;

/* fuse: SOFTMAX_XENT + its gradient -> SOFTMAX_XENT_FUSED; ADD + LAYERNORM -> LAYERNORM with
 * residual; ADD of two gradients + LAYERNORM_GRAD -> dsum; BATCHNORM + ADD + RELU -> BATCHNORM with
 * residual and relu, also without ADD, also for BATCHNORM_INFER (autodiff then makes the fused
 * gradient). Matmul + bias is written fused by the builders. Runs before autodiff for forward
 * patterns and after it for backward ones: call it at both places, it does what it finds. Each
 * rewrite keeps names and whatever value has another reader. */
tri_status tri_pass_fuse(struct tri_graph *g) TRI_CHECKED;

/* MATMUL + GELU -> MATMUL_GELU, MATMUL + GELU_GRAD -> MATMUL_GELU_GRAD: for a device whose table
 * has these kinds, behind all passes over a grain that make gradients or types. */
tri_status tri_pass_fuse_products(struct tri_graph *g) TRI_CHECKED;

/* MATMUL of dy with another value, summed over dy's rows, + COLUMN_SUM of dy -> MATMUL_BGRAD where
 * the product stood, if the product is f32: for a device whose table has that kind, behind all
 * passes over a step, whose running totals it takes along. */
tri_status tri_pass_fuse_bias_gradients(struct tri_graph *g) TRI_CHECKED;

/* SUMSQ of gradients -> MULTI_SUMSQ; SGD and ADAMW of the same settings, each with the CAST of the
 * updated parameter onto its copy -> MULTI_SGD, MULTI_ADAMW where the first stood: for a device
 * whose table has these kinds, behind all passes over a step. Same results to the bit. */
tri_status tri_pass_fuse_updates(struct tri_graph *g) TRI_CHECKED;

/* pipeline (one stage): lays out this rank's grains in sequence. The result is a step graph: the
 * ops of the grain graph once per local grain (INPUT and OUTPUT values become
 * "<name>.<grain>" with value.grain set, TEMP values are copied, PARAM and STATE shared), and each
 * sum replaced by the rank's total. fixed_tree: totals follow the binary tree that halves [0,
 * grains->total) recursively (this rank's grains are one of its nodes); else a running total, into
 * which a MATMUL, CONV2D_DW, COLUMN_SUM or EMBEDDING_GRAD adds through its acc input. Each addition
 * stands right behind the op that makes its second addend. A training graph (one with TRI_SUM_GRAD)
 * begins with STEP_BEGIN, on the STATE "counters", which is made if the builder made none; the new
 * counters are g->counters and what DROPOUT and ATTENTION read. prediction is that of the rank's
 * first grain. A STATE that a grain updates is read updated by the next. Destroys nothing: the
 * caller keeps `grain`, and the result does not need it. */
tri_status tri_pass_pipeline(const struct tri_graph *grain, const struct tri_grains *grains,
                             bool fixed_tree, struct tri_graph **out) TRI_CHECKED;

/* One fault of debug.inject, as the pass needs it. */
struct tri_injection {
    enum tri_inject_what what;
    int64_t step; /* attempt, from 1 */
    int rank;
    enum tri_phase where;
    const char *parameter; /* NULL: the first one trained */
    int64_t index;         /* element of the value that is hit */
    int64_t grain;         /* of the rank, from 0; < 0: its total (BACKWARD), the first (FORWARD) */
    int bit, ms, code;
};

/* inject: puts INJECT ops into the step graph, only for faults of `rank` whose `where` is the one
 * given. Call it after the pipeline pass with FORWARD, BACKWARD and EXCHANGE in turn, before the
 * exchange pass, and with UPDATE after the update pass. FORWARD hits the first input of the grain's
 * loss op, BACKWARD the named parameter's gradient of that grain, EXCHANGE the rank's total of it,
 * UPDATE the updated parameter. All readers behind the op read the hit value. TRI_ERR_USAGE for an
 * unknown or frozen parameter, a grain that the rank has not or an element outside the value. */
tri_status tri_pass_inject(struct tri_graph *g, const struct tri_injection *faults, int n, int rank,
                           enum tri_phase where) TRI_CHECKED;

TRI_END_DECLS
#endif
