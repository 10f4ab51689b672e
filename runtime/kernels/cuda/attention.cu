/* ATTENTION, ATTENTION_GRAD and ATTENTION_CACHED: choice of the kernels in attention_half.cu and
 * attention_f32.cu, and the cache of generation.
 *
 * cuDNN comes first in the forward direction; in the gradient ours, since cuDNN's repeatable engine
 * keeps T x T scores in memory. A few queries against the cache (FEW or less) have a block each,
 * whose warps take every eighth piece of 32 keys; more are tiled as in ATTENTION. */
#include "runtime/kernels/cuda/attention.cuh"

#include <math.h>

#define FEW   16
#define WARPS 8 /* of a block that has one query */

static bool is_half_kernel(const struct cuda_kernel *k, int64_t width)
{
    return tri_attention_half_supports(k->from, width);
}

static tri_status allow(const struct cuda_kernel *k, int64_t width)
{
    if (is_half_kernel(k, width))
        return tri_attention_half_allow(k->from, width);
    return tri_attention_f32_allow(k->from, width);
}

static tri_status run_pass(const struct cuda_kernel *k, enum tri_attention_pass pass,
                           const struct tri_attention *a, void *stream)
{
    if (is_half_kernel(k, a->width))
        return tri_attention_half_run(k->from, pass, a, stream);
    return tri_attention_f32_run(k->from, pass, a, stream);
}

/* qkv: its place among the inputs; counters: that of the counters, or -1 where there are none. */
static tri_status prepare_tiled(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                int qkv, int counters, struct cuda_kernel **out)
{
    const struct tri_shape *s = &d->in[qkv].shape;
    int64_t width = s->dim[2] / 3 / d->attrs.attention.heads;
    enum tri_dtype type = d->in[qkv].dtype;
    struct cuda_kernel *k;
    tri_status st;

    if (!tri_attention_half_supports(type, width) && !tri_attention_f32_supports(type, width))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    k->dim[0] = s->dim[0];
    k->dim[1] = s->dim[1];
    k->dim[2] = width;
    k->dim[3] = counters;
    st = allow(k, width);
    if (st != TRI_OK)
        tri_cuda_kernel_destroy(&k->base);
    else
        *out = k;
    return st;
}

/* Place of the counters among the inputs, -1 where dropout is off. */
static int counters_of(const struct tri_kernel_desc *d, int i)
{
    return tri_arg_present(d->in, i, d->nin) && d->attrs.attention.p > 0 ? i : -1;
}

/* The parts of qkv and what both directions share. `other`: another tensor with rows of heads. */
static struct tri_attention arguments(const struct cuda_kernel *k,
                                      const struct tri_kernel_args *args, const void *qkv,
                                      const void *other)
{
    const struct tri_attr_attention *at = &k->attrs.attention;
    size_t row = (size_t)(at->heads * k->dim[2]) * tri_dtype_bytes(k->from);
    struct tri_attention a = {};

    a.q = qkv;
    a.k = (const unsigned char *)qkv + row;
    a.v = (const unsigned char *)qkv + 2 * row;
    a.q_row = a.kv_row = 3 * at->heads * k->dim[2];
    a.kv_sample = k->dim[1] * a.kv_row;
    a.batch = (int)k->dim[0];
    a.heads = (int)at->heads;
    a.queries = a.keys = (int)k->dim[1];
    a.width = (int)k->dim[2];
    a.causal = at->causal;
    a.vectors = k->dim[2] * (int64_t)tri_dtype_bytes(k->from) % 16 == 0 &&
                tri_cuda_aligned(qkv, other, NULL);
    a.scale = (float)(1 / sqrt((double)a.width));
    if (k->dim[3] >= 0) {
        a.counters = (const int64_t *)args->in[k->dim[3]];
        a.drop = tri_cuda_dropout_make(at->p, at->seed, at->stream);
        a.first_sample = (uint64_t)(args->grain * k->dim[0]);
    }
    return a;
}

static tri_status prepare_attention(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    tri_status st = tri_kernel_attention_cudnn.prepare(d, out);
    struct cuda_kernel *k;

    if (st != TRI_ERR_UNSUPPORTED)
        return st;
    TRI_TRY(prepare_tiled(d, &tri_cuda_attention, 0, counters_of(d, 1), &k));
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_attention(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    struct tri_attention a = arguments(k, args, args->in[0], args->out[0]);

    a.out = args->out[0];
    a.lse = (float *)args->out[1];
    return run_pass(k, TRI_ATTENTION_FORWARD, &a, args->stream);
}

TRI_CUDA_KERNEL(attention);

static tri_status prepare_attention_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;
    tri_status st = prepare_tiled(d, &tri_cuda_attention_grad, 1, counters_of(d, 4), &k);

    if (st == TRI_ERR_UNSUPPORTED)
        return tri_kernel_attention_grad_cudnn.prepare(d, out);
    TRI_TRY(st);
    k->base.scratch_bytes =
        (size_t)(k->dim[0] * k->attrs.attention.heads * k->dim[1]) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_attention_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    struct tri_attention a = arguments(k, args, args->in[1], args->in[0]);
    size_t row = (size_t)(a.heads * a.width) * tri_dtype_bytes(k->from);

    a.vectors = a.vectors && tri_cuda_aligned(args->out[0], NULL, NULL);
    a.dout = args->in[0];
    a.out_in = args->in[2];
    a.lse_in = (const float *)args->in[3];
    a.delta = (float *)args->scratch;
    a.dq = args->out[0];
    a.dk = (unsigned char *)args->out[0] + row;
    a.dv = (unsigned char *)args->out[0] + 2 * row;
    TRI_TRY(run_pass(k, TRI_ATTENTION_QUERIES, &a, args->stream));
    return run_pass(k, TRI_ATTENTION_KEYS, &a, args->stream);
}

