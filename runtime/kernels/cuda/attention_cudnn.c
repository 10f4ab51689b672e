/* Attention by cuDNN's composed graph: product, causal select, softmax, product (and their
 * gradients), which its engines for flash attention (Dao, "FlashAttention-2", 2023) recognise. For
 * 16-bit qkv without dropout; everything else, and what no engine takes, is left to the tiled
 * kernels of attention.cu.
 *
 * Scores, softmax and sums in f32, probabilities and score gradients rounded to 16 bits before the
 * second product. Class: 2^-8 (bf16) or 2^-11 (f16) of the sum of |p||v|. Only engines that repeat
 * their bits are taken. */
#include "runtime/device/cuda_device.h"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/cudnn_graph.h"

#include <float.h>
#include <math.h>

#define ALIGNMENT       16                /* of q, k, v inside a row of qkv */
#define WORKSPACE_LIMIT ((size_t)4 << 30) /* the gradient keeps T x T scores of each head there */

struct attention_kernel {
    struct tri_kernel base;
    struct tri_cudnn_graph graph;
    int64_t batch, time, heads, width; /* width: of a head */
    cudnnDataType_t type;
    bool causal;
    float scale, hidden; /* given with each run: 1 / sqrt(width), the score of what is not seen */
};

/* The shapes that occur, with the strides of the memory they lie in. */
static struct tri_cudnn_tensor rows(const struct attention_kernel *k, int64_t row)
{
    return (struct tri_cudnn_tensor){
        k->type, 4, {k->batch, k->heads, k->time, k->width}, {k->time * row, k->width, row, 1}};
}

static struct tri_cudnn_tensor columns(const struct attention_kernel *k, int64_t row)
{
    return (struct tri_cudnn_tensor){
        k->type, 4, {k->batch, k->heads, k->width, k->time}, {k->time * row, k->width, 1, row}};
}

static struct tri_cudnn_tensor scores(const struct attention_kernel *k, cudnnDataType_t type)
{
    int64_t t = k->time;

    return (struct tri_cudnn_tensor){
        type, 4, {k->batch, k->heads, t, t}, {k->heads * t * t, t * t, t, 1}};
}

static struct tri_cudnn_tensor scores_turned(const struct attention_kernel *k)
{
    struct tri_cudnn_tensor t = scores(k, k->type);

    t.stride[2] = 1;
    t.stride[3] = k->time;
    return t;
}

static struct tri_cudnn_tensor of_row(const struct attention_kernel *k)
{
    return (struct tri_cudnn_tensor){
        CUDNN_DATA_FLOAT, 4, {k->batch, k->heads, k->time, 1}, {k->heads * k->time, k->time, 1, 1}};
}

static tri_cudnn_desc between(struct tri_cudnn_graph *g, struct tri_cudnn_tensor t)
{
    return tri_cudnn_between(g, &t);
}

static tri_cudnn_desc bound(struct tri_cudnn_graph *g, struct tri_cudnn_tensor t)
{
    return tri_cudnn_bound_at(g, &t, ALIGNMENT);
}

/* A tensor of scores that is mode(x, b). */
static tri_cudnn_desc pointwise(struct attention_kernel *k, cudnnPointwiseMode_t mode,
                                tri_cudnn_desc x, tri_cudnn_desc b)
{
    tri_cudnn_desc y = between(&k->graph, scores(k, CUDNN_DATA_FLOAT));

    tri_cudnn_pointwise(&k->graph, mode, x, b, NULL, y, -1);
    return y;
}

static tri_cudnn_desc reduced(struct attention_kernel *k, cudnnReduceTensorOp_t what,
                              tri_cudnn_desc x)
{
    tri_cudnn_desc y = between(&k->graph, of_row(k));

    tri_cudnn_reduce(&k->graph, what, x, y);
    return y;
}

