/* Entries of the CUDA table and what its files share on the host side. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_CUDA_KERNELS_H
#define TRI_RUNTIME_KERNELS_CUDA_CUDA_KERNELS_H

#include "runtime/core/memory.h"
#include "runtime/kernels/cuda/cuda_kernel.h"
#include "runtime/kernels/kernels.h"

TRI_BEGIN_DECLS

#define TRI_CUDA_ALIGN 256 /* of a library's workspace, and of each part of a kernel's scratch */

/* Scratch of a kernel comes aligned to 64 bytes; its parts start at multiples of TRI_CUDA_ALIGN
 * behind that. Ask for TRI_CUDA_ALIGN more than the parts take. Local. */
static inline unsigned char *tri_cuda_scratch(void *scratch)
{
    uintptr_t p = (uintptr_t)scratch;

    return (unsigned char *)((p + TRI_CUDA_ALIGN - 1) / TRI_CUDA_ALIGN * TRI_CUDA_ALIGN);
}

static inline bool tri_arg_present(const struct tri_arg *arg, int i, int n)
{
    return i < n && arg[i].shape.ndim >= 0;
}

/* Our own kernels (.cu files by family). X(KIND, name) */
#define TRI_CUDA_LIST(X)                                                                           \
    X(COLUMN_SUM, column_sum)                                                                      \
    X(ADD, add)                                                                                    \
    X(RELU, relu)                                                                                  \
    X(RELU_GRAD, relu_grad)                                                                        \
    X(GELU, gelu)                                                                                  \
    X(GELU_GRAD, gelu_grad)                                                                        \
    X(DROPOUT, dropout)                                                                            \
    X(CAST, cast)                                                                                  \
    X(LAYERNORM, layernorm)                                                                        \
    X(LAYERNORM_GRAD, layernorm_grad)                                                              \
    X(POSITION_GRAD, position_grad)                                                                \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    X(MAXPOOL, maxpool)                                                                            \
    X(MAXPOOL_GRAD, maxpool_grad)                                                                  \
    X(AVGPOOL, avgpool)                                                                            \
    X(AVGPOOL_GRAD, avgpool_grad)                                                                  \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(SOFTMAX_XENT, softmax_xent)                                                                  \
    X(SOFTMAX_XENT_GRAD, softmax_xent_grad)                                                        \
    X(SOFTMAX_XENT_FUSED, softmax_xent_fused)                                                      \
    X(MSE, mse)                                                                                    \
    X(MSE_GRAD, mse_grad)                                                                          \
    X(COMPRESS, compress)                                                                          \
    X(DECOMPRESS, decompress)                                                                      \
    X(LOWRANK_LEFT, lowrank_left)                                                                  \
    X(LOWRANK_RIGHT, lowrank_right)                                                                \
    X(LOWRANK_PRODUCT, lowrank_product)                                                            \
    X(COMMIT, commit)                                                                              \
    X(STEP_BEGIN, step_begin)                                                                      \
    X(SUMSQ, sumsq)                                                                                \
    X(CONTROL, control)                                                                            \
    X(SGD, sgd)                                                                                    \
    X(ADAMW, adamw)                                                                                \
    X(MULTI_SUMSQ, multi_sumsq)                                                                    \
    X(MULTI_SGD, multi_sgd)                                                                        \
    X(MULTI_ADAMW, multi_adamw)                                                                    \
    X(STEP_END, step_end)                                                                          \
    X(SCALE_END, scale_end)                                                                        \
    X(BATCHNORM, batchnorm)                                                                        \
    X(BATCHNORM_GRAD, batchnorm_grad)                                                              \
    X(BATCHNORM_INFER, batchnorm_infer)                                                            \
    X(BATCHNORM_RUNNING, batchnorm_running)                                                        \
    X(INJECT, inject)

#define X(kind, name) extern const struct tri_kernel_ops tri_cuda_##name;
TRI_CUDA_LIST(X)
#undef X

/* Defines the table of one of them from its prepare_NAME and run_NAME. */
#define TRI_CUDA_KERNEL(kernel)                                                                    \
    const struct tri_kernel_ops tri_cuda_##kernel = {                                              \
        .name = #kernel "_cuda",                                                                   \
        .prepare = prepare_##kernel,                                                               \
        .run = run_##kernel,                                                                       \
        .destroy = tri_cuda_kernel_destroy,                                                        \
    }

/* libraries (C) */
extern const struct tri_kernel_ops tri_kernel_matmul_cublaslt;
extern const struct tri_kernel_ops tri_kernel_conv2d_cudnn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dx_cudnn;
extern const struct tri_kernel_ops tri_kernel_conv2d_dw_cudnn;
/* 16-bit, no dropout; TRI_ERR_UNSUPPORTED without a message for all else. */
extern const struct tri_kernel_ops tri_kernel_attention_cudnn;
extern const struct tri_kernel_ops tri_kernel_attention_grad_cudnn;

TRI_END_DECLS
#endif
