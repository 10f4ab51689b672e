/* Initial values: their distribution, and that any part can be made anywhere. */
#include "models/init.h"

#include "runtime/core/memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N = 200003 }; /* several pieces of the parallel fill, and no multiple of a Philox block */

static float *fill(struct tri_init init, uint64_t seed, const char *name)
{
    float *v = tri_calloc(N, sizeof(*v), "test");

    cr_assert_not_null(v);
    tri_init_fill(&init, seed, name, 0, N, v);
    return v;
}

static void moments(const float *v, double *mean, double *std)
{
    double sum = 0, squares = 0;

    for (int i = 0; i < N; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    *mean = sum / N;
    *std = sqrt(squares / N - *mean * *mean);
}

/* Five standard errors: s / sqrt(N) of the mean, s / sqrt(2 N) of a normal's deviation. */
Test(init, normal_has_its_deviation)
{
    float *v = fill((struct tri_init){.kind = TRI_INIT_NORMAL, .a = 0.02f}, 1, "w");
    double mean, std;

    moments(v, &mean, &std);
    cr_assert_float_eq(mean, 0, 5 * 0.02 / sqrt(N));
    cr_assert_float_eq(std, 0.02, 5 * 0.02 / sqrt(2.0 * N));
    tri_free(v);
}

/* Deviation a / sqrt(3); its error is below that of a normal. */
Test(init, uniform_stays_in_its_bounds)
{
    float *v = fill((struct tri_init){.kind = TRI_INIT_UNIFORM, .a = 0.5f}, 1, "w");
    double mean, std;

    for (int i = 0; i < N; i++)
        cr_assert(v[i] >= -0.5f && v[i] < 0.5f);
    moments(v, &mean, &std);
    cr_assert_float_eq(mean, 0, 5 * 0.5 / sqrt(3.0 * N));
    cr_assert_float_eq(std, 0.5 / sqrt(3.0), 5 * 0.5 / sqrt(6.0 * N));
    tri_free(v);
}

Test(init, constants)
{
    float *one = fill((struct tri_init){.kind = TRI_INIT_ONE}, 1, "w");
    float *zero = fill((struct tri_init){.kind = TRI_INIT_ZERO}, 1, "w");

    for (int i = 0; i < N; i++)
        cr_assert(one[i] == 1.0f && zero[i] == 0.0f);
    tri_free(one);
    tri_free(zero);
}

Test(init, parts_are_the_whole)
{
    static const int cut[] = {0, 1, 2, 5, 4096, 65535, 65537, 131072, 200000, N};
    const struct tri_init kinds[] = {{.kind = TRI_INIT_NORMAL, .a = 1},
                                     {.kind = TRI_INIT_UNIFORM, .a = 1}};

    for (int k = 0; k < 2; k++) {
        float *whole = fill(kinds[k], 7, "layers.0.weight");
        float *parts = tri_calloc(N, sizeof(*parts), "test");

        cr_assert_not_null(parts);
        for (size_t i = 1; i < sizeof(cut) / sizeof(cut[0]); i++)
            tri_init_fill(&kinds[k], 7, "layers.0.weight", (uint64_t)cut[i - 1],
                          (size_t)(cut[i] - cut[i - 1]), parts + cut[i - 1]);
        cr_assert_eq(memcmp(whole, parts, N * sizeof(float)), 0);
        tri_free(whole);
        tri_free(parts);
    }
}

Test(init, seed_and_name_choose_the_stream)
{
    const struct tri_init normal = {.kind = TRI_INIT_NORMAL, .a = 1};
    float *a = fill(normal, 1, "w"), *b = fill(normal, 2, "w"), *c = fill(normal, 1, "v");
    float *again = fill(normal, 1, "w");
    double ab = 0, ac = 0;

    for (int i = 0; i < N; i++) {
        ab += (double)a[i] * (double)b[i];
        ac += (double)a[i] * (double)c[i];
    }
    cr_assert_eq(memcmp(a, again, N * sizeof(float)), 0);
    cr_assert_float_eq(ab / N, 0, 5 / sqrt(N)); /* five standard errors of independent streams */
    cr_assert_float_eq(ac / N, 0, 5 / sqrt(N));
    tri_free(a);
    tri_free(b);
    tri_free(c);
    tri_free(again);
}
