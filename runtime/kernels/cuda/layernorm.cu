/* LAYERNORM and LAYERNORM_GRAD (Ba, Kiros, Hinton, "Layer normalization", 2016).
 *
 * A row stays in the registers of one warp (up to 2048 columns) or one block (up to 8192): memory
 * sees each element once. Other widths, and rows that 16-byte vectors do not fit, are read once
 * a pass. Mean, then variance about it, f32 over threads by trees. With xhat = (x - mean) rstd and
 * g = dy gamma: dx = rstd (g - avg g - xhat avg(g xhat)) + dsum. dgamma and dbeta: partial sums of
 * fixed row blocks, added in order. Class: 8 ulp of the largest term. */
#include "runtime/kernels/cuda/column_sum.cuh"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#define WARP_ROWS  4    /* rows of a block where a warp has one */
#define BLOCK_MAX  256  /* threads of a block that has one row */
#define WARP_COLS  2048 /* most columns of a warp's row */
#define BLOCK_COLS 8192 /* and of a block's */

template <class T> struct forward {
    const T *x, *residual; /* residual, sum: NULL where absent */
    const float *gamma, *beta;
    T *y, *sum;
    float *mean, *rstd;
    int64_t rows;
    int cols;
    float eps;
};

/* Sum over the threads of a row: a warp, or the block. */
template <bool WARP, int K> static __device__ inline void row_sum(float *v, float *shared)
{
    if (WARP) {
        for (int k = 0; k < K; k++)
            v[k] = tri_warp_sum(v[k]);
    } else {
        tri_block_sum<K>(v, shared);
    }
}

/* E: elements of a thread. Vector s of thread t is vector s * threads + t of the row. */
template <class T, bool WARP, int E>
static __global__ void __launch_bounds__(WARP ? 32 * WARP_ROWS : BLOCK_MAX, E > 32 ? 3 : 4)
    layernorm(struct forward<T> a)
{
    const int N = tri_lanes<T>::count, VECS = E / N;
    __shared__ float shared[32];
    int threads = WARP ? 32 : (int)blockDim.x, t = WARP ? (int)threadIdx.x % 32 : (int)threadIdx.x;
    int64_t row = WARP ? (int64_t)blockIdx.x * WARP_ROWS + threadIdx.x / 32 : blockIdx.x;
    const T *x = a.x + row * a.cols, *residual = a.residual + (a.residual ? row * a.cols : 0);
    float v[E], m = 0.0f, var = 0.0f, r;

    if (WARP && row >= a.rows)
        return;
#pragma unroll
    for (int s = 0; s < VECS; s++) {
        int c = (s * threads + t) * N;
        float *p = v + s * N, q[N];

        if (c >= a.cols)
            continue;
        tri_load(x + c, p);
        if (a.residual != NULL)
            tri_load(residual + c, q);
#pragma unroll
        for (int j = 0; j < N; j++) {
            p[j] = a.residual != NULL ? p[j] + q[j] : p[j];
            m += p[j];
        }
        if (a.sum != NULL)
            tri_store(a.sum + row * a.cols + c, p);
    }
    row_sum<WARP, 1>(&m, shared);
    m /= (float)a.cols;
#pragma unroll
    for (int e = 0; e < E; e++)
        if ((e / N * threads + t) * N < a.cols)
            var += (v[e] - m) * (v[e] - m);
    row_sum<WARP, 1>(&var, shared);
    r = 1.0f / sqrtf(var / (float)a.cols + a.eps);
#pragma unroll
    for (int s = 0; s < VECS; s++) {
        int c = (s * threads + t) * N;
        float *p = v + s * N, g[N], b[N];

        if (c >= a.cols)
            continue;
        tri_load_f32<N>(a.gamma + c, g);
        tri_load_f32<N>(a.beta + c, b);
#pragma unroll
        for (int j = 0; j < N; j++)
            p[j] = (p[j] - m) * r * g[j] + b[j];
        tri_store(a.y + row * a.cols + c, p);
    }
    if (t == 0) {
        a.mean[row] = m;
        a.rstd[row] = r;
    }
}

/* Element i of the normalised input. */
template <class T> static __device__ inline float input(const struct forward<T> &a, int64_t i)
{
    float x = tri_widen(a.x[i]);

    return a.residual != NULL ? x + tri_widen(a.residual[i]) : x;
}

