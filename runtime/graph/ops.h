/* The ops: one op is one kernel call or one collective.
 *
 * Notation: B samples of a grain, T positions, C width, V classes or vocabulary, M rows (all
 * leading dims), N columns (last dim). A trailing bracket [..] marks an optional input or output
 * (TRI_NONE when absent). "= x" marks an output that must occupy x's memory, "~ x" one that may.
 * f32 unless said otherwise; bf16 or f16 too where the op table's half_in and half_out say so.
 * Sources of formulas stand with the reference kernels.
 *
 * A grain holds `nreal` real samples first and padding behind; rows of padding have target -100 or
 * lie beyond nreal; they count nothing. */
#ifndef TRI_RUNTIME_GRAPH_OPS_H
#define TRI_RUNTIME_GRAPH_OPS_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"
#include "runtime/graph/shape.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_graph;
struct tri_op;

/* X(KIND, text)
 *  products
 *   MATMUL            a, b, [bias N], [acc] -> y (= acc if given)
 *                       y = op(a) op(b) + bias + acc; a, b as matrices (rows x last dim),
 *                       transposed by attrs.matmul; y keeps a's leading dims when a is not
 *                       transposed
 *   MATMUL_GELU       a, b, [bias N] -> y, [x]
 *                       x = op(a) op(b) + bias, y = gelu(x); made by tri_pass_fuse_products
 *   MATMUL_GELU_GRAD  a, b, x -> dx
 *                       dx = gelu'(x) (op(a) op(b)); made by tri_pass_fuse_products
 *   MATMUL_BGRAD      a, b, [acc], [acc N] -> y f32 (= acc), db [N] (= acc N)
 *                       y = op(a) op(b) + acc; db = column sums of b, not transposed (with
 *                       attrs.matmul.bgrad_a of a, transposed), plus acc: gradients of a weight
 *                       and its bias; made by tri_pass_fuse_bias_gradients
 *   COLUMN_SUM        dy [M,N], [acc N] -> db [N] (= acc)
 *                       gradient of a bias
 *  elementwise
 *   ADD               a, b -> y ~ a
 *                       any float type, same shapes
 *   RELU              x -> y ~ x
 *   RELU_GRAD         dy, y -> dx ~ dy
 *   GELU              x -> y
 *                       tanh form
 *   GELU_GRAD         dy, x -> dx ~ dy
 *   DROPOUT           x, counters -> y ~ x
 *                       its own gradient: same attrs on dy
 *   CAST              x, [old] -> y (= old if given)
 *                       attrs.cast.to; old is not read: y is its new version
 *  norms
 *   LAYERNORM         x, gamma, beta, [residual] -> y, mean [M], rstd [M], [sum]
 *                       sum = x + residual, y = norm(sum)
 *   LAYERNORM_GRAD    dy, x, gamma, mean, rstd, [dsum] -> dx (~ dsum), dgamma, dbeta
 *                       dx = grad of norm + dsum
 *   BATCHNORM         x [B,H,W,C] or [B,C], gamma, beta, nreal i32[1], [residual]
 *                     -> y, mean [C], invstd [C], moments [2C+1]
 *                       y = relu?(norm(x) + residual); statistics over the nreal first samples;
 *                       moments = nreal*mean, nreal*unbiased variance, nreal
 *   BATCHNORM_GRAD    dy, x, gamma, mean, invstd, nreal, [y] -> dx, dgamma, dbeta, [dresidual]
 *                       y present when attrs.norm.relu: dy masked by y > 0
 *   BATCHNORM_INFER   x, gamma, beta, running mean, running var, [residual] -> y
 *   BATCHNORM_RUNNING running mean, running var, moments, scalars -> mean' = mean, var' = var
 *                       nothing moves when the step is skipped
 *  attention (GPT-2 layout: qkv [B,T,3C], heads side by side)
 *   ATTENTION         qkv, [counters] -> out [B,T,C], lse [B,heads,T]
 *                       causal; counters when dropout > 0
 *   ATTENTION_GRAD    dout, qkv, out, lse, [counters] -> dqkv
 *   ATTENTION_CACHED  qkv [B,T,3C], kcache [B,P,C], vcache [B,P,C], offset i32[1]
 *                     -> out [B,T,C], kcache' = kcache, vcache' = vcache
 *                       positions offset .. offset+T-1 are stored, then each attends to all
 *                       positions up to its own
 *  embedding
 *   EMBEDDING         ids i32 [B,T], table [V,C], [positions P,C], [offset i32[1]] -> y [B,T,C]
 *   EMBEDDING_GRAD    ids, dy [B,T,C], [acc V,C] -> dtable [V,C] (= acc)
 *                       attrs.rows
 *   POSITION_GRAD     dy [B,T,C] -> dpositions [P,C]
 *                       attrs.rows; rows beyond T are 0
 *  losses (stats f64[TRI_STATS_COUNT]: sum of losses, number of targets, number right, 0)
 *   SOFTMAX_XENT      logits [M,V], targets i32 [M] -> stats, lse [M]
 *   SOFTMAX_XENT_GRAD logits, targets, lse, [scale f32[1]] -> dlogits ~ logits
 *                       gradient of the SUM of losses, times scale * attrs.loss.unit; rows with
 *                       -100 exactly 0
 *   SOFTMAX_XENT_FUSED logits, targets, [scale] -> stats, dlogits ~ logits
 *                       made by the fuse pass of the two above
 *   MSE               prediction [B,..], target, nreal -> stats
 *                       loss of a sample = mean over its components
 *   MSE_GRAD          prediction, target, nreal, [scale f32[1]] -> dprediction
 *  images (NHWC; filters [O,I,KH,KW])
 *   CONV2D            x [B,H,W,I], w, [bias O] -> y [B,H',W',O]
 *   CONV2D_DX         dy, w -> dx
 *                       attrs.window.h, .w: size of x
 *   CONV2D_DW         x, dy, [acc] -> dw (= acc)
 *   MAXPOOL           x -> y, index u8 (offset in the window)
 *   MAXPOOL_GRAD      dy, index -> dx
 *                       attrs.window.h, .w
 *   AVGPOOL           x [B,H,W,C] -> y [B,C]
 *                       over all positions
 *   AVGPOOL_GRAD      dy [B,C] -> dx
 *                       attrs.window.h, .w
 *  memory
 *   RESHAPE           x -> y = x
 *                       attrs.view.shape
 *   PACK              parts... -> flat [n]
 *                       parts are written in place inside flat, each at a multiple of 64 bytes
 *                       (tri_pack_next); n: to the end of the last
 *   VIEW              flat -> part = flat at attrs.view.offset elements
 *  collectives
 *   ALLREDUCE         x -> y = x
 *                       sum over attrs.comm.axis; with comm.count > 0 of elements [first, first +
 *                       count) alone, the rest stays
 *   REDUCE_SCATTER    x -> y = x
 *                       each rank's slice of x (comm.slices, tri_comm_slice) becomes the sum; the
 *                       rest of y is undefined
 *   ALLGATHER         x -> y = x
 *                       each rank's slice goes to all ranks
 *   GATHER            x [n] -> y [ranks n]
 *                       x of all ranks of attrs.comm.axis, level in rank order
 *  compression (R ranks; g any shape; on the stream of the exchange; runtime/kernels/compress.h)
 *   COMPRESS          g, residual, counters, [velocity] -> payload u8, residual', [velocity']
 *                       attrs.compress; velocity: with momentum correction
 *   DECOMPRESS        gathered u8 [R stride], counters, [flat] -> g (or flat' = flat)
 *                       sum over ranks of the payloads at attrs.compress.offset; with flat: into
 *                       its elements from attrs.compress.first on, the rest stays
 *   LOWRANK_LEFT      g, residual, right [m,r] -> x [n,m], left [n,r]
 *                       x = g + residual as a matrix (first dim x rest), left = x right; with
 *                       attrs.compress.shape: x of that shape, 0 but for the elements of g, which
 *                       lie in it from attrs.compress.offset on
 *   LOWRANK_RIGHT     x, left (summed) -> basis [n,r], right [m,r], residual'
 *                       basis = orthonormal columns of left, right = x^T basis, residual' = x -
 *                       basis right^T; x that is not finite spoils right
 *   LOWRANK_PRODUCT   basis, right (summed), [flat] -> g (or flat' = flat)
 *                       basis right^T, its elements from attrs.compress.offset on; with flat: as
 *                       DECOMPRESS
 *   COMMIT            state, new, scalars -> state' = state
 *                       the elements of new from attrs.view.offset on when the step is applied,
 *                       else as it was; either times the change of the loss scale, which the
 *                       states of compression have in them
 *  step
 *   STEP_BEGIN        counters -> counters' = counters
 *                       step + 1
 *   SUMSQ             g -> f64[1]
 *                       sum of squares over blocks of TRI_SUM_BLOCK, added in a fixed order of the
 *                       device; non-finite in, non-finite out
 *   CONTROL           stats, counters', sumsq..., [loss scale f32[1], with attrs.control.scaled]
 *                     -> scalars
 *                       joint finite check, norm, clip, rate (attrs.control)
 *   SGD               w, g, [momentum], scalars -> w' = w, [momentum' = momentum]
 *   ADAMW             w, g, m, v, scalars -> w' = w, m' = m, v' = v
 *  the same for several tensors, as a device likes it (tri_pass_fuse_updates)
 *   MULTI_SUMSQ       g... -> f64[number of g]
 *                       at most TRI_MULTI_SUMS
 *   MULTI_SGD         scalars, w..., g..., [momentum...], [copy...]
 *                     -> w'... = w, [momentum'... = momentum], [copy'... = copy]
 *   MULTI_ADAMW       scalars, w..., g..., m..., v..., [copy...]
 *                     -> w'... = w, m'... = m, v'... = v, [copy'... = copy]
 *                       attrs.optimizer.tensors of each, at most TRI_MULTI; copy': w' in bf16 or
 *                       f16, which stays as it is in a step that is skipped
 *   STEP_END          counters', scalars -> counters'' = counters'
 *   SCALE_END         loss scale f32[1], scalars -> scale' = scale
 *  faults on purpose (debug.inject)
 *   INJECT            x, counters -> x' = x
 *                       attrs.inject
 */
