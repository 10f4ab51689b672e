/* Grains in sequence: names, counters, and the order in which contributions are added. */
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tri_graph *lay(struct tri_graph *g, int64_t first, int64_t count, int64_t total,
                             bool fixed_tree)
{
    struct tri_grains grains = {.grain = 4, .total = total, .first = first, .count = count};
    struct tri_graph *step = NULL;

    cr_assert_eq(tri_pass_pipeline(g, &grains, fixed_tree, &step), TRI_OK, "%s", tri_error_text());
    check_graph(step);
    return step;
}

static struct tri_graph *trained(struct tri_graph *g)
{
    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    return g;
}

/* "((0+1)+2)" for additions, "0>1>2" for a chain of acc inputs: how v came about, by grain. */
static void origin(const struct tri_graph *g, tri_vid v, char *text, size_t bytes)
{
    const struct tri_op *op = &g->op[g->value[v].producer];
    int acc = tri_op_info(op->kind)->acc_in;
    char a[200] = "", b[200] = "";

    if (op->kind == TRI_OP_ADD) {
        origin(g, op->in[0], a, sizeof(a));
        origin(g, op->in[1], b, sizeof(b));
        snprintf(text, bytes, "(%.90s+%.90s)", a, b);
    } else if (acc > 0 && op->nin > acc && op->in[acc] != TRI_NONE) {
        origin(g, op->in[acc], a, sizeof(a));
        snprintf(text, bytes, "%.180s>%d", a, (int)op->grain);
    } else {
        snprintf(text, bytes, "%d", (int)op->grain);
    }
}

static void check_origin(const struct tri_graph *g, const struct tri_sum *sum, const char *want)
{
    char text[240];

    cr_assert_not_null(sum);
    origin(g, sum->value, text, sizeof(text));
    cr_assert_str_eq(text, want, "%s instead of %s", text, want);
}

Test(pipeline, one_grain_adds_nothing)
{
    for (int tree = 0; tree < 2; tree++) {
        struct tri_graph *g = trained(mlp()), *step = lay(g, 3, 1, 8, tree == 1);

        cr_assert_eq(count_kind(step, TRI_OP_ADD), 0);
        cr_assert_eq(step->nop, g->nop + 1, "STEP_BEGIN and the grain");
        check_origin(step, sum_of(step, TRI_SUM_GRAD, "w1"), "3");
        tri_graph_destroy(step);
        tri_graph_destroy(g);
    }
}

