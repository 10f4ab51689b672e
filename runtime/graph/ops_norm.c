/* Layer norm over rows, batch norm over all positions of the real samples. */
#include "runtime/graph/ops_check.h"

enum { X, GAMMA, BETA }; /* first inputs of the forward ops */

static double flops_norm(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 8);
}

static double flops_norm_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 12);
}

enum { LN_RESIDUAL = 3 };
enum { LN_Y, LN_MEAN, LN_RSTD, LN_SUM };

static tri_status infer_layernorm(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, X);
    int64_t rows = tri_shape_rows(x), cols = tri_shape_cols(x);
    enum tri_dtype type = tri_op_type(g, op);

    TRI_TRY(tri_op_need_dtype(g, op, X, type));
    TRI_TRY(tri_op_need_vector(g, op, GAMMA, TRI_F32, cols));
    TRI_TRY(tri_op_need_vector(g, op, BETA, TRI_F32, cols));
    TRI_TRY(tri_op_need_shape(g, op, LN_RESIDUAL, type, x));
    dtype[LN_Y] = dtype[LN_SUM] = type;
    dtype[LN_MEAN] = dtype[LN_RSTD] = TRI_F32;
    shape[LN_Y] = shape[LN_SUM] = *x;
    shape[LN_MEAN] = shape[LN_RSTD] = tri_shape_1(rows);
    if (!tri_op_has(op, LN_RESIDUAL))
        shape[LN_SUM].ndim = -1;
    return TRI_OK;
}

/* The gradient of sum joins that of the norm; together it is the gradient of x and
 * of the residual. */
static tri_status grad_layernorm(struct tri_graph *g, int32_t index, const int32_t *dout,
                                 const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    bool residual = tri_op_has(&op, LN_RESIDUAL);
    tri_vid in = residual ? op.out[LN_SUM] : op.in[X], dx = dout[LN_SUM];

    (void)acc;
    (void)used;
    if (in == TRI_NONE)
        return tri_fail(TRI_ERR_INTERNAL, "layernorm \"%s\": its gradient needs the sum", op.name);
    if (dout[LN_Y] != TRI_NONE) {
        int32_t back = tri_graph_op(g, TRI_OP_LAYERNORM_GRAD, op.name,
                                    (tri_vid[]){dout[LN_Y], in, op.in[GAMMA], op.out[LN_MEAN],
                                                op.out[LN_RSTD], dout[LN_SUM]},
                                    6, &op.attrs, UINT32_MAX);

        if (back == TRI_NONE)
            return tri_graph_status(g);
        dx = g->op[back].out[0];
        din[GAMMA] = need[GAMMA] ? g->op[back].out[1] : TRI_NONE;
        din[BETA] = need[BETA] ? g->op[back].out[2] : TRI_NONE;
    }
    din[X] = need[X] ? dx : TRI_NONE;
    if (residual)
        din[LN_RESIDUAL] = need[LN_RESIDUAL] ? dx : TRI_NONE;
    return TRI_OK;
}

const struct tri_op_info tri_op_row_LAYERNORM = {.name = "layernorm",
                                                 .min_in = 3,
                                                 .max_in = 4,
                                                 .optional_in = 1u << LN_RESIDUAL,
                                                 .nout = 4,
                                                 .optional_out = 1u << LN_SUM,
                                                 .diff_out = 1u << LN_Y | 1u << LN_SUM,
                                                 .half_in = 1u << X | 1u << LN_RESIDUAL,
                                                 .half_out = 1u << LN_Y | 1u << LN_SUM,
                                                 .infer = infer_layernorm,
                                                 .grad = grad_layernorm,
                                                 .flops = flops_norm};

/* dy, x, gamma, mean, rstd, [dsum] -> dx, dgamma, dbeta */
static tri_status infer_layernorm_grad(const struct tri_graph *g, const struct tri_op *op,
                                       enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0);
    int64_t rows = tri_shape_rows(dy), cols = tri_shape_cols(dy);
    enum tri_dtype type = tri_op_type(g, op);

    TRI_TRY(tri_op_need_dtype(g, op, 0, type));
    TRI_TRY(tri_op_need_shape(g, op, 1, type, dy));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F32, cols));
    TRI_TRY(tri_op_need_vector(g, op, 3, TRI_F32, rows));
    TRI_TRY(tri_op_need_vector(g, op, 4, TRI_F32, rows));
    TRI_TRY(tri_op_need_shape(g, op, 5, type, dy));
    dtype[0] = type;
    dtype[1] = dtype[2] = TRI_F32;
    shape[0] = *dy;
    shape[1] = shape[2] = tri_shape_1(cols);
    return TRI_OK;
}

