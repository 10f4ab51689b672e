/* BATCHNORM and BATCHNORM_INFER (Ioffe, Szegedy, "Batch normalization", 2015) over the rows of the
 * real samples.
 *
 * A thread sums differences to its first row in f32, so that a large mean costs no digits of the
 * variance; threads and then blocks are joined in f64 (Chan, Golub, LeVeque, "Updating formulae and
 * a pairwise algorithm for computing sample variances", 1979). Class: 8 ulp of the largest term. */
#include "runtime/kernels/cuda/batchnorm.cuh"

/* Mean and squared differences of a column over `rows` rows from those of the threads of a block,
 * `width` apart. */
static __device__ inline void join_threads(const float *mean, const float *square, int width,
                                           int64_t rows, float *mean_out, float *square_out)
{
    int depth = (int)blockDim.y;
    double m = 0.0, s = 0.0;

    for (int y = 0; y < depth && y < rows; y++)
        m += (double)rows_of_thread(rows, y, depth) * (double)mean[y * width];
    m = rows > 0 ? m / (double)rows : 0.0;
    for (int y = 0; y < depth && y < rows; y++) {
        double d = (double)mean[y * width] - m;

        s += (double)square[y * width] + (double)rows_of_thread(rows, y, depth) * d * d;
    }
    *mean_out = (float)m;
    *square_out = (float)s;
}

/* part[b][c], part[blocks + b][c]: mean of column c over the rows of block b, and the sum of
 * squared differences to it. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 4) moments_of_blocks(struct batchnorm<T> a)
{
    __shared__ float mean[THREADS * N], square[THREADS * N];
    int width = (int)blockDim.x * N, depth = (int)blockDim.y, b = (int)blockIdx.y;
    int c = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * N, t;
    int64_t real = real_rows(a), first = block_row(a.rows, real, b, a.blocks);
    int64_t end = block_row(a.rows, real, b + 1, a.blocks), mine;
    float pivot[N] = {}, sum[N] = {}, squares[N] = {}, v[N];

    if (c < a.cols && first + threadIdx.y < end)
        read<T, N>(a.x + (first + threadIdx.y) * a.cols + c, pivot);
#pragma unroll 4
    for (int64_t r = first + threadIdx.y; r < end; r += depth) {
        if (c >= a.cols)
            break;
        read<T, N>(a.x + r * a.cols + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float d = v[j] - pivot[j];

            sum[j] += d;
            squares[j] += d * d;
        }
    }
    mine = rows_of_thread(end - first, threadIdx.y, depth);
    for (int j = 0; j < N; j++) {
        float m = mine > 0 ? sum[j] / (float)mine : 0.0f;

        t = (int)threadIdx.y * width + (int)threadIdx.x * N + j;
        mean[t] = pivot[j] + m;
        square[t] = squares[j] - sum[j] * m;
    }
    __syncthreads();
    t = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    c = (int)blockIdx.x * width + t;
    if (t < width && c < a.cols)
        join_threads(mean + t, square + t, width, end - first, a.part + (int64_t)b * a.cols + c,
                     a.part + (int64_t)(a.blocks + b) * a.cols + c);
}

/* Statistics of the columns from those of the blocks: LANES columns a block, every LANES-th row
 * block a thread. */
template <class T>
static __global__ void __launch_bounds__(LANES *LANES, 1) join_moments(struct batchnorm<T> a)
{
    __shared__ double shared[LANES][LANES + 1];
    int c = (int)(blockIdx.x * LANES + threadIdx.x);
    int64_t n = real_rows(a);
    double samples = (double)(n / a.sample), m = 0.0, s = 0.0, var;

    for (int b = (int)threadIdx.y; b < a.blocks && c < a.cols; b += LANES) {
        int64_t rows = block_row(a.rows, n, b + 1, a.blocks) - block_row(a.rows, n, b, a.blocks);

        m += (double)rows * (double)a.part[(int64_t)b * a.cols + c];
    }
    m = join_rows(m, shared);
    m = n > 0 ? m / (double)n : 0.0;
    for (int b = (int)threadIdx.y; b < a.blocks && c < a.cols; b += LANES) {
        int64_t rows = block_row(a.rows, n, b + 1, a.blocks) - block_row(a.rows, n, b, a.blocks);
        double d = (double)a.part[(int64_t)b * a.cols + c] - m;

        if (rows > 0)
            s += (double)a.part[(int64_t)(a.blocks + b) * a.cols + c] + (double)rows * d * d;
    }
    s = join_rows(s, shared);
    if (threadIdx.y != 0 || c >= a.cols)
        return;
    var = n > 0 ? s / (double)n : 0.0;
    a.mean[c] = (float)m;
    a.invstd[c] = n > 0 ? (float)(1.0 / sqrt(var + (double)a.eps)) : 0.0f;
    if (a.moments == NULL)
        return;
    a.moments[c] = (float)(samples * m);
    a.moments[a.cols + c] = n > 1 ? (float)(samples * (s / (double)(n - 1))) : 0.0f;
    if (c == 0)
        a.moments[2 * a.cols] = (float)samples;
}

