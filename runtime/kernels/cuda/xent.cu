/* SOFTMAX_XENT, SOFTMAX_XENT_GRAD, SOFTMAX_XENT_FUSED: cross-entropy over the last dim, rows with
 * target -100 left out; MSE, MSE_GRAD.
 *
 * One block a row. Its logits are read once (maximum and sum of e^(x - max) on line: Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018) and kept in shared memory for the
 * gradient where they fit there; else they come again from the second-level cache. A row need not
 * begin at a multiple of 16 bytes: its head and tail go element by element. Sums are f32 in a
 * thread, f64 above; losses are f64, kept per row and added in a fixed order. Class: loss 1e-6
 * relative, gradient 1e-6 absolute. A row is "right" when its target is the first of the largest
 * logits. A target outside the classes makes the loss NaN, so that the step is skipped. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#include <float.h>
#include <math.h>

#define ROW_MAX   512  /* most threads of a row */
#define SUM_BLOCK 4096 /* elements of MSE that a block adds up */
#define THREADS   256
#define STATIC    2048 /* bytes of shared memory that are not the row's, and more */

/* What a row leaves for the statistics. */
struct row_stats {
    double loss, targets, right;
};

template <class T> struct xent {
    const T *logits;
    const int32_t *target;
    const float *lse_in, *scale; /* scale: NULL without a loss scale */
    double unit;
    T *dlogits; /* NULL: no gradient; may be logits */
    float *lse;
    struct row_stats *stats;
    int cols;
    bool vectors; /* logits and dlogits begin at the same place of 16 bytes */
    bool staged;
};

/* Elements [head, head + N nvec) of a row are whole vectors of 16 bytes. */
struct span {
    int head, nvec;
};

template <class T> static __device__ struct span span_of(const T *row, int cols, bool vectors)
{
    const int N = tri_lanes<T>::count;
    int off = (int)((uintptr_t)row % 16 / sizeof(T));
    struct span s = {cols, 0};

    if (vectors) {
        s.head = off == 0 ? 0 : N - off;
        s.head = s.head < cols ? s.head : cols;
        s.nvec = (cols - s.head) / N;
    }
    return s;
}

/* Maximum so far, sum of e^(x - max), and whether a logit comes before the target in rank. */
struct online {
    float max, sum, beaten;
};

/* n logits from column `at` on; `z` is the target's. */
static __device__ inline void take(struct online *o, const float *x, int n, int at, float z,
                                   int target)
{
    float most = x[0];

    for (int j = 1; j < n; j++)
        most = fmaxf(most, x[j]);
    if (most > o->max) {
        o->sum *= __expf(o->max - most);
        o->max = most;
    }
    for (int j = 0; j < n; j++)
        o->sum += __expf(x[j] - o->max);
    if (most < z)
        return;
    if (most > z)
        o->beaten = 1.0f;
    for (int j = 0; j < n; j++)
        if (x[j] == z && at + j < target)
            o->beaten = 1.0f;
}

/* The calling thread's part of a row, kept in `keep` (element j of the row at keep[j]) unless that
 * is NULL. */
template <class T>
static __device__ struct online read_row(const T *row, int cols, struct span s, float z, int target,
                                         T *keep)
{
    const int N = tri_lanes<T>::count;
    struct online o = {-FLT_MAX, 0.0f, 0.0f}; /* not -infinity: e^(-inf - max) must be 0 */
    int t = (int)threadIdx.x, step = (int)blockDim.x;

#pragma unroll 4
    for (int i = t; i < s.nvec; i += step) {
        uint4 v = *reinterpret_cast<const uint4 *>(row + s.head + i * N);
        float x[N];

        if (keep != NULL)
            *reinterpret_cast<uint4 *>(keep + s.head + i * N) = v;
        tri_unpack<T>(v, x);
        take(&o, x, N, s.head + i * N, z, target);
    }
    for (int i = t; i < cols - s.nvec * N; i += step) {
        int c = i < s.head ? i : i + s.nvec * N;
        float x = tri_widen(row[c]);

        if (keep != NULL)
            keep[c] = row[c];
        take(&o, &x, 1, c, z, target);
    }
    return o;
}

