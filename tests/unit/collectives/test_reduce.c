/* Reductions of many buffers: types, order, NaN, 16-bit range. */
#include "collectives/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N = 1500 }; /* more than one block of every type */

Test(reduce, order_is_the_tree_for_any_number_of_buffers)
{
    static float v[5][N];
    const void *from[5];
    static float out[N];
    void *to[1] = {out};

    for (int r = 0; r < 5; r++) {
        from[r] = v[r];
        for (int i = 0; i < N; i++)
            v[r][i] = 1.0f / (float)(i + 7 * r + 1);
    }
    cr_assert_eq(tri_reduce_many(to, 1, from, 5, 0, N, TRI_F32, TRI_REDUCE_SUM), TRI_OK);
    for (int i = 0; i < N; i++)
        cr_assert_eq(out[i], (v[0][i] + v[1][i]) + (v[2][i] + (v[3][i] + v[4][i])));
}

Test(reduce, two_buffers_in_place_get_the_sum)
{
    static float a[N];
    static float b[N];
    void *to[2] = {a, b};
    const void *from[2] = {a, b};

    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 2.0f;
    }
    cr_assert_eq(tri_reduce_many(to, 2, from, 2, 3, N - 4, TRI_F32, TRI_REDUCE_SUM), TRI_OK);
    for (int i = 3; i < N - 1; i++)
        cr_assert(a[i] == (float)i + 2.0f && b[i] == a[i]);
    cr_assert(a[2] == 2.0f && b[2] == 2.0f && a[N - 1] == (float)(N - 1) && b[N - 1] == 2.0f);
}

Test(reduce, four_buffers_in_place_get_the_sum_of_the_tree)
{
    static float v[4][N];
    static float want[N];
    void *to[4] = {v[0], v[1], v[2], v[3]};
    const void *from[4] = {v[0], v[1], v[2], v[3]};

    for (int i = 0; i < N; i++) {
        for (int r = 0; r < 4; r++)
            v[r][i] = 1.0f / (float)(i + 7 * r + 1);
        want[i] = (v[0][i] + v[1][i]) + (v[2][i] + v[3][i]);
    }
    cr_assert_eq(tri_reduce_many(to, 4, from, 4, 3, N - 4, TRI_F32, TRI_REDUCE_SUM), TRI_OK);
    for (int r = 0; r < 4; r++) {
        cr_assert_arr_eq(v[r] + 3, want + 3, (N - 4) * sizeof(float));
        cr_assert_neq(v[r][2], want[2]);
        cr_assert_neq(v[r][N - 1], want[N - 1]);
    }
}

static float from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* All 16-bit values, and f32 values around each border of rounding, against the scalar functions.
 * A signalling NaN may be quiet afterwards. */
Test(reduce, conversions_of_many_are_those_of_one)
{
    enum { ALL = 1 << 16, OFFSETS = 5 };
    static const int32_t offset[OFFSETS] = {-1, 0, 1, 0x1000, 0x8000};
    static uint16_t h[ALL + 3], back[ALL + 3];
    static float x[ALL + 3];

    for (int f = 0; f < 2; f++) {
        enum tri_dtype t = f == 0 ? TRI_BF16 : TRI_F16;

        for (int i = 0; i < ALL + 3; i++)
            h[i] = (uint16_t)i;
        tri_reduce_widen(x, h, ALL + 3, t);
        for (int i = 0; i < ALL + 3; i++) {
            float one = f == 0 ? tri_bf16_to_f32(h[i]) : tri_f16_to_f32(h[i]);

            cr_assert(isnan(one) ? isnan(x[i]) : memcmp(&one, &x[i], sizeof(one)) == 0, "%d", i);
        }
        for (int k = 0; k < OFFSETS; k++) {
            for (int i = 0; i < ALL + 3; i++)
                x[i] = from_bits(((uint32_t)i << 16) + (uint32_t)offset[k]);
            tri_reduce_narrow(back, x, ALL + 3, t);
            for (int i = 0; i < ALL + 3; i++)
                cr_assert_eq(back[i], f == 0 ? tri_bf16_from_f32(x[i]) : tri_f16_from_f32(x[i]),
                             "%s of %a", tri_dtype_name(t), (double)x[i]);
        }
    }
}

Test(reduce, sixteen_bits_sum_in_f32_and_round_once)
{
    static uint16_t v[64][3];
    const void *from[64];
    uint16_t out[3];
    void *to[1] = {out};

    for (int r = 0; r < 64; r++) {
        from[r] = v[r];
        v[r][0] = tri_f16_from_f32(1.5e-6f);
        v[r][1] = tri_f16_from_f32(r < 32 ? 60000.0f : -60000.0f);
        v[r][2] = tri_f16_from_f32(1.0f);
    }
    cr_assert_eq(tri_reduce_many(to, 1, from, 64, 0, 3, TRI_F16, TRI_REDUCE_SUM), TRI_OK);
    /* 1.5e-6 is 25 * 2^-24 in f16; 64 of them are 1600 * 2^-24. */
    cr_assert_eq(tri_f16_to_f32(out[0]), 1600.0f * 0x1p-24f);
    cr_assert_eq(tri_f16_to_f32(out[1]), 0.0f);
    cr_assert_eq(tri_f16_to_f32(out[2]), 64.0f);
}

Test(reduce, nan_is_the_result_of_minimum_and_maximum)
{
    double a[2] = {NAN, 1.0};
    double b[2] = {1.0, NAN};
    double out[2];
    tri_reduce_fn *fn;

    for (int op = TRI_REDUCE_MIN; op <= TRI_REDUCE_MAX; op++) {
        cr_assert_eq(tri_reduce_find(TRI_F64, (enum tri_reduce)op, &fn), TRI_OK);
        fn(out, a, b, 2);
        cr_assert(isnan(out[0]) && isnan(out[1]));
    }
}

Test(reduce, bytes_are_refused)
{
    tri_reduce_fn *fn;

    cr_assert_eq(tri_reduce_find(TRI_U8, TRI_REDUCE_SUM, &fn), TRI_ERR_UNSUPPORTED);
}
