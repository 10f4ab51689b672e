/* Element types of values, and their conversions on the host. */
#ifndef TRI_RUNTIME_CORE_DTYPE_H
#define TRI_RUNTIME_CORE_DTYPE_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* X(name, text, bytes, is_float) */
#define TRI_DTYPE_LIST(X)                                                                          \
    X(F32, "f32", 4, true)                                                                         \
    X(F64, "f64", 8, true)                                                                         \
    X(BF16, "bf16", 2, true)                                                                       \
    X(F16, "f16", 2, true)                                                                         \
    X(I32, "i32", 4, false)                                                                        \
    X(I64, "i64", 8, false)                                                                        \
    X(U8, "u8", 1, false)

enum tri_dtype {
#define X(name, text, bytes, is_float) TRI_##name,
    TRI_DTYPE_LIST(X)
#undef X
        TRI_DTYPE_COUNT
};

size_t tri_dtype_bytes(enum tri_dtype t);
const char *tri_dtype_name(enum tri_dtype t);
bool tri_dtype_is_float(enum tri_dtype t);
/* bf16 or f16. */
bool tri_dtype_is_half(enum tri_dtype t);

/* bf16/f16 <-> f32, round to nearest even; f32 values beyond the f16 range become infinite; NaN
 * stays NaN. */
float tri_bf16_to_f32(uint16_t h);
uint16_t tri_bf16_from_f32(float x);
float tri_f16_to_f32(uint16_t h);
uint16_t tri_f16_from_f32(float x);

TRI_END_DECLS
#endif