/* Any width and alignment: one block a row, read three times. */
template <class T>
static __global__ void __launch_bounds__(BLOCK_MAX) layernorm_any(struct forward<T> a)
{
    __shared__ float shared[32];
    int64_t at = (int64_t)blockIdx.x * a.cols;
    float m = 0.0f, var = 0.0f, r;

    for (int c = (int)threadIdx.x; c < a.cols; c += (int)blockDim.x)
        m += input(a, at + c);
    tri_block_sum<1>(&m, shared);
    m /= (float)a.cols;
    for (int c = (int)threadIdx.x; c < a.cols; c += (int)blockDim.x) {
        float d = input(a, at + c) - m;

        var += d * d;
    }
    tri_block_sum<1>(&var, shared);
    r = 1.0f / sqrtf(var / (float)a.cols + a.eps);
    for (int c = (int)threadIdx.x; c < a.cols; c += (int)blockDim.x) {
        float v = input(a, at + c);

        if (a.sum != NULL)
            a.sum[at + c] = tri_narrow<T>(v);
        a.y[at + c] = tri_narrow<T>((v - m) * r * a.gamma[c] + a.beta[c]);
    }
    if (threadIdx.x == 0) {
        a.mean[blockIdx.x] = m;
        a.rstd[blockIdx.x] = r;
    }
}

static tri_status prepare_layernorm(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_layernorm, 0, &k));
    k->dim[0] = tri_arg_present(d->in, 3, d->nin);   /* residual */
    k->dim[1] = tri_arg_present(d->out, 3, d->nout); /* sum */
    *out = &k->base;
    return TRI_OK;
}

/* Threads of a row of `cols` where each has `per`: a multiple of 32. */
static unsigned row_threads(int64_t cols, int64_t per)
{
    return (unsigned)((cols + 32 * per - 1) / (32 * per) * 32);
}

template <class T, int E> static tri_status launch_warps(const struct forward<T> &a, void *stream)
{
    unsigned grid = (unsigned)((a.rows + WARP_ROWS - 1) / WARP_ROWS);

    return tri_launch(layernorm<T, true, E>, grid, 32 * WARP_ROWS, 0, stream, a);
}

template <class T>
static tri_status run_layernorm_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    struct forward<T> a = {
    };
    bool whole;

    a.x = (const T *)args->in[0];
    a.gamma = (const float *)args->in[1];
    a.beta = (const float *)args->in[2];
    a.residual = k->dim[0] != 0 ? (const T *)args->in[3] : NULL;
    a.y = (T *)args->out[0];
    a.mean = (float *)args->out[1];
    a.rstd = (float *)args->out[2];
    a.sum = k->dim[1] != 0 ? (T *)args->out[3] : NULL;
    a.rows = k->rows;
    a.cols = (int)k->cols;
    a.eps = (float)k->attrs.norm.eps;
    whole = a.cols % tri_lanes<T>::count == 0 && a.cols <= BLOCK_COLS &&
            tri_cuda_aligned(a.x, a.residual, a.y) && tri_cuda_aligned(a.gamma, a.beta, a.sum);
    if (!whole)
        return tri_launch(layernorm_any<T>, (unsigned)a.rows,
                          a.cols < BLOCK_MAX ? row_threads(a.cols, 1) : BLOCK_MAX, 0, args->stream,
                          a);
    if (a.cols <= WARP_COLS / 8)
        return launch_warps<T, 8>(a, args->stream);
    if (a.cols <= WARP_COLS / 2)
        return launch_warps<T, 32>(a, args->stream);
    if (a.cols <= WARP_COLS)
        return launch_warps<T, 64>(a, args->stream);
    return tri_launch(layernorm<T, false, 32>, (unsigned)a.rows, row_threads(a.cols, 32), 0,
                      args->stream, a);
}

static tri_status run_layernorm(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_layernorm_of, k, args);
}

TRI_CUDA_KERNEL(layernorm);

template <class T> struct backward {
    const T *dy, *x, *dsum; /* dsum: NULL where absent, may be dx */
    const float *gamma, *mean, *rstd;
    T *dx;       /* NULL: not wanted */
    float *part; /* [blocks, 2, cols]: dgamma, dbeta of a block's rows */
    int64_t rows;
    int cols;
};

/* Block b adds up rows [rows b / blocks, rows (b + 1) / blocks), a row at a time in its
 * registers. */
template <class T, int E>
static __global__ void __launch_bounds__(BLOCK_MAX) layernorm_grad(struct backward<T> a)
{
    const int N = tri_lanes<T>::count, VECS = E / N;
    __shared__ float shared[64];
    int threads = (int)blockDim.x, t = (int)threadIdx.x;
    int64_t first = a.rows * blockIdx.x / gridDim.x, end = a.rows * (blockIdx.x + 1) / gridDim.x;
    float dgamma[E] = {}, dbeta[E] = {};

    for (int64_t row = first; row < end; row++) {
        const T *dy = a.dy + row * a.cols, *x = a.x + row * a.cols;
        float m = a.mean[row], r = a.rstd[row], g[E], h[E], s[2] = {};

#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int c = (k * threads + t) * N;
            float w[N];

            if (c >= a.cols)
                continue;
            tri_load(dy + c, g + k * N);
            tri_load(x + c, h + k * N);
            tri_load_f32<N>(a.gamma + c, w);
#pragma unroll
            for (int j = 0; j < N; j++) {
                int e = k * N + j;

                h[e] = (h[e] - m) * r;
                dgamma[e] += g[e] * h[e];
                dbeta[e] += g[e];
                g[e] *= w[j];
                s[0] += g[e];
                s[1] += g[e] * h[e];
            }
        }
        if (a.dx == NULL)
            continue;
        tri_block_sum<2>(s, shared);
        s[0] /= (float)a.cols;
        s[1] /= (float)a.cols;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int c = (k * threads + t) * N;
            float d[N] = {};

            if (c >= a.cols)
                continue;
            if (a.dsum != NULL)
                tri_load(a.dsum + row * a.cols + c, d);
#pragma unroll
            for (int j = 0; j < N; j++)
                d[j] += r * (g[k * N + j] - s[0] - h[k * N + j] * s[1]);
            tri_store(a.dx + row * a.cols + c, d);
        }
    }
    for (int k = 0; k < VECS; k++) {
        int c = (k * threads + t) * N;
        float *to = a.part + (int64_t)blockIdx.x * 2 * a.cols + c;

        for (int j = 0; j < N && c < a.cols; j++) {
            to[j] = dgamma[k * N + j];
            to[a.cols + j] = dbeta[k * N + j];
        }
    }
}

