/* onebit: blocks of 256 elements, each with the mean of its magnitudes; an element is sent as its
 * sign. Payload: the means of all blocks, then 32 bytes of signs a block (bit i: element i is
 * negative). The identity holds within 1 ulp of the larger of |x| and the mean. */
#include "optim/compressors/compressors.h"

#include <math.h>

#define BLOCK 256
#define WORDS (BLOCK / 32)

static int64_t blocks(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static int64_t bytes_onebit(const struct tri_attr_compress *a, int64_t n)
{
    (void)a;
    return blocks(n) * (int64_t)(sizeof(float) + BLOCK / 8);
}

static float mean_magnitude(const float *x, int64_t n)
{
    double sum[8] = {0};

    for (int64_t i = 0; i < n; i++)
        sum[i & 7] += (double)fabsf(x[i]);
    return (
        float)((((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]))) /
               (double)n);
}

static void encode_onebit(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                          float *x, int64_t n, void *payload)
{
    float *mean = payload;
    uint32_t *word = (uint32_t *)(mean + blocks(n));

    (void)a;
    (void)keys;
    for (int64_t at = 0, b = 0; at < n; at += BLOCK, b++) {
        int64_t len = n - at < BLOCK ? n - at : BLOCK;

        mean[b] = mean_magnitude(x + at, len);
        memset(word + b * WORDS, 0, BLOCK / 8);
        for (int64_t i = 0; i < len; i++) {
            word[b * WORDS + i / 32] |= (tri_float_bits(x[at + i]) >> 31) << (i % 32);
            x[at + i] -= copysignf(mean[b], x[at + i]);
        }
    }
}

static void decode_onebit(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                          const void *payload, int64_t n, float *out)
{
    const float *mean = payload;
    const uint32_t *word = (const uint32_t *)(mean + blocks(n));

    (void)a;
    (void)keys;
    for (int64_t i = 0; i < n; i++) {
        uint32_t sign = word[i / 32] >> (i % 32) << 31;

        out[i] += tri_float_from_bits(tri_float_bits(mean[i / BLOCK]) ^ sign);
    }
}

static void spoil_onebit(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    memset(payload, 0, (size_t)bytes_onebit(a, n));
    *(float *)payload = NAN;
}

const struct tri_compressor tri_compressor_onebit = {.name = "onebit",
                                                     .bytes_per_s = 1.0e9,
                                                     .bytes = bytes_onebit,
                                                     .encode = encode_onebit,
                                                     .spoil = spoil_onebit,
                                                     .decode_add = decode_onebit};
