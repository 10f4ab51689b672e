/* Entry to the SIMD kernels: one slot for every kind, which picks the instruction set when a kernel
 * is prepared. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_DISPATCH_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_DISPATCH_H

#include "runtime/kernels/kernels.h"

/* prepare makes the kernel of d->kind for tri_cpu_isa(); the kernel it returns carries that
 * kernel's own ops. */
extern const struct tri_kernel_ops tri_kernel_simd;

/* Conversions of n elements between f32 and t (f32, bf16, f16), of the instruction set in use. */
struct tri_simd_convert {
    void (*widen)(enum tri_dtype t, const void *src, float *dst, int64_t n);
    void (*narrow)(enum tri_dtype t, const float *src, void *dst, int64_t n);
};
const struct tri_simd_convert *tri_simd_convert(void);

extern const struct tri_kernel_ops *const tri_simd_kernels_scalar[TRI_OP_COUNT];
extern const struct tri_kernel_ops *const tri_simd_kernels_avx2[TRI_OP_COUNT];
extern const struct tri_kernel_ops *const tri_simd_kernels_avx512[TRI_OP_COUNT];

#endif
