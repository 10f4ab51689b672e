/* The cases of each kind of op: run all of them with `ops` and return how many `ops` supported. */
#ifndef TRI_TESTS_UNIT_KERNELS_CASES_H
#define TRI_TESTS_UNIT_KERNELS_CASES_H

#include "runtime/kernels/kernels.h"

/* X(KIND, name) */
#define TRI_CASES(X)                                                                               \
    X(MATMUL, matmul)                                                                              \
    X(MATMUL_GELU, matmul_gelu)                                                                    \
    X(MATMUL_GELU_GRAD, matmul_gelu_grad)                                                          \
    X(MATMUL_BGRAD, matmul_bgrad)                                                                  \
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
    X(BATCHNORM, batchnorm)                                                                        \
    X(BATCHNORM_GRAD, batchnorm_grad)                                                              \
    X(BATCHNORM_INFER, batchnorm_infer)                                                            \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(POSITION_GRAD, position_grad)                                                                \
    X(SOFTMAX_XENT, softmax_xent)                                                                  \
    X(SOFTMAX_XENT_GRAD, softmax_xent_grad)                                                        \
    X(SOFTMAX_XENT_FUSED, softmax_xent_fused)                                                      \
    X(CONV2D, conv2d)                                                                              \
    X(CONV2D_DX, conv2d_dx)                                                                        \
    X(CONV2D_DW, conv2d_dw)                                                                        \
    X(MAXPOOL, maxpool)                                                                            \
    X(MAXPOOL_GRAD, maxpool_grad)                                                                  \
    X(AVGPOOL, avgpool)                                                                            \
    X(AVGPOOL_GRAD, avgpool_grad)                                                                  \
    X(SUMSQ, sumsq)                                                                                \
    X(SGD, sgd)                                                                                    \
    X(ADAMW, adamw)                                                                                \
    X(MULTI_SUMSQ, multi_sumsq)                                                                    \
    X(MULTI_SGD, multi_sgd)                                                                        \
    X(MULTI_ADAMW, multi_adamw)                                                                    \
    X(MSE, mse)                                                                                    \
    X(MSE_GRAD, mse_grad)                                                                          \
    X(COMPRESS, compress)                                                                          \
    X(DECOMPRESS, decompress)                                                                      \
    X(LOWRANK_LEFT, lowrank_left)                                                                  \
    X(LOWRANK_RIGHT, lowrank_right)                                                                \
    X(LOWRANK_PRODUCT, lowrank_product)                                                            \
    X(COMMIT, commit)                                                                              \
    X(STEP_BEGIN, step_begin)                                                                      \
    X(CONTROL, control)                                                                            \
    X(STEP_END, step_end)                                                                          \
    X(SCALE_END, scale_end)                                                                        \
    X(BATCHNORM_RUNNING, batchnorm_running)                                                        \
    X(INJECT, inject)

#define X(kind, name) int cases_##name(const struct tri_kernel_ops *ops);
TRI_CASES(X)
#undef X

/* Bound of the difference of two f32 sums of n products of size about 1 (derived in cases.c). */
double tol_sum(int64_t n);

#endif
