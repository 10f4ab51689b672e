/* Counter-based randomness: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC'11).
 *
 * A draw is a pure function of (seed, stream, step, index): no state, so the same numbers come out
 * whatever the number of ranks or threads, and after every resume. `stream` is the hash of a
 * build-time name (tri_hash_name), `index` the global index of the sample, token or parameter
 * element. Each call yields four 32-bit words. */
#ifndef TRI_RUNTIME_CORE_RNG_H
#define TRI_RUNTIME_CORE_RNG_H

#include "runtime/core/status.h"

#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_rng_key {
    uint32_t k[2];  /* mixed from seed and stream */
    uint32_t step;  /* low word of the step */
    uint32_t step2; /* high word of the step */
};

struct tri_rng_key tri_rng_key_make(uint64_t seed, uint64_t stream, uint64_t step);

/* Four words for `index`: counter = (index low, index high, step, step2), key = k. Inline twin of
 * the SIMD forms in kernels. */
void tri_philox4x32(const struct tri_rng_key *key, uint64_t index, uint32_t out[4]);

/* Word w -> uniform float in [0, 1): (w >> 8) * 2^-24. */
static inline float tri_rng_uniform(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}

/* Element i of a stream is word (i & 3) of block (i >> 2); these fill [first, first + count). */
void tri_rng_fill_uniform(const struct tri_rng_key *key, uint64_t first, size_t count, float lo,
                          float hi, float *out);
/* Box-Muller on the pair (i & ~1, i | 1) of the uniform stream, in double precision, rounded to
 * float. */
void tri_rng_fill_normal(const struct tri_rng_key *key, uint64_t first, size_t count, float mean,
                         float std, float *out);

/* 64-bit FNV-1a of a name. */
uint64_t tri_hash_name(const char *name);
/* splitmix64 finaliser: a good mix of 64 bits. */
uint64_t tri_mix64(uint64_t x);

/* Sum mod 2^64 of mix(name, first + i, bits of element i): the hash of a part of a tensor. Parts
 * add up, so that owners can hash their shares and a reduction gives the same value for every
 * layout. bits = `elem_bytes` (1, 2, 4, 8) little-endian bytes. */
uint64_t tri_hash_elements(uint64_t name_hash, uint64_t first, const void *data, size_t count,
                           size_t elem_bytes);

TRI_END_DECLS
#endif
