/* What happens once a step: counters, collectives, the joint decision, optimizers; and faults on
 * purpose. */
#include "runtime/graph/ops_check.h"

static tri_status infer_collective(const struct tri_graph *g, const struct tri_op *op,
                                   enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_comm *c = &op->attrs.comm;
    int64_t n = tri_shape_count(tri_op_shape(g, op, 0));

    if ((unsigned)c->axis >= TRI_AXIS_COUNT)
        return tri_op_refuse_attr(op, "unknown axis %d", (int)c->axis);
    if ((unsigned)c->level >= TRI_LEVEL_COUNT)
        return tri_op_refuse_attr(op, "unknown level %d", (int)c->level);
    if (op->kind != TRI_OP_ALLREDUCE && c->slices < 1)
        return tri_op_refuse_attr(op, "%d slices", c->slices);
    if (c->first < 0 || c->count < 0 || c->first + c->count > n)
        return tri_op_refuse_attr(op, "elements beyond %lld", (long long)n);
    if (!tri_dtype_is_float(tri_op_in(g, op, 0)->dtype))
        return tri_op_refuse(g, op, 0, "a floating-point type");
    return tri_infer_like_first(g, op, dtype, shape);
}

#define COLLECTIVE(KIND, text)                                                                     \
    const struct tri_op_info tri_op_row_##KIND = {.name = text,                                    \
                                                  .min_in = 1,                                     \
                                                  .max_in = 1,                                     \
                                                  .nout = 1,                                       \
                                                  .comm = true,                                    \
                                                  .infer = infer_collective,                       \
                                                  .alias = tri_alias_must_first};
COLLECTIVE(ALLREDUCE, "allreduce")
COLLECTIVE(REDUCE_SCATTER, "reduce_scatter")
COLLECTIVE(ALLGATHER, "allgather")
#undef COLLECTIVE

/* x -> y, all ranks' x in rank order */
static tri_status infer_gather(const struct tri_graph *g, const struct tri_op *op,
                               enum tri_dtype *dtype, struct tri_shape *shape)
{
    if ((unsigned)op->attrs.comm.axis >= TRI_AXIS_COUNT || op->attrs.comm.ranks < 1)
        return tri_op_refuse_attr(op, "axis %d of %d ranks", (int)op->attrs.comm.axis,
                                  op->attrs.comm.ranks);
    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_in(g, op, 0)->dtype, 1));
    dtype[0] = tri_op_in(g, op, 0)->dtype;
    shape[0] = tri_shape_1(tri_op_shape(g, op, 0)->dim[0] * op->attrs.comm.ranks);
    return TRI_OK;
}

const struct tri_op_info tri_op_row_GATHER = {
    .name = "gather", .min_in = 1, .max_in = 1, .nout = 1, .comm = true, .infer = infer_gather};

static double flops_none(const struct tri_graph *g, const struct tri_op *op)
{
    (void)g;
    (void)op;
    return 0;
}

static tri_status infer_counters(const struct tri_graph *g, const struct tri_op *op,
                                 enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_I64, TRI_COUNTER_COUNT));
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_F64, TRI_SCALAR_COUNT));
    return tri_infer_like_first(g, op, dtype, shape);
}

const struct tri_op_info tri_op_row_STEP_BEGIN = {.name = "step_begin",
                                                  .min_in = 1,
                                                  .max_in = 1,
                                                  .nout = 1,
                                                  .side_effect = true,
                                                  .infer = infer_counters,
                                                  .flops = flops_none,
                                                  .alias = tri_alias_must_first};

const struct tri_op_info tri_op_row_STEP_END = {.name = "step_end",
                                                .min_in = 2,
                                                .max_in = 2,
                                                .nout = 1,
                                                .side_effect = true,
                                                .infer = infer_counters,
                                                .flops = flops_none,
                                                .alias = tri_alias_must_first};

/* scale, scalars -> scale' */
static tri_status infer_scale_end(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_F32, 1));
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_F64, TRI_SCALAR_COUNT));
    return tri_infer_like_first(g, op, dtype, shape);
}

const struct tri_op_info tri_op_row_SCALE_END = {.name = "scale_end",
                                                 .min_in = 2,
                                                 .max_in = 2,
                                                 .nout = 1,
                                                 .side_effect = true,
                                                 .infer = infer_scale_end,
                                                 .flops = flops_none,
                                                 .alias = tri_alias_must_first};

static tri_status infer_sumsq(const struct tri_graph *g, const struct tri_op *op,
                              enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_dtype(g, op, 0, TRI_F32));
    dtype[0] = TRI_F64;
    shape[0] = tri_shape_1(1);
    return TRI_OK;
}

