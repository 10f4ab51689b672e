/* Launching a kernel, from the side of its caller. */
#ifndef TRI_EMULATION_LAUNCH_H
#define TRI_EMULATION_LAUNCH_H

#include "cuda_runtime_api.h"

#include <memory>
#include <tuple>
#include <utility>

namespace emu
{

/* A kernel with its arguments, copied at the launch. */
struct Grid {
    dim3 grid, block;
    size_t shared;                    /* bytes of dynamic shared memory of a block */
    const void *kernel;               /* its address: for messages and limits */
    std::shared_ptr<const void> call; /* what `run` takes */
    void (*run)(const void *call);    /* one thread of the kernel */
};

/* Gives the grid to the stream. */
cudaError_t launch(const Grid &grid, cudaStream_t stream);

/* Runs the grid to its end on the calling thread. */
void run_grid(const Grid &grid);

template <class... P> struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void run(const void *self)
    {
        const Call *c = static_cast<const Call *>(self);

        std::apply(c->kernel, c->arguments);
    }
};

template <class... P, class... A>
inline Grid make_grid(dim3 grid, dim3 block, size_t shared, void (*kernel)(P...), A &&...a)
{
    using C = Call<P...>;

    return Grid{grid,
                block,
                shared,
                reinterpret_cast<const void *>(kernel),
                std::make_shared<const C>(C{kernel, std::tuple<P...>(std::forward<A>(a)...)}),
                C::run};
}

template <class... P, size_t... I>
inline Grid grid_of_pointers(dim3 grid, dim3 block, size_t shared, void (*kernel)(P...),
                             void **arguments, std::index_sequence<I...>)
{
    return make_grid(grid, block, shared, kernel, *static_cast<P *>(arguments[I])...);
}

} // namespace emu

template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...a)
{
    return emu::launch(emu::make_grid(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                      kernel, std::forward<A>(a)...),
                       config->stream);
}

template <class... P>
inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                                    size_t shared = 0, cudaStream_t stream = nullptr)
{
    return emu::launch(emu::grid_of_pointers(grid, block, shared, kernel, arguments,
                                             std::index_sequence_for<P...>()),
                       stream);
}

template <class... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}

template <class... P>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, void (*kernel)(P...))
{
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(kernel));
}

template <class... P>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...),
                                                                 int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), threads, shared);
}

/* A __constant__ or __device__ variable is an ordinary one. */
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T &symbol, const void *src, size_t bytes, size_t offset,
                                           cudaMemcpyKind, cudaStream_t stream = nullptr)
{
    return cudaMemcpyAsync(reinterpret_cast<char *>(&symbol) + offset, src, bytes,
                           cudaMemcpyDefault, stream);
}

template <class T> inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}

template <class T> inline cudaError_t cudaMallocHost(T **p, size_t bytes)
{
    return cudaMallocHost(reinterpret_cast<void **>(p), bytes);
}

#endif
