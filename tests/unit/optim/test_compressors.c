/* Compressors as pure functions: nothing is lost, whatever the size and the values. */
#include "optim/compressors/compressors.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MAX = 1000, MAX_PAYLOAD = 8 * MAX + 64 };

static const struct tri_compressor *const all[] = {&tri_compressor_fp16, &tri_compressor_bf16,
                                                   &tri_compressor_int8, &tri_compressor_onebit,
                                                   &tri_compressor_topk, &tri_compressor_randk};

enum fill { RANDOM, ZEROS, TIES, TINY, HUGE_ONES, MIXED, FILLS };

static float value(enum fill how, struct tri_rng_key *key, int64_t i)
{
    float u;

    tri_rng_fill_uniform(key, (uint64_t)i, 1, -1, 1, &u);
    switch (how) {
    case ZEROS:
        return i % 2 ? 0.0f : -0.0f;
    case TIES:
        return i % 3 ? 1.5f : -1.5f;
    case TINY: /* subnormal */
        return u * 1e-39f;
    case HUGE_ONES:
        return u * FLT_MAX;
    case MIXED:
        return ldexpf(u, (int)(i % 60) - 30);
    default:
        return u;
    }
}

/* A tensor, its payload and what comes out of it. */
struct tensor {
    struct tri_attr_compress a;
    float grad[MAX], residual[MAX], velocity[MAX];
    _Alignas(64) unsigned char payload[MAX_PAYLOAD];
    float residual_out[MAX], velocity_out[MAX], out[MAX];
    int64_t n;
};

static struct tensor *make(const struct tri_compressor *m, int64_t n, enum fill how)
{
    static struct tensor t;
    struct tri_rng_key key = tri_rng_key_make(1, (uint64_t)how, (uint64_t)n);

    t = (struct tensor){.n = n};
    t.a = (struct tri_attr_compress){
        .method = m, .seed = 7, .stream = 11, .ratio = 0.1, .ranks = 1, .rank = 0};
    for (int64_t i = 0; i < n; i++)
        t.grad[i] = value(how, &key, i);
    cr_assert_leq(m->bytes(&t.a, n), MAX_PAYLOAD);
    return &t;
}

static void run(struct tensor *t, int64_t step, bool momentum)
{
    struct tri_compress_job job = {.grad = t->grad,
                                   .residual = t->residual,
                                   .velocity = momentum ? t->velocity : NULL,
                                   .n = t->n,
                                   .payload = t->payload,
                                   .residual_out = t->residual_out,
                                   .velocity_out = momentum ? t->velocity_out : NULL};

    tri_compress_encode(&t->a, step, &job);
    tri_compress_decode(&t->a, step, t->payload, t->n, t->out);
}

/* Bound of |out + residual - x|, from the files of the compressors: sparse ones are exact, the
 * others off by the last bit of the largest number that takes part. */
static double bound(const struct tensor *t, int64_t i)
{
    double x = fabs((double)t->grad[i]), y = fabs((double)t->out[i]);

    if (t->a.method->clear_sent != NULL)
        return 0;
    return (x > y ? x : y) * FLT_EPSILON + 1e-45;
}

Test(compressors, what_is_sent_and_what_is_left_make_the_whole)
{
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        for (int how = 0; how < FILLS; how++)
            for (int64_t n = 1; n <= MAX; n += n < 70 ? 1 : 31) {
                struct tensor *t = make(all[k], n, (enum fill)how);

                run(t, 5, false);
                for (int64_t i = 0; i < n; i++)
                    cr_assert_leq(
                        fabs((double)t->out[i] + (double)t->residual_out[i] - (double)t->grad[i]),
                        bound(t, i), "%s, fill %d, %lld of %lld: %g + %g is not %g", all[k]->name,
                        how, (long long)i, (long long)n, (double)t->out[i],
                        (double)t->residual_out[i], (double)t->grad[i]);
            }
}

Test(compressors, residuals_are_as_small_as_promised)
{
    for (int64_t n = 1; n <= MAX; n += 13) {
        struct tensor *t = make(&tri_compressor_int8, n, RANDOM);
        const float *scale = (const float *)t->payload;

        run(t, 1, false);
        for (int64_t i = 0; i < n; i++)
            cr_assert_leq(fabsf(t->residual_out[i]), scale[i / 256] * (1 + 0x1p-20f));
        t = make(&tri_compressor_bf16, n, RANDOM);
        run(t, 1, false);
        for (int64_t i = 0; i < n; i++)
            cr_assert_leq(fabsf(t->residual_out[i]), fabsf(t->grad[i]) * 0x1p-8f);
        t = make(&tri_compressor_fp16, n, RANDOM);
        run(t, 1, false);
        for (int64_t i = 0; i < n; i++)
            cr_assert_leq(fabsf(t->residual_out[i]), fabsf(t->grad[i]) * 0x1p-11f + 0x1p-25f);
    }
}

