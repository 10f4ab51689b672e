/* Small conversions beside the calls of a library: all enqueue on `stream` and are exact but for
 * one rounding to the type that is stored. Local. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_CONVERT_H
#define TRI_RUNTIME_KERNELS_CUDA_CONVERT_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

#include <stdint.h>

TRI_BEGIN_DECLS

/* to[i] = from[i], of type `type` (bf16 or f16). */
tri_status tri_cuda_round(enum tri_dtype type, const float *from, void *to, int64_t n,
                          void *stream);
/* to[r][c] = from[r][c] of 16-bit elements in rows of from_ld and to_ld: one of them is cols, no
 * multiple of 8, the other a multiple of 8. Both start at multiples of 16 bytes. */
tri_status tri_cuda_repitch(const void *from, int64_t from_ld, void *to, int64_t to_ld,
                            int64_t rows, int64_t cols, void *stream);
/* y[r][c] += bias[c]; y of type `type` (f32, bf16, f16). */
tri_status tri_cuda_add_bias(enum tri_dtype type, const float *bias, void *y, int64_t rows,
                             int64_t cols, void *stream);
/* Filters [O,I,taps] -> [O,taps,I], taps = KH KW; both of type `type`. */
tri_status tri_cuda_filters_last(enum tri_dtype type, const void *from, void *to, int64_t o,
                                 int64_t i, int64_t taps, void *stream);
/* Filters [O,taps,I] of type `type` -> f32 [O,I,taps], added to acc unless it is NULL. acc may be
 * `to`. */
tri_status tri_cuda_filters_first(enum tri_dtype type, const void *from, const float *acc,
                                  float *to, int64_t o, int64_t i, int64_t taps, void *stream);

TRI_END_DECLS
#endif
