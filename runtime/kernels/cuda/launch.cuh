/* What all our CUDA kernels share: launching, vectors of 16 bytes, sums over a warp and a block.
 *
 * Conventions: one .cu file an op family with kernels, prepare, run and the ops table (C++ as a
 * better C: templates over element types, nothing else). A kernel never allocates; run only
 * launches on args->stream. Where results must repeat (always, for what an update reads) no
 * floating-point atomics: partial sums go to scratch in fixed blocks and a second kernel adds them
 * in order. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_LAUNCH_CUH
#define TRI_RUNTIME_KERNELS_CUDA_LAUNCH_CUH

#include "runtime/device/cuda_device.h"
#include "runtime/kernels/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Dynamic shared memory of a kernel as an array `name` of T, aligned to 16 bytes. */
#define TRI_DYNAMIC_SHARED(T, name)                                                                \
    extern __shared__ __align__(16) unsigned char name##_bytes[];                                  \
    T *name = reinterpret_cast<T *>(name##_bytes)

/* Launches kernel(args...) on the stream. The grid must not be empty. */
template <class... P, class... A>
static inline tri_status tri_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                    void *stream, A... args)
{
    cudaLaunchConfig_t c = {};

    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = static_cast<cudaStream_t>(stream);
    TRI_CUDA(cudaLaunchKernelEx(&c, kernel, static_cast<P>(args)...));
    return TRI_OK;
}

/* Sum over the 32 lanes, in every lane; order: butterfly, so the same bits in all. */
template <class T> static __device__ inline T tri_warp_sum(T v)
{
    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

template <class T> static __device__ inline T tri_warp_max(T v)
{
    for (int d = 16; d > 0; d >>= 1) {
        T o = __shfl_xor_sync(0xffffffffu, v, d);
        v = v > o ? v : o;
    }
    return v;
}

/* Sums v[0..K) over all threads of the block, in every thread; blockDim.x is a multiple of 32,
 * shared has room for K * 32. Order: inside warps, then warp by warp. Ends with the block in step,
 * so that shared may be used again. */
template <int K, class T> static __device__ inline void tri_block_sum(T *v, T *shared)
{
    int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;

    for (int k = 0; k < K; k++) {
        v[k] = tri_warp_sum(v[k]);
        if (threadIdx.x % 32 == 0)
            shared[k * 32 + warp] = v[k];
    }
    __syncthreads();
    for (int k = 0; k < K; k++) {
        v[k] = shared[k * 32];
        for (int w = 1; w < warps; w++)
            v[k] += shared[k * 32 + w];
    }
    __syncthreads();
}

/* Largest v over all threads of the block, in every thread; shared has room for 32. */
template <class T> static __device__ inline T tri_block_max(T v, T *shared)
{
    int warps = (int)blockDim.x / 32;

    v = tri_warp_max(v);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = shared[0];
    for (int w = 1; w < warps; w++)
        v = shared[w] > v ? shared[w] : v;
    __syncthreads();
    return v;
}

#endif
