/* Philox4x32-10 on the device: same words as tri_philox4x32 (runtime/core/rng.h has the source). */
#ifndef TRI_RUNTIME_KERNELS_CUDA_PHILOX_CUH
#define TRI_RUNTIME_KERNELS_CUDA_PHILOX_CUH

#include "runtime/core/rng.h"
#include "runtime/kernels/cuda/launch.cuh"

#include <math.h>

/* A dropout of one kernel: an element is kept iff (word >> 8) >= limit, and then multiplied with
 * factor. */
struct tri_cuda_dropout {
    uint32_t k[2];  /* key of seed and stream */
    uint32_t limit; /* ceil(p 2^24): uniform >= p exactly */
    float factor;   /* 1 / (1 - p) */
};

/* Host. */
static inline struct tri_cuda_dropout tri_cuda_dropout_make(double p, uint64_t seed,
                                                            uint64_t stream)
{
    struct tri_rng_key key = tri_rng_key_make(seed, stream, 0);
    struct tri_cuda_dropout d = {};

    d.k[0] = key.k[0];
    d.k[1] = key.k[1];
    d.limit = (uint32_t)ceil(p * 0x1p24);
    d.factor = (float)(1.0 / (1.0 - p));
    return d;
}

/* The four words of `block` at `step`. */
static __device__ inline uint4 tri_philox(const uint32_t *k, uint64_t step, uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32), k0 = k[0], k1 = k[1];

    for (int round = 0; round < 10; round++) {
        uint32_t hi0 = __umulhi(0xd2511f53u, c0), hi1 = __umulhi(0xcd9e8d57u, c2);
        uint32_t lo0 = 0xd2511f53u * c0, lo1 = 0xcd9e8d57u * c2;

        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* What an element with this word is multiplied with: factor or 0. */
static __device__ inline float tri_dropout_of(const struct tri_cuda_dropout *d, uint32_t word)
{
    return word >> 8 >= d->limit ? d->factor : 0.0f;
}

/* Factors of the four elements of `block`. */
static __device__ inline void tri_dropout4(const struct tri_cuda_dropout *d, uint64_t step,
                                           uint64_t block, float *out)
{
    uint4 w = tri_philox(d->k, step, block);

    out[0] = tri_dropout_of(d, w.x);
    out[1] = tri_dropout_of(d, w.y);
    out[2] = tri_dropout_of(d, w.z);
    out[3] = tri_dropout_of(d, w.w);
}

/* Factor of element `index` of the stream. */
static __device__ inline float tri_dropout1(const struct tri_cuda_dropout *d, uint64_t step,
                                            uint64_t index)
{
    float f[4];
    unsigned i = (unsigned)(index & 3);

    tri_dropout4(d, step, index >> 2, f);
    return i == 0 ? f[0] : i == 1 ? f[1] : i == 2 ? f[2] : f[3];
}

#endif
