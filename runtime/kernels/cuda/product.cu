/* See product.h. A block of 16 x 16 threads computes as many elements from tiles of both operands
 * in shared memory; terms in index order, in f32. */
#include "runtime/kernels/cuda/product.h"

#include "runtime/kernels/cuda/element.cuh"

enum { TILE = 16 };

/* Element (row, column) is at row * rows + column * columns. */
template <class T> struct matrix {
    const T *at;
    int64_t rows, columns;
};

template <class T>
static __device__ inline float read(struct matrix<T> x, int64_t row, int64_t column, int64_t height,
                                    int64_t width)
{
    return row < height && column < width ? tri_widen(x.at[row * x.rows + column * x.columns]) : 0;
}

template <class T, class Y>
static __global__ void product_kernel(struct matrix<T> a, struct matrix<T> b, const float *bias,
                                      const Y *acc, Y *y, int64_t m, int64_t n, int64_t depth)
{
    __shared__ float ta[TILE][TILE + 1], tb[TILE][TILE + 1];
    int64_t i = static_cast<int64_t>(blockIdx.x) * TILE + threadIdx.y;
    int64_t j = static_cast<int64_t>(blockIdx.y) * TILE + threadIdx.x;
    float sum = 0;

    for (int64_t first = 0; first < depth; first += TILE) {
        ta[threadIdx.y][threadIdx.x] = read(a, i, first + threadIdx.x, m, depth);
        tb[threadIdx.y][threadIdx.x] = read(b, first + threadIdx.y, j, depth, n);
        __syncthreads();
        for (int l = 0; l < TILE; l++)
            sum += ta[threadIdx.y][l] * tb[l][threadIdx.x];
        __syncthreads();
    }
    if (i >= m || j >= n)
        return;
    if (bias != nullptr)
        sum += bias[j];
    if (acc != nullptr)
        sum += tri_widen(acc[i * n + j]);
    y[i * n + j] = tri_narrow<Y>(sum);
}

template <class T, class Y>
static tri_status launch(const struct tri_cuda_product *p, const void *a, const void *b,
                         const float *bias, const void *acc, void *y, void *stream)
{
    struct matrix<T> ma = {
        static_cast<const T *>(a), p->depth, 1
    };
    struct matrix<T> mb = {
        static_cast<const T *>(b), p->n, 1
    };
    dim3 grid(static_cast<unsigned>((p->m + TILE - 1) / TILE),
              static_cast<unsigned>((p->n + TILE - 1) / TILE));

    if (p->ta)
        ma = {ma.at, 1, p->m};
    if (p->tb)
        mb = {mb.at, 1, p->depth};
    return tri_launch(product_kernel<T, Y>, grid, dim3(TILE, TILE), 0, stream, ma, mb, bias,
                      static_cast<const Y *>(acc), static_cast<Y *>(y), p->m, p->n, p->depth);
}

template <class T>
static tri_status launch_out(const struct tri_cuda_product *p, const void *a, const void *b,
                             const float *bias, const void *acc, void *y, void *stream)
{
    return p->out == TRI_F32 ? launch<T, float>(p, a, b, bias, acc, y, stream)
                             : launch<T, T>(p, a, b, bias, acc, y, stream);
}

tri_status tri_cuda_product_run(const struct tri_cuda_product *p, const void *a, const void *b,
                                const float *bias, const void *acc, void *y, void *stream)
{
    return TRI_CALL_FLOAT(p->in, launch_out, p, a, b, bias, acc, y, stream);
}