/* s where the column is not beyond the row, else `hidden`. */
static tri_cudnn_desc mask(struct attention_kernel *k, tri_cudnn_desc s, tri_cudnn_desc hidden)
{
    struct tri_cudnn_graph *g = &k->graph;
    tri_cudnn_desc row = between(g, scores(k, CUDNN_DATA_INT32));
    tri_cudnn_desc column = between(g, scores(k, CUDNN_DATA_INT32));
    tri_cudnn_desc seen = between(g, scores(k, CUDNN_DATA_BOOLEAN));
    tri_cudnn_desc y = between(g, scores(k, CUDNN_DATA_FLOAT));

    tri_cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, row, 2);
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, column, 3);
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, row, column, NULL, seen, -1);
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, s, hidden, seen, y, -1);
    return y;
}

/* s = scale q k^T */
static tri_cudnn_desc add_scores(struct attention_kernel *k, tri_cudnn_desc q, tri_cudnn_desc kt,
                                 tri_cudnn_desc scale)
{
    tri_cudnn_desc s = between(&k->graph, scores(k, CUDNN_DATA_FLOAT));

    tri_cudnn_matmul(&k->graph, q, kt, s);
    return pointwise(k, CUDNN_POINTWISE_MUL, s, scale);
}

/* p = softmax(s) in 16 bits, lse = max + log sum exp(s - max). */
static tri_cudnn_desc add_softmax(struct attention_kernel *k, tri_cudnn_desc s, tri_cudnn_desc lse)
{
    struct tri_cudnn_graph *g = &k->graph;
    tri_cudnn_desc most = reduced(k, CUDNN_REDUCE_TENSOR_MAX, s);
    tri_cudnn_desc e = pointwise(k, CUDNN_POINTWISE_SUB, s, most), sum, log_sum, p;

    e = pointwise(k, CUDNN_POINTWISE_EXP, e, NULL);
    sum = reduced(k, CUDNN_REDUCE_TENSOR_ADD, e);
    log_sum = between(g, of_row(k));
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log_sum, -1);
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_ADD, most, log_sum, NULL, lse, -1);
    p = between(g, scores(k, k->type));
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_DIV, e, sum, NULL, p, -1);
    return p;
}

/* Bound in the order of enum forward. */
enum forward { F_Q, F_K, F_V, F_OUT, F_LSE, F_SCALE, F_HIDDEN, F_COUNT };

static void build_forward(struct attention_kernel *k)
{
    struct tri_cudnn_graph *g = &k->graph;
    int64_t row = k->heads * k->width;
    tri_cudnn_desc q = bound(g, rows(k, 3 * row)), kt = bound(g, columns(k, 3 * row));
    tri_cudnn_desc v = bound(g, rows(k, 3 * row)), out = bound(g, rows(k, row));
    tri_cudnn_desc lse = bound(g, of_row(k)), scale = tri_cudnn_number(g, 4);
    tri_cudnn_desc hidden = k->causal ? tri_cudnn_number(g, 4) : NULL;
    tri_cudnn_desc s = add_scores(k, q, kt, scale);

    if (k->causal)
        s = mask(k, s, hidden);
    tri_cudnn_matmul(g, add_softmax(k, s, lse), v, out);
}

/* Bound in the order of enum backward; `sums` [B,heads,T] lies in scratch. */
enum backward {
    B_DOUT,
    B_Q,
    B_K,
    B_V,
    B_OUT,
    B_LSE,
    B_DQ,
    B_DK,
    B_DV,
    B_SUMS,
    B_SCALE,
    B_HIDDEN,
    B_COUNT
};

/* x turned and in 16 bits, times y: a gradient of k or v. */
static void add_turned_product(struct attention_kernel *k, tri_cudnn_desc x, tri_cudnn_desc y,
                               tri_cudnn_desc result)
{
    tri_cudnn_desc turned = between(&k->graph, scores_turned(k));

    tri_cudnn_reshape(&k->graph, x, turned);
    tri_cudnn_matmul(&k->graph, turned, y, result);
}