/* d = e^(x - shift) times - onehot(target) factor, in place or not. */
template <class T>
static __device__ void write_row(const T *row, T *d, int cols, struct span s, int target,
                                 float shift, float times, float factor)
{
    const int N = tri_lanes<T>::count;
    int t = (int)threadIdx.x, step = (int)blockDim.x;

    for (int i = t; i < s.nvec; i += step) {
        int c = s.head + i * N;
        float x[N];

        tri_load(row + c, x);
        for (int j = 0; j < N; j++) {
            x[j] = __expf(x[j] - shift) * times;
            x[j] = c + j == target ? x[j] - factor : x[j];
        }
        tri_store(d + c, x);
    }
    for (int i = t; i < cols - s.nvec * N; i += step) {
        int c = i < s.head ? i : i + s.nvec * N;
        float x = __expf(tri_widen(row[c]) - shift) * times;

        d[c] = tri_narrow<T>(c == target ? x - factor : x);
    }
}

template <class T> static __device__ void clear_row(T *d, int cols, struct span s)
{
    const int N = tri_lanes<T>::count;

    for (int i = (int)threadIdx.x; i < s.nvec; i += (int)blockDim.x)
        *reinterpret_cast<uint4 *>(d + s.head + i * N) = make_uint4(0, 0, 0, 0);
    for (int i = (int)threadIdx.x; i < cols - s.nvec * N; i += (int)blockDim.x)
        d[i < s.head ? i : i + s.nvec * N] = tri_narrow<T>(0.0f);
}

/* What the gradient is multiplied with. */
template <class T> static __device__ float seed(const struct xent<T> &a)
{
    return a.scale == NULL ? 1.0f : (float)((double)*a.scale * a.unit);
}

/* A row without a valid target: counts nothing, or spoils the loss. */
template <class T> static __device__ void skip_row(const struct xent<T> &a, struct span s)
{
    int64_t row = blockIdx.x;
    bool ignored = a.target[row] == TRI_IGNORE_TARGET;

    if (a.dlogits != NULL)
        clear_row(a.dlogits + row * a.cols, a.cols, s);
    if (threadIdx.x != 0)
        return;
    if (a.lse != NULL)
        a.lse[row] = 0.0f;
    if (a.stats != NULL)
        a.stats[row] = {ignored ? 0.0 : (double)NAN, 0.0, 0.0};
}

template <class T>
static __global__ void __launch_bounds__(ROW_MAX, 2) softmax_xent(struct xent<T> a)
{
    TRI_DYNAMIC_SHARED(T, buffer);
    __shared__ float shared[32];
    __shared__ double shared2[64];
    int64_t r = blockIdx.x;
    const T *row = a.logits + r * a.cols;
    int target = a.target[r];
    struct span s = span_of(row, a.cols, a.vectors);
    /* element j of the row lies at the same place of 16 bytes as in memory */
    T *keep = a.staged ? buffer + (uintptr_t)row % 16 / sizeof(T) : NULL;
    struct online o;
    double sum[2];
    float z, max;

    if (target < 0 || target >= a.cols) {
        skip_row(a, s);
        return;
    }
    z = tri_widen(row[target]);
    o = read_row(row, a.cols, s, z, target, keep);
    max = tri_block_max(o.max, shared);
    sum[0] = (double)(o.sum * __expf(o.max - max));
    sum[1] = o.beaten;
    tri_block_sum<2>(sum, shared2);
    if (threadIdx.x == 0) {
        double rest = log(sum[0]);

        if (a.lse != NULL)
            a.lse[r] = (float)((double)max + rest);
        a.stats[r] = {rest + ((double)max - (double)z), 1.0, sum[1] == 0.0 ? 1.0 : 0.0};
    }
    if (a.dlogits != NULL) {
        float factor = seed(a);

        write_row(keep != NULL ? keep : row, a.dlogits + r * a.cols, a.cols, s, target, max,
                  (float)((double)factor / sum[0]), factor);
    }
}

template <class T>
static __global__ void __launch_bounds__(ROW_MAX) softmax_xent_grad(struct xent<T> a)
{
    int64_t r = blockIdx.x;
    const T *row = a.logits + r * a.cols;
    int target = a.target[r];
    struct span s = span_of(row, a.cols, a.vectors);
    float factor = seed(a);

    if (target < 0 || target >= a.cols)
        skip_row(a, s);
    else
        write_row(row, a.dlogits + r * a.cols, a.cols, s, target, a.lse_in[r], factor, factor);
}

