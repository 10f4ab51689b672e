/* Convolution and pooling of images [B, H, W, C] with filters [O, I, KH, KW]. */
#include "runtime/graph/ops_check.h"

#define MAX_POOL_WINDOW 256 /* places in a window that the u8 index can tell */

static int64_t window_out(int64_t size, int64_t k, const struct tri_attr_window *w)
{
    return size + 2 * w->pad < k ? 0 : (size + 2 * w->pad - k) / w->stride + 1;
}

/* The window must fit the padded image x [B, H, W, .]; sets H' and W'. */
static tri_status check_window(const struct tri_op *op, int64_t h, int64_t w, int64_t *oh,
                               int64_t *ow)
{
    const struct tri_attr_window *a = &op->attrs.window;

    if (a->kh < 1 || a->kw < 1 || a->stride < 1 || a->pad < 0)
        return tri_op_refuse_attr(op, "window %lld x %lld, stride %lld, pad %lld", (long long)a->kh,
                                  (long long)a->kw, (long long)a->stride, (long long)a->pad);
    *oh = window_out(h, a->kh, a);
    *ow = window_out(w, a->kw, a);
    if (*oh < 1 || *ow < 1)
        return tri_op_refuse_attr(op, "window %lld x %lld is larger than the image %lld x %lld",
                                  (long long)a->kh, (long long)a->kw, (long long)h, (long long)w);
    return TRI_OK;
}

/* Input i must be filters [O, I, KH, KW] of the attribute's window. */
static tri_status check_filters(const struct tri_graph *g, const struct tri_op *op, int i)
{
    const struct tri_attr_window *a = &op->attrs.window;
    const struct tri_shape *w = tri_op_shape(g, op, i);

    TRI_TRY(tri_op_need_ndim(g, op, i, tri_op_type(g, op), 4));
    if (w->dim[2] != a->kh || w->dim[3] != a->kw)
        return tri_op_refuse(g, op, i, "filters of %lld x %lld", (long long)a->kh,
                             (long long)a->kw);
    return TRI_OK;
}

static tri_status infer_conv2d(const struct tri_graph *g, const struct tri_op *op,
                               enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, 0), *w = tri_op_shape(g, op, 1);
    int64_t oh, ow;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    TRI_TRY(check_filters(g, op, 1));
    if (w->dim[1] != x->dim[3])
        return tri_op_refuse(g, op, 1, "%lld input channels like input 0 \"%s\"",
                             (long long)x->dim[3], tri_op_in(g, op, 0)->name);
    TRI_TRY(tri_op_need_vector(g, op, 2, TRI_F32, w->dim[0]));
    TRI_TRY(check_window(op, x->dim[1], x->dim[2], &oh, &ow));
    dtype[0] = tri_op_type(g, op);
    shape[0] = tri_shape_4(x->dim[0], oh, ow, w->dim[0]);
    return TRI_OK;
}

static tri_status grad_conv2d(struct tri_graph *g, int32_t index, const int32_t *dout,
                              const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs attrs = op.attrs;

    attrs.window.h = tri_op_shape(g, &op, 0)->dim[1];
    attrs.window.w = tri_op_shape(g, &op, 0)->dim[2];
    if (need[1]) {
        din[1] = tri_grad_op(g, &op, TRI_OP_CONV2D_DW, (tri_vid[]){op.in[0], dout[0], acc[1]}, 3,
                             &attrs);
        if (acc[1] != TRI_NONE)
            *used |= 1u << 1;
    }
    if (op.nin > 2 && need[2]) {
        din[2] = tri_grad_op(g, &op, TRI_OP_COLUMN_SUM, (tri_vid[]){dout[0], acc[2]}, 2, NULL);
        if (acc[2] != TRI_NONE)
            *used |= 1u << 2;
    }
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_CONV2D_DX, (tri_vid[]){dout[0], op.in[1]}, 2, &attrs);
    return tri_graph_status(g);
}

/* Multiply-adds of a convolution whose result (or its gradient) is y. */
static double flops_of_conv(const struct tri_shape *y, int64_t channels,
                            const struct tri_attr_window *a)
{
    return 2.0 * (double)tri_shape_count(y) * (double)(channels * a->kh * a->kw);
}

static double flops_conv2d(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_of_conv(&g->value[op->out[0]].shape, tri_op_shape(g, op, 0)->dim[3],
                         &op->attrs.window);
}

