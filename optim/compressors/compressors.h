/* The compressors of gradients. Each file says what it sends, how much, and the bound of its error
 * feedback: |decode(encode(x)) + residual - x| of an element, for finite x. */
#ifndef TRI_OPTIM_COMPRESSORS_COMPRESSORS_H
#define TRI_OPTIM_COMPRESSORS_COMPRESSORS_H

#include "runtime/kernels/compress.h"

#include <string.h>

extern const struct tri_compressor tri_compressor_fp16, tri_compressor_bf16, tri_compressor_int8,
    tri_compressor_onebit, tri_compressor_topk, tri_compressor_randk;

/* Number of elements that a sparse compressor sends: ceil(ratio n), at least 1. Local. */
int64_t tri_sparse_count(const struct tri_attr_compress *a, int64_t n);

static inline uint32_t tri_float_bits(float x)
{
    uint32_t b;

    memcpy(&b, &x, sizeof(b));
    return b;
}

static inline float tri_float_from_bits(uint32_t b)
{
    float x;

    memcpy(&x, &b, sizeof(x));
    return x;
}

#endif