TRI_CUDA_KERNEL(attention_grad);

/* qkv [B,T,3C] -> rows offset .. offset + T - 1 of both caches [B,P,C]. What lies beyond the
 * caches is not stored. */
static __global__ void __launch_bounds__(256)
    store_cache(const float *qkv, float *kcache, float *vcache, const int32_t *offset, int64_t time,
                int64_t capacity, int64_t c, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        int64_t row = i / c, column = i % c, t = *offset + row % time;
        int64_t to = (row / time * capacity + t) * c + column;

        if (t < 0 || t >= capacity)
            continue;
        kcache[to] = qkv[row * 3 * c + c + column];
        vcache[to] = qkv[row * 3 * c + 2 * c + column];
    }
}

/* The state of a warp, and then of the block: maximum, sum, output of lanes 0 .. 31, 32 .. 63, ...
 * of the head. */
template <int LANES> struct partial {
    float max, sum, out[LANES];
};

/* Adds keys [j, j + 32) below `seen` to the state of the warp: lane l scores key j + l. */
template <int LANES>
static __device__ inline void add_keys(struct partial<LANES> &s, const struct tri_attention &a,
                                       const float *q, const float *k, const float *v, int j,
                                       int seen)
{
    int lane = (int)threadIdx.x % 32;
    float score = -INFINITY, top, shrink;

    if (j + lane < seen) {
        const float *row = k + (j + lane) * a.kv_row;

        score = 0.0f;
        for (int c = 0; c < a.width; c++)
            score += q[c] * row[c];
        score *= a.scale;
    }
    top = fmaxf(s.max, tri_warp_max(score));
    shrink = expf(s.max - top);
    score = expf(score - top);
    s.max = top;
    s.sum = s.sum * shrink + tri_warp_sum(score);
    for (int e = 0; e < LANES; e++)
        s.out[e] *= shrink;
    for (int i = 0; i < 32 && j + i < seen; i++) {
        float p = __shfl_sync(0xffffffffu, score, i);
        const float *row = v + (j + i) * a.kv_row;

#pragma unroll
        for (int e = 0; e < LANES; e++)
            if (lane + 32 * e < a.width)
                s.out[e] += p * row[lane + 32 * e];
    }
}

/* One block a query; LANES = width / 32, rounded up. Order: keys of a warp, then the warps. */
template <int LANES>
static __global__ void __launch_bounds__(32 * WARPS) cached(struct tri_attention a)
{
    __shared__ float q[32 * LANES], max[WARPS], sum[WARPS], out[WARPS][32 * LANES];
    struct tri_attention_place at = {(int)blockIdx.z, (int)blockIdx.y, (int)blockIdx.x, *a.offset};
    const float *k = (const float *)a.k + tri_attention_kv(a, at);
    const float *v = (const float *)a.v + tri_attention_kv(a, at);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, t = (int)threadIdx.x;
    int seen = tri_attention_keys(a, at, 1);
    struct partial<LANES> s = {
        - INFINITY, 0.0f,
        {
        }
    };

    if (t < a.width)
        q[t] = ((const float *)a.q + tri_attention_q(a, at) + at.row * a.q_row)[t];
    __syncthreads();
    for (int j = 32 * warp; j < seen; j += 32 * WARPS)
        add_keys(s, a, q, k, v, j, seen);
    max[warp] = s.max;
    sum[warp] = s.sum;
    for (int e = 0; e < LANES; e++)
        out[warp][lane + 32 * e] = s.out[e];
    __syncthreads();
    if (t < a.width) {
        float top = -INFINITY, total = 0.0f, o = 0.0f;

        for (int w = 0; w < WARPS; w++)
            top = fmaxf(top, max[w]);
        for (int w = 0; w < WARPS; w++) {
            float share = expf(max[w] - top);

            total += share * sum[w];
            o += share * out[w][t];
        }
        ((float *)a.out + tri_attention_out(a, at) + (int64_t)at.row * a.heads * a.width)[t] =
            o / total;
    }
}

static tri_status prepare_attention_cached(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(prepare_tiled(d, &tri_cuda_attention_cached, 0, -1, &k));
    k->dim[4] = d->in[1].shape.dim[1]; /* capacity */
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_attention_cached(const struct tri_kernel *kernel,
                                       const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    struct tri_attention a = arguments(k, args, args->in[0], args->out[0]);
    int64_t c = (int64_t)a.heads * a.width, n = k->dim[0] * k->dim[1] * c;
    dim3 grid((unsigned)a.queries, (unsigned)a.heads, (unsigned)a.batch);
    void (*few)(struct tri_attention) = a.width <= 32    ? cached<1>
                                        : a.width <= 64  ? cached<2>
                                        : a.width <= 128 ? cached<4>
                                                         : cached<8>;

    a.k = args->out[1];
    a.v = args->out[2];
    a.offset = (const int32_t *)args->in[3];
    a.out = args->out[0];
    a.kv_row = c;
    a.kv_sample = k->dim[4] * c;
    a.keys = (int)k->dim[4];
    a.causal = true;
    a.vectors = a.vectors && tri_cuda_aligned(a.k, a.v, NULL);
    TRI_TRY(tri_launch(store_cache, tri_cuda_grid(k, n, 256), 256, 0, args->stream,
                       (const float *)args->in[0], (float *)args->out[1], (float *)args->out[2],
                       a.offset, k->dim[1], k->dim[4], c, n));
    if (a.queries > FEW)
        return run_pass(k, TRI_ATTENTION_FORWARD, &a, args->stream);
    return tri_launch(few, grid, 32 * WARPS, 0, args->stream, a);
}

TRI_CUDA_KERNEL(attention_cached);