/* One block. Thread t adds rows t, t + 256, ... in order. */
static __global__ void __launch_bounds__(THREADS)
    add_stats(const struct row_stats *row, int64_t rows, double *stats)
{
    __shared__ double shared[96];
    double v[3] = {};

    for (int64_t r = threadIdx.x; r < rows; r += THREADS) {
        v[0] += row[r].loss;
        v[1] += row[r].targets;
        v[2] += row[r].right;
    }
    tri_block_sum<3>(v, shared);
    if (threadIdx.x == 0) {
        stats[TRI_STATS_LOSS] = v[0];
        stats[TRI_STATS_TARGETS] = v[1];
        stats[TRI_STATS_RIGHT] = v[2];
        stats[TRI_STATS_UNUSED] = 0.0;
    }
}

/* Bytes of shared memory that hold a row, wherever it begins. */
static size_t row_bytes(const struct cuda_kernel *k)
{
    return (size_t)k->cols * tri_dtype_bytes(k->from) + 32;
}

/* The limit belongs to the kernel, which rows of several lengths share. */
template <class T> static tri_status allow_row(size_t bytes)
{
    TRI_CUDA(cudaFuncSetAttribute((const void *)softmax_xent<T>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return TRI_OK;
}

/* scale_in: input of the loss scale; staged: there is a second pass over the row. */
static tri_status prepare_xent(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               int scale_in, bool staged, struct tri_kernel **out)
{
    struct cuda_kernel *k;
    tri_status st = TRI_OK;

    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    k->base.scratch_bytes = (size_t)k->rows * sizeof(struct row_stats);
    k->dim[0] = tri_arg_present(d->in, scale_in, d->nin) ? scale_in : -1;
    if (staged && row_bytes(k) + STATIC <= k->shared_bytes) {
        k->dim[1] = (int64_t)row_bytes(k);
        st = TRI_CALL_FLOAT(k->from, allow_row, k->shared_bytes - STATIC);
    }
    if (st != TRI_OK)
        tri_cuda_kernel_destroy(&k->base);
    else
        *out = &k->base;
    return st;
}

template <class T>
static struct xent<T> arguments(const struct cuda_kernel *k, const struct tri_kernel_args *args,
                                void *dlogits) {
    struct xent<T> a = {
    };

    a.logits = (const T *)args->in[0];
    a.target = (const int32_t *)args->in[1];
    a.scale = k->dim[0] < 0 ? NULL : (const float *)args->in[k->dim[0]];
    a.unit = k->attrs.loss.unit;
    a.dlogits = (T *)dlogits;
    a.cols = (int)k->cols;
    a.vectors = dlogits == NULL || ((uintptr_t)a.logits - (uintptr_t)dlogits) % 16 == 0;
    a.staged = k->dim[1] > 0;
    return a;
}

/* Two vectors a thread, so that a row of a few classes has no idle warps. */
static unsigned
row_threads(const struct cuda_kernel *k)
{
    int64_t per = 2 * 16 / (int64_t)tri_dtype_bytes(k->from);
    int64_t want = (k->cols + 32 * per - 1) / (32 * per) * 32;

    return (unsigned)(want < ROW_MAX ? want : ROW_MAX);
}

template <class T>
static tri_status run_forward(const struct cuda_kernel *k, const struct tri_kernel_args *args,
                              void *dlogits, void *lse)
{
    struct xent<T> a = arguments<T>(k, args, dlogits);

    a.lse = (float *)lse;
    a.stats = (struct row_stats *)args->scratch;
    TRI_TRY(tri_launch(softmax_xent<T>, (unsigned)k->rows, row_threads(k), (size_t)k->dim[1],
                       args->stream, a));
    return tri_launch(add_stats, 1, THREADS, 0, args->stream, (const struct row_stats *)a.stats,
                      k->rows, (double *)args->out[0]);
}

static tri_status prepare_softmax_xent(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_xent(d, &tri_cuda_softmax_xent, 2, false, out);
}

static tri_status run_softmax_xent(const struct tri_kernel *kernel,
                                   const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_forward, k, args, NULL, args->out[1]);
}

TRI_CUDA_KERNEL(softmax_xent);

static tri_status prepare_softmax_xent_fused(const struct tri_kernel_desc *d,
                                             struct tri_kernel **out)
{
    return prepare_xent(d, &tri_cuda_softmax_xent_fused, 2, true, out);
}

static tri_status run_softmax_xent_fused(const struct tri_kernel *kernel,
                                         const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_forward, k, args, args->out[1], NULL);
}