const struct tri_op_info tri_op_row_CONV2D = {.name = "conv2d",
                                              .min_in = 2,
                                              .max_in = 3,
                                              .optional_in = 1u << 2,
                                              .nout = 1,
                                              .diff_out = 1,
                                              .half_in = 3,
                                              .half_out = 1,
                                              .infer = infer_conv2d,
                                              .grad = grad_conv2d,
                                              .flops = flops_conv2d};

/* dy [B, H', W', O], w -> dx [B, h, w, I] */
static tri_status infer_conv2d_dx(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0), *w = tri_op_shape(g, op, 1);
    const struct tri_attr_window *a = &op->attrs.window;
    struct tri_shape want;
    int64_t oh, ow;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    TRI_TRY(check_filters(g, op, 1));
    TRI_TRY(check_window(op, a->h, a->w, &oh, &ow));
    want = tri_shape_4(dy->dim[0], oh, ow, w->dim[0]);
    TRI_TRY(tri_op_need_shape(g, op, 0, tri_op_type(g, op), &want));
    dtype[0] = tri_op_type(g, op);
    shape[0] = tri_shape_4(dy->dim[0], a->h, a->w, w->dim[1]);
    return TRI_OK;
}

static double flops_conv2d_dx(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_of_conv(tri_op_shape(g, op, 0), tri_op_shape(g, op, 1)->dim[1], &op->attrs.window);
}

const struct tri_op_info tri_op_row_CONV2D_DX = {.name = "conv2d_dx",
                                                 .min_in = 2,
                                                 .max_in = 2,
                                                 .nout = 1,
                                                 .half_in = 3,
                                                 .half_out = 1,
                                                 .infer = infer_conv2d_dx,
                                                 .flops = flops_conv2d_dx};

/* x, dy, [acc] -> dw */
static tri_status infer_conv2d_dw(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, 0), *dy = tri_op_shape(g, op, 1);
    const struct tri_attr_window *a = &op->attrs.window;
    struct tri_shape want;
    int64_t oh, ow;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    TRI_TRY(tri_op_need_ndim(g, op, 1, tri_op_type(g, op), 4));
    TRI_TRY(check_window(op, x->dim[1], x->dim[2], &oh, &ow));
    want = tri_shape_4(x->dim[0], oh, ow, dy->dim[3]);
    TRI_TRY(tri_op_need_shape(g, op, 1, tri_op_type(g, op), &want));
    dtype[0] = TRI_F32;
    shape[0] = tri_shape_4(dy->dim[3], x->dim[3], a->kh, a->kw);
    return tri_op_need_shape(g, op, 2, TRI_F32, &shape[0]);
}

static double flops_conv2d_dw(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_of_conv(tri_op_shape(g, op, 1), tri_op_shape(g, op, 0)->dim[3], &op->attrs.window);
}

const struct tri_op_info tri_op_row_CONV2D_DW = {.name = "conv2d_dw",
                                                 .min_in = 2,
                                                 .max_in = 3,
                                                 .optional_in = 1u << 2,
                                                 .nout = 1,
                                                 .acc_in = 2,
                                                 .half_in = 3,
                                                 .infer = infer_conv2d_dw,
                                                 .flops = flops_conv2d_dw,
                                                 .alias = tri_alias_acc};

static tri_status check_pool_window(const struct tri_op *op)
{
    const struct tri_attr_window *a = &op->attrs.window;

    if (a->kh * a->kw > MAX_POOL_WINDOW)
        return tri_op_refuse_attr(op, "window %lld x %lld has more than %d places",
                                  (long long)a->kh, (long long)a->kw, MAX_POOL_WINDOW);
    /* Else a window could lie in the padding alone and would have no maximum. */
    if (2 * a->pad > a->kh || 2 * a->pad > a->kw)
        return tri_op_refuse_attr(op, "pad %lld is more than half of the window",
                                  (long long)a->pad);
    return TRI_OK;
}

/* x -> y, index */
static tri_status infer_maxpool(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, 0);
    int64_t oh, ow;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    TRI_TRY(check_pool_window(op));
    TRI_TRY(check_window(op, x->dim[1], x->dim[2], &oh, &ow));
    dtype[0] = tri_op_type(g, op);
    dtype[1] = TRI_U8;
    shape[0] = shape[1] = tri_shape_4(x->dim[0], oh, ow, x->dim[3]);
    return TRI_OK;
}

