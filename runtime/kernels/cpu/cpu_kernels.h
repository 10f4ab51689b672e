/* Entries of the CPU table that are not made for one instruction set. */
#ifndef TRI_RUNTIME_KERNELS_CPU_CPU_KERNELS_H
#define TRI_RUNTIME_KERNELS_CPU_CPU_KERNELS_H

#include "runtime/kernels/kernels.h"

/* oneDNN */
extern const struct tri_kernel_ops tri_kernel_matmul_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dx_onednn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dw_onednn;

/* plain loops, several threads */
extern const struct tri_kernel_ops tri_kernel_maxpool_cpu;
extern const struct tri_kernel_ops tri_kernel_maxpool_grad_cpu;
extern const struct tri_kernel_ops tri_kernel_avgpool_cpu;
extern const struct tri_kernel_ops tri_kernel_avgpool_grad_cpu;

#endif