Test(compressors, sixteen_bits_are_those_of_the_host_conversions)
{
    for (uint64_t block = 0; block < 2000; block++) {
        struct tensor *t = make(&tri_compressor_fp16, 4, ZEROS);
        struct tri_rng_key key = tri_rng_key_make(3, 4, 5);
        uint32_t w[4];

        tri_philox4x32(&key, block, w);
        for (int i = 0; i < 4; i++) {
            float x = tri_float_from_bits(w[i]);

            t->grad[i] = isfinite(x) ? block % 2 ? x : fmodf(x, 70000.0f) : 0;
        }
        run(t, 1, false);
        for (int i = 0; i < 4; i++) {
            uint16_t want = tri_f16_from_f32(t->grad[i]), got = ((uint16_t *)t->payload)[i];

            if (fabsf(t->grad[i]) > 65504.0f)
                want = t->grad[i] > 0 ? 0x7bff : 0xfbff;
            cr_assert_eq(got, want, "%a", (double)t->grad[i]);
        }
        t->a.method = &tri_compressor_bf16;
        run(t, 1, false);
        for (int i = 0; i < 4; i++)
            if (isfinite(tri_bf16_to_f32(tri_bf16_from_f32(t->grad[i]))))
                cr_assert_eq(((uint16_t *)t->payload)[i], tri_bf16_from_f32(t->grad[i]));
    }
}

Test(compressors, what_is_not_finite_spoils_the_payload_and_nothing_else)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        for (int64_t n = 1; n <= MAX; n += 37)
            for (int b = 0; b < 3; b++) {
                struct tensor *t = make(all[k], n, RANDOM);
                bool finite = true;

                for (int64_t i = 0; i < n; i++)
                    t->residual[i] = t->velocity[i] = (float)i;
                t->grad[(n - 1) * b / 2] = bad[b];
                run(t, 1, true);
                for (int64_t i = 0; i < n; i++)
                    finite = finite && isfinite(t->out[i]);
                cr_assert(!finite, "%s hides %g among %lld", all[k]->name, (double)bad[b],
                          (long long)n);
                cr_assert_arr_eq(t->residual_out, t->residual, (size_t)n * sizeof(float));
                cr_assert_arr_eq(t->velocity_out, t->velocity, (size_t)n * sizeof(float));
            }
}

Test(compressors, topk_takes_the_largest_and_of_equal_ones_the_first)
{
    struct tensor *t = make(&tri_compressor_topk, MAX, MIXED);
    float least = INFINITY;

    run(t, 1, false);
    for (int64_t i = 0; i < MAX; i++)
        if (t->out[i] != 0)
            least = fminf(least, fabsf(t->out[i]));
    for (int64_t i = 0; i < MAX; i++)
        cr_assert(t->out[i] != 0 || fabsf(t->grad[i]) <= least);
    t = make(&tri_compressor_topk, 100, TIES);
    run(t, 1, false);
    for (int64_t i = 0; i < 100; i++)
        cr_assert_eq(t->out[i], i < 10 ? t->grad[i] : 0.0f);
}

Test(compressors, randk_takes_all_elements_in_time_and_int8_is_right_in_the_mean)
{
    struct tensor *t = make(&tri_compressor_randk, 100, RANDOM);
    bool seen[100] = {false};
    double sum[256] = {0};

    for (int step = 1; step <= 200; step++) {
        int sent = 0;

        run(t, step, false);
        for (int i = 0; i < 100; i++) {
            sent += t->residual_out[i] == 0;
            seen[i] = seen[i] || t->residual_out[i] == 0;
        }
        cr_assert_eq(sent, 10);
    }
    for (int i = 0; i < 100; i++)
        cr_assert(seen[i], "element %d was never sent", i);
    t = make(&tri_compressor_int8, 256, RANDOM);
    for (int step = 1; step <= 1000; step++) {
        run(t, step, false);
        for (int i = 0; i < 256; i++)
            sum[i] += (double)t->out[i];
    }
    /* a step of 1/127 has the deviation 1/254 at most; 5 deviations of the mean of 1000 */
    for (int i = 0; i < 256; i++)
        cr_assert_float_eq(sum[i] / 1000, (double)t->grad[i], 5.0 / 254 / sqrt(1000));
}

Test(compressors, rounding_differs_between_contributors_and_steps)
{
    struct tensor *t = make(&tri_compressor_int8, 256, RANDOM);
    unsigned char first[MAX_PAYLOAD];
    size_t bytes = (size_t)tri_compressor_int8.bytes(&t->a, 256);

    run(t, 1, false);
    memcpy(first, t->payload, bytes);
    run(t, 1, false);
    cr_assert_arr_eq(first, t->payload, bytes);
    run(t, 2, false);
    cr_assert_neq(memcmp(first, t->payload, bytes), 0);
    t->a.rank = 1;
    run(t, 1, false);
    cr_assert_neq(memcmp(first, t->payload, bytes), 0);
}
