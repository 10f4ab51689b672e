/* What the batch norms share: arguments, rows of real samples, blocks of rows.
 *
 * A batch is a matrix of all positions x channels; the rows of real samples come first. Sums over
 * rows are over fixed blocks of rows, a function of the shape alone: threads of a block in order,
 * then blocks in order, in f64. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_BATCHNORM_CUH
#define TRI_RUNTIME_KERNELS_CUDA_BATCHNORM_CUH

#include "runtime/kernels/cuda/column_sum.cuh"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#define THREADS 256
#define LANES   32 /* most threads along the columns; in join kernels both sides */

/* What the kernels read and write; NULL where absent. `part`: two values a block and column. */
template <class T> struct batchnorm {
    const T *x, *residual, *dy, *y_in;
    const float *gamma, *beta, *mean_in, *scale_in; /* scale_in: invstd, or the variance (infer) */
    const int32_t *nreal;                           /* NULL: all */
    T *y, *dx, *dresidual;
    float *mean, *invstd, *moments, *dgamma, *dbeta;
    float *part, *sums;   /* sums [2][cols]: dbeta / n, dgamma / n */
    int64_t rows, sample; /* rows of all samples, of one */
    int cols, blocks;
    float eps;
    bool relu, infer;
};

template <class T> static __device__ inline int64_t real_rows(const struct batchnorm<T> &a)
{
    int64_t n = a.nreal == NULL ? a.rows : *a.nreal * a.sample;

    return n < a.rows ? n : a.rows;
}

/* Real rows in front of row block b of `blocks`. */
static __device__ inline int64_t block_row(int64_t rows, int64_t real, int64_t b, int64_t blocks)
{
    int64_t r = rows * b / blocks;

    return r < real ? r : real;
}

/* Of `rows` rows, how many thread y of `depth` has: rows y, y + depth, ... */
static __device__ inline int64_t rows_of_thread(int64_t rows, int64_t y, int64_t depth)
{
    return rows > y ? (rows - y + depth - 1) / depth : 0;
}

/* N elements from p on, 16 bytes or one. */
template <class T, int N> static __device__ inline void read(const T *p, float *v)
{
    if (N == 1)
        v[0] = tri_widen(p[0]);
    else
        tri_load(p, v);
}

template <class T, int N> static __device__ inline void write(T *p, const float *v)
{
    if (N == 1)
        p[0] = tri_narrow<T>(v[0]);
    else
        tri_store(p, v);
}

/* Sum of v over the threads y of column x, in order, in every thread. */
static __device__ inline double join_rows(double v, double (*shared)[LANES + 1])
{
    double s = 0.0;

    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    for (int y = 0; y < LANES; y++)
        s += shared[y][threadIdx.x];
    return s;
}

/* Grid and block of a kernel with N columns a thread: the columns of a block are as many as there
 * are, up to LANES threads; `rows` is the number of blocks along the rows. */
static inline dim3 block_of(const struct cuda_kernel *k, int n)
{
    unsigned x = 1;

    while (x < LANES && (int64_t)x * n < k->cols)
        x *= 2;
    return dim3(x, THREADS / x);
}

static inline dim3 grid_of(const struct cuda_kernel *k, int n, int64_t rows)
{
    int64_t width = (int64_t)block_of(k, n).x * n;

    return dim3((unsigned)((k->cols + width - 1) / width), (unsigned)rows);
}

/* Blocks along the rows where each row is handled on its own. */
static inline int64_t row_blocks(const struct cuda_kernel *k, int n)
{
    int64_t columns = grid_of(k, n, 1).x, want = (k->rows + 1) / 2;
    int64_t depth = block_of(k, n).y, most = 1 + 16 * (int64_t)k->sm_count / columns;

    want = (want + depth - 1) / depth;
    return want < most ? want : most;
}

static inline unsigned join_grid(const struct cuda_kernel *k)
{
    return (unsigned)((k->cols + LANES - 1) / LANES);
}

/* x: its place among the inputs; parts: scratch for the blocks of rows is needed. */
static inline tri_status prepare_norm(const struct tri_kernel_desc *d,
                                      const struct tri_kernel_ops *ops, int x, bool parts,
                                      struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    k->dim[0] = k->rows / d->in[x].shape.dim[0]; /* rows of a sample */
    k->dim[1] = tri_cuda_row_blocks(k->rows, 64, 1 + 1024 / (1 + k->cols / 256));
    for (int i = 0; i < d->nin; i++)
        k->dim[2] |= (int64_t)tri_arg_present(d->in, i, d->nin) << i;
    for (int o = 0; o < d->nout; o++)
        k->dim[3] |= (int64_t)tri_arg_present(d->out, o, d->nout) << o;
    if (parts)
        k->base.scratch_bytes = (size_t)((2 * k->dim[1] + 2) * k->cols) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}

/* Input i, or output o, or NULL where it is absent. */
static inline const void *input(const struct cuda_kernel *k, const struct tri_kernel_args *args,
                                int i)
{
    return k->dim[2] >> i & 1 ? args->in[i] : NULL;
}

static inline void *output(const struct cuda_kernel *k, const struct tri_kernel_args *args, int o)
{
    return k->dim[3] >> o & 1 ? args->out[o] : NULL;
}

template <class T>
static inline struct batchnorm<T> arguments(const struct cuda_kernel *k, void *scratch) {
    struct batchnorm<T> a = {
    };

    a.part = (float *)scratch;
    a.sums = a.part + 2 * k->dim[1] * k->cols;
    a.rows = k->rows;
    a.sample = k->dim[0];
    a.cols = (int)k->cols;
    a.blocks = (int)k->dim[1];
    a.eps = (float)k->attrs.norm.eps;
    a.relu = k->attrs.norm.relu;
    return a;
}

#endif
