/* topk and randk: k = ceil(ratio n) elements are sent as they are and cleared, the others stay in
 * the residual: the identity is exact.
 *
 * topk sends those of largest magnitude, of equal ones those of lowest index. Payload: k indices
 * (u32, rising), k values. The k-th magnitude is found exactly by counting bits from the top, three
 * passes of 11, 10 and 10 bits (radix selection). randk cuts [0, n) into k parts and sends a random
 * element of each, the same ones for all contributors of a step; payload: k values. */
#include "optim/compressors/compressors.h"

#include <math.h>

int64_t tri_sparse_count(const struct tri_attr_compress *a, int64_t n)
{
    int64_t k = (int64_t)ceil(a->ratio * (double)n);

    return k < 1 ? 1 : k > n ? n : k;
}

static int64_t bytes_topk(const struct tri_attr_compress *a, int64_t n)
{
    return 8 * tri_sparse_count(a, n);
}

/* Bits of a magnitude above `shift` equal `prefix`: among those, finds the bin of the next `width`
 * bits in which the *k-th largest lies; *k becomes its place in the bin. Returns
 * the longer prefix. */
static uint32_t narrow(const float *x, int64_t n, uint32_t prefix, int shift, int width, int64_t *k)
{
    int64_t count[1 << 11] = {0};
    uint32_t mask = (1u << width) - 1;
    int bin = (1 << width) - 1;

    for (int64_t i = 0; i < n; i++) {
        uint32_t m = tri_float_bits(x[i]) & 0x7fffffffu;

        count[m >> shift & mask] += m >> shift >> width == prefix;
    }
    while (count[bin] < *k)
        *k -= count[bin--];
    return prefix << width | (uint32_t)bin;
}

static void encode_topk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        float *x, int64_t n, void *payload)
{
    int64_t k = tri_sparse_count(a, n), ties = k, m = 0;
    uint32_t *index = payload, edge = 0;
    float *value = (float *)(index + k);

    (void)keys;
    edge = narrow(x, n, edge, 20, 11, &ties);
    edge = narrow(x, n, edge, 10, 10, &ties);
    edge = narrow(x, n, edge, 0, 10, &ties);
    for (int64_t i = 0; i < n && m < k; i++) {
        uint32_t bits = tri_float_bits(x[i]) & 0x7fffffffu;

        if (bits < edge || (bits == edge && ties-- <= 0))
            continue;
        index[m] = (uint32_t)i;
        value[m++] = x[i];
        x[i] = 0;
    }
}

static void decode_topk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        const void *payload, int64_t n, float *out)
{
    int64_t k = tri_sparse_count(a, n);
    const uint32_t *index = payload;
    const float *value = (const float *)(index + k);

    (void)keys;
    for (int64_t i = 0; i < k; i++)
        if (index[i] < n) /* what came over a link is not trusted with addresses */
            out[index[i]] += value[i];
}

static void clear_topk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                       const void *payload, int64_t n, float *u)
{
    const uint32_t *index = payload;

    (void)keys;
    for (int64_t i = 0, k = tri_sparse_count(a, n); i < k; i++)
        u[index[i]] = 0;
}

static void spoil_topk(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    memset(payload, 0, (size_t)bytes_topk(a, n));
    ((float *)payload)[tri_sparse_count(a, n)] = NAN;
}

const struct tri_compressor tri_compressor_topk = {.name = "topk",
                                                   .bytes_per_s = 1.0e9,
                                                   .bytes = bytes_topk,
                                                   .encode = encode_topk,
                                                   .spoil = spoil_topk,
                                                   .decode_add = decode_topk,
                                                   .clear_sent = clear_topk};

static int64_t bytes_randk(const struct tri_attr_compress *a, int64_t n)
{
    return 4 * tri_sparse_count(a, n);
}

/* First element of part i of k; n and k are below 2^32. */
static int64_t part_begin(int64_t n, int64_t k, int64_t i)
{
    return (int64_t)((uint64_t)n * (uint64_t)i / (uint64_t)k);
}

static int64_t chosen(const struct tri_rng_key *key, int64_t n, int64_t k, int64_t i)
{
    int64_t begin = part_begin(n, k, i), end = part_begin(n, k, i + 1);
    uint32_t w[4];

    tri_philox4x32(key, (uint64_t)i, w);
    return begin + (int64_t)((uint64_t)w[0] * (uint64_t)(end - begin) >> 32);
}

static void encode_randk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                         float *x, int64_t n, void *payload)
{
    float *value = payload;

    for (int64_t i = 0, k = tri_sparse_count(a, n); i < k; i++) {
        int64_t j = chosen(&keys->shared, n, k, i);

        value[i] = x[j];
        x[j] = 0;
    }
}

static void decode_randk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                         const void *payload, int64_t n, float *out)
{
    const float *value = payload;

    for (int64_t i = 0, k = tri_sparse_count(a, n); i < k; i++)
        out[chosen(&keys->shared, n, k, i)] += value[i];
}

static void clear_randk(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                        const void *payload, int64_t n, float *u)
{
    (void)payload;
    for (int64_t i = 0, k = tri_sparse_count(a, n); i < k; i++)
        u[chosen(&keys->shared, n, k, i)] = 0;
}

static void spoil_randk(const struct tri_attr_compress *a, int64_t n, void *payload)
{
    memset(payload, 0, (size_t)bytes_randk(a, n));
    *(float *)payload = NAN;
}

const struct tri_compressor tri_compressor_randk = {.name = "randk",
                                                    .bytes_per_s = 3.7e9,
                                                    .bytes = bytes_randk,
                                                    .encode = encode_randk,
                                                    .spoil = spoil_randk,
                                                    .decode_add = decode_randk,
                                                    .clear_sent = clear_randk};
