/* COLUMN_SUM and POSITION_GRAD.
 *
 * Partial sums of fixed row blocks in f32 (in a block: every 8th row, then these 8 in order), then
 * the blocks. Class: tree of f32 sums. */
#include "runtime/kernels/cuda/column_sum.cuh"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#define LANES 32 /* threads along the columns */
#define DEPTH 8  /* threads along the rows of a block */
#define ROWS  32 /* threads along the rows of add_rows */

struct add_rows {
    const float *part, *acc;
    float *first, *second;
    int64_t rows, cols, split;
};

static __global__ void __launch_bounds__(LANES *ROWS) add_rows(struct add_rows a)
{
    __shared__ float shared[ROWS][LANES];
    int64_t c = (int64_t)blockIdx.x * LANES + threadIdx.x;
    float s = 0.0f;

    for (int64_t r = threadIdx.y; r < a.rows && c < a.cols; r += ROWS)
        s += a.part[r * a.cols + c];
    shared[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y != 0 || c >= a.cols)
        return;
    for (int r = 1; r < ROWS; r++)
        s += shared[r][threadIdx.x];
    if (c >= a.split && a.second != NULL)
        a.second[c - a.split] = s;
    if (c < a.split && a.first != NULL)
        a.first[c] = a.acc != NULL ? a.acc[c] + s : s;
}

tri_status tri_cuda_add_rows(const float *part, int64_t rows, int64_t cols, const float *acc,
                             float *first, int64_t split, float *second, void *stream)
{
    struct add_rows a = {part, acc, first, second, rows, cols, split};

    return tri_launch(add_rows, (unsigned)((cols + LANES - 1) / LANES), dim3(LANES, ROWS), 0,
                      stream, a);
}

/* Partial sums of block (x, y): N columns a thread, LANES N columns a block, rows [rows y / blocks,
 * rows (y + 1) / blocks). */
template <class T, int N>
static __global__ void __launch_bounds__(LANES *DEPTH)
    column_sum(const T *dy, float *part, int64_t rows, int64_t cols)
{
    __shared__ float shared[DEPTH][LANES * N];
    int64_t c = ((int64_t)blockIdx.x * LANES + threadIdx.x) * N;
    int64_t first = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
    float s[N] = {}, v[N];

    if (c >= cols)
        first = end;
#pragma unroll 4
    for (int64_t r = first + threadIdx.y; r < end; r += DEPTH) {
        if (N == 1)
            v[0] = tri_widen(dy[r * cols + c]);
        else
            tri_load(dy + r * cols + c, v);
        for (int j = 0; j < N; j++)
            s[j] += v[j];
    }
    for (int j = 0; j < N; j++)
        shared[threadIdx.y][j * LANES + threadIdx.x] = s[j];
    __syncthreads();
    if (threadIdx.y != 0 || c >= cols)
        return;
    for (int j = 0; j < N; j++) {
        for (int d = 1; d < DEPTH; d++)
            s[j] += shared[d][j * LANES + threadIdx.x];
        part[blockIdx.y * cols + c + j] = s[j];
    }
}

static tri_status prepare_column_sum(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_column_sum, 0, &k));
    k->dim[0] = tri_arg_present(d->in, 1, d->nin); /* adds to what is there */
    /* about 1024 blocks of 256 columns and at least 64 rows */
    k->dim[1] = tri_cuda_row_blocks(k->rows, 64, 1 + 1024 / (1 + k->cols / 256));
    k->base.scratch_bytes = (size_t)(k->dim[1] * k->cols) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_column_sum_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    const T *dy = (const T *)args->in[0];
    const float *acc = k->dim[0] != 0 ? (const float *)args->in[1] : NULL;
    float *part = (float *)args->scratch, *db = (float *)args->out[0];
    int64_t wide = LANES * N, blocks = k->dim[1];

    if (k->cols % N == 0 && tri_cuda_aligned(dy, NULL, NULL))
        TRI_TRY(tri_launch(column_sum<T, N>,
                           dim3((unsigned)((k->cols + wide - 1) / wide), (unsigned)blocks),
                           dim3(LANES, DEPTH), 0, args->stream, dy, part, k->rows, k->cols));
    else
        TRI_TRY(tri_launch(column_sum<T, 1>,
                           dim3((unsigned)((k->cols + LANES - 1) / LANES), (unsigned)blocks),
                           dim3(LANES, DEPTH), 0, args->stream, dy, part, k->rows, k->cols));
    return tri_cuda_add_rows(part, blocks, k->cols, acc, db, k->cols, NULL, args->stream);
}

static tri_status run_column_sum(const struct tri_kernel *kernel,
                                 const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_column_sum_of, k, args);
}

TRI_CUDA_KERNEL(column_sum);

/* dpositions[t][c] = sum over samples, in order; 0 beyond T. Thread: one element. */
template <class T>
static __global__ void __launch_bounds__(256)
    position_grad(const T *dy, float *dpositions, int64_t batch, int64_t sample, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float s = 0.0f;

        for (int64_t b = 0; i < sample && b < batch; b++)
            s += tri_widen(dy[b * sample + i]);
        dpositions[i] = s;
    }
}

static tri_status prepare_position_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_position_grad, 0, &k));
    k->dim[0] = d->in[0].shape.dim[0];                         /* samples */
    k->dim[1] = d->in[0].shape.dim[1] * d->in[0].shape.dim[2]; /* elements of one */
    k->dim[2] = d->attrs.rows * d->in[0].shape.dim[2];         /* elements of dpositions */
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_position_grad_of(const struct cuda_kernel *k,
                                       const struct tri_kernel_args *args)
{
    return tri_launch(position_grad<T>, tri_cuda_grid(k, k->dim[2], 256), 256, 0, args->stream,
                      (const T *)args->in[0], (float *)args->out[0], k->dim[0], k->dim[1],
                      k->dim[2]);
}

static tri_status run_position_grad(const struct tri_kernel *kernel,
                                    const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_position_grad_of, k, args);
}

TRI_CUDA_KERNEL(position_grad);
