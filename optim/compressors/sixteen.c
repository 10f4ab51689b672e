/* fp16 and bf16: each element rounded to nearest even, 2 bytes. Finite values beyond the range
 * saturate. The residual is exact for elements within the range (the difference of a float and its
 * rounding has at most 24 bits); a saturated one leaves |x - largest|, rounded once: bound 1 ulp of
 * the residual. */
#include "optim/compressors/compressors.h"

#define F16_LARGEST 65504.0f

static int64_t bytes_sixteen(const struct tri_attr_compress *a, int64_t n)
{
    (void)a;
    return 2 * n;
}

/* Both forms are computed and one is chosen: below 2^-14 adding 0.5 rounds to the spacing 2^-24 of
 * subnormal numbers; above, adding just under half of the last kept bit does, and 112 is the
 * difference of the exponents' biases. */
static inline uint16_t f16_from(float x)
{
    uint32_t sign = tri_float_bits(x) >> 16 & 0x8000u;
    float a = tri_float_from_bits(tri_float_bits(x) & 0x7fffffffu);
    uint32_t b, normal, tiny;

    a = a > F16_LARGEST ? F16_LARGEST : a;
    b = tri_float_bits(a);
    normal = (b + 0xfffu + (b >> 13 & 1u) - (112u << 23)) >> 13;
    tiny = tri_float_bits(a + 0.5f) - tri_float_bits(0.5f);
    return (uint16_t)(sign | (b < 113u << 23 ? tiny : normal));
}

/* 2^112 moves the exponent; it is exact for subnormal numbers too. */
static inline float f16_to(uint16_t h)
{
    uint32_t b = (uint32_t)(h & 0x7fffu) << 13, special = (h & 0x7c00u) == 0x7c00u;
    uint32_t r = tri_float_bits(tri_float_from_bits(b) * 0x1p112f);

    r |= special * 0x7f800000u;
    return tri_float_from_bits(r | (uint32_t)(h & 0x8000u) << 16);
}

static void encode_fp16(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        float *restrict x, int64_t n, void *payload)
{
    uint16_t *restrict h = payload;

    (void)a;
    (void)keys;
    for (int64_t i = 0; i < n; i++) {
        h[i] = f16_from(x[i]);
        x[i] -= f16_to(h[i]);
    }
}

static void decode_fp16(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        const void *payload, int64_t n, float *restrict out)
{
    const uint16_t *restrict h = payload;

    (void)a;
    (void)keys;
    for (int64_t i = 0; i < n; i++)
        out[i] += f16_to(h[i]);
}

static void spoil_fp16(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    (void)a;
    memset(payload, 0, (size_t)n * 2);
    *(uint16_t *)payload = 0x7e00;
}

const struct tri_compressor tri_compressor_fp16 = {.name = "fp16",
                                                   .bytes_per_s = 1.8e9,
                                                   .bytes = bytes_sixteen,
                                                   .encode = encode_fp16,
                                                   .spoil = spoil_fp16,
                                                   .decode_add = decode_fp16};

/* Rounding up past the largest number gives the bits of infinity; one less is the largest. */
static inline uint16_t bf16_from(float x)
{
    uint32_t b = tri_float_bits(x), h = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;

    return (uint16_t)(h - ((h & 0x7fffu) == 0x7f80u));
}

static inline float bf16_to(uint16_t h)
{
    return tri_float_from_bits((uint32_t)h << 16);
}

static void encode_bf16(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        float *restrict x, int64_t n, void *payload)
{
    uint16_t *restrict h = payload;

    (void)a;
    (void)keys;
    for (int64_t i = 0; i < n; i++) {
        h[i] = bf16_from(x[i]);
        x[i] -= bf16_to(h[i]);
    }
}

static void decode_bf16(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        const void *payload, int64_t n, float *restrict out)
{
    const uint16_t *restrict h = payload;

    (void)a;
    (void)keys;
    for (int64_t i = 0; i < n; i++)
        out[i] += bf16_to(h[i]);
}

static void spoil_bf16(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    (void)a;
    memset(payload, 0, (size_t)n * 2);
    *(uint16_t *)payload = 0x7fc0;
}

const struct tri_compressor tri_compressor_bf16 = {.name = "bf16",
                                                   .bytes_per_s = 2.7e9,
                                                   .bytes = bytes_sixteen,
                                                   .encode = encode_bf16,
                                                   .spoil = spoil_bf16,
                                                   .decode_add = decode_bf16};
