/* Element types, and the 16-bit floating-point formats on the host. */
#include "runtime/core/dtype.h"

#include <string.h>

struct dtype_row {
    const char *name;
    size_t bytes;
    bool is_float;
};

static const struct dtype_row rows[TRI_DTYPE_COUNT] = {
#define X(name, text, bytes, is_float) {text, bytes, is_float},
    TRI_DTYPE_LIST(X)
#undef X
};

size_t tri_dtype_bytes(enum tri_dtype t)
{
    return rows[t].bytes;
}

const char *tri_dtype_name(enum tri_dtype t)
{
    return rows[t].name;
}

bool tri_dtype_is_float(enum tri_dtype t)
{
    return rows[t].is_float;
}

bool tri_dtype_is_half(enum tri_dtype t)
{
    return t == TRI_BF16 || t == TRI_F16;
}

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

float tri_bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t tri_bf16_from_f32(float x)
{
    uint32_t u = bits_of(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) |
                          0x40u); /* quiet, or a payload in the low half would be lost */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float tri_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t fraction = h & 0x3ffu;
    float magnitude;

    if (exponent == 0x1fu)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) /* zero and subnormals: fraction * 2^-24, exact in f32 */
        magnitude = (float)fraction * 0x1p-24f;
    else
        magnitude = float_of((exponent + 112u) << 23 | fraction << 13); /* bias 15 -> 127 */
    return float_of(sign | bits_of(magnitude));
}

/* Subnormal f16 results: 0.5 has an ulp of 2^-24, the f16 subnormal step, so the f32 sum rounds to
 * even for us. */
static uint16_t f16_subnormal(uint32_t magnitude)
{
    return (uint16_t)(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
}

uint16_t tri_f16_from_f32(float x)
{
    const uint32_t u = bits_of(x);
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t h;

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 = halfway between the largest f16 and 2^16 */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14 */
        return (uint16_t)(sign | f16_subnormal(magnitude));
    h = magnitude -
        (112u << 23); /* bias 127 -> 15; a carry of the rounding moves into the exponent */
    return (uint16_t)(sign | ((h + 0xfffu + ((h >> 13) & 1u)) >> 13));
}
