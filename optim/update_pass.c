/* The last ops of a step. All decisions (skip, clip factor, rate) are values made by CONTROL from
 * counters and norms, so that a step runs without the host. */
#include "optim/update_pass.h"

#include "amp/precision_pass.h"
#include "optim/compress_pass.h"
#include "runtime/core/memory.h"

/* Inputs of CONTROL before the sums of squares (statistics and counters), and behind them. */
#define CONTROL_FIXED 2
#define CONTROL_TAIL  1

struct tri_update_spec tri_update_spec_make(const struct tri_optimizer_options *o,
                                            const struct tri_schedule_options *s, double clip_norm,
                                            int64_t total)
{
    struct tri_update_spec u = {.kind = o->name == TRI_OPTIMIZER_CHOICE_ADAMW ? TRI_OPTIMIZER_ADAMW
                                                                              : TRI_OPTIMIZER_SGD,
                                .momentum = o->momentum,
                                .nesterov = o->nesterov,
                                .beta1 = o->betas.count == 2 ? o->betas.v[0] : 0,
                                .beta2 = o->betas.count == 2 ? o->betas.v[1] : 0,
                                .eps = o->eps,
                                .control = {.schedule = (enum tri_schedule_kind)s->name,
                                            .warmup = s->warmup,
                                            .total = total,
                                            .final = s->final,
                                            .gamma = s->gamma,
                                            .clip_norm = clip_norm}};

    for (size_t i = 0; i < s->milestones.count; i++)
        u.control.milestone[u.control.nmilestone++] = s->milestones.v[i];
    return u;
}

static tri_vid append_control(struct tri_graph *g, const struct tri_update_spec *spec)
{
    tri_vid *in =
        tri_pool_alloc(&g->pool, ((size_t)g->nsum + CONTROL_FIXED + CONTROL_TAIL) * sizeof(*in));
    struct tri_attrs attrs = {.control = spec->control};
    tri_vid stats = TRI_NONE, scale = tri_graph_find(g, TRI_LOSS_SCALE_STATE), scalars;
    int n = CONTROL_FIXED;

    if (in == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "update: cannot list %d sums", g->nsum));
        return TRI_NONE;
    }
    attrs.control.beta1 = spec->beta1;
    attrs.control.beta2 = spec->beta2;
    for (int i = 0; i < g->nsum; i++) {
        const struct tri_sum *s = &g->sum[i];

        if (s->kind == TRI_SUM_STATS)
            stats = s->value;
        if (s->kind == TRI_SUM_GRAD)
            in[n++] = tri_graph_op1(g, TRI_OP_SUMSQ, g->value[s->target].name, &s->value, 1, NULL);
    }
    in[0] = stats;
    in[1] = g->counters;
    if (scale != TRI_NONE) {
        attrs.control.scaled = true;
        attrs.control.scale_unit = tri_precision_unit(g);
        in[n++] = scale;
    }
    scalars = tri_graph_op1(g, TRI_OP_CONTROL, "control", in, n, &attrs);
    tri_graph_output(g, scalars, "scalars");
    return scalars;
}

static tri_vid optimizer_state(struct tri_graph *g, tri_vid param, const char *what)
{
    const char *name = tri_pool_printf(&g->pool, "optimizer/%s/%s", g->value[param].name, what);

    return tri_graph_state(g, name, TRI_F32, g->value[param].shape,
                           (struct tri_init){.kind = TRI_INIT_ZERO});
}

/* Returns the updated parameter. */
static tri_vid append_step(struct tri_graph *g, const struct tri_update_spec *spec,
                           const struct tri_sum *sum, tri_vid scalars)
{
    tri_vid param = sum->target, grad = sum->value;
    const struct tri_param_info *info = g->value[param].param;
    const char *name = g->value[param].name;
    struct tri_attrs attrs = {.optimizer = {.lr = info->lr,
                                            .weight_decay = info->weight_decay,
                                            .momentum = spec->momentum,
                                            .beta1 = spec->beta1,
                                            .beta2 = spec->beta2,
                                            .eps = spec->eps,
                                            .nesterov = spec->nesterov}};

    if (sum->corrected) {
        attrs.optimizer.momentum = 0;
        attrs.optimizer.nesterov = false;
    }
    if (spec->kind == TRI_OPTIMIZER_ADAMW) {
        tri_vid m = optimizer_state(g, param, "exp_avg");
        tri_vid v = optimizer_state(g, param, "exp_avg_sq");

        return tri_graph_op1(g, TRI_OP_ADAMW, name, (tri_vid[]){param, grad, m, v, scalars}, 5,
                             &attrs);
    } else {
        tri_vid m =
            attrs.optimizer.momentum != 0 ? optimizer_state(g, param, "momentum") : TRI_NONE;

        return tri_graph_op1(g, TRI_OP_SGD, name, (tri_vid[]){param, grad, m, scalars}, 4, &attrs);
    }
}

/* Writes the 16-bit copy of a parameter anew, where there is one; the same bits when skipped. */
static void append_rounding(struct tri_graph *g, tri_vid param, tri_vid updated)
{
    tri_vid copy = tri_precision_copy_of(g, param);
    struct tri_attrs attrs = {0};

    if (copy == TRI_NONE || updated == TRI_NONE)
        return;
    attrs.cast.to = g->value[copy].dtype;
    tri_graph_op1(g, TRI_OP_CAST, g->value[param].name, (tri_vid[]){updated, copy}, 2, &attrs);
}

tri_status tri_pass_update(struct tri_graph *g, const struct tri_update_spec *spec)
{
    tri_vid scalars;

    g->phase = TRI_PHASE_UPDATE;
    g->grain = TRI_NONE;
    scalars = append_control(g, spec);
    tri_compress_commit(g, scalars);
    for (int i = 0; i < g->nsum && scalars != TRI_NONE; i++) {
        const struct tri_sum *s = &g->sum[i];

        if (s->kind == TRI_SUM_GRAD)
            append_rounding(g, s->target, append_step(g, spec, s, scalars));
        if (s->kind == TRI_SUM_MOMENTS)
            tri_graph_op1(g, TRI_OP_BATCHNORM_RUNNING, g->value[s->target].name,
                          (tri_vid[]){s->target, s->target2, s->value, scalars}, 4,
                          &(struct tri_attrs){.norm = {.momentum = 0.1}});
    }
    if (scalars != TRI_NONE) {
        tri_vid scale = tri_graph_find(g, TRI_LOSS_SCALE_STATE);

        if (scale != TRI_NONE)
            tri_graph_op1(g, TRI_OP_SCALE_END, "scale_end", (tri_vid[]){scale, scalars}, 2, NULL);
        g->counters = tri_graph_op1(g, TRI_OP_STEP_END, "step_end",
                                    (tri_vid[]){g->counters, scalars}, 2, NULL);
        g->scalars = scalars;
    }
    return tri_graph_status(g);
}