#define TRI_OP_LIST(X)                                                                             \
    X(MATMUL, "matmul")                                                                            \
    X(MATMUL_GELU, "matmul_gelu")                                                                  \
    X(MATMUL_GELU_GRAD, "matmul_gelu_grad")                                                        \
    X(MATMUL_BGRAD, "matmul_bgrad")                                                                \
    X(COLUMN_SUM, "column_sum")                                                                    \
    X(ADD, "add")                                                                                  \
    X(RELU, "relu")                                                                                \
    X(RELU_GRAD, "relu_grad")                                                                      \
    X(GELU, "gelu")                                                                                \
    X(GELU_GRAD, "gelu_grad")                                                                      \
    X(DROPOUT, "dropout")                                                                          \
    X(CAST, "cast")                                                                                \
    X(LAYERNORM, "layernorm")                                                                      \
    X(LAYERNORM_GRAD, "layernorm_grad")                                                            \
    X(BATCHNORM, "batchnorm")                                                                      \
    X(BATCHNORM_GRAD, "batchnorm_grad")                                                            \
    X(BATCHNORM_INFER, "batchnorm_infer")                                                          \
    X(BATCHNORM_RUNNING, "batchnorm_running")                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(ATTENTION_GRAD, "attention_grad")                                                            \
    X(ATTENTION_CACHED, "attention_cached")                                                        \
    X(EMBEDDING, "embedding")                                                                      \
    X(EMBEDDING_GRAD, "embedding_grad")                                                            \
    X(POSITION_GRAD, "position_grad")                                                              \
    X(SOFTMAX_XENT, "softmax_xent")                                                                \
    X(SOFTMAX_XENT_GRAD, "softmax_xent_grad")                                                      \
    X(SOFTMAX_XENT_FUSED, "softmax_xent_fused")                                                    \
    X(MSE, "mse")                                                                                  \
    X(MSE_GRAD, "mse_grad")                                                                        \
    X(CONV2D, "conv2d")                                                                            \
    X(CONV2D_DX, "conv2d_dx")                                                                      \
    X(CONV2D_DW, "conv2d_dw")                                                                      \
    X(MAXPOOL, "maxpool")                                                                          \
    X(MAXPOOL_GRAD, "maxpool_grad")                                                                \
    X(AVGPOOL, "avgpool")                                                                          \
    X(AVGPOOL_GRAD, "avgpool_grad")                                                                \
    X(RESHAPE, "reshape")                                                                          \
    X(PACK, "pack")                                                                                \
    X(VIEW, "view")                                                                                \
    X(ALLREDUCE, "allreduce")                                                                      \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALLGATHER, "allgather")                                                                      \
    X(GATHER, "gather")                                                                            \
    X(COMPRESS, "compress")                                                                        \
    X(DECOMPRESS, "decompress")                                                                    \
    X(LOWRANK_LEFT, "lowrank_left")                                                                \
    X(LOWRANK_RIGHT, "lowrank_right")                                                              \
    X(LOWRANK_PRODUCT, "lowrank_product")                                                          \
    X(COMMIT, "commit")                                                                            \
    X(STEP_BEGIN, "step_begin")                                                                    \
    X(SUMSQ, "sumsq")                                                                              \
    X(CONTROL, "control")                                                                          \
    X(SGD, "sgd")                                                                                  \
    X(ADAMW, "adamw")                                                                              \
    X(MULTI_SUMSQ, "multi_sumsq")                                                                  \
    X(MULTI_SGD, "multi_sgd")                                                                      \
    X(MULTI_ADAMW, "multi_adamw")                                                                  \
    X(STEP_END, "step_end")                                                                        \
    X(SCALE_END, "scale_end")                                                                      \
    X(INJECT, "inject")

