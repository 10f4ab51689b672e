/* What the update pass appends: order, states, and what reaches the optimizers. */
#include "optim/groups.h"
#include "optim/update_pass.h"
#include "tests/unit/optim/fixture.h"

#include "runtime/graph/passes.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const char *const params[] = {"first.weight", "first.bias",  "norm.weight",
                                     "norm.bias",    "last.weight", "last.bias"};

static bool is_optimizer(enum tri_op_kind kind)
{
    return kind == TRI_OP_SGD || kind == TRI_OP_ADAMW;
}

/* The sums of squares, one CONTROL over them in the order of g->sum, the optimizers, STEP_END. */
Test(update_pass, appends_norms_control_optimizers_and_the_end)
{
    const struct tri_update_spec spec = {
        .kind = TRI_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    struct tri_graph *g = step_graph(1, 0);
    const struct tri_op *control;
    int first = g->nop, n = 2;

    GOOD(tri_pass_update(g, &spec));
    cr_assert_eq(g->nop, first + 6 + 1 + 6 + 1);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(g->op[first + i].kind, TRI_OP_SUMSQ);
        cr_assert(is_optimizer(g->op[first + 7 + i].kind));
    }
    control = &g->op[first + 6];
    cr_assert_eq(control->kind, TRI_OP_CONTROL);
    cr_assert_eq(control->nin, 2 + 6);
    cr_assert(control->attrs.control.beta1 == 0.9 && control->attrs.control.beta2 == 0.99);
    for (int i = 0; i < g->nsum; i++) {
        if (g->sum[i].kind == TRI_SUM_GRAD)
            cr_assert_eq(g->op[g->value[control->in[n++]].producer].in[0], g->sum[i].value);
        if (g->sum[i].kind == TRI_SUM_STATS)
            cr_assert_eq(control->in[0], g->sum[i].value);
    }
    cr_assert_eq(g->op[g->nop - 1].kind, TRI_OP_STEP_END);
    cr_assert_eq(g->counters, g->op[g->nop - 1].out[0]);
    cr_assert_eq(g->scalars, control->out[0]);
    cr_assert_eq(g->scalars, tri_graph_find(g, "scalars"));
    for (int i = first; i < g->nop; i++)
        cr_assert(g->op[i].phase == TRI_PHASE_UPDATE && g->op[i].grain == TRI_NONE);
    tri_graph_destroy(g);
}

static void has_state(const struct tri_graph *g, const char *param, const char *what, bool there)
{
    char name[128];
    tri_vid v;

    (void)snprintf(name, sizeof(name), "optimizer/%s/%s", param, what);
    v = tri_graph_find(g, name);
    cr_assert_eq(v != TRI_NONE, there, "'%s'", name);
    if (there)
        cr_assert(g->value[v].role == TRI_ROLE_STATE && !g->value[v].transient &&
                  tri_shape_equal(&g->value[v].shape, &g->value[tri_graph_find(g, param)].shape));
}

Test(update_pass, states_have_the_names_of_checkpoints)
{
    for (int kind = 0; kind < 3; kind++) { /* adamw, sgd with momentum, sgd */
        const struct tri_update_spec spec = {.kind = kind == 0 ? TRI_OPTIMIZER_ADAMW
                                                               : TRI_OPTIMIZER_SGD,
                                             .momentum = kind == 1 ? 0.9 : 0};
        struct tri_graph *g = step_graph(1, 0);

        GOOD(tri_pass_update(g, &spec));
        for (int i = 0; i < 6; i++) {
            has_state(g, params[i], "exp_avg", kind == 0);
            has_state(g, params[i], "exp_avg_sq", kind == 0);
            has_state(g, params[i], "momentum", kind == 1);
        }
        tri_graph_destroy(g);
    }
}