static double flops_sumsq(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2);
}

const struct tri_op_info tri_op_row_SUMSQ = {.name = "sumsq",
                                             .min_in = 1,
                                             .max_in = 1,
                                             .nout = 1,
                                             .infer = infer_sumsq,
                                             .flops = flops_sumsq};

/* stats, counters', sumsq..., [scale] -> scalars */
static tri_status infer_control(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_F64, TRI_STATS_COUNT));
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_I64, TRI_COUNTER_COUNT));
    for (int i = 2; i < op->nin - op->attrs.control.scaled; i++)
        TRI_TRY(tri_op_need_vector(g, op, i, TRI_F64, 1));
    if (op->attrs.control.scaled)
        TRI_TRY(tri_op_need_vector(g, op, op->nin - 1, TRI_F32, 1));
    dtype[0] = TRI_F64;
    shape[0] = tri_shape_1(TRI_SCALAR_COUNT);
    return TRI_OK;
}

const struct tri_op_info tri_op_row_CONTROL = {.name = "control",
                                               .min_in = 2,
                                               .max_in = -1,
                                               .nout = 1,
                                               .infer = infer_control,
                                               .flops = flops_none};

/* All tensors, inputs 0 .. scalars-1, have the parameter's shape; outputs 0 .. nout-1 too. */
static tri_status infer_optimizer(const struct tri_graph *g, const struct tri_op *op, int scalars,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *w = tri_op_shape(g, op, 0);

    for (int i = 0; i < scalars; i++)
        TRI_TRY(tri_op_need_shape(g, op, i, TRI_F32, w));
    TRI_TRY(tri_op_need_vector(g, op, scalars, TRI_F64, TRI_SCALAR_COUNT));
    for (int o = 0; o < op->nout; o++) {
        dtype[o] = TRI_F32;
        shape[o] = *w;
    }
    return TRI_OK;
}

/* w, g, [momentum], scalars -> w', [momentum'] */
static tri_status infer_sgd(const struct tri_graph *g, const struct tri_op *op,
                            enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(infer_optimizer(g, op, 3, dtype, shape));
    if (!tri_op_has(op, 2))
        shape[1].ndim = -1;
    return TRI_OK;
}

static double flops_sgd(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, tri_op_has(op, 2) ? 7 : 5);
}

/* Outputs 1, 2 are the updated inputs 2, 3; output 0 the updated parameter. */
static enum tri_alias alias_optimizer(const struct tri_graph *g, const struct tri_op *op, int o,
                                      int *input)
{
    (void)g;
    (void)op;
    *input = o == 0 ? 0 : o + 1;
    return TRI_ALIAS_MUST;
}

const struct tri_op_info tri_op_row_SGD = {.name = "sgd",
                                           .min_in = 4,
                                           .max_in = 4,
                                           .optional_in = 1u << 2,
                                           .nout = 2,
                                           .optional_out = 1u << 1,
                                           .side_effect = true,
                                           .infer = infer_sgd,
                                           .flops = flops_sgd,
                                           .alias = alias_optimizer};

/* w, g, m, v, scalars -> w', m', v' */
static tri_status infer_adamw(const struct tri_graph *g, const struct tri_op *op,
                              enum tri_dtype *dtype, struct tri_shape *shape)
{
    return infer_optimizer(g, op, 4, dtype, shape);
}

static double flops_adamw(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 16);
}

const struct tri_op_info tri_op_row_ADAMW = {.name = "adamw",
                                             .min_in = 5,
                                             .max_in = 5,
                                             .nout = 3,
                                             .side_effect = true,
                                             .infer = infer_adamw,
                                             .flops = flops_adamw,
                                             .alias = alias_optimizer};

/* g... -> f64[number of g] */
static tri_status infer_multi_sumsq(const struct tri_graph *g, const struct tri_op *op,
                                    enum tri_dtype *dtype, struct tri_shape *shape)
{
    if (op->nin > TRI_MULTI_SUMS)
        return tri_op_refuse_attr(op, "%d tensors", op->nin);
    for (int i = 0; i < op->nin; i++)
        TRI_TRY(tri_op_need_dtype(g, op, i, TRI_F32));
    dtype[0] = TRI_F64;
    shape[0] = tri_shape_1(op->nin);
    return TRI_OK;
}

static double flops_multi(const struct tri_graph *g, const struct tri_op *op, int first, int end,
                          double each)
{
    double sum = 0;

    for (int i = first; i < end; i++)
        sum += each * (double)tri_shape_count(tri_op_shape(g, op, i));
    return sum;
}

