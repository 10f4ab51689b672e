/* Products of matrices and the gradient of a bias. */
#include "runtime/graph/ops_check.h"

enum { A, B, BIAS, ACC }; /* inputs of MATMUL */

/* Sizes of y [M, N] = op(a) [M, K] op(b) [K, N]. */
struct product {
    int64_t m, n, k;
    int64_t bk; /* K as b has it */
};

static struct product product_of(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_shape *a = tri_op_shape(g, op, A), *b = tri_op_shape(g, op, B);
    bool ta = op->attrs.matmul.ta, tb = op->attrs.matmul.tb;

    return (struct product){.m = ta ? tri_shape_cols(a) : tri_shape_rows(a),
                            .k = ta ? tri_shape_rows(a) : tri_shape_cols(a),
                            .bk = tb ? tri_shape_cols(b) : tri_shape_rows(b),
                            .n = tb ? tri_shape_rows(b) : tri_shape_cols(b)};
}

static tri_status infer_matmul(const struct tri_graph *g, const struct tri_op *op,
                               enum tri_dtype *dtype, struct tri_shape *shape)
{
    struct product p = product_of(g, op);
    enum tri_dtype type = tri_op_type(g, op);

    TRI_TRY(tri_op_need_dtype(g, op, A, type));
    TRI_TRY(tri_op_need_dtype(g, op, B, type));
    if (p.k != p.bk)
        return tri_op_refuse(g, op, B, "%lld %s to match input 0 \"%s\"", (long long)p.k,
                             op->attrs.matmul.tb ? "columns" : "rows", tri_op_in(g, op, A)->name);
    dtype[0] = op->attrs.matmul.wide ? TRI_F32 : type;
    shape[0] = op->attrs.matmul.ta ? tri_shape_2(p.m, p.n)
                                   : tri_shape_with_cols(tri_op_shape(g, op, A), p.n);
    TRI_TRY(tri_op_need_vector(g, op, BIAS, TRI_F32, p.n));
    return tri_op_need_shape(g, op, ACC, dtype[0], &shape[0]);
}

static tri_vid product(struct tri_graph *g, const struct tri_op *forward, tri_vid a, bool ta,
                       tri_vid b, bool tb, tri_vid acc)
{
    struct tri_attrs attrs = {.matmul = {.ta = ta, .tb = tb}};

    return tri_grad_op(g, forward, TRI_OP_MATMUL, (tri_vid[]){a, b, TRI_NONE, acc}, 4, &attrs);
}

/* acc if the product of its rows and columns has its shape, and noted as used; else TRI_NONE. */
static tri_vid usable(const struct tri_graph *g, tri_vid acc, bool two_dims, int i, uint32_t *used)
{
    if (acc == TRI_NONE || (two_dims && g->value[acc].shape.ndim != 2))
        return TRI_NONE;
    *used |= 1u << i;
    return acc;
}

/* With y = op(a) op(b): d op(a) = dy op(b)^T and d op(b) = op(a)^T dy; where an operand was
 * transposed the product is turned round instead, so that no transposed copy is ever made. */
static tri_status grad_matmul(struct tri_graph *g, int32_t index, const int32_t *dout,
                              const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    bool ta = op.attrs.matmul.ta, tb = op.attrs.matmul.tb;
    tri_vid a = op.in[A], b = op.in[B], dy = dout[0];

    if (need[B]) {
        tri_vid sum = usable(g, acc[B], true, B, used);

        din[B] =
            tb ? product(g, &op, dy, true, a, ta, sum) : product(g, &op, a, !ta, dy, false, sum);
    }
    if (op.nin > BIAS && need[BIAS]) {
        din[BIAS] = tri_grad_op(g, &op, TRI_OP_COLUMN_SUM, (tri_vid[]){dy, acc[BIAS]}, 2, NULL);
        if (acc[BIAS] != TRI_NONE)
            *used |= 1u << BIAS;
    }
    if (op.nin > ACC && need[ACC])
        din[ACC] = dy;
    if (need[A]) {
        tri_vid sum = usable(g, acc[A], ta, A, used);

        din[A] =
            ta ? product(g, &op, b, tb, dy, true, sum) : product(g, &op, dy, false, b, !tb, sum);
    }
    return tri_graph_status(g);
}

static double flops_matmul(const struct tri_graph *g, const struct tri_op *op)
{
    struct product p = product_of(g, op);
    int added = (int)tri_op_has(op, BIAS) + (int)tri_op_has(op, ACC);

    return (double)p.m * (double)p.n * (2.0 * (double)p.k + added);
}

const struct tri_op_info tri_op_row_MATMUL = {.name = "matmul",
                                              .min_in = 2,
                                              .max_in = 4,
                                              .optional_in = 1u << BIAS | 1u << ACC,
                                              .nout = 1,
                                              .diff_out = 1,
                                              .acc_in = ACC,
                                              .half_in = 1u << A | 1u << B,
                                              .half_out = 1,
                                              .infer = infer_matmul,
                                              .grad = grad_matmul,
                                              .flops = flops_matmul,
                                              .alias = tri_alias_acc};

/* a, b, [bias] -> y, x */
static tri_status infer_matmul_gelu(const struct tri_graph *g, const struct tri_op *op,
                                    enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(infer_matmul(g, op, dtype, shape));
    dtype[1] = dtype[0];
    shape[1] = shape[0];
    return TRI_OK;
}

