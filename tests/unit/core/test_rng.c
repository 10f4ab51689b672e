/* Philox against its published vectors, the fills, and the hashes. */
#include "runtime/core/rng.h"
#include "runtime/core/log.h"

#include <criterion/criterion.h>
#include <math.h>

static void expect_words(struct tri_rng_key key, uint64_t index, const uint32_t want[4])
{
    uint32_t got[4];

    tri_philox4x32(&key, index, got);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(got[i], want[i], "word %d: %08x, not %08x", i, got[i], want[i]);
}

/* Vectors of Random123's kat_vectors, philox4x32-10. */
Test(rng, philox_known_answers)
{
    expect_words((struct tri_rng_key){{0, 0}, 0, 0}, 0,
                 (const uint32_t[]){0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
    expect_words((struct tri_rng_key){{~0u, ~0u}, ~0u, ~0u}, UINT64_MAX,
                 (const uint32_t[]){0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
    expect_words((struct tri_rng_key){{0xa4093822u, 0x299f31d0u}, 0x13198a2eu, 0x03707344u},
                 0x85a308d3243f6a88u,
                 (const uint32_t[]){0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

Test(rng, keys_differ_by_seed_and_stream)
{
    const struct tri_rng_key a = tri_rng_key_make(1, 2, 3);
    const struct tri_rng_key b = tri_rng_key_make(2, 1, 3);
    const struct tri_rng_key c = tri_rng_key_make(1, 2, (UINT64_C(1) << 32) + 3);

    cr_assert(a.k[0] != b.k[0] || a.k[1] != b.k[1]);
    cr_assert_eq(a.k[0], c.k[0]);
    cr_assert_eq(c.step, 3u);
    cr_assert_eq(c.step2, 1u);
}

/* Any cut of a range gives the same elements as the whole. */
Test(rng, fills_do_not_depend_on_the_cut)
{
    const struct tri_rng_key key = tri_rng_key_make(7, tri_hash_name("w"), 0);
    float whole[2][23], part[23];

    tri_rng_fill_uniform(&key, 5, 23, -1.0f, 1.0f, whole[0]);
    tri_rng_fill_normal(&key, 5, 23, 0.0f, 2.0f, whole[1]);
    for (size_t cut = 0; cut <= 23; cut++) {
        tri_rng_fill_uniform(&key, 5, cut, -1.0f, 1.0f, part);
        tri_rng_fill_uniform(&key, 5 + cut, 23 - cut, -1.0f, 1.0f, part + cut);
        cr_assert_arr_eq(part, whole[0], sizeof(part));
        tri_rng_fill_normal(&key, 5, cut, 0.0f, 2.0f, part);
        tri_rng_fill_normal(&key, 5 + cut, 23 - cut, 0.0f, 2.0f, part + cut);
        cr_assert_arr_eq(part, whole[1], sizeof(part));
    }
}

/* 5 standard errors of the first two moments of 1e5 draws. */
Test(rng, moments)
{
    enum { N = 100000 };
    static float x[N];
    const struct tri_rng_key key = tri_rng_key_make(1, 1, 1);
    double sum = 0, square = 0;

    tri_rng_fill_uniform(&key, 0, N, 0.0f, 1.0f, x);
    for (int i = 0; i < N; i++) {
        cr_assert(x[i] >= 0.0f && x[i] < 1.0f);
        sum += (double)x[i];
    }
    cr_assert_float_eq(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    sum = 0;
    tri_rng_fill_normal(&key, 0, N, 1.0f, 2.0f, x);
    for (int i = 0; i < N; i++) {
        sum += (double)x[i];
        square += ((double)x[i] - 1) * ((double)x[i] - 1);
    }
    cr_assert_float_eq(sum / N, 1.0, 5 * 2 / sqrt(N));
    cr_assert_float_eq(square / N, 4.0, 5 * 4 * sqrt(2.0 / N));
}

Test(hash, name_is_fnv1a)
{
    cr_assert_eq(tri_hash_name(""), 0xcbf29ce484222325u);
    cr_assert_eq(tri_hash_name("a"), 0xaf63dc4c8601ec8cu);
    cr_assert_eq(tri_hash_name("foobar"), 0x85944171f73967e8u);
}

Test(hash, parts_add_up)
{
    const uint64_t name = tri_hash_name("w");
    uint32_t data[50];

    for (uint32_t i = 0; i < 50; i++)
        data[i] = i * i;
    for (size_t elem = 1; elem <= 8; elem *= 2) {
        const size_t count = sizeof(data) / elem;
        const unsigned char *bytes = (const unsigned char *)data;
        const uint64_t whole = tri_hash_elements(name, 9, data, count, elem);

        for (size_t cut = 0; cut <= count; cut++)
            cr_assert_eq(
                whole, tri_hash_elements(name, 9, data, cut, elem) +
                           tri_hash_elements(name, 9 + cut, bytes + cut * elem, count - cut, elem));
    }
}

Test(hash, sees_flips_swaps_and_names)
{
    const uint64_t name = tri_hash_name("w");
    uint32_t data[64] = {0};
    const uint64_t zero = tri_hash_elements(name, 0, data, 64, 4);

    for (uint32_t bit = 0; bit < 64 * 32; bit++) {
        data[bit / 32] ^= 1u << bit % 32;
        cr_assert_neq(tri_hash_elements(name, 0, data, 64, 4), zero);
        data[bit / 32] = 0;
    }
    data[3] = 1;
    data[4] = 2;
    const uint64_t ordered = tri_hash_elements(name, 0, data, 64, 4);
    data[3] = 2;
    data[4] = 1;
    cr_assert_neq(tri_hash_elements(name, 0, data, 64, 4), ordered);
    cr_assert_neq(tri_hash_elements(tri_hash_name("v"), 0, data, 64, 4),
                  tri_hash_elements(name, 0, data, 64, 4));
}
