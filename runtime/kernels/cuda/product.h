/* A product of any shape, for those that cuBLASLt has no algorithm for. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_PRODUCT_H
#define TRI_RUNTIME_KERNELS_CUDA_PRODUCT_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* y [m,n] = op(a) op(b) over `depth` terms, all row-major without gaps. out is `in` or f32. */
struct tri_cuda_product {
    int64_t m, n, depth;
    bool ta, tb;
    enum tri_dtype in, out;
};

/* Enqueues y = op(a) op(b) + bias + acc; bias and acc may be NULL, acc may be y. Local. */
tri_status tri_cuda_product_run(const struct tri_cuda_product *p, const void *a, const void *b,
                                const float *bias, const void *acc, void *y, void *stream);

TRI_END_DECLS
#endif