/* With p = exp(s - lse) and D_i = sum of dout_i out_i:
 *   dv = p^T dout, ds = p (dout v^T - D) scale, dq = ds k, dk = ds^T q */
static void build_backward(struct attention_kernel *k)
{
    struct tri_cudnn_graph *g = &k->graph;
    int64_t row = k->heads * k->width;
    tri_cudnn_desc dout = bound(g, rows(k, row)), q = bound(g, rows(k, 3 * row));
    tri_cudnn_desc kt = bound(g, columns(k, 3 * row)), vt = bound(g, columns(k, 3 * row));
    tri_cudnn_desc out = bound(g, rows(k, row)), lse = bound(g, of_row(k));
    tri_cudnn_desc dq = bound(g, rows(k, 3 * row)), dk = bound(g, rows(k, 3 * row));
    tri_cudnn_desc dv = bound(g, rows(k, 3 * row)), sums = bound(g, of_row(k));
    tri_cudnn_desc scale = tri_cudnn_number(g, 4);
    tri_cudnn_desc hidden = k->causal ? tri_cudnn_number(g, 4) : NULL;
    struct tri_cudnn_tensor product = rows(k, row);
    tri_cudnn_desc each, p, ds, rows_of_k;

    product.type = CUDNN_DATA_FLOAT;
    each = between(g, product);
    tri_cudnn_pointwise(g, CUDNN_POINTWISE_MUL, dout, out, NULL, each, -1);
    tri_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, sums);

    p = pointwise(k, CUDNN_POINTWISE_SUB, add_scores(k, q, kt, scale), lse);
    if (k->causal)
        p = mask(k, p, hidden);
    p = pointwise(k, CUDNN_POINTWISE_EXP, p, NULL);
    add_turned_product(k, p, dout, dv);

    ds = between(g, scores(k, CUDNN_DATA_FLOAT));
    tri_cudnn_matmul(g, dout, vt, ds);
    ds = pointwise(k, CUDNN_POINTWISE_SUB, ds, sums);
    ds = pointwise(k, CUDNN_POINTWISE_MUL, ds, p);
    ds = pointwise(k, CUDNN_POINTWISE_MUL, ds, scale);
    add_turned_product(k, ds, q, dk);
    rows_of_k = between(g, rows(k, 3 * row));
    tri_cudnn_reshape(g, kt, rows_of_k);
    tri_cudnn_matmul(g, ds, rows_of_k, dq);
}

static void destroy_attention(struct tri_kernel *kernel)
{
    struct attention_kernel *k = (struct attention_kernel *)kernel;

    if (k == NULL)
        return;
    tri_cudnn_finish(&k->graph);
    tri_free(k);
}

/* What both directions share. */
static tri_status prepare_graph(const struct tri_kernel_desc *d, const struct tri_arg *qkv,
                                const struct tri_kernel_ops *ops,
                                void (*build)(struct attention_kernel *k), struct tri_kernel **out)
{
    struct attention_kernel *k;
    tri_status st;

    if (!tri_dtype_is_half(qkv->dtype) || d->attrs.attention.p > 0)
        return TRI_ERR_UNSUPPORTED;
    k = tri_calloc(1, sizeof(*k), "kernel");
    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", ops->name);
    k->base.ops = ops;
    k->graph.handle = tri_cuda_device(d->device)->cudnn;
    k->batch = qkv->shape.dim[0];
    k->time = qkv->shape.dim[1];
    k->heads = d->attrs.attention.heads;
    k->width = qkv->shape.dim[2] / 3 / k->heads;
    k->type = tri_cudnn_type(qkv->dtype);
    k->causal = d->attrs.attention.causal;
    k->scale = (float)(1 / sqrt((double)k->width));
    k->hidden = -FLT_MAX;
    if (k->width % (ALIGNMENT / (int64_t)sizeof(uint16_t)) != 0) {
        st = TRI_ERR_UNSUPPORTED;
        goto destroy;
    }
    build(k);
    TRI_TRY_GOTO(st, tri_cudnn_plan(&k->graph, false, WORKSPACE_LIMIT), destroy);
    *out = &k->base;
    return TRI_OK;

destroy:
    destroy_attention(&k->base);
    return st;
}