static double flops_multi_sumsq(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_multi(g, op, 0, op->nin, 2);
}

const struct tri_op_info tri_op_row_MULTI_SUMSQ = {.name = "multi_sumsq",
                                                   .min_in = 1,
                                                   .max_in = -1,
                                                   .nout = 1,
                                                   .infer = infer_multi_sumsq,
                                                   .flops = flops_multi_sumsq};

/* Kind of tensor (w, g, momentum or m, v, copy) that output `o` of a MULTI_SGD or MULTI_ADAMW has:
 * all but the gradient. */
static int multi_kind(const struct tri_op *op, int o)
{
    int kind = o / op->attrs.optimizer.tensors;

    return kind == 0 ? 0 : kind + 1;
}

/* scalars, then each kind of tensor `tensors` times */
static tri_status infer_multi(const struct tri_graph *g, const struct tri_op *op, int least,
                              int most, enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_optimizer *a = &op->attrs.optimizer;
    int n = a->tensors, kinds = n > 0 ? (op->nin - 1) / n : 0;

    if (n < 1 || n > TRI_MULTI || op->nin != 1 + kinds * n || kinds < least + a->copies ||
        kinds > most + a->copies)
        return tri_op_refuse_attr(op, "%d inputs for %d parameters", op->nin, n);
    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_F64, TRI_SCALAR_COUNT));
    for (int i = 0; i < kinds * n; i++) {
        bool copy = a->copies && i / n == kinds - 1;
        enum tri_dtype t = copy ? tri_op_in(g, op, 1 + i)->dtype : TRI_F32;

        if (copy && tri_dtype_bytes(t) != 2)
            return tri_op_refuse(g, op, 1 + i, "16 bits");
        TRI_TRY(tri_op_need_shape(g, op, 1 + i, t, tri_op_shape(g, op, 1 + i % n)));
    }
    for (int o = 0; o < TRI_MULTI_OUTPUTS; o++) {
        int kind = multi_kind(op, o);

        shape[o].ndim = -1;
        if (kind >= kinds)
            continue;
        shape[o] = *tri_op_shape(g, op, 1 + o % n);
        dtype[o] = tri_op_in(g, op, 1 + kind * n + o % n)->dtype;
    }
    return TRI_OK;
}

static tri_status infer_multi_sgd(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    return infer_multi(g, op, 2, 3, dtype, shape);
}

static tri_status infer_multi_adamw(const struct tri_graph *g, const struct tri_op *op,
                                    enum tri_dtype *dtype, struct tri_shape *shape)
{
    return infer_multi(g, op, 4, 4, dtype, shape);
}

static double flops_multi_sgd(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_multi(g, op, 1, 1 + op->attrs.optimizer.tensors, 7);
}

static double flops_multi_adamw(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_multi(g, op, 1, 1 + op->attrs.optimizer.tensors, 16);
}

static enum tri_alias alias_multi(const struct tri_graph *g, const struct tri_op *op, int o,
                                  int *input)
{
    int n = op->attrs.optimizer.tensors;

    (void)g;
    *input = 1 + multi_kind(op, o) * n + o % n;
    return TRI_ALIAS_MUST;
}

#define MULTI(KIND, text, multi_infer, multi_flops)                                                \
    const struct tri_op_info tri_op_row_##KIND = {.name = text,                                    \
                                                  .min_in = 3,                                     \
                                                  .max_in = -1,                                    \
                                                  .nout = TRI_MULTI_OUTPUTS,                       \
                                                  .optional_out = UINT32_MAX,                      \
                                                  .side_effect = true,                             \
                                                  .infer = multi_infer,                            \
                                                  .flops = multi_flops,                            \
                                                  .alias = alias_multi};
MULTI(MULTI_SGD, "multi_sgd", infer_multi_sgd, flops_multi_sgd)
MULTI(MULTI_ADAMW, "multi_adamw", infer_multi_adamw, flops_multi_adamw)
#undef MULTI

/* x, counters -> x' */
static tri_status infer_inject(const struct tri_graph *g, const struct tri_op *op,
                               enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_I64, TRI_COUNTER_COUNT));
    return tri_infer_like_first(g, op, dtype, shape);
}

const struct tri_op_info tri_op_row_INJECT = {.name = "inject",
                                              .min_in = 2,
                                              .max_in = 2,
                                              .nout = 1,
                                              .side_effect = true,
                                              .infer = infer_inject,
                                              .flops = flops_none,
                                              .alias = tri_alias_must_first};
