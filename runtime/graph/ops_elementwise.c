/* Ops that work element by element. */
#include "runtime/graph/ops_check.h"

static tri_status infer_add(const struct tri_graph *g, const struct tri_op *op,
                            enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_value *a = tri_op_in(g, op, 0);

    if (!tri_dtype_is_float(a->dtype))
        return tri_op_refuse(g, op, 0, "a floating-point type");
    TRI_TRY(tri_op_need_shape(g, op, 1, a->dtype, &a->shape));
    return tri_infer_like_first(g, op, dtype, shape);
}

static tri_status grad_add(struct tri_graph *g, int32_t index, const int32_t *dout,
                           const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    (void)acc;
    (void)used;
    for (int i = 0; i < 2; i++)
        din[i] = need[i] ? dout[0] : TRI_NONE;
    (void)index;
    return tri_graph_status(g);
}

const struct tri_op_info tri_op_row_ADD = {.name = "add",
                                           .min_in = 2,
                                           .max_in = 2,
                                           .nout = 1,
                                           .diff_out = 1,
                                           .half_in = 3,
                                           .half_out = 1,
                                           .infer = infer_add,
                                           .grad = grad_add,
                                           .alias = tri_alias_may_first};

static tri_status infer_unary(const struct tri_graph *g, const struct tri_op *op,
                              enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_dtype(g, op, 0, tri_op_type(g, op)));
    return tri_infer_like_first(g, op, dtype, shape);
}

/* Two inputs of one shape. */
static tri_status infer_unary_grad(const struct tri_graph *g, const struct tri_op *op,
                                   enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(infer_unary(g, op, dtype, shape));
    return tri_op_need_shape(g, op, 1, tri_op_type(g, op), &shape[0]);
}

static tri_status grad_relu(struct tri_graph *g, int32_t index, const int32_t *dout,
                            const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_RELU_GRAD, (tri_vid[]){dout[0], op.out[0]}, 2, NULL);
    return tri_graph_status(g);
}

const struct tri_op_info tri_op_row_RELU = {.name = "relu",
                                            .min_in = 1,
                                            .max_in = 1,
                                            .nout = 1,
                                            .diff_out = 1,
                                            .half_in = 1,
                                            .half_out = 1,
                                            .infer = infer_unary,
                                            .grad = grad_relu,
                                            .alias = tri_alias_may_first};

const struct tri_op_info tri_op_row_RELU_GRAD = {.name = "relu_grad",
                                                 .min_in = 2,
                                                 .max_in = 2,
                                                 .nout = 1,
                                                 .half_in = 3,
                                                 .half_out = 1,
                                                 .infer = infer_unary_grad,
                                                 .alias = tri_alias_may_first};

static double flops_gelu(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, TRI_FLOPS_GELU);
}

static double flops_gelu_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, TRI_FLOPS_GELU_GRAD);
}

static tri_status grad_gelu(struct tri_graph *g, int32_t index, const int32_t *dout,
                            const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_GELU_GRAD, (tri_vid[]){dout[0], op.in[0]}, 2, NULL);
    return tri_graph_status(g);
}

const struct tri_op_info tri_op_row_GELU = {.name = "gelu",
                                            .min_in = 1,
                                            .max_in = 1,
                                            .nout = 1,
                                            .diff_out = 1,
                                            .half_in = 1,
                                            .half_out = 1,
                                            .infer = infer_unary,
                                            .grad = grad_gelu,
                                            .flops = flops_gelu};

const struct tri_op_info tri_op_row_GELU_GRAD = {.name = "gelu_grad",
                                                 .min_in = 2,
                                                 .max_in = 2,
                                                 .nout = 1,
                                                 .half_in = 3,
                                                 .half_out = 1,
                                                 .infer = infer_unary_grad,
                                                 .flops = flops_gelu_grad,
                                                 .alias = tri_alias_may_first};

static tri_status infer_dropout(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    double p = op->attrs.dropout.p;

    if (!(p >= 0 && p < 1))
        return tri_op_refuse_attr(op, "probability %g is not in [0, 1)", p);
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_I64, TRI_COUNTER_COUNT));
    return infer_unary(g, op, dtype, shape);
}

/* The mask is drawn again from the same counters, so it need not be kept. */
static tri_status grad_dropout(struct tri_graph *g, int32_t index, const int32_t *dout,
                               const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_DROPOUT, (tri_vid[]){dout[0], op.in[1]}, 2, &op.attrs);
    return tri_graph_status(g);
}

static double flops_dropout(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 1);
}

const struct tri_op_info tri_op_row_DROPOUT = {.name = "dropout",
                                               .min_in = 2,
                                               .max_in = 2,
                                               .nout = 1,
                                               .diff_out = 1,
                                               .half_in = 1,
                                               .half_out = 1,
                                               .infer = infer_dropout,
                                               .grad = grad_dropout,
                                               .flops = flops_dropout,
                                               .alias = tri_alias_may_first};

static tri_status infer_cast(const struct tri_graph *g, const struct tri_op *op,
                             enum tri_dtype *dtype, struct tri_shape *shape)
{
    if ((unsigned)op->attrs.cast.to >= TRI_DTYPE_COUNT)
        return tri_op_refuse_attr(op, "unknown type %d", (int)op->attrs.cast.to);
    TRI_TRY(tri_infer_like_first(g, op, dtype, shape));
    dtype[0] = op->attrs.cast.to;
    return tri_op_need_shape(g, op, 1, dtype[0], &shape[0]);
}

static tri_status grad_cast(struct tri_graph *g, int32_t index, const int32_t *dout,
                            const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs back = {0};

    (void)acc;
    (void)used;
    back.cast.to = tri_op_in(g, &op, 0)->dtype;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_CAST, dout, 1, &back);
    return tri_graph_status(g);
}

static enum tri_alias alias_cast(const struct tri_graph *g, const struct tri_op *op, int o,
                                 int *input)
{
    (void)g;
    (void)o;
    *input = 1;
    return tri_op_has(op, 1) ? TRI_ALIAS_MUST : TRI_ALIAS_NO;
}

const struct tri_op_info tri_op_row_CAST = {.name = "cast",
                                            .min_in = 1,
                                            .max_in = 2,
                                            .optional_in = 1u << 1,
                                            .alias = alias_cast,
                                            .nout = 1,
                                            .diff_out = 1,
                                            .infer = infer_cast,
                                            .grad = grad_cast};
