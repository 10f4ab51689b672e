/* BATCHNORM_GRAD. Sums of a thread in f32 about the given mean, of blocks in f64. Class: 8 ulp of
 * the largest term. */
#include "runtime/kernels/cuda/batchnorm.cuh"

/* dy where the output was positive. */
template <class T, int N>
static __device__ inline void masked(const struct batchnorm<T> &a, int64_t at, float *g)
{
    float y[N];

    read<T, N>(a.dy + at, g);
    if (a.y_in == NULL)
        return;
    read<T, N>(a.y_in + at, y);
#pragma unroll
    for (int j = 0; j < N; j++)
        g[j] = y[j] <= 0.0f ? 0.0f : g[j];
}

/* part[b][c], part[blocks + b][c]: sums of g and of g (x - mean) over the rows of block b. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) sums_of_blocks(struct batchnorm<T> a)
{
    __shared__ float shared[2][THREADS * N];
    int width = (int)blockDim.x * N, depth = (int)blockDim.y, b = (int)blockIdx.y;
    int c = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * N, t;
    int64_t real = real_rows(a), end = block_row(a.rows, real, b + 1, a.blocks);
    float sum[N] = {}, product[N] = {}, mean[N], g[N], v[N];

    for (int j = 0; j < N && c < a.cols; j++)
        mean[j] = a.mean_in[c + j];
#pragma unroll 2
    for (int64_t r = block_row(a.rows, real, b, a.blocks) + threadIdx.y; r < end; r += depth) {
        if (c >= a.cols)
            break;
        masked<T, N>(a, r * a.cols + c, g);
        read<T, N>(a.x + r * a.cols + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) {
            sum[j] += g[j];
            product[j] += g[j] * (v[j] - mean[j]);
        }
    }
    for (int j = 0; j < N; j++) {
        t = (int)threadIdx.y * width + (int)threadIdx.x * N + j;
        shared[0][t] = sum[j];
        shared[1][t] = product[j];
    }
    __syncthreads();
    t = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    c = (int)blockIdx.x * width + t;
    if (t >= width || c >= a.cols)
        return;
    for (int k = 0; k < 2; k++) {
        float s = 0.0f;

        for (int y = 0; y < depth; y++)
            s += shared[k][y * width + t];
        a.part[(int64_t)(k * a.blocks + b) * a.cols + c] = s;
    }
}

template <class T>
static __global__ void __launch_bounds__(LANES *LANES, 1) join_sums(struct batchnorm<T> a)
{
    __shared__ double shared[LANES][LANES + 1];
    int c = (int)(blockIdx.x * LANES + threadIdx.x);
    int64_t n = real_rows(a);
    double s[2] = {};

    for (int b = (int)threadIdx.y; b < a.blocks && c < a.cols; b += LANES)
        for (int k = 0; k < 2; k++)
            s[k] += (double)a.part[(int64_t)(k * a.blocks + b) * a.cols + c];
    s[0] = join_rows(s[0], shared);
    s[1] = join_rows(s[1], shared);
    if (threadIdx.y != 0 || c >= a.cols)
        return;
    s[1] *= (double)a.scale_in[c];
    if (a.dbeta != NULL)
        a.dbeta[c] = (float)s[0];
    if (a.dgamma != NULL)
        a.dgamma[c] = (float)s[1];
    a.sums[c] = n > 0 ? (float)(s[0] / (double)n) : 0.0f;
    a.sums[a.cols + c] = n > 0 ? (float)(s[1] / (double)n) : 0.0f;
}

/* dx = gamma invstd (g - dbeta / n - xhat dgamma / n), dresidual = g; 0 in padding. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) gradient(struct batchnorm<T> a)
{
    int c = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * N;
    int64_t real = real_rows(a), stride = (int64_t)gridDim.y * blockDim.y;
    float mean[N], factor[N], along[N], average[N];

    if (c >= a.cols)
        return;
#pragma unroll
    for (int j = 0; j < N; j++) {
        float invstd = a.scale_in[c + j];

        mean[j] = a.mean_in[c + j];
        factor[j] = a.gamma[c + j] * invstd;
        average[j] = a.sums[c + j];
        along[j] = a.sums[a.cols + c + j] * invstd;
    }
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < a.rows; r += stride) {
        int64_t at = r * a.cols + c;
        float g[N] = {}, v[N] = {};

        if (r < real) {
            masked<T, N>(a, at, g);
            read<T, N>(a.x + at, v);
        }
        if (a.dresidual != NULL)
            write<T, N>(a.dresidual + at, g);
        if (a.dx == NULL)
            continue;
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = r < real ? factor[j] * (g[j] - average[j] - (v[j] - mean[j]) * along[j]) : 0.0f;
        write<T, N>(a.dx + at, v);
    }
}

template <class T, int N>
static tri_status launch_gradient(const struct cuda_kernel *k, const struct batchnorm<T> &a,
                                  void *stream)
{
    TRI_TRY(
        tri_launch(sums_of_blocks<T, N>, grid_of(k, N, a.blocks), block_of(k, N), 0, stream, a));
    TRI_TRY(tri_launch(join_sums<T>, join_grid(k), dim3(LANES, LANES), 0, stream, a));
    if (a.dx == NULL && a.dresidual == NULL)
        return TRI_OK;
    return tri_launch(gradient<T, N>, grid_of(k, N, row_blocks(k, N)), block_of(k, N), 0, stream,
                      a);
}

template <class T>
static tri_status run_batchnorm_grad_of(const struct cuda_kernel *k,
                                        const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    struct batchnorm<T> a = arguments<T>(k, args->scratch);

    a.dy = (const T *)args->in[0];
    a.x = (const T *)args->in[1];
    a.gamma = (const float *)args->in[2];
    a.mean_in = (const float *)args->in[3];
    a.scale_in = (const float *)args->in[4];
    a.nreal = (const int32_t *)args->in[5];
    a.y_in = (const T *)input(k, args, 6);
    a.dx = (T *)output(k, args, 0);
    a.dgamma = (float *)output(k, args, 1);
    a.dbeta = (float *)output(k, args, 2);
    a.dresidual = (T *)output(k, args, 3);
    if (k->cols % N == 0 && tri_cuda_aligned(a.dy, a.x, a.y_in) &&
        tri_cuda_aligned(a.dx, a.dresidual, NULL))
        return launch_gradient<T, N>(k, a, args->stream);
    return launch_gradient<T, 1>(k, a, args->stream);
}

static tri_status prepare_batchnorm_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_norm(d, &tri_cuda_batchnorm_grad, 1, true, out);
}

static tri_status run_batchnorm_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_batchnorm_grad_of, k, args);
}

TRI_CUDA_KERNEL(batchnorm_grad);
