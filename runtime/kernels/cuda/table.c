/* The CUDA table: the fastest kernel of each kind. No reference serves on a device: a kind that is
 * NULL here cannot run on one. */
#include "runtime/kernels/cuda/cuda_kernels.h"

const struct tri_kernel_ops *const tri_kernels_cuda[TRI_OP_COUNT] = {
#define X(kind, name) [TRI_OP_##kind] = &tri_cuda_##name,
    TRI_CUDA_LIST(X)
#undef X
        [TRI_OP_MATMUL] = &tri_kernel_matmul_cublaslt,
    [TRI_OP_MATMUL_GELU] = &tri_kernel_matmul_cublaslt,
    [TRI_OP_MATMUL_GELU_GRAD] = &tri_kernel_matmul_cublaslt,
    [TRI_OP_MATMUL_BGRAD] = &tri_kernel_matmul_cublaslt,
    [TRI_OP_CONV2D] = &tri_kernel_conv2d_cudnn,
    [TRI_OP_CONV2D_DX] = &tri_kernel_conv2d_dx_cudnn,
    [TRI_OP_CONV2D_DW] = &tri_kernel_conv2d_dw_cudnn,
};
