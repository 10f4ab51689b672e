/* Compression of gradients: what goes beside the collectives of an exchange, and the step's
 * decision about residuals. */
#include "runtime/graph/ops_check.h"

#include "runtime/kernels/compress.h"

static double flops_none(const struct tri_graph *g, const struct tri_op *op)
{
    (void)g;
    (void)op;
    return 0;
}

static double flops_compress(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 4);
}

/* g, residual, counters, [velocity] -> payload, residual', [velocity'] */
static tri_status infer_compress(const struct tri_graph *g, const struct tri_op *op,
                                 enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_compress *a = &op->attrs.compress;
    const struct tri_shape *x = tri_op_shape(g, op, 0);

    if (a->method == NULL)
        return tri_op_refuse_attr(op, "no compressor");
    TRI_TRY(tri_op_need_dtype(g, op, 0, TRI_F32));
    TRI_TRY(tri_op_need_shape(g, op, 1, TRI_F32, x));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_I64, TRI_COUNTER_COUNT));
    TRI_TRY(tri_op_need_shape(g, op, 3, TRI_F32, x));
    dtype[0] = TRI_U8;
    shape[0] = tri_shape_1(a->method->bytes(a, tri_shape_count(x)));
    dtype[1] = dtype[2] = TRI_F32;
    shape[1] = shape[2] = *x;
    if (!tri_op_has(op, 3))
        shape[2].ndim = -1;
    return TRI_OK;
}

const struct tri_op_info tri_op_row_COMPRESS = {.name = "compress",
                                                .min_in = 3,
                                                .max_in = 4,
                                                .optional_in = 1u << 3,
                                                .nout = 3,
                                                .optional_out = 1u << 2,
                                                .beside_comm = true,
                                                .infer = infer_compress,
                                                .flops = flops_compress};

/* Of what is written: a gradient of its own, or the input [flat] with it in its place. */
static tri_status infer_place(const struct tri_graph *g, const struct tri_op *op,
                              enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_compress *a = &op->attrs.compress;

    dtype[0] = TRI_F32;
    shape[0] = a->shape;
    if (!tri_op_has(op, 2))
        return TRI_OK;
    TRI_TRY(tri_op_need_ndim(g, op, 2, TRI_F32, 1));
    shape[0] = *tri_op_shape(g, op, 2);
    if (a->first < 0 || a->first + tri_shape_count(&a->shape) > shape[0].dim[0])
        return tri_op_refuse(g, op, 2, "elements %lld to %lld", (long long)a->first,
                             (long long)(a->first + tri_shape_count(&a->shape)));
    return TRI_OK;
}

/* gathered, counters, [flat] -> g or flat' */
static tri_status infer_decompress(const struct tri_graph *g, const struct tri_op *op,
                                   enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_compress *a = &op->attrs.compress;
    int64_t bytes;

    if (a->method == NULL || a->ranks < 1)
        return tri_op_refuse_attr(op, "no compressor or no ranks");
    bytes = a->method->bytes(a, tri_shape_count(&a->shape));
    if (a->offset < 0 || a->offset + bytes > a->stride)
        return tri_op_refuse_attr(op, "bytes %lld to %lld of payloads of %lld",
                                  (long long)a->offset, (long long)(a->offset + bytes),
                                  (long long)a->stride);
    TRI_TRY(tri_op_need_vector(g, op, 0, TRI_U8, a->ranks * a->stride));
    TRI_TRY(tri_op_need_vector(g, op, 1, TRI_I64, TRI_COUNTER_COUNT));
    return infer_place(g, op, dtype, shape);
}

static enum tri_alias alias_place(const struct tri_graph *g, const struct tri_op *op, int o,
                                  int *input)
{
    (void)g;
    (void)o;
    *input = 2;
    return tri_op_has(op, 2) ? TRI_ALIAS_MUST : TRI_ALIAS_NO;
}

static double flops_decompress(const struct tri_graph *g, const struct tri_op *op)
{
    (void)g;
    return 2.0 * op->attrs.compress.ranks * (double)tri_shape_count(&op->attrs.compress.shape);
}

const struct tri_op_info tri_op_row_DECOMPRESS = {.name = "decompress",
                                                  .min_in = 2,
                                                  .max_in = 3,
                                                  .optional_in = 1u << 2,
                                                  .nout = 1,
                                                  .beside_comm = true,
                                                  .infer = infer_decompress,
                                                  .flops = flops_decompress,
                                                  .alias = alias_place};

/* Any shape of at least two dims as a matrix. */
static struct tri_shape as_matrix(const struct tri_shape *s)
{
    return tri_shape_2(s->dim[0], tri_shape_count(s) / s->dim[0]);
}