enum tri_op_kind {
#define X(kind, text) TRI_OP_##kind,
    TRI_OP_LIST(X)
#undef X
        TRI_OP_COUNT
};

/* Where in a step an op belongs: for traces, `plan` and debug.inject. */
enum tri_phase {
    TRI_PHASE_FORWARD,
    TRI_PHASE_BACKWARD,
    TRI_PHASE_EXCHANGE,
    TRI_PHASE_UPDATE,
    TRI_PHASE_COUNT
};

#define TRI_IGNORE_TARGET (-100)
#define TRI_SUM_BLOCK     4096 /* elements of a block of SUMSQ */
#define TRI_MULTI_SUMS    32   /* tensors of a MULTI_SUMSQ */
#define TRI_MULTI         8    /* parameters of a MULTI_SGD or MULTI_ADAMW, of 4 outputs at most */
#define TRI_MULTI_OUTPUTS (4 * TRI_MULTI)
#define TRI_PACK_BYTES    64 /* each part of a PACK starts at a multiple of this */

/* Floating-point operations of one element; the tanh counts as one. */
#define TRI_FLOPS_GELU      9.0
#define TRI_FLOPS_GELU_GRAD 16.0

/* f64 statistics of a loss op, summed over grains and ranks. */
enum tri_stats_index {
    TRI_STATS_LOSS,
    TRI_STATS_TARGETS,
    TRI_STATS_RIGHT,
    TRI_STATS_UNUSED,
    TRI_STATS_COUNT
};

