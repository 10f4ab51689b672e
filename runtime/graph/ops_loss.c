/* Losses: statistics in f64, gradients of the SUM of losses (the step divides once by the global
 * count). */
#include "runtime/graph/ops_check.h"

/* logits [.., V], targets: one a row; sets the number of rows. */
static tri_status check_logits(const struct tri_graph *g, const struct tri_op *op, int64_t *rows)
{
    TRI_TRY(tri_op_need_dtype(g, op, 0, tri_op_type(g, op)));
    TRI_TRY(tri_op_need_dtype(g, op, 1, TRI_I32));
    *rows = tri_shape_rows(tri_op_shape(g, op, 0));
    if (tri_shape_count(tri_op_shape(g, op, 1)) != *rows)
        return tri_op_refuse(g, op, 1, "%lld targets, one a row of input 0 \"%s\"",
                             (long long)*rows, tri_op_in(g, op, 0)->name);
    return TRI_OK;
}

static void stats_output(enum tri_dtype *dtype, struct tri_shape *shape)
{
    *dtype = TRI_F64;
    *shape = tri_shape_1(TRI_STATS_COUNT);
}

static tri_status infer_softmax_xent(const struct tri_graph *g, const struct tri_op *op,
                                     enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t rows;

    TRI_TRY(check_logits(g, op, &rows));
    stats_output(&dtype[0], &shape[0]);
    dtype[1] = TRI_F32;
    shape[1] = tri_shape_1(rows);
    return TRI_OK;
}

static tri_status grad_softmax_xent(struct tri_graph *g, int32_t index, const int32_t *dout,
                                    const bool *need, const int32_t *acc, int32_t *din,
                                    uint32_t *used)
{
    const struct tri_op op = g->op[index];

    (void)dout;
    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_SOFTMAX_XENT_GRAD,
                             (tri_vid[]){op.in[0], op.in[1], op.out[1]}, 3, NULL);
    return tri_graph_status(g);
}

/* Maximum, difference, exponential (one operation), sum. */
static double flops_softmax_xent(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 4);
}

static double flops_softmax_xent_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2);
}

static double flops_softmax_xent_fused(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 6);
}

const struct tri_op_info tri_op_row_SOFTMAX_XENT = {.name = "softmax_xent",
                                                    .min_in = 2,
                                                    .max_in = 2,
                                                    .nout = 2,
                                                    .half_in = 1,
                                                    .infer = infer_softmax_xent,
                                                    .grad = grad_softmax_xent,
                                                    .flops = flops_softmax_xent};

/* logits, targets, lse, [scale] -> dlogits */
static tri_status infer_softmax_xent_grad(const struct tri_graph *g, const struct tri_op *op,
                                          enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t rows;

    TRI_TRY(check_logits(g, op, &rows));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F32, rows));
    TRI_TRY(tri_op_need_vector(g, op, 3, TRI_F32, 1));
    return tri_infer_like_first(g, op, dtype, shape);
}

const struct tri_op_info tri_op_row_SOFTMAX_XENT_GRAD = {.name = "softmax_xent_grad",
                                                         .min_in = 3,
                                                         .max_in = 4,
                                                         .optional_in = 1u << 3,
                                                         .nout = 1,
                                                         .half_in = 1,
                                                         .half_out = 1,
                                                         .infer = infer_softmax_xent_grad,
                                                         .flops = flops_softmax_xent_grad,
                                                         .alias = tri_alias_may_first};

/* logits, targets, [scale] -> stats, dlogits */
static tri_status infer_softmax_xent_fused(const struct tri_graph *g, const struct tri_op *op,
                                           enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t rows;

    TRI_TRY(check_logits(g, op, &rows));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F32, 1));
    stats_output(&dtype[0], &shape[0]);
    dtype[1] = tri_op_in(g, op, 0)->dtype;
    shape[1] = *tri_op_shape(g, op, 0);
    return TRI_OK;
}

static enum tri_alias alias_softmax_xent_fused(const struct tri_graph *g, const struct tri_op *op,
                                               int o, int *input)
{
    (void)g;
    (void)op;
    *input = 0;
    return o == 1 ? TRI_ALIAS_MAY : TRI_ALIAS_NO;
}

const struct tri_op_info tri_op_row_SOFTMAX_XENT_FUSED = {.name = "softmax_xent_fused",
                                                          .min_in = 2,
                                                          .max_in = 3,
                                                          .optional_in = 1u << 2,
                                                          .nout = 2,
                                                          .half_in = 1,
                                                          .half_out = 1u << 1,
                                                          .infer = infer_softmax_xent_fused,
                                                          .flops = flops_softmax_xent_fused,
                                                          .alias = alias_softmax_xent_fused};

/* prediction, target, nreal */
static tri_status check_mse(const struct tri_graph *g, const struct tri_op *op)
{
    TRI_TRY(tri_op_need_dtype(g, op, 0, tri_op_type(g, op)));
    if (tri_op_shape(g, op, 0)->ndim < 1)
        return tri_op_refuse(g, op, 0, "a leading dimension of samples");
    TRI_TRY(tri_op_need_shape(g, op, 1, TRI_F32, tri_op_shape(g, op, 0)));
    return tri_op_need_vector(g, op, 2, TRI_I32, 1);
}

static tri_status infer_mse(const struct tri_graph *g, const struct tri_op *op,
                            enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(check_mse(g, op));
    stats_output(&dtype[0], &shape[0]);
    return TRI_OK;
}

static tri_status grad_mse(struct tri_graph *g, int32_t index, const int32_t *dout,
                           const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];

    (void)dout;
    (void)acc;
    (void)used;
    if (need[1])
        return tri_fail(TRI_ERR_INTERNAL, "mse \"%s\": no gradient of the target", op.name);
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_MSE_GRAD, op.in, 3, NULL);
    return tri_graph_status(g);
}

static double flops_mse(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 3);
}

const struct tri_op_info tri_op_row_MSE = {.name = "mse",
                                           .min_in = 3,
                                           .max_in = 3,
                                           .nout = 1,
                                           .half_in = 1,
                                           .infer = infer_mse,
                                           .grad = grad_mse,
                                           .flops = flops_mse};

static tri_status infer_mse_grad(const struct tri_graph *g, const struct tri_op *op,
                                 enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(check_mse(g, op));
    TRI_TRY(tri_op_need_vector(g, op, 3, TRI_F32, 1));
    return tri_infer_like_first(g, op, dtype, shape);
}

static double flops_mse_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2);
}

const struct tri_op_info tri_op_row_MSE_GRAD = {.name = "mse_grad",
                                                .min_in = 3,
                                                .max_in = 4,
                                                .optional_in = 1u << 3,
                                                .nout = 1,
                                                .half_in = 1,
                                                .half_out = 1,
                                                .infer = infer_mse_grad,
                                                .flops = flops_mse_grad};