Test(update_pass, groups_reach_the_optimizers)
{
    const struct tri_group_rules rules = {.lr = 0.25, .weight_decay = 0.125};
    const struct tri_update_spec spec = {
        .kind = TRI_OPTIMIZER_SGD, .momentum = 0.5, .nesterov = true};
    struct tri_graph *g = step_graph(1, 0);

    GOOD(tri_pass_groups(g, &rules, NULL));
    GOOD(tri_pass_update(g, &spec));
    for (int i = 0; i < 6; i++) {
        const struct tri_attr_optimizer *a = &step_of(g, params[i])->attrs.optimizer;

        cr_assert(a->lr == 0.25 && a->momentum == 0.5 && a->nesterov);
        cr_assert_eq(a->weight_decay, i == 0 || i == 4 ? 0.125 : 0, "'%s'", params[i]);
    }
    tri_graph_destroy(g);
}

/* Parameters of a joined op: behind the scalars, by their names. */
static void joins(const struct tri_graph *g, const struct tri_op *op, const char *const *names,
                  int n)
{
    cr_assert_eq(op->attrs.optimizer.tensors, n);
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(g->value[op->in[1 + i]].name, names[i]);
        cr_assert_eq(g->value[op->in[1 + n + i]].producer < g->value[op->out[i]].producer, true);
    }
}

Test(update_pass, a_device_gets_one_op_for_several_parameters)
{
    static const char *const matrices[] = {"last.weight", "first.weight"};
    static const char *const vectors[] = {"last.bias", "norm.weight", "norm.bias", "first.bias"};
    const struct tri_group_rules rules = {.lr = 0.25, .weight_decay = 0.125};

    for (int kind = 0; kind < 3; kind++) { /* adamw, sgd with momentum, sgd */
        const struct tri_update_spec spec = {.kind = kind == 0 ? TRI_OPTIMIZER_ADAMW
                                                               : TRI_OPTIMIZER_SGD,
                                             .momentum = kind == 1 ? 0.9 : 0};
        enum tri_op_kind multi = kind == 0 ? TRI_OP_MULTI_ADAMW : TRI_OP_MULTI_SGD;
        struct tri_graph *g = step_graph(1, 0);

        GOOD(tri_pass_groups(g, &rules, NULL));
        GOOD(tri_pass_update(g, &spec));
        GOOD(tri_pass_fuse_updates(g));
        cr_assert_null(nth_op(g, TRI_OP_SGD, 0));
        cr_assert_null(nth_op(g, TRI_OP_ADAMW, 0));
        cr_assert_null(nth_op(g, TRI_OP_SUMSQ, 0));
        cr_assert_null(nth_op(g, multi, 2));
        joins(g, nth_op(g, multi, 0), matrices, 2);
        joins(g, nth_op(g, multi, 1), vectors, 4);
        cr_assert_eq(nth_op(g, multi, 0)->nin, 1 + 2 * (kind == 0 ? 4 : kind == 1 ? 3 : 2));
        cr_assert_eq(nth_op(g, TRI_OP_MULTI_SUMSQ, 0)->nin, 6);
        for (int i = 0; i < 6; i++) {
            const struct tri_op *control = nth_op(g, TRI_OP_CONTROL, 0);
            const struct tri_op *view = &g->op[g->value[control->in[2 + i]].producer];

            cr_assert(view->kind == TRI_OP_VIEW && view->attrs.view.offset == i);
        }
        tri_graph_destroy(g);
    }
}

Test(update_pass, settings_become_a_spec)
{
    const int64_t milestones[] = {30, 60};
    const double betas[] = {0.8, 0.95};
    const struct tri_optimizer_options o = {
        .name = TRI_OPTIMIZER_CHOICE_ADAMW, .betas = {betas, 2, true}, .eps = 1e-6};
    const struct tri_schedule_options s = {.name = TRI_SCHEDULE_CHOICE_STEP,
                                           .warmup = 5,
                                           .gamma = 0.5,
                                           .milestones = {milestones, 2, true}};
    struct tri_update_spec u = tri_update_spec_make(&o, &s, 1.5, 90);

    cr_assert(u.kind == TRI_OPTIMIZER_ADAMW && u.beta1 == 0.8 && u.beta2 == 0.95 && u.eps == 1e-6);
    cr_assert(u.control.schedule == TRI_SCHEDULE_STEP && u.control.warmup == 5 &&
              u.control.total == 90 && u.control.gamma == 0.5 && u.control.clip_norm == 1.5);
    cr_assert(u.control.nmilestone == 2 && u.control.milestone[1] == 60);
}
