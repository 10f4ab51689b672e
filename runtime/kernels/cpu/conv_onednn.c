/* Convolutions with oneDNN: NHWC activations in and out, filters OIHW as they are stored. oneDNN
 * chooses the filters' inner format; they are converted in planned scratch in each run (they change
 * every step, and are small beside the activations). Direct algorithm only. Class: 4 ulp of the sum
 * of |x||w|, f32; the order of a sum is oneDNN's. */
#include "runtime/kernels/cpu/cpu_kernels.h"
#include "runtime/kernels/cpu/onednn.h"

#include <string.h>

/* One convolution in oneDNN's words: descriptors for the primitive (filters in any format) and the
 * plain filters. */
struct conv {
    dnnl_memory_desc_t x, y, w, w_plain, bias;
    dnnl_dims_t stride, pad_before, pad_after;
};

/* Padding behind that makes `in` give exactly `out`: negative where the last positions of x are
 * never looked at. */
static int64_t pad_after(int64_t in, int64_t out, int64_t kernel, const struct tri_attr_window *win)
{
    return (out - 1) * win->stride + kernel - in - win->pad;
}

static struct conv conv_make(const struct tri_kernel_desc *d, const struct tri_arg *x,
                             const struct tri_arg *y)
{
    const struct tri_attr_window *win = &d->attrs.window;
    int64_t xd[4], yd[4], wd[4];
    struct conv c;

    tri_onednn_nchw(&x->shape, xd);
    tri_onednn_nchw(&y->shape, yd);
    wd[0] = yd[1];
    wd[1] = xd[1];
    wd[2] = win->kh;
    wd[3] = win->kw;
    c.x = tri_onednn_md(4, xd, dnnl_nhwc);
    c.y = tri_onednn_md(4, yd, dnnl_nhwc);
    c.w = tri_onednn_md(4, wd, dnnl_format_tag_any);
    c.w_plain = tri_onednn_md(4, wd, dnnl_oihw);
    c.bias = tri_onednn_md(1, wd, dnnl_x);
    c.stride[0] = c.stride[1] = win->stride;
    c.pad_before[0] = c.pad_before[1] = win->pad;
    c.pad_after[0] = pad_after(xd[2], yd[2], win->kh, win);
    c.pad_after[1] = pad_after(xd[3], yd[3], win->kw, win);
    return c;
}

static bool is_f32(const struct tri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        if (d->in[i].shape.ndim >= 0 && d->in[i].dtype != TRI_F32)
            return false;
    return true;
}

static tri_status prepare_conv2d(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct conv c = conv_make(d, &d->in[0], &d->out[0]);
    bool bias = d->nin > 2 && d->in[2].shape.ndim >= 0;
    struct tri_onednn_kernel *k;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    struct tri_onednn_arg args[4];

    if (!is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_onednn_begin(&tri_kernel_conv2d_onednn, d->nthreads, &k));
    args[0] =
        (struct tri_onednn_arg){DNNL_ARG_SRC, tri_onednn_add_memory(k, TRI_ONEDNN_IN, 0, &c.x)};
    args[1] = (struct tri_onednn_arg){DNNL_ARG_WEIGHTS,
                                      tri_onednn_add_memory(k, TRI_ONEDNN_IN, 1, &c.w_plain)};
    args[2] =
        (struct tri_onednn_arg){DNNL_ARG_DST, tri_onednn_add_memory(k, TRI_ONEDNN_OUT, 0, &c.y)};
    if (bias)
        args[3] = (struct tri_onednn_arg){DNNL_ARG_BIAS,
                                          tri_onednn_add_memory(k, TRI_ONEDNN_IN, 2, &c.bias)};
    if (dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                           &c.x, &c.w, bias ? &c.bias : NULL, &c.y, c.stride,
                                           c.pad_before, c.pad_after) != dnnl_success)
        k->status = dnnl_unimplemented;
    pd = tri_onednn_describe(k, &desc, NULL, NULL);
    if (pd != NULL)
        args[1].memory = tri_onednn_add_converted(
            k, args[1].memory, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    tri_onednn_add_step(k, pd, args, bias ? 4 : 3);
    return tri_onednn_finish(k, out);
}