static double flops_matmul_gelu(const struct tri_graph *g, const struct tri_op *op)
{
    struct product p = product_of(g, op);

    return flops_matmul(g, op) + TRI_FLOPS_GELU * (double)p.m * (double)p.n;
}

const struct tri_op_info tri_op_row_MATMUL_GELU = {.name = "matmul_gelu",
                                                   .min_in = 2,
                                                   .max_in = 3,
                                                   .optional_in = 1u << BIAS,
                                                   .nout = 2,
                                                   .optional_out = 1u << 1,
                                                   .half_in = 1u << A | 1u << B,
                                                   .half_out = 3,
                                                   .infer = infer_matmul_gelu,
                                                   .flops = flops_matmul_gelu};

/* a, b, x -> dx */
static tri_status infer_matmul_gelu_grad(const struct tri_graph *g, const struct tri_op *op,
                                         enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_op product = {
        .kind = op->kind, .name = op->name, .nin = 2, .in = op->in, .attrs = op->attrs};

    TRI_TRY(infer_matmul(g, &product, dtype, shape));
    return tri_op_need_shape(g, op, 2, dtype[0], &shape[0]);
}

static double flops_matmul_gelu_grad(const struct tri_graph *g, const struct tri_op *op)
{
    struct product p = product_of(g, op);

    return (double)p.m * (double)p.n * (2.0 * (double)p.k + TRI_FLOPS_GELU_GRAD);
}

const struct tri_op_info tri_op_row_MATMUL_GELU_GRAD = {.name = "matmul_gelu_grad",
                                                        .min_in = 3,
                                                        .max_in = 3,
                                                        .nout = 1,
                                                        .half_in = 7,
                                                        .half_out = 1,
                                                        .infer = infer_matmul_gelu_grad,
                                                        .flops = flops_matmul_gelu_grad};

enum { BGRAD_ACC = 2, BGRAD_BIAS_ACC }; /* further inputs of MATMUL_BGRAD */

static tri_status infer_matmul_bgrad(const struct tri_graph *g, const struct tri_op *op,
                                     enum tri_dtype *dtype, struct tri_shape *shape)
{
    struct tri_op product = {
        .kind = op->kind, .name = op->name, .nin = 2, .in = op->in, .attrs = op->attrs};
    bool of_a = op->attrs.matmul.bgrad_a;
    int64_t n = tri_shape_cols(tri_op_shape(g, op, of_a ? A : B));

    if (of_a ? !op->attrs.matmul.ta : op->attrs.matmul.tb)
        return tri_op_refuse_attr(op, "the rows that the bias gradient sums are not summed over");
    product.attrs.matmul.wide = true;
    TRI_TRY(infer_matmul(g, &product, dtype, shape));
    dtype[1] = TRI_F32;
    shape[1] = tri_shape_1(n);
    TRI_TRY(tri_op_need_shape(g, op, BGRAD_ACC, TRI_F32, &shape[0]));
    return tri_op_need_vector(g, op, BGRAD_BIAS_ACC, TRI_F32, n);
}

static double flops_matmul_bgrad(const struct tri_graph *g, const struct tri_op *op)
{
    struct product p = product_of(g, op);
    double added = tri_op_has(op, BGRAD_ACC) ? 1 : 0;

    return (double)p.m * (double)p.n * (2.0 * (double)p.k + added) +
           (double)p.k * (double)(op->attrs.matmul.bgrad_a ? p.m : p.n);
}

static enum tri_alias alias_matmul_bgrad(const struct tri_graph *g, const struct tri_op *op, int o,
                                         int *input)
{
    (void)g;
    *input = o == 0 ? BGRAD_ACC : BGRAD_BIAS_ACC;
    return tri_op_has(op, *input) ? TRI_ALIAS_MUST : TRI_ALIAS_NO;
}

/* No acc_in: running totals enter the two ops that it is made of. */
const struct tri_op_info tri_op_row_MATMUL_BGRAD = {.name = "matmul_bgrad",
                                                    .min_in = 2,
                                                    .max_in = 4,
                                                    .optional_in =
                                                        1u << BGRAD_ACC | 1u << BGRAD_BIAS_ACC,
                                                    .nout = 2,
                                                    .half_in = 1u << A | 1u << B,
                                                    .infer = infer_matmul_bgrad,
                                                    .flops = flops_matmul_bgrad,
                                                    .alias = alias_matmul_bgrad};

static tri_status infer_column_sum(const struct tri_graph *g, const struct tri_op *op,
                                   enum tri_dtype *dtype, struct tri_shape *shape)
{
    TRI_TRY(tri_op_need_dtype(g, op, 0, tri_op_type(g, op)));
    dtype[0] = TRI_F32;
    shape[0] = tri_shape_1(tri_shape_cols(tri_op_shape(g, op, 0)));
    return tri_op_need_shape(g, op, 1, TRI_F32, &shape[0]);
}

static double flops_column_sum(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 1);
}

const struct tri_op_info tri_op_row_COLUMN_SUM = {.name = "column_sum",
                                                  .min_in = 1,
                                                  .max_in = 2,
                                                  .optional_in = 1u << 1,
                                                  .nout = 1,
                                                  .acc_in = 1,
                                                  .half_in = 1,
                                                  .infer = infer_column_sum,
                                                  .flops = flops_column_sum,
                                                  .alias = tri_alias_acc};
