/* Convolutions with oneDNN: NHWC activations in and out, filters OIHW as they are stored.
 *
 * A convolution is done in one of four forms, chosen by shape alone; where oneDNN lacks a form (it
 * has Winograd's for AVX-512 only), DIRECT serves:
 *   PRODUCT   1x1, stride 1: a matrix product over the pixels (conv_product.c);
 *   WINOGRAD  3x3, stride 1: F(4x4, 3x3) of Lavin and Gray, "Fast algorithms for convolutional
 *             neural networks", 2015: a quarter of the multiplications;
 *   BLOCKED   direct, on activations in oneDNN's own format;
 *   DIRECT    direct, on NHWC.
 * WINOGRAD and BLOCKED convert activations in planned scratch. The inner format of filters is
 * oneDNN's choice in every form; they are converted in each run (they change every step, and are
 * small beside the activations). The order of a sum is oneDNN's, fixed for a shape and a number of
 * threads. Class: 4 ulp of the sum of |x||w|, f32; WINOGRAD 8 ulp: its
 * transforms give a result 1e-6 of its rms off instead of 2e-7. */
#include "runtime/kernels/cpu/conv_product.h"
#include "runtime/kernels/cpu/cpu_kernels.h"
#include "runtime/kernels/cpu/onednn.h"

#include <string.h>

enum form { PRODUCT, WINOGRAD, BLOCKED, DIRECT };

/* Which of the three tensors is computed of the other two. */
enum part { FORWARD, DATA_GRAD, FILTER_GRAD };

enum { X, W, Y, NTENSORS };

/* What a tensor is to the primitive, and which argument of the kernel it is. */
struct role {
    int arg; /* DNNL_ARG_... */
    enum tri_onednn_place place;
    int index;
    dnnl_query_t format;
};

static const struct role roles[][NTENSORS] = {
    [FORWARD] = {[X] = {DNNL_ARG_SRC, TRI_ONEDNN_IN, 0, dnnl_query_src_md},
                 [W] = {DNNL_ARG_WEIGHTS, TRI_ONEDNN_IN, 1, dnnl_query_weights_md},
                 [Y] = {DNNL_ARG_DST, TRI_ONEDNN_OUT, 0, dnnl_query_dst_md}},
    [DATA_GRAD] = {[X] = {DNNL_ARG_DIFF_SRC, TRI_ONEDNN_OUT, 0, dnnl_query_diff_src_md},
                   [W] = {DNNL_ARG_WEIGHTS, TRI_ONEDNN_IN, 1, dnnl_query_weights_md},
                   [Y] = {DNNL_ARG_DIFF_DST, TRI_ONEDNN_IN, 0, dnnl_query_diff_dst_md}},
    [FILTER_GRAD] = {[X] = {DNNL_ARG_SRC, TRI_ONEDNN_IN, 0, dnnl_query_src_md},
                     [W] = {DNNL_ARG_DIFF_WEIGHTS, TRI_ONEDNN_OUT, 0, dnnl_query_diff_weights_md},
                     [Y] = {DNNL_ARG_DIFF_DST, TRI_ONEDNN_IN, 1, dnnl_query_diff_dst_md}}};

/* One convolution in oneDNN's words. */
struct conv {
    enum part part;
    dnnl_memory_desc_t plain[NTENSORS]; /* as the tensors are stored */
    dnnl_memory_desc_t bias;
    dnnl_dims_t stride, pad_before, pad_after;
    bool has_bias, accumulate;
};

/* Padding behind that makes `in` give exactly `out`: negative where the last positions of x are
 * never looked at. */
static int64_t pad_after(int64_t in, int64_t out, int64_t kernel, const struct tri_attr_window *win)
{
    return (out - 1) * win->stride + kernel - in - win->pad;
}

