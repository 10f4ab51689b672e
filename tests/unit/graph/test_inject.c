/* Faults enter the path of the value that they name. */
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

static struct tri_graph *step_of(bool fixed_tree)
{
    struct tri_grains grains = {.grain = 4, .total = 8, .first = 4, .count = 4};
    struct tri_graph *g = mlp(), *step = NULL;

    cr_assert_eq(tri_pass_autodiff(g), TRI_OK);
    cr_assert_eq(tri_pass_pipeline(g, &grains, fixed_tree, &step), TRI_OK);
    tri_graph_destroy(g);
    return step;
}

static void inject(struct tri_graph *g, struct tri_injection fault)
{
    cr_assert_eq(tri_pass_inject(g, &fault, 1, 1, fault.where), TRI_OK, "%s", tri_error_text());
    check_graph(g);
}

Test(inject, forward_hits_the_loss_of_the_grain)
{
    struct tri_graph *g = step_of(false);
    const struct tri_op *op;

    inject(g, (struct tri_injection){
                  .what = TRI_INJECT_NAN, .rank = 1, .step = 3, .grain = 2, .index = 5});
    op = nth(g, TRI_OP_INJECT, 0);
    cr_assert_eq(op->attrs.inject.step, 3);
    cr_assert_eq(op->attrs.inject.index, 5);
    cr_assert_eq(op->grain, 6);
    cr_assert_eq(op->in[1], g->counters);
    cr_assert_eq(nth(g, TRI_OP_MSE, 2)->in[0], op->out[0]);
    cr_assert_eq(nth(g, TRI_OP_MSE_GRAD, 2)->in[0], op->out[0]);
    tri_graph_destroy(g);
}

Test(inject, backward_hits_the_contribution_of_the_grain)
{
    for (int tree = 0; tree < 2; tree++) {
        struct tri_graph *g = step_of(tree == 1);
        const struct tri_op *op;

        inject(g, (struct tri_injection){
                      .rank = 1, .where = TRI_PHASE_BACKWARD, .parameter = "w2", .grain = 1});
        op = nth(g, TRI_OP_INJECT, 0);
        cr_assert_eq(g->op[g->value[op->in[0]].producer].kind, TRI_OP_MATMUL);
        cr_assert_eq(g->op[g->value[op->in[0]].producer].grain, 5);
        cr_assert_str_eq(op->name, "fc2");
        cr_assert_eq(op->phase, TRI_PHASE_BACKWARD);
        tri_graph_destroy(g);
    }
}

Test(inject, exchange_hits_the_total_of_the_first_parameter)
{
    struct tri_graph *g = step_of(true);
    tri_vid before = sum_of(g, TRI_SUM_GRAD, "w1")->value;
    const struct tri_op *op;

    inject(g, (struct tri_injection){.rank = 1, .where = TRI_PHASE_EXCHANGE});
    op = nth(g, TRI_OP_INJECT, 0);
    cr_assert_eq(op->in[0], before);
    cr_assert_eq(sum_of(g, TRI_SUM_GRAD, "w1")->value, op->out[0]);
    tri_graph_destroy(g);
}

Test(inject, update_hits_the_new_parameter)
{
    struct tri_graph *g = step_of(false);
    tri_vid scalars = tri_graph_state(g, "s", TRI_F64, shape_of("16"), (struct tri_init){0});
    const struct tri_sum *sum = sum_of(g, TRI_SUM_GRAD, "b2");
    tri_vid in[] = {sum->target, sum->value, TRI_NONE, scalars};

    tri_graph_op1(g, TRI_OP_SGD, "b2", in, 4, NULL);
    inject(g, (struct tri_injection){.rank = 1, .where = TRI_PHASE_UPDATE, .parameter = "b2"});
    cr_assert_eq(nth(g, TRI_OP_INJECT, 0)->in[0], nth(g, TRI_OP_SGD, 0)->out[0]);
    tri_graph_destroy(g);
}

Test(inject, others_are_left_alone)
{
    struct tri_graph *g = step_of(false);
    struct tri_injection fault = {.rank = 0, .where = TRI_PHASE_FORWARD};

    cr_assert_eq(tri_pass_inject(g, &fault, 1, 1, TRI_PHASE_FORWARD), TRI_OK);
    cr_assert_eq(tri_pass_inject(g, &fault, 1, 0, TRI_PHASE_UPDATE), TRI_OK);
    cr_assert_eq(count_kind(g, TRI_OP_INJECT), 0);
    tri_graph_destroy(g);
}

Test(inject, unknown_names_and_grains_are_refused)
{
    struct tri_graph *g = step_of(false);
    struct tri_injection fault = {.where = TRI_PHASE_BACKWARD, .parameter = "w9"};

    cr_assert_eq(tri_pass_inject(g, &fault, 1, 0, TRI_PHASE_BACKWARD), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "w9"));
    fault = (struct tri_injection){.where = TRI_PHASE_BACKWARD, .parameter = "b2", .index = 2};
    cr_assert_eq(tri_pass_inject(g, &fault, 1, 0, TRI_PHASE_BACKWARD), TRI_ERR_USAGE);
    fault = (struct tri_injection){.where = TRI_PHASE_FORWARD, .grain = 4};
    cr_assert_eq(tri_pass_inject(g, &fault, 1, 0, TRI_PHASE_FORWARD), TRI_ERR_USAGE);
    tri_graph_destroy(g);
}
