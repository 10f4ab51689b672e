/* Checks of the tests of the emulation, which are plain programs. */
#ifndef TRI_EMULATION_CHECK_H
#define TRI_EMULATION_CHECK_H

#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <utility>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Launches on the stream. */
template <class... P, class... A>
static inline cudaError_t start(cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block,
                                size_t shared, A &&...a)
{
    cudaLaunchConfig_t c = {};

    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = stream;
    return cudaLaunchKernelEx(&c, kernel, std::forward<A>(a)...);
}

/* Launches on the default stream and waits. */
template <class... P, class... A>
static inline cudaError_t run(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A &&...a)
{
    cudaError_t e = start(nullptr, kernel, grid, block, shared, std::forward<A>(a)...);

    return e == cudaSuccess ? cudaStreamSynchronize(nullptr) : e;
}

#endif
