/* What the SIMD kernels of this folder share: their common state, their names, the list of them.
 *
 * A file of kernels is compiled once for each instruction set; TRI_ISA_NAME(x) gives every global
 * of it its own name. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_KERNEL_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_KERNEL_H

#include "runtime/core/status.h"
#include "runtime/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A prepared kernel. */
struct simd_kernel {
    struct tri_kernel base;
    struct tri_attrs attrs;
    enum tri_dtype from, to; /* of in[0] and out[0] */
    int nthreads;
    int64_t count;      /* elements of in[0] */
    int64_t rows, cols; /* in[0] as a matrix */
    int64_t dim[TRI_MAX_DIMS];
    int64_t nblocks;     /* row blocks or work items, where the kernel has them */
    size_t thread_bytes; /* scratch of one thread, where it has its own */
};

/* X(KIND, name): the kinds that have a SIMD kernel. */
#define TRI_SIMD_LIST(X)                                                                           \
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
    X(SUMSQ, sumsq)                                                                                \
    X(SGD, sgd)                                                                                    \
    X(ADAMW, adamw)

/* Elements below which a kernel stays on the calling thread: waking a team costs a few
 * microseconds. */
#define TRI_SIMD_GRAIN 16384

/* Allocates a kernel of `ops` for d with the fields above filled. Local. */
tri_status tri_simd_kernel_create(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  size_t scratch_bytes, struct simd_kernel **out) TRI_CHECKED;
void tri_simd_kernel_destroy(struct tri_kernel *k);
/* No present argument has a 16-bit float type. */
bool tri_simd_is_f32(const struct tri_kernel_desc *d);
/* Input i or output o of d is present. */
bool tri_simd_has_in(const struct tri_kernel_desc *d, int i);
bool tri_simd_has_out(const struct tri_kernel_desc *d, int o);

/* Number of blocks that `rows` rows are cut into for sums over rows. A function of the shape alone,
 * so that sums do not depend on the number of threads: blocks of at least 32 rows, at most 64
 * blocks and about a million partial sums. */
int64_t tri_simd_row_blocks(int64_t rows, int64_t cols);

/* First of the elements of part i of n of `count`, at a multiple of `unit`. */
static inline int64_t simd_part(int64_t count, int64_t unit, int64_t i, int64_t n)
{
    int64_t units = (count + unit - 1) / unit, first = units * i / n * unit;

    return first < count ? first : count;
}

#if defined(TRI_ISA_SUFFIX)
#define TRI_ISA_CAT(x, suffix)  x##_##suffix
#define TRI_ISA_CAT2(x, suffix) TRI_ISA_CAT(x, suffix)
#define TRI_ISA_NAME(x)         TRI_ISA_CAT2(x, TRI_ISA_SUFFIX)

#define X(kind, name) extern const struct tri_kernel_ops TRI_ISA_NAME(tri_simd_##name);
TRI_SIMD_LIST(X)
#undef X

/* n elements of f32, bf16 or f16 as f32; and back, to nearest even (cast.c). */
void TRI_ISA_NAME(tri_simd_widen)(enum tri_dtype t, const void *src, float *dst, int64_t n);
void TRI_ISA_NAME(tri_simd_narrow)(enum tri_dtype t, const float *src, void *dst, int64_t n);

/* Defines the table of a kernel from its prepare_NAME and run_NAME. */
#define TRI_SIMD_KERNEL(kernel)                                                                    \
    const struct tri_kernel_ops TRI_ISA_NAME(tri_simd_##kernel) = {                                \
        .name = #kernel "_" TRI_ISA_TEXT,                                                          \
        .prepare = prepare_##kernel,                                                               \
        .run = run_##kernel,                                                                       \
        .destroy = tri_simd_kernel_destroy,                                                        \
    }
#endif

#endif
