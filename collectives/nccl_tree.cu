/* The sum over ranks by the binary tree that halves [0, size): ((0+1)+(2+3))+..., one element a
 * thread. bf16 and f16 are widened to f32 and rounded once. */
#include "collectives/nccl.h"

#include "runtime/kernels/cuda/element.cuh"
#include "runtime/kernels/cuda/launch.cuh"

#define THREADS 256
#define LEVELS  24 /* of the tree at most */

static __device__ inline float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ inline float widen(__half x)
{
    return __half2float(x);
}

template <class T> static __device__ inline T widen(T x)
{
    return x;
}

template <class T, class W> static __device__ inline T narrow(W x)
{
    return (T)x;
}

template <> __device__ inline __nv_bfloat16 narrow<__nv_bfloat16, float>(float x)
{
    return __float2bfloat16_rn(x);
}

template <> __device__ inline __half narrow<__half, float>(float x)
{
    return __float2half_rn(x);
}

/* sum[] holds the roots of the finished subtrees, the largest first. */
template <class T, class W>
static __global__ void __launch_bounds__(THREADS)
    add_tree(T *to, const T *parts, int64_t n, int size)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    W sum[LEVELS];
    int top = 0;

    if (i >= n)
        return;
    for (int r = 0; r < size; r++) {
        W v = widen(parts[r * n + i]);

        for (int k = r; (k & 1) != 0; k >>= 1)
            v = sum[--top] + v;
        sum[top++] = v;
    }
    to[i] = narrow<T, W>(sum[0]);
}

template <class T, class W>
static tri_status launch_tree(void *to, const void *parts, int64_t n, int size, void *stream)
{
    return tri_launch(add_tree<T, W>, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream,
                      (T *)to, (const T *)parts, n, size);
}

tri_status tri_nccl_add_tree(void *to, const void *parts, int64_t n, int size, enum tri_dtype dtype,
                             void *stream)
{
    switch (dtype) {
    case TRI_F32:
        return launch_tree<float, float>(to, parts, n, size, stream);
    case TRI_F64:
        return launch_tree<double, double>(to, parts, n, size, stream);
    case TRI_BF16:
        return launch_tree<__nv_bfloat16, float>(to, parts, n, size, stream);
    case TRI_F16:
        return launch_tree<__half, float>(to, parts, n, size, stream);
    case TRI_I32:
        return launch_tree<int, int>(to, parts, n, size, stream);
    case TRI_I64:
        return launch_tree<int64_t, int64_t>(to, parts, n, size, stream);
    default:
        return tri_fail(TRI_ERR_UNSUPPORTED, "no sums of %s", tri_dtype_name(dtype));
    }
}