TRI_CUDA_KERNEL(softmax_xent_fused);

static tri_status prepare_softmax_xent_grad(const struct tri_kernel_desc *d,
                                            struct tri_kernel **out)
{
    return prepare_xent(d, &tri_cuda_softmax_xent_grad, 3, false, out);
}

template <class T>
static tri_status run_gradient(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    struct xent<T> a = arguments<T>(k, args, args->out[0]);

    a.lse_in = (const float *)args->in[2];
    return tri_launch(softmax_xent_grad<T>, (unsigned)k->rows, row_threads(k), 0, args->stream, a);
}

static tri_status run_softmax_xent_grad(const struct tri_kernel *kernel,
                                        const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_gradient, k, args);
}

TRI_CUDA_KERNEL(softmax_xent_grad);

/* part[b]: squared errors of elements [b, b + 1) SUM_BLOCK that belong to real samples. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    mse(const T *y, const float *target, const int32_t *nreal, int64_t components, double *part)
{
    __shared__ double shared[32];
    int64_t first = (int64_t)blockIdx.x * SUM_BLOCK, end = first + SUM_BLOCK;
    int64_t real = *nreal * components;
    double s = 0.0;

    end = end < real ? end : real;
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        double e = (double)tri_widen(y[i]) - (double)target[i];

        s += e * e;
    }
    tri_block_sum<1>(&s, shared);
    if (threadIdx.x == 0)
        part[blockIdx.x] = s;
}

static __global__ void __launch_bounds__(THREADS)
    mse_stats(const double *part, int64_t n, const int32_t *nreal, int64_t components,
              double *stats)
{
    __shared__ double shared[32];
    double s = 0.0;

    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        s += part[i];
    tri_block_sum<1>(&s, shared);
    if (threadIdx.x == 0) {
        stats[TRI_STATS_LOSS] = s / (double)components;
        stats[TRI_STATS_TARGETS] = *nreal;
        stats[TRI_STATS_RIGHT] = 0.0;
        stats[TRI_STATS_UNUSED] = 0.0;
    }
}

static tri_status prepare_mse(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_mse, 0, &k));
    k->dim[0] = k->count / d->in[0].shape.dim[0]; /* components of a sample */
    k->dim[1] = (k->count + SUM_BLOCK - 1) / SUM_BLOCK;
    k->base.scratch_bytes = (size_t)k->dim[1] * sizeof(double);
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_mse_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const int32_t *nreal = (const int32_t *)args->in[2];
    double *part = (double *)args->scratch;

    TRI_TRY(tri_launch(mse<T>, (unsigned)k->dim[1], THREADS, 0, args->stream,
                       (const T *)args->in[0], (const float *)args->in[1], nreal, k->dim[0], part));
    return tri_launch(mse_stats, 1, THREADS, 0, args->stream, (const double *)part, k->dim[1],
                      nreal, k->dim[0], (double *)args->out[0]);
}

static tri_status run_mse(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_mse_of, k, args);
}

TRI_CUDA_KERNEL(mse);

/* dprediction = 2 (prediction - target) / components, times the loss scale; 0 in padding. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    mse_grad(const T *y, const float *target, const int32_t *nreal, const float *scale, double unit,
             int64_t components, T *dy, int64_t n)
{
    double factor = (scale == NULL ? 2.0 : 2.0 * (double)*scale * unit) / (double)components;
    int64_t real = *nreal * components, stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        double v = i < real ? factor * ((double)tri_widen(y[i]) - (double)target[i]) : 0.0;

        dy[i] = tri_narrow<T>((float)v);
    }
}

static tri_status prepare_mse_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_mse_grad, 0, &k));
    k->dim[0] = k->count / d->in[0].shape.dim[0];
    k->dim[1] = tri_arg_present(d->in, 3, d->nin); /* loss scale */
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_mse_grad_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    return tri_launch(mse_grad<T>, tri_cuda_grid(k, k->count, THREADS), THREADS, 0, args->stream,
                      (const T *)args->in[0], (const float *)args->in[1],
                      (const int32_t *)args->in[2],
                      k->dim[1] != 0 ? (const float *)args->in[3] : NULL, k->attrs.loss.unit,
                      k->dim[0], (T *)args->out[0], k->count);
}

static tri_status run_mse_grad(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_mse_grad_of, k, args);
}

TRI_CUDA_KERNEL(mse_grad);
