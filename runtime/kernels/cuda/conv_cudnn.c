/* Convolutions with cuDNN: NHWC activations as they are, filters [O,I,KH,KW] turned into the
 * library's [O,KH,KW,I] in planned scratch (nothing is moved where the two are the same: 1x1, or
 * one input channel).
 *
 * Class: 4 ulp of the sum of |x||w|, f32, summed in f32 in the order of the engine, which the
 * heuristics choose by shape alone (by time where the device has `tune`) among those that repeat
 * their bits; tf32 rounds operands to 10 bits; 16-bit operands are summed in f32 and rounded once.
 * A 16-bit result with a bias is rounded once more. A gradient of filters of 16-bit operands is
 * rounded to 16 bits before it is added in f32: no engine writes it in f32 (cuDNN 9.19). */
#include "runtime/device/cuda_device.h"
#include "runtime/kernels/cuda/convert.h"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/cudnn_graph.h"
#include "runtime/kernels/cuda/tune.h"

#define WORKSPACE_LIMIT ((size_t)512 << 20)

/* Which of the three tensors is computed of the other two. */
enum part { FORWARD, DATA_GRAD, FILTER_GRAD };

struct conv_kernel {
    struct tri_kernel base;
    struct tri_cudnn_graph graph;
    enum part part;
    enum tri_dtype type; /* of all that the library sees */
    int64_t o, i, taps;
    int64_t rows; /* of y: B H' W' */
    bool bias, acc;
    bool turned;         /* filters go through scratch */
    size_t filter_bytes; /* there, before the workspace */
};

/* An NHWC tensor in the library's order of dimensions. */
static struct tri_cudnn_tensor image(enum tri_dtype type, const struct tri_shape *s)
{
    int64_t n = s->dim[0], h = s->dim[1], w = s->dim[2], c = s->dim[3];

    return (struct tri_cudnn_tensor){
        .type = tri_cudnn_type(type), 4, {n, c, h, w}, {h * w * c, 1, w * c, c}};
}

static struct tri_cudnn_tensor filters(enum tri_dtype type, int64_t o, int64_t i,
                                       const struct tri_attr_window *win)
{
    int64_t kh = win->kh, kw = win->kw;

    return (struct tri_cudnn_tensor){
        .type = tri_cudnn_type(type), 4, {o, i, kh, kw}, {kh * kw * i, 1, kw * i, i}};
}

static const struct tri_arg *x_of(const struct tri_kernel_desc *d, enum part part)
{
    return part == DATA_GRAD ? &d->out[0] : &d->in[0];
}

static const struct tri_arg *y_of(const struct tri_kernel_desc *d, enum part part)
{
    return part == FORWARD ? &d->out[0] : &d->in[part == FILTER_GRAD];
}