static unsigned char *part(void *qkv, const struct attention_kernel *k, int which)
{
    return (unsigned char *)qkv + (size_t)(which * k->heads * k->width) * sizeof(uint16_t);
}

static tri_status prepare_attention(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    TRI_TRY(prepare_graph(d, &d->in[0], &tri_kernel_attention_cudnn, build_forward, out));
    (*out)->scratch_bytes =
        ((struct attention_kernel *)*out)->graph.workspace_bytes + TRI_CUDA_ALIGN;
    return TRI_OK;
}

static tri_status run_attention(const struct tri_kernel *kernel, const struct tri_kernel_args *a)
{
    const struct attention_kernel *k = (const struct attention_kernel *)kernel;
    float scale = k->scale, hidden = k->hidden;
    void *ptr[F_COUNT] = {
        [F_Q] = part(a->in[0], k, 0), [F_K] = part(a->in[0], k, 1), [F_V] = part(a->in[0], k, 2),
        [F_OUT] = a->out[0],          [F_LSE] = a->out[1],          [F_SCALE] = &scale,
        [F_HIDDEN] = &hidden};

    return tri_cudnn_run(&k->graph, ptr, k->causal ? F_COUNT : F_HIDDEN,
                         tri_cuda_scratch(a->scratch), a->stream);
}

static size_t sums_bytes(const struct attention_kernel *k)
{
    return tri_round_up((size_t)(k->batch * k->heads * k->time) * sizeof(float), TRI_CUDA_ALIGN);
}

static tri_status prepare_attention_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    const struct attention_kernel *k;

    TRI_TRY(prepare_graph(d, &d->in[1], &tri_kernel_attention_grad_cudnn, build_backward, out));
    k = (const struct attention_kernel *)*out;
    (*out)->scratch_bytes = sums_bytes(k) + k->graph.workspace_bytes + TRI_CUDA_ALIGN;
    return TRI_OK;
}

static tri_status run_attention_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *a)
{
    const struct attention_kernel *k = (const struct attention_kernel *)kernel;
    unsigned char *scratch = tri_cuda_scratch(a->scratch);
    float scale = k->scale, hidden = k->hidden;
    void *ptr[B_COUNT] = {[B_DOUT] = a->in[0],
                          [B_Q] = part(a->in[1], k, 0),
                          [B_K] = part(a->in[1], k, 1),
                          [B_V] = part(a->in[1], k, 2),
                          [B_OUT] = a->in[2],
                          [B_LSE] = a->in[3],
                          [B_DQ] = part(a->out[0], k, 0),
                          [B_DK] = part(a->out[0], k, 1),
                          [B_DV] = part(a->out[0], k, 2),
                          [B_SUMS] = scratch,
                          [B_SCALE] = &scale,
                          [B_HIDDEN] = &hidden};

    return tri_cudnn_run(&k->graph, ptr, k->causal ? B_COUNT : B_HIDDEN, scratch + sums_bytes(k),
                         a->stream);
}

const struct tri_kernel_ops tri_kernel_attention_cudnn = {.name = "attention_cudnn",
                                                          .prepare = prepare_attention,
                                                          .run = run_attention,
                                                          .destroy = destroy_attention};
const struct tri_kernel_ops tri_kernel_attention_grad_cudnn = {.name = "attention_grad_cudnn",
                                                               .prepare = prepare_attention_grad,
                                                               .run = run_attention_grad,
                                                               .destroy = destroy_attention};
