#include "launch/check.h"

#include "amp/policy.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

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

/* A look at the gradients: what is wanted and what was found. */
struct look {
    const struct tri_session *s;
    const struct tri_precision_spec *spec;
    int64_t step;
    double bound, factor;
    struct difference all;
    double worst;
    const char *name;      /* of the gradient that differs most */
    const char *candidate; /* the same among those that 16 bit can be blamed for */
    double candidate_rel;
    struct tri_text *over; /* NULL: not asked for */
};

static double relative(const struct look *l, struct difference d)
{
    return l->all.size > 0 ? sqrt(d.error) / (sqrt(d.size) + FLOOR * sqrt(l->all.size)) : 0;
}

/* Why a gradient above the bound stays as it is; NULL: its layer may be kept in f32. */
static const char *excuse(const struct look *l, int n, struct difference d)
{
    const struct tri_graph *half = l->s->extra[HALF]->graph;
    tri_vid v = half->sum[n].target;

    if (!isfinite(l->all.size))
        return ", which is not finite itself";
    if (!isfinite(d.error) && l->spec->initial_scale > 0)
        return ", which is left to the loss scale";
    if (tri_precision_keeps(half, v) ||
        tri_policy_match(l->spec->keep_fp32, l->spec->nkeep, half->value[v].name) >= 0)
        return "; its layer is in fp32 already";
    return NULL;
}

static void look_at(struct look *l, int n)
{
    const struct tri_graph *g = l->s->extra[FULL]->graph;
    const char *name = g->value[g->sum[n].target].name;
    struct difference d = of_sum(l->s, n, l->factor);
    double rel = relative(l, d);
    const char *why = excuse(l, n, d);

    tri_debug("precision check at step %lld: gradient of '%s' differs by %.3g", (long long)l->step,
              name, rel);
    if (!(rel <= l->bound))
        tri_warn("precision check at step %lld: the gradient of '%s' differs from that in fp32 "
                 "by %.3g, more than %g%s",
                 (long long)l->step, name, rel, l->bound, why != NULL ? why : "");
    if (!(rel <= l->bound) && why == NULL && l->over != NULL)
        tri_text_printf(l->over, "%s ", name);
    if (!(rel <= l->worst)) {
        l->worst = rel;
        l->name = name;
    }
    if (why == NULL && !(rel <= l->candidate_rel)) {
        l->candidate_rel = rel;
        l->candidate = name;
    }
}

/* Returns the relative difference of the loss. */
static double look_at_loss(const struct look *l)
{
    double full = mean_loss(l->s, FULL);
    double rel = full != 0 ? fabs(mean_loss(l->s, HALF) - full) / fabs(full) : 0;

    if (rel <= l->bound)
        return rel;
    tri_warn("precision check at step %lld: the loss differs from that in fp32 by %.3g, more than "
             "%g",
             (long long)l->step, rel, l->bound);
    /* A loss names no layer: the one whose gradient differs most stands for it. */
    if (l->over != NULL && l->over->len == 0 && l->candidate != NULL && isfinite(full))
        tri_text_printf(l->over, "%s ", l->candidate);
    return rel;
}

tri_status tri_check_run(const struct tri_session *s, int64_t step,
                         const struct tri_precision_spec *spec, double bound, struct tri_text *over)
{
    const struct tri_graph *g = s->extra[FULL]->graph;
    struct look l = {.s = s,
                     .spec = spec,
                     .step = step,
                     .bound = bound,
                     .worst = -1,
                     .name = "",
                     .candidate_rel = -1,
                     .over = over};
    double loss;

    for (int i = 0; i < NPROGRAMS; i++)
        TRI_TRY(run(s, i));
    TRI_TRY(unscale(s, &l.factor));
    for (int n = 0; n < g->nsum; n++) {
        struct difference d = {0};

        if (g->sum[n].kind == TRI_SUM_GRAD)
            d = of_sum(s, n, l.factor);
        l.all.error += d.error;
        l.all.size += d.size;
    }
    for (int n = 0; n < g->nsum; n++)
        if (g->sum[n].kind == TRI_SUM_GRAD)
            look_at(&l, n);
    loss = look_at_loss(&l);
    tri_info("precision check at step %lld: loss differs from that in fp32 by %.3g, gradient by "
             "%.3g, at most by %.3g (of '%s')",
             (long long)step, loss, l.all.size > 0 ? sqrt(l.all.error / l.all.size) : 0, l.worst,
             l.name);
    if (over != NULL && over->failed)
        return tri_fail(TRI_ERR_NOMEM, "precision check: cannot list the layers");
    return TRI_OK;
}

tri_status tri_check_share(struct tri_comm *comm, struct tri_text *over)
{
    int64_t bytes = (int64_t)over->len;
    char *names = NULL;
    tri_status st = TRI_OK;

    TRI_TRY(tri_comm_broadcast(comm, &bytes, sizeof(bytes), 0));
    if (bytes == 0)
        return TRI_OK;
    names = tri_calloc((size_t)bytes + 1, 1, "names of layers");
    if (names == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate %lld bytes of names", (long long)bytes);
    else if (over->data != NULL)
        memcpy(names, over->data, (size_t)bytes);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_names);
    TRI_TRY_GOTO(st, tri_comm_broadcast(comm, names, (size_t)bytes, 0), free_names);
    tri_text_clear(over);
    tri_text_printf(over, "%s", names);
    st = over->failed ? tri_fail(TRI_ERR_NOMEM, "cannot store the names of layers") : TRI_OK;
    st = tri_comm_agree(comm, st);

free_names:
    tri_free(names);
    return st;
}
