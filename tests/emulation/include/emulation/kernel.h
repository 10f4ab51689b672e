/* CUDA kernels on the processor: what the code of a kernel sees.
 *
 * A block runs on one thread of the process, the threads of the block are fibers of it: a fiber
 * runs until it meets the others of its warp or its block, then the next one goes on. A kernel that
 * never meets costs a function call a thread. Blocks of a grid run one after another. */
#ifndef TRI_EMULATION_KERNEL_H
#define TRI_EMULATION_KERNEL_H

#include "vector_types.h"

#include <source_location>
#include <stddef.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __shared__      static thread_local /* a thread of the process runs one block at a time */
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n)         __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)

inline constexpr int warpSize = 32;

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace emu
{

using Site = std::source_location;

extern constinit thread_local int lane_id; /* of the fiber that runs, in its warp */

/* An operation of a warp: done by the last lane that comes, for all. operand[lane] is what the lane
 * brought, which lies on its stack; only lanes of `lanes` count. */
using Together = void (*)(unsigned lanes, void *const *operand);

/* Waits until every lane of mask has come with the same operation. Lanes that have left the kernel
 * do not count. */
void meet(unsigned mask, void *operand, Together together, Site site);

/* Waits until every thread of the block has come to the same place; returns how many of them gave a
 * true predicate. */
int meet_block(bool predicate, Site site);

/* Lanes of the warp that have not left the kernel. */
unsigned living_lanes();

/* Dynamic shared memory of the block, aligned to 128 bytes. */
void *dynamic_shared();

/* Threads of the block. */
int block_threads();

/* Ends the process unless p is a multiple of `bytes`. */
void check_aligned(const void *p, size_t bytes, Site site);

} // namespace emu

inline void __syncthreads(emu::Site site = emu::Site::current())
{
    emu::meet_block(false, site);
}
inline int __syncthreads_count(int predicate, emu::Site site = emu::Site::current())
{
    return emu::meet_block(predicate != 0, site);
}
inline int __syncthreads_or(int predicate, emu::Site site = emu::Site::current())
{
    return emu::meet_block(predicate != 0, site) > 0;
}
inline int __syncthreads_and(int predicate, emu::Site site = emu::Site::current())
{
    return emu::meet_block(predicate == 0, site) == 0;
}

/* Fences order memory between the blocks of a grid and between streams; the former run on one
 * thread. */
inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
}
inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __nanosleep(unsigned)
{
}

#endif