Test(pipeline, running_totals_go_through_acc)
{
    struct tri_graph *g = trained(mlp()), *step = lay(g, 2, 3, 6, false);

    check_origin(step, sum_of(step, TRI_SUM_GRAD, "w1"), "2>3>4");
    check_origin(step, sum_of(step, TRI_SUM_GRAD, "b2"), "2>3>4");
    check_origin(step, sum_of(step, TRI_SUM_STATS, NULL), "((2+3)+4)");
    cr_assert_eq(count_kind(step, TRI_OP_ADD), 2);
    cr_assert_eq(sum_of(step, TRI_SUM_STATS, NULL)->value, step->loss_stats);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(pipeline, a_tied_table_enters_at_the_head)
{
    struct tri_graph *g = trained(gpt()), *step = lay(g, 0, 2, 2, false);

    check_origin(step, sum_of(step, TRI_SUM_GRAD, "wte"), "0>0>1>1");
    check_origin(step, sum_of(step, TRI_SUM_GRAD, "wpe"), "(0+1)");
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(pipeline, fixed_tree_halves_the_range)
{
    static const struct {
        int64_t first, count, total;
        const char *want;
    } cases[] = {
        {0, 2, 2, "(0+1)"},
        {0, 4, 4, "((0+1)+(2+3))"},
        {4, 4, 8, "((4+5)+(6+7))"},
        {2, 2, 8, "(2+3)"},
        {0, 3, 3, "(0+(1+2))"},
        {0, 5, 5, "((0+1)+(2+(3+4)))"},
        {3, 3, 6, "(3+(4+5))"},
        {5, 5, 10, "((5+6)+(7+(8+9)))"},
        {0, 7, 7, "((0+(1+2))+((3+4)+(5+6)))"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tri_graph *g = trained(mlp());
        struct tri_graph *step = lay(g, cases[i].first, cases[i].count, cases[i].total, true);

        check_origin(step, sum_of(step, TRI_SUM_GRAD, "w1"), cases[i].want);
        check_origin(step, sum_of(step, TRI_SUM_GRAD, "b1"), cases[i].want);
        check_origin(step, sum_of(step, TRI_SUM_STATS, NULL), cases[i].want);
        tri_graph_destroy(step);
        tri_graph_destroy(g);
    }
}

Test(pipeline, ranges_that_are_no_node_are_refused)
{
    static const struct tri_grains cases[] = {
        {.total = 8, .first = 1, .count = 2}, {.total = 8, .first = 2, .count = 4},
        {.total = 6, .first = 2, .count = 2}, {.total = 4, .first = 2, .count = 4},
        {.total = 4, .first = 0, .count = 0},
    };
    struct tri_graph *g = trained(mlp()), *step = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_assert_eq(tri_pass_pipeline(g, &cases[i], true, &step), TRI_ERR_INTERNAL, "case %zu", i);
    tri_graph_destroy(g);
}

/* Largest number of partial sums of b1 that are alive at once: written and not yet added. */
static int most_partials(const struct tri_graph *g, tri_vid total)
{
    bool *partial = calloc((size_t)g->nvalue, sizeof(*partial));
    int alive = 0, most = 0;

    cr_assert_not_null(partial);
    partial[total] = true;
    for (int i = g->nop - 1; i >= 0; i--) { /* from the total back to the contributions */
        const struct tri_op *op = &g->op[i];

        if (op->kind == TRI_OP_ADD && partial[op->out[0]])
            partial[op->in[0]] = partial[op->in[1]] = true;
    }
    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        if (op->out[0] == TRI_NONE || !partial[op->out[0]])
            continue;
        alive += op->kind == TRI_OP_ADD ? -1 : 1;
        most = alive > most ? alive : most;
    }
    free(partial);
    return most;
}

Test(pipeline, few_partial_sums_are_alive)
{
    struct tri_graph *g = trained(mlp()), *step = lay(g, 0, 32, 64, true);

    cr_assert_leq(most_partials(step, sum_of(step, TRI_SUM_GRAD, "b1")->value), 6);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

/* A sum is complete right behind its last contribution, before the last grain ends. */
Test(pipeline, totals_are_ready_early)
{
    struct tri_graph *g = trained(mlp()), *step = lay(g, 0, 4, 4, true);
    int32_t w2 = step->value[sum_of(step, TRI_SUM_GRAD, "w2")->value].producer;
    int32_t w1 = step->value[sum_of(step, TRI_SUM_GRAD, "w1")->value].producer;

    cr_assert_lt(w2, w1 - 2);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(pipeline, inputs_are_numbered_and_parameters_shared)
{
    struct tri_graph *g = trained(mlp()), *step;
    tri_vid w1 = tri_graph_find(g, "w1");

    g->value[w1].param->lr = 0.5;
    step = lay(g, 4, 2, 8, false);
    cr_assert_eq(tri_graph_find(step, "x"), TRI_NONE);
    cr_assert_eq(step->value[tri_graph_find(step, "x.5")].grain, 5);
    cr_assert_eq(step->value[tri_graph_find(step, "w1")].param->lr, 0.5);
    cr_assert_neq(step->value[tri_graph_find(step, "w1")].param, g->value[w1].param);
    cr_assert_eq(nth(step, TRI_OP_RELU, 1)->grain, 5);
    cr_assert_eq(nth(step, TRI_OP_RELU, 1)->phase, TRI_PHASE_FORWARD);
    tri_graph_destroy(g);
    check_graph(step); /* the grain's graph is not needed any more */
    tri_graph_destroy(step);
}

Test(pipeline, a_training_step_counts_itself_first)
{
    struct tri_graph *g = trained(mlp()), *step = lay(g, 0, 2, 2, false);

    cr_assert_eq(step->op[0].kind, TRI_OP_STEP_BEGIN);
    cr_assert_eq(step->op[0].grain, TRI_NONE);
    cr_assert_eq(step->counters, step->op[0].out[0]);
    cr_assert_eq(step->op[0].in[0], tri_graph_find(step, "counters"));
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

static struct tri_graph *with_dropout(void)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs drop = {.dropout = {.p = 0.5}};

    g->counters = tri_graph_state(g, "counters", TRI_I64, shape_of("8"), (struct tri_init){0});
    add_mse(g, tri_graph_op1(g, TRI_OP_DROPOUT, "drop",
                             (tri_vid[]){param(g, "w", "4,3"), g->counters}, 2, &drop));
    return g;
}

Test(pipeline, dropout_reads_the_new_counters)
{
    struct tri_graph *g = trained(with_dropout()), *step = lay(g, 0, 2, 2, false);

    for (int i = 0; i < count_kind(step, TRI_OP_DROPOUT); i++)
        cr_assert_eq(nth(step, TRI_OP_DROPOUT, i)->in[1], step->op[0].out[0]);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(pipeline, evaluation_does_not_count)
{
    struct tri_graph *g = with_dropout(), *step = lay(g, 0, 1, 1, false);

    cr_assert_eq(count_kind(step, TRI_OP_STEP_BEGIN), 0);
    cr_assert_eq(step->counters, tri_graph_find(step, "counters"));
    tri_graph_destroy(step);
    tri_graph_destroy(g);
    g = mlp();
    step = lay(g, 0, 1, 1, false);
    cr_assert_eq(step->counters, TRI_NONE);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(pipeline, outputs_are_those_of_their_grain)
{
    struct tri_graph *g = mlp(), *step;
    tri_vid y = nth(g, TRI_OP_MATMUL, 1)->out[0];

    tri_graph_output(g, y, "prediction");
    g->prediction = y;
    step = lay(g, 6, 2, 8, false);
    cr_assert_eq(step->prediction, tri_graph_find(step, "prediction.6"));
    cr_assert_eq(step->value[tri_graph_find(step, "prediction.7")].grain, 7);
    cr_assert_eq(step->value[step->prediction].role, TRI_ROLE_OUTPUT);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

/* A cache that the first grain extends is read extended by the second. */
Test(pipeline, updates_of_states_are_carried_over)
{
    struct tri_graph *g = new_graph(), *step;
    struct tri_attrs heads = {.attention = {.heads = 2, .causal = true}};
    tri_vid in[] = {input(g, "qkv", "2,1,24"),
                    tri_graph_state(g, "k", TRI_F32, shape_of("2,9,8"), (struct tri_init){0}),
                    tri_graph_state(g, "v", TRI_F32, shape_of("2,9,8"), (struct tri_init){0}),
                    tri_graph_input(g, "offset", TRI_I32, shape_of("1"))};

    g->value[in[1]].transient = true;
    tri_graph_op1(g, TRI_OP_ATTENTION_CACHED, "attn", in, 4, &heads);
    step = lay(g, 0, 2, 2, false);
    cr_assert_eq(nth(step, TRI_OP_ATTENTION_CACHED, 0)->in[1], tri_graph_find(step, "k"));
    cr_assert_eq(nth(step, TRI_OP_ATTENTION_CACHED, 1)->in[1],
                 nth(step, TRI_OP_ATTENTION_CACHED, 0)->out[1]);
    cr_assert(step->value[tri_graph_find(step, "k")].transient);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

Test(mesh, grains_are_cut_or_refused_with_numbers)
{
    struct tri_mesh m = tri_mesh_data(4, 3);
    struct tri_grains gr;

    cr_assert_eq(tri_grains_make(&m, 64, 8, true, &gr), TRI_OK);
    cr_assert_eq(gr.total, 8);
    cr_assert_eq(gr.first, 6);
    cr_assert_eq(gr.count, 2);
    cr_assert_eq(tri_grains_make(&m, 60, 8, false, &gr), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "60"));
    cr_assert_eq(tri_grains_make(&m, 48, 8, false, &gr), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "6 grains"));
    cr_assert_eq(tri_grains_make(&m, 0, 8, false, &gr), TRI_ERR_USAGE);
    m = tri_mesh_data(3, 0);
    cr_assert_eq(tri_grains_make(&m, 24, 4, true, &gr), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "power of two"));
    cr_assert_eq(tri_grains_make(&m, 24, 4, false, &gr), TRI_OK);
    cr_assert_str_eq(tri_axis_name(TRI_AXIS_DATA), "data");
}
