/* launch.cuh, where dynamic shared memory is that of the emulated block. */
#ifndef TRI_EMULATION_LAUNCH_CUH
#define TRI_EMULATION_LAUNCH_CUH

#include_next "runtime/kernels/cuda/launch.cuh"

#undef TRI_DYNAMIC_SHARED
#define TRI_DYNAMIC_SHARED(T, name) T *name = static_cast<T *>(emu::dynamic_shared())

#endif