static enum tri_alias alias_layernorm_grad(const struct tri_graph *g, const struct tri_op *op,
                                           int o, int *input)
{
    (void)g;
    *input = 5;
    return o == 0 && tri_op_has(op, 5) ? TRI_ALIAS_MAY : TRI_ALIAS_NO;
}

const struct tri_op_info tri_op_row_LAYERNORM_GRAD = {.name = "layernorm_grad",
                                                      .min_in = 5,
                                                      .max_in = 6,
                                                      .optional_in = 1u << 5,
                                                      .nout = 3,
                                                      .half_in = 1u << 0 | 1u << 1 | 1u << 5,
                                                      .half_out = 1,
                                                      .infer = infer_layernorm_grad,
                                                      .flops = flops_norm_grad,
                                                      .alias = alias_layernorm_grad};

enum { BN_NREAL = 3, BN_RESIDUAL };
enum { BN_Y, BN_MEAN, BN_INVSTD, BN_MOMENTS };

/* x is [B,H,W,C] or [B,C]; gamma and beta are [C]. */
static tri_status check_batchnorm_x(const struct tri_graph *g, const struct tri_op *op, int x)
{
    int ndim = tri_op_shape(g, op, x)->ndim;

    TRI_TRY(tri_op_need_dtype(g, op, x, tri_op_type(g, op)));
    if (ndim != 2 && ndim != 4)
        return tri_op_refuse(g, op, x, "[B, H, W, C] or [B, C]");
    return TRI_OK;
}

static tri_status infer_batchnorm(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, X);
    int64_t c = tri_shape_cols(x);

    TRI_TRY(check_batchnorm_x(g, op, X));
    TRI_TRY(tri_op_need_vector(g, op, GAMMA, TRI_F32, c));
    TRI_TRY(tri_op_need_vector(g, op, BETA, TRI_F32, c));
    TRI_TRY(tri_op_need_vector(g, op, BN_NREAL, TRI_I32, 1));
    TRI_TRY(tri_op_need_shape(g, op, BN_RESIDUAL, tri_op_type(g, op), x));
    dtype[BN_Y] = tri_op_type(g, op);
    dtype[BN_MEAN] = dtype[BN_INVSTD] = dtype[BN_MOMENTS] = TRI_F32;
    shape[BN_Y] = *x;
    shape[BN_MEAN] = shape[BN_INVSTD] = tri_shape_1(c);
    shape[BN_MOMENTS] = tri_shape_1(2 * c + 1);
    return TRI_OK;
}

static tri_status grad_batchnorm(struct tri_graph *g, int32_t index, const int32_t *dout,
                                 const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    bool relu = op.attrs.norm.relu;
    bool residual = tri_op_has(&op, BN_RESIDUAL) && need[BN_RESIDUAL];
    uint32_t want = residual && relu ? 0xf : 0x7;
    int32_t back = tri_graph_op(g, TRI_OP_BATCHNORM_GRAD, op.name,
                                (tri_vid[]){dout[BN_Y], op.in[X], op.in[GAMMA], op.out[BN_MEAN],
                                            op.out[BN_INVSTD], op.in[BN_NREAL],
                                            relu ? op.out[BN_Y] : TRI_NONE},
                                7, &op.attrs, want);

    (void)acc;
    (void)used;
    if (back == TRI_NONE)
        return tri_graph_status(g);
    for (int i = 0; i < BN_NREAL; i++)
        din[i] = need[i] ? g->op[back].out[i] : TRI_NONE;
    /* Without the mask of relu the residual's gradient is dy itself. */
    if (residual)
        din[BN_RESIDUAL] = relu ? g->op[back].out[3] : dout[BN_Y];
    return TRI_OK;
}