/* Any width and alignment. The block's sums of dgamma and dbeta grow in `part`, each column by one
 * thread. */
template <class T>
static __global__ void __launch_bounds__(BLOCK_MAX) layernorm_grad_any(struct backward<T> a)
{
    __shared__ float shared[64];
    int64_t first = a.rows * blockIdx.x / gridDim.x, end = a.rows * (blockIdx.x + 1) / gridDim.x;
    float *part = a.part + (int64_t)blockIdx.x * 2 * a.cols;

    for (int64_t row = first; row < end; row++) {
        int64_t at = row * a.cols;
        float m = a.mean[row], r = a.rstd[row], s[2] = {};

        for (int c = (int)threadIdx.x; c < a.cols; c += (int)blockDim.x) {
            float dy = tri_widen(a.dy[at + c]), h = (tri_widen(a.x[at + c]) - m) * r;
            float g = dy * a.gamma[c];

            part[c] = (row == first ? 0.0f : part[c]) + dy * h;
            part[a.cols + c] = (row == first ? 0.0f : part[a.cols + c]) + dy;
            s[0] += g;
            s[1] += g * h;
        }
        if (a.dx == NULL)
            continue;
        tri_block_sum<2>(s, shared);
        for (int c = (int)threadIdx.x; c < a.cols; c += (int)blockDim.x) {
            float h = (tri_widen(a.x[at + c]) - m) * r;
            float g = tri_widen(a.dy[at + c]) * a.gamma[c];
            float v = r * (g - s[0] / (float)a.cols - h * (s[1] / (float)a.cols));

            a.dx[at + c] = tri_narrow<T>(a.dsum != NULL ? v + tri_widen(a.dsum[at + c]) : v);
        }
    }
}

static tri_status prepare_layernorm_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_layernorm_grad, 0, &k));
    k->dim[0] = tri_arg_present(d->in, 5, d->nin); /* dsum */
    k->dim[1] = tri_cuda_row_blocks(k->rows, 8, 1024);
    k->base.scratch_bytes = (size_t)(k->dim[1] * 2 * k->cols) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_layernorm_grad_of(const struct cuda_kernel *k,
                                        const struct tri_kernel_args *args)
{
    struct backward<T> a = {
    };
    unsigned blocks = (unsigned)k->dim[1];
    bool whole;

    a.dy = (const T *)args->in[0];
    a.x = (const T *)args->in[1];
    a.gamma = (const float *)args->in[2];
    a.mean = (const float *)args->in[3];
    a.rstd = (const float *)args->in[4];
    a.dsum = k->dim[0] != 0 ? (const T *)args->in[5] : NULL;
    a.dx = (T *)args->out[0];
    a.part = (float *)args->scratch;
    a.rows = k->rows;
    a.cols = (int)k->cols;
    whole = a.cols % tri_lanes<T>::count == 0 && tri_cuda_aligned(a.dy, a.x, a.gamma) &&
            tri_cuda_aligned(a.dsum, a.dx, NULL);
    if (whole && a.cols <= BLOCK_MAX * 8)
        TRI_TRY(
            tri_launch(layernorm_grad<T, 8>, blocks, row_threads(a.cols, 8), 0, args->stream, a));
    else if (whole && a.cols <= BLOCK_COLS)
        TRI_TRY(
            tri_launch(layernorm_grad<T, 32>, blocks, row_threads(a.cols, 32), 0, args->stream, a));
    else
        TRI_TRY(tri_launch(layernorm_grad_any<T>, blocks,
                           a.cols < BLOCK_MAX ? row_threads(a.cols, 1) : BLOCK_MAX, 0, args->stream,
                           a));
    return tri_cuda_add_rows(a.part, k->dim[1], 2 * k->cols, NULL, (float *)args->out[1], k->cols,
                             (float *)args->out[2], args->stream);
}

static tri_status run_layernorm_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_layernorm_grad_of, k, args);
}

TRI_CUDA_KERNEL(layernorm_grad);
