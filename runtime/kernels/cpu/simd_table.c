/* The SIMD kernels of one instruction set, by kind of op. */
#include "runtime/kernels/cpu/simd_dispatch.h"
#include "runtime/kernels/cpu/simd_kernel.h"

const struct tri_kernel_ops *const TRI_ISA_NAME(tri_simd_kernels)[TRI_OP_COUNT] = {
#define X(kind, name) [TRI_OP_##kind] = &TRI_ISA_NAME(tri_simd_##name),
    TRI_SIMD_LIST(X)
#undef X
};