/* i64 counters of a run (STATE "counters"). */
enum tri_counter_index {
    TRI_COUNTER_STEP,     /* attempts begun */
    TRI_COUNTER_UPDATES,  /* applied steps */
    TRI_COUNTER_SKIPPED,  /* skipped steps in all */
    TRI_COUNTER_SKIP_RUN, /* skipped steps in a row */
    TRI_COUNTER_GOOD_RUN, /* applied steps since the loss scale last changed */
    TRI_COUNTER_COUNT = 8
};

/* f64 results of CONTROL (OUTPUT "scalars"): what the optimizer ops and the host read. */
enum tri_scalar_index {
    TRI_SCALAR_FINITE,     /* 1: apply, 0: skip this step */
    TRI_SCALAR_GRAD_SCALE, /* what a summed gradient is multiplied with: clip factor / (targets *
                              loss scale) */
    TRI_SCALAR_GRAD_NORM,  /* of the mean gradient, before clipping */
    TRI_SCALAR_LR_FACTOR, /* schedule's factor for this update; rate of a group = its lr * factor */
    TRI_SCALAR_BIAS1,     /* 1 - beta1^u, 1 - beta2^u for update u */
    TRI_SCALAR_BIAS2,
    TRI_SCALAR_LOSS,    /* mean over targets */
    TRI_SCALAR_TARGETS, /* number of them */
    TRI_SCALAR_RIGHT,
    TRI_SCALAR_STEP, /* counters after this step */
    TRI_SCALAR_UPDATES,
    TRI_SCALAR_SKIP_RUN,
    TRI_SCALAR_LOSS_SCALE,   /* of the next step; 1 without a scaler */
    TRI_SCALAR_GOOD_RUN,     /* counter after this step */
    TRI_SCALAR_SCALE_CHANGE, /* loss scale of the next step / that of this one - 1 */
    TRI_SCALAR_SCALE_STUCK,  /* 1: skipped, and the loss scale is at its floor */
    TRI_SCALAR_COUNT = 16
};

enum tri_axis {
    TRI_AXIS_DATA,
    TRI_AXIS_TENSOR,
    TRI_AXIS_PIPELINE,
    TRI_AXIS_CONTEXT,
    TRI_AXIS_EXPERT,
    TRI_AXIS_COUNT
};

