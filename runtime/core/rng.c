/* Philox4x32-10, the fills on top of it, and the hashes of names and tensors. */
#include "runtime/core/rng.h"

#include <math.h>
#include <string.h>

struct tri_rng_key tri_rng_key_make(uint64_t seed, uint64_t stream, uint64_t step)
{
    const uint64_t k = tri_mix64(seed + 0x9e3779b97f4a7c15u * tri_mix64(stream));

    return (struct tri_rng_key){.k = {(uint32_t)k, (uint32_t)(k >> 32)},
                                .step = (uint32_t)step,
                                .step2 = (uint32_t)(step >> 32)};
}

/* Multipliers and Weyl increments of the SC'11 paper, table 2 and section 3.3. */
void tri_philox4x32(const struct tri_rng_key *key, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = key->step, c3 = key->step2;
    uint32_t k0 = key->k[0], k1 = key->k[1];

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        const uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Calls of a block: writes the four elements of block `words` to `four`. */
typedef void block_fn(const uint32_t words[4], float a, float b, float four[4]);

static void block_uniform(const uint32_t words[4], float lo, float hi, float four[4])
{
    for (int i = 0; i < 4; i++)
        four[i] = lo + (hi - lo) * tri_rng_uniform(words[i]);
}

static void block_normal(const uint32_t words[4], float mean, float std, float four[4])
{
    const double two_pi = 6.283185307179586476925;

    for (int i = 0; i < 4; i += 2) {
        /* 1 - u lies in (0, 1], so the logarithm is finite */
        const double r = sqrt(-2.0 * log(1.0 - (double)tri_rng_uniform(words[i])));
        const double angle = two_pi * (double)tri_rng_uniform(words[i + 1]);

        four[i] = (float)((double)mean + (double)std * r * cos(angle));
        four[i + 1] = (float)((double)mean + (double)std * r * sin(angle));
    }
}

static void fill(const struct tri_rng_key *key, uint64_t first, size_t count, block_fn *block,
                 float a, float b, float *out)
{
    size_t done = 0;

    while (done < count) {
        const size_t skip = (size_t)((first + done) & 3u);
        const size_t room = 4 - skip;
        const size_t n = count - done < room ? count - done : room;
        uint32_t words[4];
        float four[4];

        tri_philox4x32(key, (first + done) >> 2, words);
        block(words, a, b, four);
        memcpy(out + done, four + skip, n * sizeof(*out));
        done += n;
    }
}

void tri_rng_fill_uniform(const struct tri_rng_key *key, uint64_t first, size_t count, float lo,
                          float hi, float *out)
{
    fill(key, first, count, block_uniform, lo, hi, out);
}

void tri_rng_fill_normal(const struct tri_rng_key *key, uint64_t first, size_t count, float mean,
                         float std, float *out)
{
    fill(key, first, count, block_normal, mean, std, out);
}

uint64_t tri_hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t tri_mix64(uint64_t x)
{
    return mix(x);
}

/* Every element gets its own place on a Weyl sequence that starts at the mixed name: two
 * multiplications each. */
#define HASH_LOOP(type)                                                                            \
    for (size_t i = 0; i < count; i++) {                                                           \
        type bits;                                                                                 \
                                                                                                   \
        memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));                                     \
        sum += mix(place ^ bits);                                                                  \
        place += WEYL;                                                                             \
    }

uint64_t tri_hash_elements(uint64_t name_hash, uint64_t first, const void *data, size_t count,
                           size_t elem_bytes)
{
    const uint64_t WEYL = 0x9e3779b97f4a7c15u;
    const unsigned char *bytes = data;
    uint64_t place = mix(name_hash) + first * WEYL;
    uint64_t sum = 0;

    if (elem_bytes == 4)
        HASH_LOOP(uint32_t)
    else if (elem_bytes == 2)
        HASH_LOOP(uint16_t)
    else if (elem_bytes == 8)
        HASH_LOOP(uint64_t)
    else
        HASH_LOOP(uint8_t)
    return sum;
}