static struct conv conv_make(const struct tri_kernel_desc *d, enum part part)
{
    const struct tri_attr_window *win = &d->attrs.window;
    const struct tri_arg *x = part == DATA_GRAD ? &d->out[0] : &d->in[0];
    const struct tri_arg *y = part == FORWARD ? &d->out[0] : &d->in[part == FILTER_GRAD];
    bool third = d->nin > 2 && d->in[2].shape.ndim >= 0;
    struct conv c = {.part = part,
                     .has_bias = third && part == FORWARD,
                     .accumulate = third && part == FILTER_GRAD};
    int64_t xd[4], yd[4], wd[4];

    tri_onednn_nchw(&x->shape, xd);
    tri_onednn_nchw(&y->shape, yd);
    wd[0] = yd[1];
    wd[1] = xd[1];
    wd[2] = win->kh;
    wd[3] = win->kw;
    c.plain[X] = tri_onednn_md(4, xd, dnnl_nhwc);
    c.plain[W] = tri_onednn_md(4, wd, dnnl_oihw);
    c.plain[Y] = tri_onednn_md(4, yd, dnnl_nhwc);
    c.bias = tri_onednn_md(1, wd, dnnl_x);
    c.stride[0] = c.stride[1] = win->stride;
    c.pad_before[0] = c.pad_before[1] = win->pad;
    c.pad_after[0] = pad_after(xd[2], yd[2], win->kh, win);
    c.pad_after[1] = pad_after(xd[3], yd[3], win->kw, win);
    return c;
}

/* Measured on two cores with AVX-512 over the layers of ResNet-18, -20 and -50, conversions
 * included:
 * - WINOGRAD takes 0.4 to 0.9 of DIRECT's time from 32 channels on each side; with 16 it is behind.
 * - PRODUCT takes 0.6 to 0.95 while the filters are small beside the pixels, else up to 1.3: few
 *   input channels forward, few terms of a sum (or few results) for dx, few columns for dw.
 * - BLOCKED takes 0.75 to 0.9 for dw of 3x3 with stride 2 from 32 channels. */
static enum form choose(const struct conv *c)
{
    int64_t o = c->plain[W].dims[0], i = c->plain[W].dims[1];
    int64_t kernel = c->plain[W].dims[2] == c->plain[W].dims[3] ? c->plain[W].dims[2] : 0;
    bool padded = c->pad_before[0] > 0 || c->pad_after[0] != 0 || c->pad_after[1] != 0;

    if (c->has_bias)
        return DIRECT;
    if (kernel == 1 && c->stride[0] == 1 && !padded) {
        bool few = c->part == FORWARD     ? i <= 128
                   : c->part == DATA_GRAD ? o <= 128 || i <= 64
                                          : i <= 256;

        return few ? PRODUCT : DIRECT;
    }
    if (kernel != 3 || i < 32 || o < 32)
        return DIRECT;
    if (c->stride[0] == 1)
        return WINOGRAD;
    return c->part == FILTER_GRAD ? BLOCKED : DIRECT;
}

/* oneDNN's description of the convolution with tensors in the formats of md; the backward ones want
 * the forward one as a hint. NULL after a failure. */
static dnnl_primitive_desc_t describe(struct tri_onednn_kernel *k, const struct conv *c,
                                      dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md)
{
    dnnl_convolution_desc_t forward, backward;
    dnnl_primitive_desc_t hint, pd;
    dnnl_status_t st;

    if (dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, alg, &md[X], &md[W],
                                           c->has_bias ? &c->bias : NULL, &md[Y], c->stride,
                                           c->pad_before, c->pad_after) != dnnl_success)
        k->status = dnnl_unimplemented;
    hint = tri_onednn_describe(k, &forward, NULL, NULL);
    if (c->part == FORWARD)
        return hint;
    if (c->part == DATA_GRAD)
        st = dnnl_convolution_backward_data_desc_init(&backward, alg, &md[X], &md[W], &md[Y],
                                                      c->stride, c->pad_before, c->pad_after);
    else
        st = dnnl_convolution_backward_weights_desc_init(
            &backward, alg, &md[X], &md[W], NULL, &md[Y], c->stride, c->pad_before, c->pad_after);
    if (st != dnnl_success)
        k->status = dnnl_unimplemented;
    pd = tri_onednn_describe(k, &backward, hint, NULL);
    dnnl_primitive_desc_destroy(hint);
    return pd;
}