static tri_status grad_maxpool(struct tri_graph *g, int32_t index, const int32_t *dout,
                               const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs attrs = op.attrs;

    (void)acc;
    (void)used;
    attrs.window.h = tri_op_shape(g, &op, 0)->dim[1];
    attrs.window.w = tri_op_shape(g, &op, 0)->dim[2];
    if (need[0])
        din[0] =
            tri_grad_op(g, &op, TRI_OP_MAXPOOL_GRAD, (tri_vid[]){dout[0], op.out[1]}, 2, &attrs);
    return tri_graph_status(g);
}

static double flops_maxpool(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_attr_window *a = &op->attrs.window;

    return (double)tri_shape_count(&g->value[op->out[0]].shape) * (double)(a->kh * a->kw);
}

const struct tri_op_info tri_op_row_MAXPOOL = {.name = "maxpool",
                                               .min_in = 1,
                                               .max_in = 1,
                                               .nout = 2,
                                               .diff_out = 1,
                                               .half_in = 1,
                                               .half_out = 1,
                                               .infer = infer_maxpool,
                                               .grad = grad_maxpool,
                                               .flops = flops_maxpool};

/* dy, index -> dx */
static tri_status infer_maxpool_grad(const struct tri_graph *g, const struct tri_op *op,
                                     enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0);
    const struct tri_attr_window *a = &op->attrs.window;
    struct tri_shape want;
    int64_t oh, ow;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    TRI_TRY(check_pool_window(op));
    TRI_TRY(check_window(op, a->h, a->w, &oh, &ow));
    want = tri_shape_4(dy->dim[0], oh, ow, dy->dim[3]);
    TRI_TRY(tri_op_need_shape(g, op, 0, tri_op_type(g, op), &want));
    TRI_TRY(tri_op_need_shape(g, op, 1, TRI_U8, &want));
    dtype[0] = tri_op_type(g, op);
    shape[0] = tri_shape_4(dy->dim[0], a->h, a->w, dy->dim[3]);
    return TRI_OK;
}

static double flops_maxpool_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 1);
}

const struct tri_op_info tri_op_row_MAXPOOL_GRAD = {.name = "maxpool_grad",
                                                    .min_in = 2,
                                                    .max_in = 2,
                                                    .nout = 1,
                                                    .half_in = 1,
                                                    .half_out = 1,
                                                    .infer = infer_maxpool_grad,
                                                    .flops = flops_maxpool_grad};

static tri_status infer_avgpool(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *x = tri_op_shape(g, op, 0);

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 4));
    dtype[0] = tri_op_type(g, op);
    shape[0] = tri_shape_2(x->dim[0], x->dim[3]);
    return TRI_OK;
}

static tri_status grad_avgpool(struct tri_graph *g, int32_t index, const int32_t *dout,
                               const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs attrs = {
        .window = {.h = tri_op_shape(g, &op, 0)->dim[1], .w = tri_op_shape(g, &op, 0)->dim[2]}};

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_AVGPOOL_GRAD, dout, 1, &attrs);
    return tri_graph_status(g);
}

static double flops_avgpool(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 1);
}

const struct tri_op_info tri_op_row_AVGPOOL = {.name = "avgpool",
                                               .min_in = 1,
                                               .max_in = 1,
                                               .nout = 1,
                                               .diff_out = 1,
                                               .half_in = 1,
                                               .half_out = 1,
                                               .infer = infer_avgpool,
                                               .grad = grad_avgpool,
                                               .flops = flops_avgpool};

static tri_status infer_avgpool_grad(const struct tri_graph *g, const struct tri_op *op,
                                     enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0);
    const struct tri_attr_window *a = &op->attrs.window;

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 2));
    dtype[0] = tri_op_type(g, op);
    shape[0] = tri_shape_4(dy->dim[0], a->h, a->w, dy->dim[1]);
    return TRI_OK;
}

const struct tri_op_info tri_op_row_AVGPOOL_GRAD = {.name = "avgpool_grad",
                                                    .min_in = 1,
                                                    .max_in = 1,
                                                    .nout = 1,
                                                    .half_in = 1,
                                                    .half_out = 1,
                                                    .infer = infer_avgpool_grad};
