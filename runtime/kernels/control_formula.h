/* The formulas of control.h as inline code, for the processor and for CUDA kernels: one place for
 * both.
 *
 * Every function is TRI_FORMULA: whoever compiles them for a device defines it so before. */
#ifndef TRI_RUNTIME_KERNELS_CONTROL_FORMULA_H
#define TRI_RUNTIME_KERNELS_CONTROL_FORMULA_H

#include "runtime/graph/ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef TRI_FORMULA
#define TRI_FORMULA static inline
#endif

TRI_FORMULA double tri_clamp01(double p)
{
    return p < 0 ? 0 : p > 1 ? 1 : p;
}

/* See tri_schedule_factor. */
TRI_FORMULA double tri_formula_schedule(const struct tri_control *c, int64_t u)
{
    const double pi = 3.14159265358979323846;
    double p = 1;
    int passed = 0;

    if (u <= c->warmup)
        return (double)u / (double)c->warmup;
    if (c->total > c->warmup)
        p = tri_clamp01((double)(u - c->warmup) / (double)(c->total - c->warmup));
    switch (c->schedule) {
    case TRI_SCHEDULE_LINEAR:
        return 1 + (c->final - 1) * p;
    case TRI_SCHEDULE_COSINE:
        return c->final + (1 - c->final) * (1 + cos(pi * p)) / 2;
    case TRI_SCHEDULE_STEP:
        for (int i = 0; i < c->nmilestone; i++)
            passed += u > c->milestone[i];
        return pow(c->gamma, passed);
    case TRI_SCHEDULE_CONSTANT:
        break;
    }
    return 1;
}

/* 1 where no clipping is due. A norm of 0 must not divide. */
TRI_FORMULA double tri_clip_factor(double clip, double norm)
{
    return clip > 0 && norm > clip ? clip / norm : 1;
}

/* The loss scale of the next step, and the good steps behind it. */
TRI_FORMULA void tri_move_scale(const struct tri_control *c, const float *loss_scale, int64_t good,
                                bool finite, double *scalars)
{
    double s = loss_scale == NULL ? 1 : *loss_scale, next = s;

    good = finite ? good + 1 : 0;
    if (loss_scale != NULL && !finite)
        next = s / c->scale_factor > c->scale_floor ? s / c->scale_factor : c->scale_floor;
    if (loss_scale != NULL && good >= c->scale_interval) {
        next = isfinite((float)(s * c->scale_factor)) ? s * c->scale_factor : s;
        good = 0;
    }
    scalars[TRI_SCALAR_LOSS_SCALE] = next;
    scalars[TRI_SCALAR_SCALE_CHANGE] = next / s - 1;
    scalars[TRI_SCALAR_GOOD_RUN] = (double)good;
    scalars[TRI_SCALAR_SCALE_STUCK] = loss_scale != NULL && !finite && s <= c->scale_floor;
}

/* Fills scalars[TRI_SCALAR_COUNT]; sum: of all sums of squares, added in their order. */
TRI_FORMULA void tri_formula_control(const struct tri_control *c, const double *stats,
                                     const int64_t *counters, const float *loss_scale, double sum,
                                     double *scalars)
{
    double targets = stats[TRI_STATS_TARGETS], norm = 0;
    double divisor = targets * (loss_scale == NULL ? 1 : *loss_scale * c->scale_unit);
    int64_t update = counters[TRI_COUNTER_UPDATES] + 1;
    bool finite = isfinite(stats[TRI_STATS_LOSS]);

    finite = finite && isfinite(sum); /* squares cannot cancel: a term that is not finite shows */
    if (targets > 0)
        norm = sqrt(sum) / divisor;
    for (int i = 0; i < TRI_SCALAR_COUNT; i++)
        scalars[i] = 0;
    scalars[TRI_SCALAR_FINITE] = finite;
    scalars[TRI_SCALAR_GRAD_SCALE] =
        targets > 0 ? tri_clip_factor(c->clip_norm, norm) / divisor : 0;
    scalars[TRI_SCALAR_GRAD_NORM] = norm;
    scalars[TRI_SCALAR_LR_FACTOR] = tri_formula_schedule(c, update);
    scalars[TRI_SCALAR_BIAS1] = 1 - pow(c->beta1, (double)update);
    scalars[TRI_SCALAR_BIAS2] = 1 - pow(c->beta2, (double)update);
    scalars[TRI_SCALAR_LOSS] = targets > 0 ? stats[TRI_STATS_LOSS] / targets : 0;
    scalars[TRI_SCALAR_TARGETS] = targets;
    scalars[TRI_SCALAR_RIGHT] = stats[TRI_STATS_RIGHT];
    scalars[TRI_SCALAR_STEP] = (double)counters[TRI_COUNTER_STEP];
    scalars[TRI_SCALAR_UPDATES] = (double)(counters[TRI_COUNTER_UPDATES] + finite);
    tri_move_scale(c, loss_scale, counters[TRI_COUNTER_GOOD_RUN], finite, scalars);
    scalars[TRI_SCALAR_SKIP_RUN] = finite ? 0 : (double)(counters[TRI_COUNTER_SKIP_RUN] + 1);
}

#endif
