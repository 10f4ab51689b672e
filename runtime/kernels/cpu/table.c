/* The CPU table: the fastest kernel of each kind; NULL leaves it to the reference. */
#include "runtime/kernels/cpu/cpu_kernels.h"
#include "runtime/kernels/cpu/simd_dispatch.h"
#include "runtime/kernels/cpu/simd_kernel.h"

const struct tri_kernel_ops *const tri_kernels_cpu[TRI_OP_COUNT] = {
    [TRI_OP_MATMUL] = &tri_kernel_matmul_onednn,
    [TRI_OP_CONV2D] = &tri_kernel_conv2d_onednn,
    [TRI_OP_CONV2D_DX] = &tri_kernel_conv2d_dx_onednn,
    [TRI_OP_CONV2D_DW] = &tri_kernel_conv2d_dw_onednn,
    [TRI_OP_MAXPOOL] = &tri_kernel_maxpool_cpu,
    [TRI_OP_MAXPOOL_GRAD] = &tri_kernel_maxpool_grad_cpu,
    [TRI_OP_AVGPOOL] = &tri_kernel_avgpool_cpu,
    [TRI_OP_AVGPOOL_GRAD] = &tri_kernel_avgpool_grad_cpu,
#define X(kind, name) [TRI_OP_##kind] = &tri_kernel_simd,
    TRI_SIMD_LIST(X)
#undef X
};