const struct tri_op_info tri_op_row_BATCHNORM = {.name = "batchnorm",
                                                 .min_in = 4,
                                                 .max_in = 5,
                                                 .optional_in = 1u << BN_RESIDUAL,
                                                 .nout = 4,
                                                 .diff_out = 1u << BN_Y,
                                                 .half_in = 1u << X | 1u << BN_RESIDUAL,
                                                 .half_out = 1u << BN_Y,
                                                 .infer = infer_batchnorm,
                                                 .grad = grad_batchnorm,
                                                 .flops = flops_norm};

/* dy, x, gamma, mean, invstd, nreal, [y] -> dx, dgamma, dbeta, [dresidual] */
static tri_status infer_batchnorm_grad(const struct tri_graph *g, const struct tri_op *op,
                                       enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0);
    int64_t c = tri_shape_cols(dy);

    TRI_TRY(check_batchnorm_x(g, op, 0));
    TRI_TRY(tri_op_need_shape(g, op, 1, tri_op_type(g, op), dy));
    for (int i = 2; i < 5; i++)
        TRI_TRY(tri_op_need_vector(g, op, i, TRI_F32, c));
    TRI_TRY(tri_op_need_vector(g, op, 5, TRI_I32, 1));
    TRI_TRY(tri_op_need_shape(g, op, 6, tri_op_type(g, op), dy));
    if (op->attrs.norm.relu && !tri_op_has(op, 6))
        return tri_op_refuse_attr(op, "relu needs input 6, the output of the forward op");
    dtype[0] = dtype[3] = tri_op_type(g, op);
    dtype[1] = dtype[2] = TRI_F32;
    shape[0] = shape[3] = *dy;
    shape[1] = shape[2] = tri_shape_1(c);
    return TRI_OK;
}

const struct tri_op_info tri_op_row_BATCHNORM_GRAD = {.name = "batchnorm_grad",
                                                      .min_in = 6,
                                                      .max_in = 7,
                                                      .optional_in = 1u << 6,
                                                      .nout = 4,
                                                      .optional_out = 1u << 3,
                                                      .half_in = 1u << 0 | 1u << 1 | 1u << 6,
                                                      .half_out = 1u << 0 | 1u << 3,
                                                      .infer = infer_batchnorm_grad,
                                                      .flops = flops_norm_grad};

/* x, gamma, beta, running mean, running var, [residual] -> y */
static tri_status infer_batchnorm_infer(const struct tri_graph *g, const struct tri_op *op,
                                        enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, X);

    TRI_TRY(check_batchnorm_x(g, op, X));
    for (int i = 1; i < 5; i++)
        TRI_TRY(tri_op_need_vector(g, op, i, TRI_F32, tri_shape_cols(x)));
    TRI_TRY(tri_op_need_shape(g, op, 5, tri_op_type(g, op), x));
    return tri_infer_like_first(g, op, dtype, shape);
}

static double flops_batchnorm_infer(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2);
}

const struct tri_op_info tri_op_row_BATCHNORM_INFER = {.name = "batchnorm_infer",
                                                       .min_in = 5,
                                                       .max_in = 6,
                                                       .optional_in = 1u << 5,
                                                       .nout = 1,
                                                       .half_in = 1u << X | 1u << 5,
                                                       .half_out = 1,
                                                       .infer = infer_batchnorm_infer,
                                                       .flops = flops_batchnorm_infer};

/* running mean, running var, moments, scalars -> mean', var' */
static tri_status infer_batchnorm_running(const struct tri_graph *g, const struct tri_op *op,
                                          enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t c = tri_shape_count(tri_op_shape(g, op, 0));

    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_F32, c));
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_F32, c));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F32, 2 * c + 1));
    TRI_TRY(tri_op_need_vector(g, op, 3, TRI_F64, TRI_SCALAR_COUNT));
    dtype[0] = dtype[1] = TRI_F32;
    shape[0] = shape[1] = tri_shape_1(c);
    return TRI_OK;
}

static enum tri_alias alias_batchnorm_running(const struct tri_graph *g, const struct tri_op *op,
                                              int o, int *input)
{
    (void)g;
    (void)op;
    *input = o;
    return TRI_ALIAS_MUST;
}

const struct tri_op_info tri_op_row_BATCHNORM_RUNNING = {.name = "batchnorm_running",
                                                         .min_in = 4,
                                                         .max_in = 4,
                                                         .nout = 2,
                                                         .side_effect = true,
                                                         .infer = infer_batchnorm_running,
                                                         .alias = alias_batchnorm_running};
