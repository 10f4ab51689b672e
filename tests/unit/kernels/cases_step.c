/* Cases of the kernel suite for what the reference alone computes on the CPU: the ops of a step,
 * squared errors, faults. Tolerances as in cases.c. */
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kcase.h"

#include <math.h>
#include <string.h>

/* b, components, nreal */
static const int64_t samples[][3] = {{1, 1, 1}, {5, 7, 3}, {4, 33, 0}, {9, 1000, 8}};
#define NSAMPLES 4

static void predictions(struct kcase *c, const int64_t *d)
{
    float *y = kcase_in(c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);

    for (int64_t i = d[2] * d[1]; i < d[0] * d[1]; i++)
        y[i] = NAN; /* padding */
    kcase_in(c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
    *(int32_t *)kcase_in(c, TRI_I32, SHAPE(1), 0, 1) = (int32_t)d[2];
}

int cases_mse(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NSAMPLES; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_MSE, NULL);
        predictions(&c, samples[i]);
        kcase_out(&c, TRI_F64, SHAPE(TRI_STATS_COUNT), 0, 1e-12); /* doubles in another order */
        ran += kcase_run(&c, ops, "mse");
    }
    return ran;
}

int cases_mse_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NSAMPLES; i++) {
        const int64_t *d = samples[i / 2];
        struct tri_attrs at = {.loss = {.unit = 0.5}};
        struct kcase c;

        kcase_init(&c, TRI_OP_MSE_GRAD, &at);
        predictions(&c, d);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(1), 2, 8);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), 0, KCASE_EPS);
        ran += kcase_run(&c, ops, "mse_grad");
    }
    return ran;
}

/* The scalars of an applied (i % 2 == 0) or skipped step. */
static void step_scalars(struct kcase *c, int i)
{
    double *s = kcase_in(c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 1);

    s[TRI_SCALAR_FINITE] = i % 2 == 0;
    s[TRI_SCALAR_GOOD_RUN] = 5;
    s[TRI_SCALAR_LOSS_SCALE] = 1024;
    s[TRI_SCALAR_SCALE_CHANGE] = i % 4 < 2 ? 0 : i % 8 < 4 ? 1 : -0.5;
}

int cases_commit(const struct tri_kernel_ops *ops)
{
    const int64_t n[] = {1, 17, 1000};
    int ran = 0;

    for (int i = 0; i < 48; i++) {
        int64_t count = n[i / 8 % 3], before = i < 24 ? 0 : 5;
        struct tri_attrs at = {.view = {.offset = before}};
        struct kcase c;

        kcase_init(&c, TRI_OP_COMMIT, &at);
        kcase_in(&c, TRI_F32, SHAPE(count), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(count + 2 * before), -1, 1);
        step_scalars(&c, i % 8);
        kcase_out(&c, TRI_F32, SHAPE(count), 0, 0);
        kcase_alias(&c, TRI_ALIAS_MUST, 0);
        ran += kcase_run(&c, ops, "commit");
    }
    return ran;
}

int cases_step_begin(const struct tri_kernel_ops *ops)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_STEP_BEGIN, NULL);
    kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 1000);
    kcase_out(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 0);
    kcase_alias(&c, TRI_ALIAS_MUST, 0);
    return kcase_run(&c, ops, "step_begin");
}

int cases_step_end(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_STEP_END, NULL);
        kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 1000);
        step_scalars(&c, i);
        kcase_out(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 0);
        kcase_alias(&c, TRI_ALIAS_MUST, 0);
        ran += kcase_run(&c, ops, "step_end");
    }
    return ran;
}

int cases_scale_end(const struct tri_kernel_ops *ops)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_SCALE_END, NULL);
    kcase_in(&c, TRI_F32, SHAPE(1), 2, 8);
    step_scalars(&c, 0);
    kcase_out(&c, TRI_F32, SHAPE(1), 0, 0);
    kcase_alias(&c, TRI_ALIAS_MUST, 0);
    return kcase_run(&c, ops, "scale_end");
}

