#include "launch/check.h"

#include "runtime/core/log.h"

#include <math.h>
#include <string.h>

enum { HALF, FULL, NPROGRAMS };

/* Part of the whole gradient that a parameter's difference is measured against at least. */
#define FLOOR 1e-3

static const char *const prefixes[NPROGRAMS] = {"check/half", "check/f32"};

tri_status tri_check_compile(struct tri_session *s, const struct tri_compile_spec *spec)
{
    for (int i = 0; i < NPROGRAMS; i++) {
        struct tri_compile_spec one = *spec;

        one.grains.count = 1;
        if (i == FULL)
            one.precision = (struct tri_precision_spec){.compute = TRI_F32};
        TRI_TRY(tri_compile_grain(&one, prefixes[i], s->layout, &s->extra[i]));
    }
    return TRI_OK;
}

/* Runs program i as the step that has just ended: the counters are put back. */
static tri_status run(const struct tri_session *s, int i)
{
    tri_vid v = tri_graph_find(s->train->graph, "counters");
    int64_t *counters = tri_exec_value(s->train_exec, v);
    int64_t saved[TRI_COUNTER_COUNT];
    tri_status st;

    TRI_TRY(tri_exec_pull(s->train_exec, v));
    memcpy(saved, counters, sizeof(saved));
    counters[TRI_COUNTER_STEP]--; /* STEP_BEGIN counts it again */
    TRI_TRY(tri_exec_push(s->train_exec, v));
    st = tri_exec_run(s->extra_exec[i]);
    memcpy(counters, saved, sizeof(saved));
    TRI_TRY(st);
    return tri_exec_push(s->train_exec, v);
}

struct difference {
    double error, size; /* squares of |g16 - g32| and |g32| */
};

static struct difference compare(const float *half, double factor, const float *full, int64_t n)
{
    struct difference d = {0};

    for (int64_t i = 0; i < n; i++) {
        double e = half[i] * factor - full[i];

        d.error += e * e;
        d.size += (double)full[i] * full[i];
    }
    return d;
}

static double mean_loss(const struct tri_session *s, int i)
{
    const struct tri_graph *g = s->extra[i]->graph;
    const double *stats = tri_exec_value(s->extra_exec[i], g->loss_stats);

    return stats[TRI_STATS_TARGETS] > 0 ? stats[TRI_STATS_LOSS] / stats[TRI_STATS_TARGETS] : 0;
}

/* What a 16-bit gradient is multiplied with to be one: 1 / (loss scale * unit). */
static tri_status unscale(const struct tri_session *s, double *factor)
{
    const struct tri_exec *x = s->extra_exec[HALF];
    tri_vid v = tri_graph_find(s->extra[HALF]->graph, TRI_LOSS_SCALE_STATE);

    *factor = 1;
    if (v == TRI_NONE)
        return TRI_OK;
    TRI_TRY(tri_exec_pull(x, v));
    *factor =
        1 / (*(const float *)tri_exec_value(x, v) * tri_precision_unit(s->extra[HALF]->graph));
    return TRI_OK;
}

/* The difference of the n-th gradient; the sums of both programs are in the same order. */
static struct difference of_sum(const struct tri_session *s, int n, double factor)
{
    const struct tri_graph *half = s->extra[HALF]->graph, *full = s->extra[FULL]->graph;

    return compare(tri_exec_value(s->extra_exec[HALF], half->sum[n].value), factor,
                   tri_exec_value(s->extra_exec[FULL], full->sum[n].value),
                   tri_shape_count(&full->value[full->sum[n].value].shape));
}

tri_status tri_check_run(const struct tri_session *s, int64_t step, double bound)
{
    const struct tri_graph *g = s->extra[FULL]->graph;
    struct difference all = {0};
    double factor, loss, worst = -1;
    const char *name = "";

    for (int i = 0; i < NPROGRAMS; i++)
        TRI_TRY(run(s, i));
    TRI_TRY(unscale(s, &factor));
    for (int n = 0; n < g->nsum; n++) {
        struct difference d = {0};

        if (g->sum[n].kind == TRI_SUM_GRAD)
            d = of_sum(s, n, factor);
        all.error += d.error;
        all.size += d.size;
    }
    for (int n = 0; n < g->nsum; n++) {
        struct difference d;
        double rel;

        if (g->sum[n].kind != TRI_SUM_GRAD)
            continue;
        d = of_sum(s, n, factor);
        rel = all.size > 0 ? sqrt(d.error) / (sqrt(d.size) + FLOOR * sqrt(all.size)) : 0;
        tri_debug("precision check at step %lld: gradient of '%s' differs by %.3g", (long long)step,
                  g->value[g->sum[n].target].name, rel);
        if (!(rel <= bound))
            tri_warn("precision check at step %lld: the gradient of '%s' differs from that in fp32 "
                     "by %.3g, more than %g",
                     (long long)step, g->value[g->sum[n].target].name, rel, bound);
        if (!(rel <= worst)) {
            worst = rel;
            name = g->value[g->sum[n].target].name;
        }
    }
    loss = mean_loss(s, FULL);
    tri_info("precision check at step %lld: loss differs from that in fp32 by %.3g, gradient by "
             "%.3g, at most by %.3g (of '%s')",
             (long long)step, loss != 0 ? fabs(mean_loss(s, HALF) - loss) / fabs(loss) : 0,
             all.size > 0 ? sqrt(all.error / all.size) : 0, worst, name);
    return TRI_OK;
}