/* Which ranks of an axis take part: all, those of this rank's node, or those of its local rank on
 * all nodes. */
enum tri_level { TRI_LEVEL_ALL, TRI_LEVEL_INTRA, TRI_LEVEL_INTER, TRI_LEVEL_COUNT };

enum tri_schedule_kind {
    TRI_SCHEDULE_CONSTANT,
    TRI_SCHEDULE_LINEAR,
    TRI_SCHEDULE_COSINE,
    TRI_SCHEDULE_STEP
};
#define TRI_MAX_MILESTONES 16

/* Learning-rate schedule and joint decision of a step (optim/schedule.h gives the formulas). */
struct tri_control {
    enum tri_schedule_kind schedule;
    int64_t warmup; /* updates */
    int64_t total;  /* last planned step */
    double final;   /* fraction of lr at `total` */
    double gamma;   /* STEP: factor at each milestone */
    int64_t milestone[TRI_MAX_MILESTONES];
    int nmilestone;
    double clip_norm;    /* 0: no clipping */
    double beta1, beta2; /* for the bias corrections */
    bool scaled;         /* the last input is the loss scale; the rest is its rule */
    double scale_unit;   /* gradients come multiplied by loss scale * scale_unit */
    double scale_factor, scale_floor;
    int64_t scale_interval; /* applied steps before it grows */
};

enum tri_inject_what {
    TRI_INJECT_INF,
    TRI_INJECT_NAN,
    TRI_INJECT_FLIP,
    TRI_INJECT_KILL,
    TRI_INJECT_STOP,
    TRI_INJECT_SLEEP,
    TRI_INJECT_EXIT,
    TRI_INJECT_SEGV
};

/* Attributes of the families of ops. `stream` is tri_hash_name of a build-time name: with `seed` it
 * keys the op's randomness. */
struct tri_attr_matmul {
    bool ta, tb;  /* a, b transposed */
    bool wide;    /* y is f32 whatever a and b are: the gradient of a weight */
    bool tf32;    /* f32 operands may be rounded to 10 bits of fraction (where the device gains) */
    bool bgrad_a; /* MATMUL_BGRAD: db sums a, else b */
};
struct tri_attr_loss {
    double unit; /* a gradient is multiplied by scale * unit where the scale is given, else by 1 */
};
struct tri_attr_dropout {
    double p; /* probability of a zero */
    uint64_t stream, seed;
};
struct tri_attr_norm {
    double eps;
    double momentum; /* BATCHNORM_RUNNING: weight of the new moments */
    bool relu;       /* batch norms: y = max(0, .) */
};
struct tri_attr_attention {
    int64_t heads;
    bool causal;
    double p; /* dropout of the weights */
    uint64_t stream, seed;
};
struct tri_attr_window {
    int64_t kh, kw, stride, pad;
    int64_t h, w; /* gradients: size of x */
    bool tf32;    /* convolutions: as in matmul */
};
struct tri_attr_view {
    int64_t offset; /* VIEW, COMMIT: elements from the start of the input */
    struct tri_shape shape;
};
struct tri_attr_comm {
    enum tri_axis axis;
    enum tri_level level;
    bool fixed_tree;      /* sum by the binary tree over rank order */
    int slices;           /* REDUCE_SCATTER, ALLGATHER: ranks that own one */
    int64_t first, count; /* ALLREDUCE: elements; count 0: all */
    int ranks;            /* GATHER: of the axis and level */
};
struct tri_compressor; /* runtime/kernels/compress.h */
struct tri_attr_compress {
    const struct tri_compressor *method;
    enum tri_level level;  /* between whose ranks: the stream */
    uint64_t seed, stream; /* stream: tri_hash_name of the parameter's name */
    double ratio;          /* sparse compressors: fraction of the elements that is sent */
    double momentum;       /* of the correction */
    bool nesterov;
    int rank, ranks;        /* this contributor, number of them */
    int64_t offset, stride; /* DECOMPRESS: payload r starts at byte r stride + offset;
                               LOWRANK_LEFT, LOWRANK_PRODUCT: elements of the matrix before g */
    int64_t first;          /* DECOMPRESS, LOWRANK_PRODUCT: place in flat */
    struct tri_shape shape; /* DECOMPRESS, LOWRANK_PRODUCT: of g; LOWRANK_LEFT: of x */
};
struct tri_attr_optimizer {
    double lr, weight_decay, momentum, beta1, beta2, eps;
    bool nesterov;
    bool copies; /* MULTI_SGD, MULTI_ADAMW: with a copy of each parameter */
    int tensors; /* MULTI_SGD, MULTI_ADAMW: number of parameters */
};
struct tri_attr_inject {
    enum tri_inject_what what;
    int64_t step, index;
    int bit;
    int ms, code;
};

