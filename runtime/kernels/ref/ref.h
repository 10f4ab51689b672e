/* Frame of the reference kernels: one prepared form for all of them, so that an op is only its run
 * function.
 *
 * Reference kernels are naive and obviously right: plain loops, sums in double in index order, one
 * rounding at the store; 16-bit arguments come widened (widen.h) unless the kernel reads them
 * itself. They are the oracle of the kernel suite and serve where the CPU table has
 * no kernel. */
#ifndef TRI_RUNTIME_KERNELS_REF_REF_H
#define TRI_RUNTIME_KERNELS_REF_REF_H

#include "runtime/core/rng.h"
#include "runtime/kernels/kernels.h"

#include <stdbool.h>

struct tri_ref_kernel {
    struct tri_kernel base;
    struct tri_kernel_desc d; /* a deep copy: its in and out lie behind the struct */
};

/* Copies the signature. Takes any dtypes: the op table has checked them. Local. */
tri_status tri_ref_prepare(const struct tri_kernel_desc *d, struct tri_kernel **out);
void tri_ref_destroy(struct tri_kernel *k);

static inline const struct tri_kernel_desc *tri_ref_desc(const struct tri_kernel *k)
{
    return &((const struct tri_ref_kernel *)k)->d;
}

static inline int64_t tri_ref_count(const struct tri_arg *a)
{
    return tri_shape_count(&a->shape);
}

/* Element i of a tensor of any dtype as a double, and back, rounded once to the stored type. */
double tri_ref_load(enum tri_dtype dtype, const void *p, int64_t i);
void tri_ref_store(enum tri_dtype dtype, void *p, int64_t i, double x);

/* gelu(x) and its slope there. Local. */
double tri_ref_gelu_of(double x);
double tri_ref_gelu_slope(double x);

/* 1 / (1 - p) where element `index` of the stream is kept, else 0. Local. */
double tri_ref_dropout_scale(const struct tri_rng_key *key, uint64_t index, double p);

/* X(KIND, run function): every op kind that has a kernel, by family (the file of that name). */
#define TRI_REF_LIST(X)                                                                            \
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
    X(BATCHNORM_RUNNING, batchnorm_running)                                                        \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(POSITION_GRAD, position_grad)                                                                \
    X(SOFTMAX_XENT, softmax_xent)                                                                  \
    X(SOFTMAX_XENT_GRAD, softmax_xent_grad)                                                        \
    X(SOFTMAX_XENT_FUSED, softmax_xent_fused)                                                      \
    X(MSE, mse)                                                                                    \
    X(MSE_GRAD, mse_grad)                                                                          \
    X(CONV2D, conv2d)                                                                              \
    X(CONV2D_DX, conv2d_dx)                                                                        \
    X(CONV2D_DW, conv2d_dw)                                                                        \
    X(MAXPOOL, maxpool)                                                                            \
    X(MAXPOOL_GRAD, maxpool_grad)                                                                  \
    X(AVGPOOL, avgpool)                                                                            \
    X(AVGPOOL_GRAD, avgpool_grad)                                                                  \
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
    X(INJECT, inject)

#define X(kind, name)                                                                              \
    tri_status tri_ref_##name(const struct tri_kernel *k, const struct tri_kernel_args *a);
TRI_REF_LIST(X)
#undef X

#endif
