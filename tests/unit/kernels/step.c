/* Schedule, norm, clipping and optimizers by hand. */
#include "runtime/kernels/control.h"
#include "runtime/kernels/kernels.h"
#include "tests/unit/kernels/by_hand.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct tri_arg f32_2[4] = {
    {TRI_F32, {1, {2}}}, {TRI_F32, {1, {2}}}, {TRI_F32, {1, {2}}}, {TRI_F32, {1, {2}}}};

Test(step, schedules_follow_their_formulas)
{
    struct tri_control c = {
        .schedule = TRI_SCHEDULE_LINEAR, .warmup = 4, .total = 14, .final = 0.1};

    NEAR(tri_schedule_factor(&c, 1), 0.25);
    NEAR(tri_schedule_factor(&c, 4), 1);
    NEAR(tri_schedule_factor(&c, 9), 0.55);
    NEAR(tri_schedule_factor(&c, 14), 0.1);
    NEAR(tri_schedule_factor(&c, 20), 0.1);
    c.schedule = TRI_SCHEDULE_COSINE;
    NEAR(tri_schedule_factor(&c, 9), 0.55);
    NEAR(tri_schedule_factor(&c, 14), 0.1);
    NEAR(tri_schedule_factor(&c, 6), 0.1 + 0.9 * (1 + cos(0.2 * acos(-1.0))) / 2);
    c.schedule = TRI_SCHEDULE_CONSTANT;
    NEAR(tri_schedule_factor(&c, 100), 1);
    c = (struct tri_control){
        .schedule = TRI_SCHEDULE_STEP, .gamma = 0.1, .milestone = {30, 60}, .nmilestone = 2};
    NEAR(tri_schedule_factor(&c, 30), 1);
    NEAR(tri_schedule_factor(&c, 31), 0.1);
    NEAR(tri_schedule_factor(&c, 61), 0.01);
}

/* Linear warm-up over 10 updates to 1e-3; the first two attempts overflow and must not move it. */
Test(step, warmup_counts_updates_not_attempts)
{
    struct tri_attrs at = {.control = {.warmup = 10, .total = 1000}}, none = {.rows = 0};
    int64_t counters[TRI_COUNTER_COUNT] = {0};
    double scalars[TRI_SCALAR_COUNT], stats[TRI_STATS_COUNT] = {1, 1}, sumsq = 1;
    double first = 0, rate = 0;

    for (int attempt = 1; attempt <= 12; attempt++) {
        sumsq = attempt <= 2 ? INFINITY : 1;
        run(TRI_OP_STEP_BEGIN, &none, 1, f32_2, (void *[]){counters}, 1, (void *[]){counters});
        run(TRI_OP_CONTROL, &at, 3, f32_2, (void *[]){stats, counters, &sumsq}, 1,
            (void *[]){scalars});
        cr_assert_eq(scalars[TRI_SCALAR_FINITE], attempt > 2);
        cr_assert_eq(scalars[TRI_SCALAR_SKIP_RUN], attempt > 2 ? 0 : attempt);
        rate = 1e-3 * scalars[TRI_SCALAR_LR_FACTOR];
        if (attempt == 3)
            first = rate;
        run(TRI_OP_STEP_END, &none, 2, f32_2, (void *[]){counters, scalars}, 1,
            (void *[]){counters});
    }
    NEAR(first, 1e-4);
    NEAR(rate, 1e-3);
    cr_assert_eq(counters[TRI_COUNTER_STEP], 12);
    cr_assert_eq(counters[TRI_COUNTER_UPDATES], 10);
    cr_assert_eq(counters[TRI_COUNTER_SKIPPED], 2);
    cr_assert_eq(counters[TRI_COUNTER_SKIP_RUN], 0);
}

/* The mean gradient (3, 4) has norm 5; clipped at 1 it is applied as (0.6, 0.8), whatever the
 * number of targets it was summed over. */