/* The forward primitive of the same shapes, which oneDNN wants as a hint for the backward ones. */
static dnnl_primitive_desc_t forward_hint(struct tri_onednn_kernel *k, const struct conv *c)
{
    dnnl_convolution_desc_t desc;

    if (dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                           &c->x, &c->w, NULL, &c->y, c->stride, c->pad_before,
                                           c->pad_after) != dnnl_success)
        k->status = dnnl_unimplemented;
    return tri_onednn_describe(k, &desc, NULL, NULL);
}

static tri_status prepare_conv2d_dx(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct conv c = conv_make(d, &d->out[0], &d->in[0]);
    struct tri_onednn_kernel *k;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint, pd;
    struct tri_onednn_arg args[3];

    if (!is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_onednn_begin(&tri_kernel_conv2d_dx_onednn, d->nthreads, &k));
    args[0] = (struct tri_onednn_arg){DNNL_ARG_DIFF_DST,
                                      tri_onednn_add_memory(k, TRI_ONEDNN_IN, 0, &c.y)};
    args[1] = (struct tri_onednn_arg){DNNL_ARG_WEIGHTS,
                                      tri_onednn_add_memory(k, TRI_ONEDNN_IN, 1, &c.w_plain)};
    args[2] = (struct tri_onednn_arg){DNNL_ARG_DIFF_SRC,
                                      tri_onednn_add_memory(k, TRI_ONEDNN_OUT, 0, &c.x)};
    hint = forward_hint(k, &c);
    if (dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &c.x, &c.w, &c.y,
                                                 c.stride, c.pad_before,
                                                 c.pad_after) != dnnl_success)
        k->status = dnnl_unimplemented;
    pd = tri_onednn_describe(k, &desc, hint, NULL);
    dnnl_primitive_desc_destroy(hint);
    if (pd != NULL)
        args[1].memory = tri_onednn_add_converted(
            k, args[1].memory, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    tri_onednn_add_step(k, pd, args, 3);
    return tri_onednn_finish(k, out);
}

static tri_status prepare_conv2d_dw(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct conv c = conv_make(d, &d->in[0], &d->in[1]);
    bool acc = d->nin > 2 && d->in[2].shape.ndim >= 0, direct = false;
    struct tri_onednn_kernel *k;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint, pd;
    const dnnl_memory_desc_t *want;
    struct tri_onednn_arg args[3];
    int dw;

    if (!is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_onednn_begin(&tri_kernel_conv2d_dw_onednn, d->nthreads, &k));
    args[0] =
        (struct tri_onednn_arg){DNNL_ARG_SRC, tri_onednn_add_memory(k, TRI_ONEDNN_IN, 0, &c.x)};
    args[1] = (struct tri_onednn_arg){DNNL_ARG_DIFF_DST,
                                      tri_onednn_add_memory(k, TRI_ONEDNN_IN, 1, &c.y)};
    dw = tri_onednn_add_memory(k, TRI_ONEDNN_OUT, 0, &c.w_plain);
    args[2] = (struct tri_onednn_arg){DNNL_ARG_DIFF_WEIGHTS, dw};
    hint = forward_hint(k, &c);
    if (dnnl_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &c.x, &c.w,
                                                    NULL, &c.y, c.stride, c.pad_before,
                                                    c.pad_after) != dnnl_success)
        k->status = dnnl_unimplemented;
    pd = tri_onednn_describe(k, &desc, hint, NULL);
    dnnl_primitive_desc_destroy(hint);
    if (pd != NULL) {
        want = dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
        direct = !acc && dnnl_memory_desc_equal(want, &c.w_plain);
        if (!direct)
            args[2].memory = tri_onednn_add_memory(k, TRI_ONEDNN_SCRATCH, 0, want);
    }
    tri_onednn_add_step(k, pd, args, 3);
    if (!direct)
        tri_onednn_add_reorder(k, args[2].memory, dw, acc);
    return tri_onednn_finish(k, out);
}

#define OPS(op)                                                                                    \
    const struct tri_kernel_ops tri_kernel_##op##_onednn = {.name = #op "_onednn",                 \
                                                            .prepare = prepare_##op,               \
                                                            .run = tri_onednn_run,                 \
                                                            .destroy = tri_onednn_destroy}
OPS(conv2d);
OPS(conv2d_dx);
OPS(conv2d_dw);
