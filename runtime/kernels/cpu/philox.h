/* Dropout factors from Philox4x32-10 in vectors: same words as tri_philox4x32 (runtime/core/rng.h
 * has the source). */
#ifndef TRI_RUNTIME_KERNELS_CPU_PHILOX_H
#define TRI_RUNTIME_KERNELS_CPU_PHILOX_H

#include "runtime/core/rng.h"
#include "runtime/graph/ops.h"
#include "runtime/kernels/cpu/simd.h"

#include <math.h>
#include <stdint.h>

/* Most elements of one simd_dropout call, and the room its buffer needs. */
#define SIMD_DROPOUT_MAX    256
#define SIMD_DROPOUT_BUFFER (SIMD_DROPOUT_MAX + 4 + 4 * VF)

/* A dropout of one run: element i is kept iff (word i >> 8) >= limit, and then multiplied with
 * `factor`. */
struct simd_dropout {
    struct tri_rng_key key;
    uint32_t limit; /* ceil(p 2^24): uniform >= p exactly */
    float factor;   /* 1 / (1 - p) */
};

static inline struct simd_dropout simd_dropout_make(double p, uint64_t seed, uint64_t stream,
                                                    const int64_t *counters)
{
    struct simd_dropout d = {0};

    d.key = tri_rng_key_make(seed, stream, (uint64_t)counters[TRI_COUNTER_STEP]);
    d.limit = (uint32_t)ceil(p * 0x1p24);
    d.factor = (float)(1.0 / (1.0 - p));
    return d;
}

/* Factors of four elements, block by block. */
static inline void simd_dropout_block(const struct simd_dropout *d, uint64_t block, float *out)
{
    uint32_t w[4];

    tri_philox4x32(&d->key, block, w);
    for (int i = 0; i < 4; i++)
        out[i] = w[i] >> 8 >= d->limit ? d->factor : 0.0f;
}

#if VF == 1
#define SIMD_PHILOX_BLOCKS 1
#else
#define SIMD_PHILOX_BLOCKS VF

/* Factors of VF blocks from `block` on, whose low words must not wrap. Lane 4 q + j works on block
 * j VF / 4 + q, so that the transpose inside 128-bit lanes leaves the words in order. */
static inline void simd_dropout_blocks(const struct simd_dropout *d, uint64_t block, float *out)
{
    uint32_t lane[VF], k0 = d->key.k[0], k1 = d->key.k[1];
    vi c0, c1 = vi_set((uint32_t)(block >> 32)), c2 = vi_set(d->key.step),
           c3 = vi_set(d->key.step2);
    vi limit = vi_set(d->limit);
    vf factor = vf_set(d->factor);

    for (uint32_t i = 0; i < VF; i++)
        lane[i] = (i & 3) * (VF / 4) + (i >> 2);
    c0 = vi_add(vi_load(lane), vi_set((uint32_t)block));
    for (int round = 0; round < 10; round++) {
        vi hi0, lo0, hi1, lo1;

        vi_mul_wide(c0, vi_set(0xD2511F53U), &hi0, &lo0);
        vi_mul_wide(c2, vi_set(0xCD9E8D57U), &hi1, &lo1);
        c0 = vi_xor(vi_xor(hi1, c1), vi_set(k0));
        c2 = vi_xor(vi_xor(hi0, c3), vi_set(k1));
        c1 = lo1;
        c3 = lo0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    vi_transpose4(&c0, &c1, &c2, &c3);
    vf_store(out, vf_keep(c0, limit, factor));
    vf_store(out + VF, vf_keep(c1, limit, factor));
    vf_store(out + 2 * VF, vf_keep(c2, limit, factor));
    vf_store(out + 3 * VF, vf_keep(c3, limit, factor));
}
#endif

/* Factors of elements [first, first + n), n <= SIMD_DROPOUT_MAX. Returns their place inside
 * `buffer`. */
static inline const float *simd_dropout_factors(const struct simd_dropout *d, uint64_t first,
                                                int64_t n, float *buffer)
{
    uint64_t block = first >> 2, end = (first + (uint64_t)n + 3) >> 2;
    float *out = buffer;

    while (block < end) {
#if VF > 1
        if ((uint32_t)block <= UINT32_MAX - VF) {
            simd_dropout_blocks(d, block, out);
            out += 4 * SIMD_PHILOX_BLOCKS;
            block += SIMD_PHILOX_BLOCKS;
            continue;
        }
#endif
        simd_dropout_block(d, block++, out);
        out += 4;
    }
    return buffer + (first & 3);
}

#endif
