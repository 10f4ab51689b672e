/* Entries of the CPU table that are not made for one instruction set. */
#ifndef TRI_RUNTIME_KERNELS_CPU_CPU_KERNELS_H
#define TRI_RUNTIME_KERNELS_CPU_CPU_KERNELS_H

#include "runtime/kernels/kernels.h"

/* oneDNN */
extern const struct tri_kernel_ops tri_kernel_matmul_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dx_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dw_onednn;

/* A product of 16-bit operands in f32 tiles (matmul_tiled.c). Local. */
tri_status tri_matmul_tiled_prepare(const struct tri_kernel_desc *d,
                                    struct tri_kernel **out) TRI_CHECKED;

/* plain loops, several threads */
extern const struct tri_kernel_ops tri_kernel_maxpool_cpu;
extern const struct tri_kernel_ops tri_kernel_maxpool_grad_cpu;
extern const struct tri_kernel_ops tri_kernel_avgpool_cpu;
extern const struct tri_kernel_ops tri_kernel_avgpool_grad_cpu;

#endif