Test(step, clipping_keeps_the_direction)
{
    for (int targets = 1; targets <= 4; targets += 3) {
        struct tri_attrs at = {.control = {.total = 10, .clip_norm = 1}},
                         sgd = {.optimizer = {.lr = 1}};
        int64_t counters[TRI_COUNTER_COUNT] = {1};
        double scalars[TRI_SCALAR_COUNT], stats[TRI_STATS_COUNT] = {2.0 * targets, targets}, sumsq;
        float w[2] = {0, 0}, g[2] = {3.0f * (float)targets, 4.0f * (float)targets};

        run(TRI_OP_SUMSQ, &sgd, 1, f32_2, (void *[]){g}, 1, (void *[]){&sumsq});
        run(TRI_OP_CONTROL, &at, 3, f32_2, (void *[]){stats, counters, &sumsq}, 1,
            (void *[]){scalars});
        NEAR(scalars[TRI_SCALAR_GRAD_NORM], 5);
        NEAR(scalars[TRI_SCALAR_LOSS], 2);
        run(TRI_OP_SGD, &sgd, 4, f32_2, (void *[]){w, g, NULL, scalars}, 1, (void *[]){w});
        NEAR(w[0], -0.6);
        NEAR(w[1], -0.8);
    }
}

Test(step, no_targets_change_nothing)
{
    struct tri_attrs at = {.control = {.total = 10, .clip_norm = 1}};
    int64_t counters[TRI_COUNTER_COUNT] = {1};
    double scalars[TRI_SCALAR_COUNT], stats[TRI_STATS_COUNT] = {0}, sumsq = 0;

    run(TRI_OP_CONTROL, &at, 3, f32_2, (void *[]){stats, counters, &sumsq}, 1, (void *[]){scalars});
    cr_assert_eq(scalars[TRI_SCALAR_FINITE], 1);
    cr_assert_eq(scalars[TRI_SCALAR_GRAD_SCALE], 0);
    cr_assert_eq(scalars[TRI_SCALAR_LOSS], 0);
    cr_assert_eq(scalars[TRI_SCALAR_GRAD_NORM], 0);
}

static void scalars_of(double *s, double update)
{
    memset(s, 0, TRI_SCALAR_COUNT * sizeof(*s));
    s[TRI_SCALAR_FINITE] = s[TRI_SCALAR_GRAD_SCALE] = s[TRI_SCALAR_LR_FACTOR] = 1;
    s[TRI_SCALAR_BIAS1] = 1 - pow(0.9, update);
    s[TRI_SCALAR_BIAS2] = 1 - pow(0.999, update);
}

/* w = 1, g = 0.5, decay 0.1, momentum 0.9, lr 0.1, by hand:
 *   step 1: g' = 0.6, buf = 0.6, w = 0.94;  step 2: g' = 0.594, buf = 1.134, w = 0.8266
 *   nesterov, step 1: 0.6 + 0.9 x 0.6 = 1.14, w = 0.886 */
Test(step, sgd_by_hand)
{
    struct tri_attrs at = {.optimizer = {.lr = 0.1, .weight_decay = 0.1, .momentum = 0.9}};
    float w[2] = {1, 1}, g[2] = {0.5f, 0.5f}, buf[2] = {0, 0};
    double s[TRI_SCALAR_COUNT];

    scalars_of(s, 1);
    run(TRI_OP_SGD, &at, 4, f32_2, (void *[]){w, g, buf, s}, 2, (void *[]){w, buf});
    NEAR(w[0], 0.94);
    run(TRI_OP_SGD, &at, 4, f32_2, (void *[]){w, g, buf, s}, 2, (void *[]){w, buf});
    NEAR(w[1], 0.8266);
    NEAR(buf[1], 1.134);
    at.optimizer.nesterov = true;
    w[0] = 1;
    buf[0] = 0;
    run(TRI_OP_SGD, &at, 4, f32_2, (void *[]){w, g, buf, s}, 2, (void *[]){w, buf});
    NEAR(w[0], 0.886);
    s[TRI_SCALAR_FINITE] = 0;
    run(TRI_OP_SGD, &at, 4, f32_2, (void *[]){w, g, buf, s}, 2, (void *[]){w, buf});
    NEAR(w[0], 0.886);
}

/* The first AdamW update is lr in the direction of the gradient, after the decay: w = 1 (1 - 0.1 x
 * 0.01) - 0.1 = 0.899. The second with g = -0.5: m = 0.9 x 0.05 - 0.05 = -0.005, v = 0.00049975,
 * m/c1 = -0.005/0.19, v/c2 = 0.25. */
