/* int8: blocks of 256 elements, each with the scale s = max |x| / 127; an element is sent as
 * floor(x / s + u), u uniform in [0, 1), so that it is right in the mean (stochastic rounding).
 * Payload: the scales of all blocks, then a byte an element, up to a multiple of 4 bytes.
 * |residual| <= s (1 + 2^-20); the identity holds within 1 ulp of the larger of x and s. Blocks
 * below 1e-30 are sent as 0. */
#include "optim/compressors/compressors.h"

#include <math.h>

#define BLOCK   256
#define TINY    1e-30f
#define LARGEST 0x1.fffffcp127f /* 127 times a 127th of it is finite */

static int64_t blocks(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static int64_t bytes_int8(const struct tri_attr_compress *a, int64_t n)
{
    (void)a;
    return blocks(n) * (int64_t)sizeof(float) + (n + 3) / 4 * 4;
}

static float scale_of(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++) {
        float m = fabsf(x[i]);

        most = m > most ? m : most;
    }
    if (most < TINY)
        return 0;
    return (most < LARGEST ? most : LARGEST) / 127.0f;
}

/* Philox4x32-10 of runtime/core/rng.h over all blocks of BLOCK elements at once, so that it
 * vectorises: u[i] belongs to element first + i, first a multiple of BLOCK. */
static void uniforms(const struct tri_rng_key *key, uint64_t first, float u[BLOCK])
{
    enum { LANES = BLOCK / 4 };
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = key->k[0], k1 = key->k[1];

    for (uint32_t j = 0; j < LANES; j++) {
        c0[j] = (uint32_t)(first >> 2) + j; /* no carry: a multiple of 64 plus less than 64 */
        c1[j] = (uint32_t)(first >> 34);
        c2[j] = key->step;
        c3[j] = key->step2;
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < LANES; j++) {
            uint64_t p = (uint64_t)c0[j] * 0xD2511F53U, q = (uint64_t)c2[j] * 0xCD9E8D57U;

            c0[j] = (uint32_t)(q >> 32) ^ c1[j] ^ k0;
            c1[j] = (uint32_t)q;
            c2[j] = (uint32_t)(p >> 32) ^ c3[j] ^ k1;
            c3[j] = (uint32_t)p;
        }
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    for (int j = 0; j < LANES; j++) {
        u[4 * j] = (float)(int32_t)(c0[j] >> 8) * 0x1p-24f;
        u[4 * j + 1] = (float)(int32_t)(c1[j] >> 8) * 0x1p-24f;
        u[4 * j + 2] = (float)(int32_t)(c2[j] >> 8) * 0x1p-24f;
        u[4 * j + 3] = (float)(int32_t)(c3[j] >> 8) * 0x1p-24f;
    }
}

static void encode_block(float scale, const float *restrict u, float *restrict x, int64_t n,
                         int8_t *restrict q)
{
    float inverse = scale > 0 ? 1.0f / scale : 0.0f;

    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * inverse + u[i] + 128.0f; /* positive: truncation is floor */
        int32_t v = (int32_t)(y < 255.0f ? y : 255.0f) - 128;

        v = v < -127 ? -127 : v;
        v = scale > 0 ? v : 0;
        q[i] = (int8_t)v;
        x[i] -= scale * (float)v;
    }
}

static void encode_int8(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        float *x, int64_t n, void *payload)
{
    float *scale = payload, u[BLOCK];
    int8_t *q = (int8_t *)(scale + blocks(n));

    (void)a;
    for (int64_t at = 0, b = 0; at < n; at += BLOCK, b++) {
        int64_t len = n - at < BLOCK ? n - at : BLOCK;

        scale[b] = scale_of(x + at, len);
        uniforms(&keys->own, (uint64_t)at, u);
        encode_block(scale[b], u, x + at, len, q + at);
    }
    memset(q + n, 0, (size_t)(-n & 3));
}

static void decode_int8(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        const void *payload, int64_t n, float *restrict out)
{
    const float *scale = payload;
    const int8_t *restrict q = (const int8_t *)(scale + blocks(n));

    (void)a;
    (void)keys;
    for (int64_t at = 0, b = 0; at < n; at += BLOCK, b++) {
        int64_t end = n - at < BLOCK ? n : at + BLOCK;
        float s = scale[b];

        for (int64_t i = at; i < end; i++)
            out[i] += s * (float)q[i];
    }
}

static void spoil_int8(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    memset(payload, 0, (size_t)bytes_int8(a, n));
    *(float *)payload = NAN;
}

const struct tri_compressor tri_compressor_int8 = {.name = "int8",
                                                   .bytes_per_s = 1.1e9,
                                                   .bytes = bytes_int8,
                                                   .encode = encode_int8,
                                                   .spoil = spoil_int8,
                                                   .decode_add = decode_int8};
