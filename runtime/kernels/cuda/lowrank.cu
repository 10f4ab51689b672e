/* LOWRANK_LEFT, LOWRANK_RIGHT and LOWRANK_PRODUCT: one round of subspace iteration (Vogels et al.,
 * "PowerSGD", NeurIPS 2019), x [n, m] against r columns.
 *
 * Sums over the long sides in f32, over threads by trees and in fixed blocks; those of the
 * orthogonalisation in f64. Class: tree of f32 sums. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#include "runtime/core/rng.h"

#include <math.h>

#define THREADS 256
#define GROUP   4  /* columns that a pass over x serves */
#define WIDE    32 /* columns of x of a block of x^T basis */
#define ORTHO   1024

enum { DIM_N, DIM_M, DIM_R };

/* splitmix64's finaliser, as tri_mix64. */
static __device__ inline uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Block c: zero[c] = 1 when column c of right [m, r] is all zeros. */
static __global__ void __launch_bounds__(THREADS)
    find_zeros(const float *right, int64_t m, int64_t r, int *zero)
{
    bool any = false;

    for (int64_t j = threadIdx.x; j < m; j += THREADS)
        any = any || right[j * r + blockIdx.x] != 0.0f;
    any = __syncthreads_or(any);
    if (threadIdx.x == 0)
        zero[blockIdx.x] = !any;
}

/* Element j of column c; a random direction stands in for a column of zeros, which iteration would
 * never leave. */
static __device__ inline float direction(const float *right, const int *zero, int64_t r, int64_t j,
                                         int64_t c)
{
    if (zero[c] == 0)
        return right[j * r + c];
    return mix64((uint64_t)j * 1024 + (uint64_t)c) & 1 ? 1.0f : -1.0f;
}

/* Block i: row i of x = g + residual and of left = x right. Elements [first, end) of x are those of
 * g, the others 0. */
static __global__ void __launch_bounds__(THREADS)
    left_rows(const float *g, const float *residual, const float *right, const int *zero, float *x,
              float *left, int64_t m, int64_t r, int64_t first, int64_t end)
{
    __shared__ float shared[32 * GROUP];
    int64_t row = (int64_t)blockIdx.x * m;

    for (int64_t c = 0; c < r; c += GROUP) {
        float sum[GROUP] = {};

        for (int64_t j = threadIdx.x; j < m; j += THREADS) {
            int64_t at = row + j;
            float v = 0.0f;

            if (c != 0)
                v = x[at];
            else if (at >= first && at < end)
                v = g[at - first] + residual[at - first];
            if (c == 0)
                x[at] = v;
#pragma unroll
            for (int e = 0; e < GROUP; e++)
                if (c + e < r)
                    sum[e] += v * direction(right, zero, r, j, c + e);
        }
        tri_block_sum<GROUP>(sum, shared);
        if (threadIdx.x == 0)
            for (int e = 0; e < GROUP && c + e < r; e++)
                left[blockIdx.x * r + c + e] = sum[e];
    }
}

/* Dims of x [n, m] and the number of columns r. */
static tri_status prepare_matrix(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                 int64_t n, int64_t m, int64_t r, size_t scratch_bytes,
                                 struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, ops, scratch_bytes, &k));
    k->dim[DIM_N] = n;
    k->dim[DIM_M] = m;
    k->dim[DIM_R] = r;
    *out = &k->base;
    return TRI_OK;
}

static tri_status prepare_lowrank_left(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    int64_t r = d->out[1].shape.dim[1];

    return prepare_matrix(d, &tri_cuda_lowrank_left, d->out[0].shape.dim[0], d->out[0].shape.dim[1],
                          r, (size_t)r * sizeof(int), out);
}

static tri_status run_lowrank_left(const struct tri_kernel *kernel,
                                   const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    const float *right = (const float *)args->in[2];
    int *zero = (int *)args->scratch;
    int64_t m = k->dim[DIM_M], r = k->dim[DIM_R];

    TRI_TRY(tri_launch(find_zeros, (unsigned)r, THREADS, 0, args->stream, right, m, r, zero));
    return tri_launch(left_rows, (unsigned)k->dim[DIM_N], THREADS, 0, args->stream,
                      (const float *)args->in[0], (const float *)args->in[1], right, zero,
                      (float *)args->out[0], (float *)args->out[1], m, r, k->attrs.compress.offset,
                      k->attrs.compress.offset + k->count);
}

TRI_CUDA_KERNEL(lowrank_left);

/* Sum over the rows of columns c times e, in every thread. */
static __device__ inline double column_product(const float *a, int64_t n, int64_t r, int64_t c,
                                               int64_t e, double *shared)
{
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < n; i += ORTHO)
        sum += (double)a[i * r + c] * (double)a[i * r + e];
    tri_block_sum<1>(&sum, shared);
    return sum;
}

/* One block: modified Gram-Schmidt, twice for each column. A column that depends on earlier ones
 * becomes 0. Each thread keeps to its rows. */