static struct tri_attrs control_attrs(int i)
{
    struct tri_attrs at = {.control = {.schedule = (enum tri_schedule_kind)(i % 4),
                                       .warmup = 3,
                                       .total = 20,
                                       .final = 0.1,
                                       .gamma = 0.5,
                                       .milestone = {4, 9},
                                       .nmilestone = 2,
                                       .clip_norm = i % 3 ? 1 : 0,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95}};

    at.control.scaled = i & 4;
    at.control.scale_unit = 0.25;
    at.control.scale_factor = 2;
    at.control.scale_floor = 1;
    at.control.scale_interval = 1 + i % 5;
    return at;
}

/* pow and cos of the device differ from the processor's by a few ulp of a double. */
static int one_control(const struct tri_kernel_ops *ops, int i)
{
    const int nsum = i % 7 == 6 ? 9 : i % 7;
    struct tri_attrs at = control_attrs(i);
    int64_t *counters;
    double *stats;
    struct kcase c;

    kcase_init(&c, TRI_OP_CONTROL, &at);
    stats = kcase_in(&c, TRI_F64, SHAPE(TRI_STATS_COUNT), 1, 100);
    stats[TRI_STATS_TARGETS] = i % 6 == 5 ? 0 : floor(stats[TRI_STATS_TARGETS]);
    counters = kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 5);
    counters[TRI_COUNTER_UPDATES] = i;
    for (int s = 0; s < nsum; s++) {
        double *sum = kcase_in(&c, TRI_F64, SHAPE(1), 0, 1000);

        *sum = i % 8 == 3 && s == 2 ? INFINITY : *sum;
    }
    if (at.control.scaled)
        kcase_in(&c, TRI_F32, SHAPE(1), 2, 8);
    kcase_out(&c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 1e-13);
    return kcase_run(&c, ops, "control");
}

int cases_control(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 56; i++)
        ran += one_control(ops, i);
    return ran;
}

int cases_batchnorm_running(const struct tri_kernel_ops *ops)
{
    const int64_t n[] = {1, 7, 300};
    int ran = 0;

    for (int i = 0; i < 9; i++) {
        struct tri_attrs at = {.norm = {.momentum = 0.1}};
        int64_t nc = n[i / 3];
        float *moments;
        struct kcase c;

        kcase_init(&c, TRI_OP_BATCHNORM_RUNNING, &at);
        kcase_in(&c, TRI_F32, SHAPE(nc), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(nc), 0.5, 1.5);
        moments = kcase_in(&c, TRI_F32, SHAPE(2 * nc + 1), 1, 10);
        moments[2 * nc] = i % 3 == 2 ? 0 : 12;
        step_scalars(&c, i % 3);
        for (int o = 0; o < 2; o++) {
            kcase_out(&c, TRI_F32, SHAPE(nc), 0, KCASE_EPS);
            kcase_alias(&c, TRI_ALIAS_MUST, o);
        }
        ran += kcase_run(&c, ops, "batchnorm_running");
    }
    return ran;
}

/* Faults of values, and a process fault whose step does not come. */
int cases_inject(const struct tri_kernel_ops *ops)
{
    const enum tri_inject_what what[] = {TRI_INJECT_INF, TRI_INJECT_NAN, TRI_INJECT_FLIP,
                                         TRI_INJECT_KILL};
    int ran = 0;

    for (int i = 0; i < 24; i++) {
        const enum tri_dtype type[] = {TRI_F32, TRI_BF16, TRI_F16};
        struct tri_attrs at = {.inject = {.what = what[i % 4], .step = 4, .index = 13, .bit = 14}};
        int64_t *counters;
        struct kcase c;

        kcase_init(&c, TRI_OP_INJECT, &at);
        kcase_in(&c, type[i / 8], SHAPE(17), -1, 1);
        counters = kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 1);
        counters[TRI_COUNTER_STEP] = i / 4 % 2 || what[i % 4] == TRI_INJECT_KILL ? 5 : 4;
        kcase_out(&c, type[i / 8], SHAPE(17), 0, 0);
        kcase_alias(&c, TRI_ALIAS_MUST, 0);
        ran += kcase_run(&c, ops, "inject");
    }
    return ran;
}