/* y = relu?((x - mean) scale gamma + beta + residual), 0 in padding. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 4) normalise(struct batchnorm<T> a)
{
    int c = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * N;
    int64_t real = real_rows(a), stride = (int64_t)gridDim.y * blockDim.y;
    float mean[N], scale[N], shift[N];

    if (c >= a.cols)
        return;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float s = a.scale_in[c + j];

        mean[j] = a.mean_in[c + j];
        scale[j] = (a.infer ? 1.0f / sqrtf(s + a.eps) : s) * a.gamma[c + j];
        shift[j] = a.beta[c + j];
    }
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < a.rows; r += stride) {
        int64_t at = r * a.cols + c;
        float v[N] = {}, add[N] = {};

        if (r < real) {
            read<T, N>(a.x + at, v);
            if (a.residual != NULL)
                read<T, N>(a.residual + at, add);
#pragma unroll
            for (int j = 0; j < N; j++) {
                v[j] = (v[j] - mean[j]) * scale[j] + shift[j] + add[j];
                v[j] = a.relu && v[j] <= 0.0f ? 0.0f : v[j];
            }
        }
        write<T, N>(a.y + at, v);
    }
}

template <class T, int N>
static tri_status run_normalise(const struct cuda_kernel *k, const struct batchnorm<T> &a,
                                void *stream)
{
    return tri_launch(normalise<T, N>, grid_of(k, N, row_blocks(k, N)), block_of(k, N), 0, stream,
                      a);
}

template <class T, int N>
static tri_status launch_forward(const struct cuda_kernel *k, struct batchnorm<T> &a, void *stream)
{
    TRI_TRY(
        tri_launch(moments_of_blocks<T, N>, grid_of(k, N, a.blocks), block_of(k, N), 0, stream, a));
    TRI_TRY(tri_launch(join_moments<T>, join_grid(k), dim3(LANES, LANES), 0, stream, a));
    a.mean_in = a.mean;
    a.scale_in = a.invstd;
    return run_normalise<T, N>(k, a, stream);
}

template <class T>
static tri_status run_batchnorm_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    struct batchnorm<T> a = arguments<T>(k, args->scratch);

    a.x = (const T *)args->in[0];
    a.gamma = (const float *)args->in[1];
    a.beta = (const float *)args->in[2];
    a.nreal = (const int32_t *)args->in[3];
    a.residual = (const T *)input(k, args, 4);
    a.y = (T *)args->out[0];
    a.mean = (float *)args->out[1];
    a.invstd = (float *)args->out[2];
    a.moments = (float *)output(k, args, 3);
    if (k->cols % N == 0 && tri_cuda_aligned(a.x, a.residual, a.y))
        return launch_forward<T, N>(k, a, args->stream);
    return launch_forward<T, 1>(k, a, args->stream);
}

static tri_status prepare_batchnorm(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_norm(d, &tri_cuda_batchnorm, 0, true, out);
}

static tri_status run_batchnorm(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_batchnorm_of, k, args);
}

TRI_CUDA_KERNEL(batchnorm);

template <class T>
static tri_status run_batchnorm_infer_of(const struct cuda_kernel *k,
                                         const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    struct batchnorm<T> a = arguments<T>(k, NULL);

    a.x = (const T *)args->in[0];
    a.gamma = (const float *)args->in[1];
    a.beta = (const float *)args->in[2];
    a.mean_in = (const float *)args->in[3];
    a.scale_in = (const float *)args->in[4];
    a.residual = (const T *)input(k, args, 5);
    a.y = (T *)args->out[0];
    a.infer = true;
    if (k->cols % N == 0 && tri_cuda_aligned(a.x, a.residual, a.y))
        return run_normalise<T, N>(k, a, args->stream);
    return run_normalise<T, 1>(k, a, args->stream);
}

static tri_status prepare_batchnorm_infer(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_norm(d, &tri_cuda_batchnorm_infer, 0, false, out);
}

static tri_status run_batchnorm_infer(const struct tri_kernel *kernel,
                                      const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_batchnorm_infer_of, k, args);
}

TRI_CUDA_KERNEL(batchnorm_infer);