/* One member per family of ops; ops without attributes leave it zero. Compared bytewise to share
 * prepared kernels: always start from {0}. */
struct tri_attrs {
    union {
        struct tri_attr_matmul matmul;
        struct tri_attr_loss loss; /* SOFTMAX_XENT_GRAD, _FUSED, MSE_GRAD */
        struct tri_attr_dropout dropout;
        struct tri_attr_norm norm;
        struct tri_attr_attention attention;
        struct tri_attr_window window;
        struct tri_attr_view view; /* VIEW; RESHAPE uses shape alone */
        struct tri_attr_comm comm;
        struct tri_attr_optimizer optimizer;
        struct tri_attr_inject inject;
        struct tri_attr_compress compress;
        struct tri_control control;
        struct {
            enum tri_dtype to;
        } cast;
        int64_t rows; /* EMBEDDING_GRAD: V; POSITION_GRAD: P */
    };
};

enum tri_alias { TRI_ALIAS_NO, TRI_ALIAS_MAY, TRI_ALIAS_MUST };

/* What the passes know of an op kind. One row a kind, in the file of its family (ops_*.c). */
struct tri_op_info {
    const char *name;
    int min_in, max_in;   /* max_in < 0: any number */
    uint32_t optional_in; /* bit i: input i may be TRI_NONE */
    int nout;
    uint32_t optional_out; /* bit o: output o may be TRI_NONE */
    bool side_effect;      /* never pruned */
    bool no_kernel;        /* moves no data: RESHAPE, PACK, VIEW */
    bool comm;             /* a collective, run by the engine */
    bool beside_comm;      /* a kernel run by the engine, on one thread, between collectives */
    int acc_in;            /* input that output 0 adds onto in place where it is given; 0: none */
    /* Bit i: input i may be bf16 or f16; all such inputs of an op share one type. Bit o: output o
     * has that type too (MATMUL: unless wide); all other floats are f32. */
    uint32_t half_in, half_out;
    uint32_t diff_out; /* bit o: a gradient flows through output o, else it is a constant */
    /* Checks the inputs and sets dtype and shape of each output. Writes the message (op, input,
     * what it needs) on failure. Mandatory. out_dtype, out_shape have nout entries; ndim < 0: an
     * optional output that does not exist for these inputs. */
    tri_status (*infer)(const struct tri_graph *g, const struct tri_op *op,
                        enum tri_dtype *out_dtype, struct tri_shape *out_shape);
    /* Appends backward ops. dout[o]: gradient of output o or TRI_NONE; din[i]: set to the gradient
     * of input i where need[i], else left TRI_NONE. NULL: the op has no gradient (its float inputs
     * must not need one). acc[i]: a gradient of input i that already exists and whose memory the op
     * may take over through its own acc input (then din[i] is the sum and *acc_used bit i is set),
     * else TRI_NONE. A loss op (the producer of loss_stats) is called without upstream gradient.
     * din[i] may differ from the input in shape, not in size. */
    tri_status (*grad)(struct tri_graph *g, int32_t op, const int32_t *dout, const bool *need,
                       const int32_t *acc, int32_t *din, uint32_t *acc_used);
    /* Floating-point operations of one run (multiply-add = 2). NULL: one per output element. */
    double (*flops)(const struct tri_graph *g, const struct tri_op *op);
    /* Which input output o may or must share memory with. NULL: none. VIEW: at the attribute's
     * offset. PACK: all inputs lie in the output, the first (which is reported) at offset 0, the
     * others at tri_pack_next. */
    enum tri_alias (*alias)(const struct tri_graph *g, const struct tri_op *op, int o, int *input);
};

/* First element at or behind element `at` where the next part of a PACK may start. */
static inline int64_t tri_pack_next(int64_t at, enum tri_dtype dtype)
{
    int64_t unit = TRI_PACK_BYTES / (int64_t)tri_dtype_bytes(dtype);

    return (at + unit - 1) / unit * unit;
}

/* Row of a kind. Never NULL for a kind below TRI_OP_COUNT. */
const struct tri_op_info *tri_op_info(enum tri_op_kind kind);
const char *tri_op_name(enum tri_op_kind kind);
const char *tri_phase_name(enum tri_phase phase);

TRI_END_DECLS
#endif