/* Builds and plans the graph. Tensors are bound in the order x, w, y. */
static tri_status plan(struct conv_kernel *k, const struct tri_kernel_desc *d)
{
    static const cudnnBackendDescriptorType_t kind[] = {
        [FORWARD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        [DATA_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        [FILTER_GRAD] = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    const struct tri_attr_window *win = &d->attrs.window;
    struct tri_cudnn_tensor x = image(k->type, &x_of(d, k->part)->shape);
    struct tri_cudnn_tensor y = image(k->type, &y_of(d, k->part)->shape);
    struct tri_cudnn_tensor w = filters(k->type, k->o, k->i, win);
    tri_cudnn_desc dx, dw, dy;
    tri_status st;

    k->graph = (struct tri_cudnn_graph){.handle = tri_cuda_device(d->device)->cudnn};
    dx = tri_cudnn_bound(&k->graph, &x);
    dw = tri_cudnn_bound(&k->graph, &w);
    dy = tri_cudnn_bound(&k->graph, &y);
    tri_cudnn_convolution(&k->graph, kind[k->part],
                          &(struct tri_cudnn_window){.stride = win->stride, .pad = win->pad}, dx,
                          dw, dy);
    st = tri_cudnn_plans(&k->graph, k->type == TRI_F32 && !win->tf32, WORKSPACE_LIMIT,
                         d->device->tune ? TRI_CUDNN_MAX_PLANS : 1);
    if (st == TRI_ERR_UNSUPPORTED)
        return tri_fail(st, "cuDNN: no engine for a convolution of %s with %lld x %lld filters",
                        tri_dtype_name(k->type), (long long)win->kh, (long long)win->kw);
    return st;
}

static void configure(struct conv_kernel *k, const struct tri_kernel_desc *d, enum part part)
{
    const struct tri_shape *x = &x_of(d, part)->shape, *y = &y_of(d, part)->shape;
    bool third = tri_arg_present(d->in, 2, d->nin);

    k->part = part;
    k->type = d->in[0].dtype;
    k->o = y->dim[3];
    k->i = x->dim[3];
    k->taps = d->attrs.window.kh * d->attrs.window.kw;
    k->rows = tri_shape_rows(y);
    k->bias = third && part == FORWARD;
    k->acc = third && part == FILTER_GRAD;
}

static void plan_scratch(struct conv_kernel *k)
{
    size_t bytes = (size_t)(k->o * k->i * k->taps) * tri_dtype_bytes(k->type);

    k->turned =
        (k->taps > 1 && k->i > 1) || k->acc || (k->part == FILTER_GRAD && k->type != TRI_F32);
    k->filter_bytes = k->turned ? tri_round_up(bytes, TRI_CUDA_ALIGN) : 0;
}

static void select_plan(struct tri_kernel *kernel, int plan)
{
    struct conv_kernel *k = (struct conv_kernel *)kernel;
    size_t bytes;

    tri_cudnn_choose(&k->graph, plan);
    bytes = k->filter_bytes + k->graph.workspace_bytes;
    k->base.scratch_bytes = bytes > 0 ? bytes + TRI_CUDA_ALIGN : 0;
}

static void destroy_conv(struct tri_kernel *kernel)
{
    struct conv_kernel *k = (struct conv_kernel *)kernel;

    if (k == NULL)
        return;
    tri_cudnn_finish(&k->graph);
    tri_free(k);
}

static tri_status prepare_part(const struct tri_kernel_desc *d, enum part part,
                               const struct tri_kernel_ops *ops, struct tri_kernel **out)
{
    struct conv_kernel *k = tri_calloc(1, sizeof(*k), "kernel");
    tri_status st;

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", ops->name);
    k->base.ops = ops;
    configure(k, d, part);
    TRI_TRY_GOTO(st, plan(k, d), destroy);
    plan_scratch(k);
    select_plan(&k->base, 0);
    if (k->graph.nplan > 1)
        TRI_TRY_GOTO(st, tri_cuda_tune(d, &k->base, k->graph.nplan, select_plan), destroy);
    *out = &k->base;
    return TRI_OK;

destroy:
    destroy_conv(&k->base);
    return st;
}

static tri_status run_conv(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct conv_kernel *k = (const struct conv_kernel *)kernel;
    unsigned char *scratch = tri_cuda_scratch(args->scratch);
    void *workspace = k->graph.workspace_bytes > 0 ? scratch + k->filter_bytes : NULL;
    void *x = k->part == DATA_GRAD ? args->out[0] : args->in[0];
    void *w = k->part == FILTER_GRAD ? args->out[0] : args->in[1];
    void *y = k->part == FORWARD ? args->out[0] : args->in[k->part == FILTER_GRAD];

    if (k->turned && k->part != FILTER_GRAD)
        TRI_TRY(tri_cuda_filters_last(k->type, w, scratch, k->o, k->i, k->taps, args->stream));
    TRI_TRY(tri_cudnn_run(&k->graph, (void *[]){x, k->turned ? scratch : w, y}, 3, workspace,
                          args->stream));
    if (k->turned && k->part == FILTER_GRAD)
        return tri_cuda_filters_first(k->type, scratch, k->acc ? args->in[2] : NULL, w, k->o, k->i,
                                      k->taps, args->stream);
    if (k->bias)
        return tri_cuda_add_bias(k->type, args->in[2], y, k->rows, k->o, args->stream);
    return TRI_OK;
}

/* Table entry of a part. */
#define CONV(op, part)                                                                             \
    static tri_status prepare_##op(const struct tri_kernel_desc *d, struct tri_kernel **out)       \
    {                                                                                              \
        return prepare_part(d, part, &tri_kernel_##op##_cudnn, out);                               \
    }                                                                                              \
    const struct tri_kernel_ops tri_kernel_##op##_cudnn = {                                        \
        .name = #op "_cudnn", .prepare = prepare_##op, .run = run_conv, .destroy = destroy_conv}

CONV(conv2d, FORWARD);
CONV(conv2d_dx, DATA_GRAD);
CONV(conv2d_dw, FILTER_GRAD);
