/* Placement by liveness: never two live blocks in one place, and close to the lower bound. */
#include "runtime/plan/offsets.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <criterion/criterion.h>

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = tri_mix64(*state + UINT64_C(0x9e3779b97f4a7c15));
    return *state % below;
}

static void check_apart(const struct tri_block *b, int n, size_t arena)
{
    for (int i = 0; i < n; i++) {
        cr_assert_leq(b[i].offset + b[i].bytes, arena);
        for (int k = 0; k < i; k++) {
            bool together = b[i].first <= b[k].last && b[k].first <= b[i].last;
            bool meet =
                b[i].offset < b[k].offset + b[k].bytes && b[k].offset < b[i].offset + b[i].bytes;

            cr_assert(!together || !meet, "blocks %d and %d overlap", i, k);
        }
    }
}

Test(offsets, nothing_needs_nothing)
{
    size_t arena = 1, live = 1;

    cr_assert_eq(tri_plan_offsets(NULL, 0, &arena, &live), TRI_OK);
    cr_assert_eq(arena, 0);
    cr_assert_eq(live, 0);
}

Test(offsets, random_lifetimes_never_share_bytes)
{
    uint64_t state = 1;

    for (int round = 0; round < 60; round++) {
        struct tri_block b[150];
        size_t arena, live, peak = 0;
        int n = 1 + (int)draw(&state, 150);

        for (int i = 0; i < n; i++) {
            uint32_t first = (uint32_t)draw(&state, 200);

            b[i] = (struct tri_block){.bytes = 64 * (1 + draw(&state, 100)),
                                      .first = first,
                                      .last = first + (uint32_t)draw(&state, 40)};
        }
        cr_assert_eq(tri_plan_offsets(b, n, &arena, &live), TRI_OK);
        check_apart(b, n, arena);
        for (uint32_t t = 0; t < 240; t++) {
            size_t sum = 0;

            for (int i = 0; i < n; i++)
                sum += b[i].first <= t && t <= b[i].last ? b[i].bytes : 0;
            peak = sum > peak ? sum : peak;
        }
        cr_assert_eq(live, peak);
        cr_assert_geq(arena, live);
    }
}

/* Forward writes `nsaved` activations of several sizes a layer, each read again in backward;
 * temporaries between. */
static int make_chain(struct tri_block *b, int grains, int layers)
{
    static const size_t size[] = {786432, 2359296, 786432, 786432, 3145728, 3145728, 786432, 3072};
    const uint32_t per_layer = 8, per_grain = (uint32_t)layers * per_layer * 3;
    int n = 0;

    for (int g = 0; g < grains; g++) {
        uint32_t start = 1 + (uint32_t)g * per_grain, end = start + per_grain - 1;

        for (int l = 0; l < layers; l++) {
            uint32_t forward = start + (uint32_t)l * per_layer,
                     backward = end - 2 * (uint32_t)l * per_layer;

            for (uint32_t k = 0; k < per_layer; k++) {
                b[n++] = (struct tri_block){
                    .bytes = size[k], .first = forward + k, .last = backward - 2 * k};
                b[n++] = (struct tri_block){.bytes = size[per_layer - 1 - k],
                                            .first = backward - 2 * k - 1,
                                            .last = backward - 2 * k + 1};
            }
        }
    }
    return n;
}

Test(offsets, training_chains_stay_within_a_tenth_of_the_bound)
{
    for (int layers = 1; layers <= 24; layers *= 2) {
        struct tri_block *b = tri_calloc(4096, sizeof(*b), "test");
        int n = make_chain(b, 3, layers);
        size_t arena, live;

        cr_assert_eq(tri_plan_offsets(b, n, &arena, &live), TRI_OK);
        check_apart(b, n, arena);
        cr_assert_leq((double)arena, 1.1 * (double)live, "%d layers: %zu of %zu", layers, arena,
                      live);
        tri_free(b);
    }
}

Test(offsets, thirty_thousand_blocks_are_placed_quickly)
{
    struct tri_block *b = tri_calloc(32768, sizeof(*b), "test");
    int n = make_chain(b, 80, 24);
    int64_t begin = tri_now_ns();
    size_t arena, live;

    cr_assert_geq(n, 30000);
    cr_assert_eq(tri_plan_offsets(b, n, &arena, &live), TRI_OK);
    cr_assert_lt(tri_now_ns() - begin,
                 INT64_C(5000000000)); /* 0.2 s alone; the machine may be busy */
    cr_assert_leq((double)arena, 1.1 * (double)live);
    tri_free(b);
}