/* g, residual, right [m,r] -> x [n,m], left [n,r] */
static tri_status infer_left(const struct tri_graph *g, const struct tri_op *op,
                             enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_compress *a = &op->attrs.compress;
    const struct tri_shape *x = tri_op_shape(g, op, 0), *right = tri_op_shape(g, op, 2);

    if (x->ndim < 2 && a->shape.ndim != 2)
        return tri_op_refuse(g, op, 0, "at least two dimensions");
    TRI_TRY(tri_op_need_dtype(g, op, 0, TRI_F32));
    TRI_TRY(tri_op_need_shape(g, op, 1, TRI_F32, x));
    TRI_TRY(tri_op_need_ndim(g, op, 2, TRI_F32, 2));
    shape[0] = a->shape.ndim == 2 ? a->shape : as_matrix(x);
    if (a->offset < 0 || a->offset + tri_shape_count(x) > tri_shape_count(&shape[0]))
        return tri_op_refuse(g, op, 0, "at most %lld elements",
                             (long long)(tri_shape_count(&shape[0]) - a->offset));
    if (right->dim[0] != shape[0].dim[1])
        return tri_op_refuse(g, op, 2, "%lld rows", (long long)shape[0].dim[1]);
    dtype[0] = dtype[1] = TRI_F32;
    shape[1] = tri_shape_2(shape[0].dim[0], right->dim[1]);
    return TRI_OK;
}

static double flops_left(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2.0 * (double)tri_op_shape(g, op, 2)->dim[1] + 1);
}

const struct tri_op_info tri_op_row_LOWRANK_LEFT = {.name = "lowrank_left",
                                                    .min_in = 3,
                                                    .max_in = 3,
                                                    .nout = 2,
                                                    .beside_comm = true,
                                                    .infer = infer_left,
                                                    .flops = flops_left};

/* x [n,m], left [n,r] -> basis [n,r], right [m,r], residual' [n,m] */
static tri_status infer_right(const struct tri_graph *g, const struct tri_op *op,
                              enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, 0), *left = tri_op_shape(g, op, 1);

    TRI_TRY(tri_op_need_ndim(g, op, 0, TRI_F32, 2));
    TRI_TRY(tri_op_need_ndim(g, op, 1, TRI_F32, 2));
    if (left->dim[0] != x->dim[0])
        return tri_op_refuse(g, op, 1, "%lld rows", (long long)x->dim[0]);
    dtype[0] = dtype[1] = dtype[2] = TRI_F32;
    shape[0] = *left;
    shape[1] = tri_shape_2(x->dim[1], left->dim[1]);
    shape[2] = *x;
    return TRI_OK;
}

static double flops_right(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 4.0 * (double)tri_op_shape(g, op, 1)->dim[1]);
}

const struct tri_op_info tri_op_row_LOWRANK_RIGHT = {.name = "lowrank_right",
                                                     .min_in = 2,
                                                     .max_in = 2,
                                                     .nout = 3,
                                                     .beside_comm = true,
                                                     .infer = infer_right,
                                                     .flops = flops_right};

/* basis [n,r], right [m,r], [flat] -> g or flat' */
static tri_status infer_product(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_compress *a = &op->attrs.compress;
    const struct tri_shape *basis = tri_op_shape(g, op, 0), *right = tri_op_shape(g, op, 1);

    TRI_TRY(tri_op_need_ndim(g, op, 0, TRI_F32, 2));
    TRI_TRY(tri_op_need_ndim(g, op, 1, TRI_F32, 2));
    if (right->dim[1] != basis->dim[1])
        return tri_op_refuse(g, op, 1, "%lld columns", (long long)basis->dim[1]);
    if (a->offset < 0 || a->offset + tri_shape_count(&a->shape) > basis->dim[0] * right->dim[0])
        return tri_op_refuse_attr(op, "a product of fewer elements");
    return infer_place(g, op, dtype, shape);
}

static double flops_product(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 2.0 * (double)tri_op_shape(g, op, 1)->dim[0]);
}

const struct tri_op_info tri_op_row_LOWRANK_PRODUCT = {.name = "lowrank_product",
                                                       .min_in = 2,
                                                       .max_in = 3,
                                                       .optional_in = 1u << 2,
                                                       .nout = 1,
                                                       .beside_comm = true,
                                                       .infer = infer_product,
                                                       .flops = flops_product,
                                                       .alias = alias_place};

/* state, new, scalars -> state'. `new` may be the state as a matrix, or have more elements. */
static tri_status infer_commit(const struct tri_graph *g, const struct tri_op *op,
                               enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t n = tri_shape_count(tri_op_shape(g, op, 0)), at = op->attrs.view.offset;

    TRI_TRY(tri_op_need_dtype(g, op, 1, tri_op_in(g, op, 0)->dtype));
    if (at < 0 || at + n > tri_shape_count(tri_op_shape(g, op, 1)))
        return tri_op_refuse(g, op, 1, "at least %lld elements", (long long)(at + n));
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F64, TRI_SCALAR_COUNT));
    return tri_infer_like_first(g, op, dtype, shape);
}

const struct tri_op_info tri_op_row_COMMIT = {.name = "commit",
                                              .min_in = 3,
                                              .max_in = 3,
                                              .nout = 1,
                                              .side_effect = true,
                                              .infer = infer_commit,
                                              .flops = flops_none,
                                              .alias = tri_alias_must_first};