Test(step, adamw_by_hand)
{
    struct tri_attrs at = {
        .optimizer = {.lr = 0.1, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    float w[2] = {1, 1}, g[2] = {0.5f, 0.5f}, m[2] = {0, 0}, v[2] = {0, 0};
    struct tri_arg arg[5];
    double s[TRI_SCALAR_COUNT];

    for (int i = 0; i < 5; i++)
        arg[i] = f32_2[0];
    scalars_of(s, 1);
    run(TRI_OP_ADAMW, &at, 5, arg, (void *[]){w, g, m, v, s}, 3, (void *[]){w, m, v});
    NEAR(w[0], 0.899);
    g[0] = -0.5f;
    scalars_of(s, 2);
    run(TRI_OP_ADAMW, &at, 5, arg, (void *[]){w, g, m, v, s}, 3, (void *[]){w, m, v});
    NEAR(m[0], -0.005);
    NEAR(v[0], 0.00049975);
    NEAR(w[0], 0.899 * 0.999 + 0.1 * (0.005 / 0.19) / 0.5);
}

/* One block of 4096 ones, then one element: counted apart and added in order. A NaN or infinity
 * comes through. */
Test(step, sumsq_is_finite_only_for_finite_input)
{
    static float g[TRI_SUM_BLOCK + 1];
    struct tri_arg arg = {TRI_F32, {1, {TRI_SUM_BLOCK + 1}}};
    struct tri_attrs at = {.rows = 0};
    double sum;

    for (int i = 0; i < TRI_SUM_BLOCK; i++)
        g[i] = 1;
    g[TRI_SUM_BLOCK] = 3;
    run(TRI_OP_SUMSQ, &at, 1, &arg, (void *[]){g}, 1, (void *[]){&sum});
    cr_assert_eq(sum, TRI_SUM_BLOCK + 9);
    g[5] = INFINITY;
    run(TRI_OP_SUMSQ, &at, 1, &arg, (void *[]){g}, 1, (void *[]){&sum});
    cr_assert(!isfinite(sum));
}

/* Padding samples hold NaN and must not touch statistics, outputs or gradients. */
Test(step, batchnorm_without_real_samples_is_zero)
{
    struct tri_arg arg[7] = {{TRI_F32, {2, {2, 1}}},
                             {TRI_F32, {1, {1}}},
                             {TRI_F32, {1, {1}}},
                             {TRI_I32, {1, {1}}},
                             {TRI_F32, {1, {1}}}};
    struct tri_attrs at = {.norm = {.eps = 1e-5}};
    float x[2] = {NAN, NAN}, gamma = 1, beta = 1, y[2], mean, invstd, moments[3];
    int32_t nreal = 0;

    run(TRI_OP_BATCHNORM, &at, 4, arg, (void *[]){x, &gamma, &beta, &nreal}, 4,
        (void *[]){y, &mean, &invstd, moments});
    cr_assert(y[0] == 0 && y[1] == 0 && moments[0] == 0 && moments[1] == 0 && moments[2] == 0);
    nreal = 1;
    x[0] = 3;
    run(TRI_OP_BATCHNORM, &at, 4, arg, (void *[]){x, &gamma, &beta, &nreal}, 4,
        (void *[]){y, &mean, &invstd, moments});
    cr_assert(y[0] == 1 && y[1] == 0 && moments[0] == 3 && moments[1] == 0 && moments[2] == 1);
}

Test(step, inject_acts_in_its_step_only)
{
    struct tri_attrs at = {.inject = {.what = TRI_INJECT_FLIP, .step = 2, .index = 1, .bit = 31}};
    int64_t counters[TRI_COUNTER_COUNT] = {1};
    float x[2] = {1, 2};

    run(TRI_OP_INJECT, &at, 2, f32_2, (void *[]){x, counters}, 1, (void *[]){x});
    cr_assert(x[0] == 1 && x[1] == 2);
    counters[TRI_COUNTER_STEP] = 2;
    run(TRI_OP_INJECT, &at, 2, f32_2, (void *[]){x, counters}, 1, (void *[]){x});
    cr_assert(x[0] == 1 && x[1] == -2);
    at.inject.what = TRI_INJECT_INF;
    run(TRI_OP_INJECT, &at, 2, f32_2, (void *[]){x, counters}, 1, (void *[]){x});
    cr_assert(x[0] == 1 && isinf(x[1]));
}