static __global__ void __launch_bounds__(ORTHO, 1)
    orthonormalise(const float *left, float *a, int64_t n, int64_t r)
{
    __shared__ double shared[32];

    for (int64_t i = threadIdx.x; i < n; i += ORTHO)
        for (int64_t c = 0; c < r; c++)
            a[i * r + c] = left[i * r + c];
    for (int64_t c = 0; c < r; c++) {
        double before = sqrt(column_product(a, n, r, c, c, shared)), norm;

        for (int64_t e = 0; e < 2 * c; e++) {
            double along = column_product(a, n, r, c, e % c, shared);

            for (int64_t i = threadIdx.x; i < n; i += ORTHO)
                a[i * r + c] -= (float)(along * (double)a[i * r + e % c]);
        }
        norm = sqrt(column_product(a, n, r, c, c, shared));
        for (int64_t i = threadIdx.x; i < n; i += ORTHO)
            a[i * r + c] =
                norm > 1e-5 * before ? (float)((double)a[i * r + c] / norm) : 0.0f * (float)norm;
    }
}

/* right = x^T basis: a block has WIDE columns of x, thread y every 8th row of them. */
static __global__ void __launch_bounds__(THREADS)
    right_rows(const float *x, const float *basis, float *right, int64_t n, int64_t m, int64_t r)
{
    const int DEPTH = THREADS / WIDE;
    __shared__ float shared[DEPTH][GROUP][WIDE];
    int64_t j = (int64_t)blockIdx.x * WIDE + threadIdx.x;

    for (int64_t c = 0; c < r; c += GROUP) {
        float sum[GROUP] = {};

        for (int64_t i = threadIdx.y; i < n && j < m; i += DEPTH) {
            float v = x[i * m + j];

#pragma unroll
            for (int e = 0; e < GROUP; e++)
                if (c + e < r)
                    sum[e] += v * basis[i * r + c + e];
        }
        for (int e = 0; e < GROUP; e++)
            shared[threadIdx.y][e][threadIdx.x] = sum[e];
        __syncthreads();
        if (threadIdx.y < GROUP && c + threadIdx.y < r && j < m) {
            float s = 0.0f;

            for (int y = 0; y < DEPTH; y++)
                s += shared[y][threadIdx.y][threadIdx.x];
            right[j * r + c + threadIdx.y] = s;
        }
        __syncthreads();
    }
}

/* to = elements [first, first + count) of basis right^T, or x - them. */
static __global__ void __launch_bounds__(THREADS)
    product(const float *basis, const float *right, const float *x, float *to, int64_t first,
            int64_t count, int64_t m, int64_t r)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) {
        const float *b = basis + (first + at) / m * r, *w = right + (first + at) % m * r;
        float sum = 0.0f;

        for (int64_t c = 0; c < r; c++)
            sum += b[c] * w[c];
        to[at] = x != NULL ? x[at] - sum : sum;
    }
}

static tri_status prepare_lowrank_right(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_matrix(d, &tri_cuda_lowrank_right, d->in[0].shape.dim[0], d->in[0].shape.dim[1],
                          d->in[1].shape.dim[1], 0, out);
}

static tri_status run_lowrank_right(const struct tri_kernel *kernel,
                                    const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    int64_t n = k->dim[DIM_N], m = k->dim[DIM_M], r = k->dim[DIM_R];
    const float *x = (const float *)args->in[0];
    float *basis = (float *)args->out[0], *right = (float *)args->out[1];

    TRI_TRY(tri_launch(orthonormalise, 1, ORTHO, 0, args->stream, (const float *)args->in[1], basis,
                       n, r));
    TRI_TRY(tri_launch(right_rows, (unsigned)((m + WIDE - 1) / WIDE), dim3(WIDE, THREADS / WIDE), 0,
                       args->stream, x, basis, right, n, m, r));
    return tri_launch(product, tri_cuda_grid(k, n * m, THREADS), THREADS, 0, args->stream, basis,
                      right, x, (float *)args->out[2], (int64_t)0, n * m, m, r);
}

TRI_CUDA_KERNEL(lowrank_right);

static tri_status prepare_lowrank_product(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_matrix(d, &tri_cuda_lowrank_product, d->in[0].shape.dim[0],
                          d->in[1].shape.dim[0], d->in[0].shape.dim[1], 0, out);
}

static tri_status run_lowrank_product(const struct tri_kernel *kernel,
                                      const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    const struct tri_attr_compress *a = &k->attrs.compress;
    int64_t count = tri_shape_count(&a->shape);

    return tri_launch(product, tri_cuda_grid(k, count, THREADS), THREADS, 0, args->stream,
                      (const float *)args->in[0], (const float *)args->in[1], (const float *)NULL,
                      (float *)args->out[0] + a->first, a->offset, count, k->dim[DIM_M],
                      k->dim[DIM_R]);
}

TRI_CUDA_KERNEL(lowrank_product);