/* Adds a tensor of the primitive of pd, converted to the format it wants. `stored` is the kernel's
 * argument; the two are one memory where the formats are equal and nothing is added up. */
static struct tri_onednn_arg add_tensor(struct tri_onednn_kernel *k, const struct conv *c,
                                        dnnl_primitive_desc_t pd, int tensor, int *stored)
{
    const struct role *r = &roles[c->part][tensor];
    const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(pd, r->format, 0);
    bool sum = c->accumulate && tensor == W;
    int memory = tri_onednn_add_memory(k, r->place, r->index, &c->plain[tensor]);

    *stored = memory;
    if (r->place == TRI_ONEDNN_IN)
        memory = tri_onednn_add_converted(k, memory, want);
    else if (sum || !dnnl_memory_desc_equal(want, &c->plain[tensor]))
        memory = tri_onednn_add_memory(k, TRI_ONEDNN_SCRATCH, 0, want);
    return (struct tri_onednn_arg){r->arg, memory};
}

static tri_status prepare_form(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               const struct conv *c, enum form form, struct tri_kernel **out)
{
    static const int result[] = {[FORWARD] = Y, [DATA_GRAD] = X, [FILTER_GRAD] = W};
    dnnl_memory_desc_t md[NTENSORS];
    dnnl_primitive_desc_t pd;
    struct tri_onednn_kernel *k;
    struct tri_onednn_arg args[NTENSORS + 1];
    int stored[NTENSORS] = {0}, r = result[c->part];

    TRI_TRY(tri_onednn_begin(ops, d->nthreads, &k));
    for (int t = 0; t < NTENSORS; t++) {
        md[t] = c->plain[t];
        if (t == W || form != DIRECT)
            md[t] = tri_onednn_md(4, c->plain[t].dims, dnnl_format_tag_any);
    }
    pd = describe(k, c, form == WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct, md);
    if (pd == NULL)
        return tri_onednn_finish(k, out);
    for (int t = 0; t < NTENSORS; t++)
        args[t] = add_tensor(k, c, pd, t, &stored[t]);
    if (c->has_bias)
        args[NTENSORS] = (struct tri_onednn_arg){
            DNNL_ARG_BIAS, tri_onednn_add_memory(k, TRI_ONEDNN_IN, 2, &c->bias)};
    tri_onednn_add_step(k, pd, args, NTENSORS + c->has_bias);
    if (args[r].memory != stored[r])
        tri_onednn_add_reorder(k, args[r].memory, stored[r], c->accumulate);
    return tri_onednn_finish(k, out);
}

static tri_status prepare_part(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               enum part part, struct tri_kernel **out)
{
    struct conv c;
    enum form form;
    tri_status st;

    for (int i = 0; i < d->nin; i++)
        if (d->in[i].shape.ndim >= 0 && d->in[i].dtype != TRI_F32)
            return TRI_ERR_UNSUPPORTED;
    c = conv_make(d, part);
    form = choose(&c);
    if (form == PRODUCT)
        return tri_conv_product_prepare(d, out);
    st = prepare_form(d, ops, &c, form, out);
    if (st == TRI_ERR_UNSUPPORTED && form != DIRECT)
        st = prepare_form(d, ops, &c, DIRECT, out);
    return st;
}

/* Table entry of a part. */
#define CONV(op, part)                                                                             \
    static tri_status prepare_##op(const struct tri_kernel_desc *d, struct tri_kernel **out)       \
    {                                                                                              \
        return prepare_part(d, &tri_kernel_##op##_onednn, part, out);                              \
    }                                                                                              \
    const struct tri_kernel_ops tri_kernel_##op##_onednn = {.name = #op "_onednn",                 \
                                                            .prepare = prepare_##op,               \
                                                            .run = tri_onednn_run,                 \
                                                            .destroy = tri_onednn_destroy}

CONV(conv2d, FORWARD);
CONV(conv2d_dx, DATA_GRAD);
CONV(conv2d_dw, FILTER_GRAD);
