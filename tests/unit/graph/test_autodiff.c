/* Structure of the backward pass; its numbers are checked against differences in
 * the kernel suite. */
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

static void differentiate(struct tri_graph *g)
{
    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
}

Test(autodiff, mlp_has_only_the_products_it_needs)
{
    struct tri_graph *g = mlp();

    differentiate(g);
    /* Forward 2; dW of both layers, dx of the second only: x is data. */
    cr_assert_eq(count_kind(g, TRI_OP_MATMUL), 5);
    cr_assert_eq(count_kind(g, TRI_OP_COLUMN_SUM), 2);
    cr_assert_eq(count_kind(g, TRI_OP_RELU_GRAD), 1);
    cr_assert_eq(count_kind(g, TRI_OP_MSE_GRAD), 1);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 0);
    tri_graph_destroy(g);
}

Test(autodiff, products_are_turned_not_transposed)
{
    struct tri_graph *g = mlp();
    const struct tri_op *dw, *dx;

    differentiate(g);
    dw = nth(g, TRI_OP_MATMUL, 2);
    cr_assert(dw->attrs.matmul.ta && !dw->attrs.matmul.tb);
    dx = nth(g, TRI_OP_MATMUL, 3);
    cr_assert(!dx->attrs.matmul.ta && dx->attrs.matmul.tb);
    cr_assert_eq(dx->phase, TRI_PHASE_BACKWARD);
    cr_assert_str_eq(dx->name, "fc2");
    tri_graph_destroy(g);
}

Test(autodiff, product_with_transposed_weight)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs tb = {.matmul = {.tb = true}};
    tri_vid x = param(g, "x", "4,3"), w = param(g, "w", "2,3");
    const struct tri_op *dw, *dx;

    add_mse(g, tri_graph_op1(g, TRI_OP_MATMUL, "fc", (tri_vid[]){x, w}, 2, &tb));
    differentiate(g);
    dw = nth(g, TRI_OP_MATMUL, 1); /* dy^T x */
    cr_assert(dw->attrs.matmul.ta && !dw->attrs.matmul.tb);
    cr_assert_eq(dw->in[1], x);
    dx = nth(g, TRI_OP_MATMUL, 2); /* dy w */
    cr_assert(!dx->attrs.matmul.ta && !dx->attrs.matmul.tb);
    cr_assert_eq(dx->in[1], w);
    tri_graph_destroy(g);
}

Test(autodiff, every_transposition_infers)
{
    for (int form = 0; form < 4; form++) {
        struct tri_graph *g = new_graph();
        struct tri_attrs attrs = {.matmul = {.ta = (form & 1) != 0, .tb = (form & 2) != 0}};
        tri_vid a = param(g, "a", (form & 1) != 0 ? "3,4" : "4,3");
        tri_vid b = param(g, "b", (form & 2) != 0 ? "2,3" : "3,2");

        add_mse(g, tri_graph_op1(g, TRI_OP_MATMUL, "fc", (tri_vid[]){a, b}, 2, &attrs));
        differentiate(g);
        cr_assert_eq(count_kind(g, TRI_OP_MATMUL), 3);
        cr_assert_eq(count_kind(g, TRI_OP_RESHAPE), 0);
        cr_assert(tri_shape_equal(&g->value[sum_of(g, TRI_SUM_GRAD, "a")->value].shape,
                                  &g->value[a].shape));
        tri_graph_destroy(g);
    }
}

Test(autodiff, sums_are_listed_in_ready_order)
{
    struct tri_graph *g = mlp();
    static const char *const order[] = {"w2", "b2", "w1", "b1"};

    differentiate(g);
    cr_assert_eq(g->nsum, 5);
    cr_assert_eq(g->sum[0].kind, TRI_SUM_STATS);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(g->sum[i + 1].kind, TRI_SUM_GRAD);
        cr_assert_str_eq(g->value[g->sum[i + 1].target].name, order[i]);
    }
    tri_graph_destroy(g);
}

Test(autodiff, nothing_is_computed_for_frozen_parameters)
{
    struct tri_graph *g = mlp();

    g->value[tri_graph_find(g, "w1")].param->frozen = true;
    g->value[tri_graph_find(g, "b1")].param->frozen = true;
    g->value[tri_graph_find(g, "b2")].param->frozen = true;
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_MATMUL), 3);
    cr_assert_eq(count_kind(g, TRI_OP_COLUMN_SUM), 0);
    cr_assert_eq(count_kind(g, TRI_OP_RELU_GRAD), 0);
    cr_assert_eq(g->nsum, 2);
    tri_graph_destroy(g);
}

Test(autodiff, an_unreached_parameter_is_named)
{
    struct tri_graph *g = mlp();

    param(g, "lonely", "3");
    cr_assert_eq(tri_pass_autodiff(g), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "\"lonely\""));
    tri_graph_destroy(g);
}

Test(autodiff, an_op_without_gradient_is_named)
{
    struct tri_graph *g = new_graph();
    tri_vid y = unary(g, TRI_OP_ALLREDUCE, "reduce", param(g, "w", "4,3"));

    add_mse(g, y);
    cr_assert_eq(tri_pass_autodiff(g), TRI_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(tri_error_text(), "\"reduce\""));
    tri_graph_destroy(g);
}

Test(autodiff, tied_table_is_added_onto_in_place)
{
    struct tri_graph *g = gpt();
    const struct tri_op *embed;
    tri_vid head;

    differentiate(g);
    embed = nth(g, TRI_OP_EMBEDDING_GRAD, 0);
    head = embed->in[2];
    cr_assert_neq(head, TRI_NONE);
    cr_assert_eq(g->op[g->value[head].producer].kind, TRI_OP_MATMUL);
    cr_assert_str_eq(g->op[g->value[head].producer].name, "head");
    cr_assert_eq(sum_of(g, TRI_SUM_GRAD, "wte")->value, embed->out[0]);
    tri_graph_destroy(g);
}

/* y = relu(w); z = y w2 + y w3: the second product adds onto the gradient that the
 * first one made. */
Test(autodiff, consumers_add_through_acc)
{
    struct tri_graph *g = new_graph();
    tri_vid y = unary(g, TRI_OP_RELU, "relu", param(g, "w", "4,3"));
    tri_vid a = binary(g, TRI_OP_MATMUL, "fc2", y, param(g, "w2", "3,5"));
    tri_vid b = binary(g, TRI_OP_MATMUL, "fc3", y, param(g, "w3", "3,5"));
    const struct tri_op *last;

    add_mse(g, binary(g, TRI_OP_ADD, "add", a, b));
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 1);
    last = &g->op[g->value[nth(g, TRI_OP_RELU_GRAD, 0)->in[0]].producer];
    cr_assert_str_eq(last->name, "fc2");
    cr_assert_str_eq(g->op[g->value[last->in[3]].producer].name, "fc3");
    tri_graph_destroy(g);
}

/* x + f(x): dy is the gradient of both; nothing may add onto dy in place while f still reads it. */
Test(autodiff, a_shared_gradient_is_not_overwritten)
{
    struct tri_graph *g = new_graph();
    tri_vid x = unary(g, TRI_OP_RELU, "relu", param(g, "w", "4,3"));
    tri_vid f = binary(g, TRI_OP_MATMUL, "f", x, param(g, "wf", "3,3"));

    add_mse(g, binary(g, TRI_OP_ADD, "add", x, f));
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 2);
    for (int i = 0; i < count_kind(g, TRI_OP_MATMUL); i++) {
        const struct tri_op *m = nth(g, TRI_OP_MATMUL, i);

        cr_assert(m->nin < 4 || m->in[3] == TRI_NONE);
    }
    tri_graph_destroy(g);
}

Test(autodiff, parameters_that_share_a_gradient_get_copies)
{
    struct tri_graph *g = new_graph();
    tri_vid a = param(g, "a", "4,3"), b = param(g, "b", "4,3");

    add_mse(g, binary(g, TRI_OP_ADD, "add", a, b));
    differentiate(g);
    cr_assert_neq(sum_of(g, TRI_SUM_GRAD, "a")->value, sum_of(g, TRI_SUM_GRAD, "b")->value);
    cr_assert_eq(count_kind(g, TRI_OP_CAST), 2);
    tri_graph_destroy(g);
}

Test(autodiff, one_value_twice_in_an_op)
{
    struct tri_graph *g = new_graph();
    tri_vid w = param(g, "w", "3,3");

    add_mse(g, binary(g, TRI_OP_MATMUL, "square", w, w));
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_MATMUL), 3);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 1);
    cr_assert_eq(g->nsum, 2);
    tri_graph_destroy(g);
}

Test(autodiff, batchnorm_with_residual_and_relu)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs attrs = {.norm = {.eps = 1e-5, .relu = true}};
    tri_vid n = tri_graph_input(g, "n", TRI_I32, shape_of("1"));
    tri_vid x = param(g, "x", "8,3"), r = param(g, "r", "8,3");
    tri_vid in[] = {x, param(g, "gamma", "3"), param(g, "beta", "3"), n, r};
    const struct tri_op *back;

    add_mse(g, tri_graph_op1(g, TRI_OP_BATCHNORM, "bn", in, 5, &attrs));
    differentiate(g);
    back = nth(g, TRI_OP_BATCHNORM_GRAD, 0);
    cr_assert_eq(sum_of(g, TRI_SUM_GRAD, "x")->value, back->out[0]);
    cr_assert_eq(sum_of(g, TRI_SUM_GRAD, "beta")->value, back->out[2]);
    cr_assert_eq(sum_of(g, TRI_SUM_GRAD, "r")->value, back->out[3]);
    cr_assert_eq(back->in[6], nth(g, TRI_OP_BATCHNORM, 0)->out[0]);
    tri_graph_destroy(g);
}

Test(autodiff, images)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs conv = {.window = {.kh = 3, .kw = 3, .stride = 2, .pad = 1}};
    struct tri_attrs flat = {.view = {.shape = shape_of("2,6")}};
    tri_vid x = input(g, "x", "2,9,9,3");
    tri_vid c =
        tri_graph_op1(g, TRI_OP_CONV2D, "c1",
                      (tri_vid[]){x, param(g, "w1", "6,3,3,3"), param(g, "b1", "6")}, 3, &conv);
    tri_vid d =
        tri_graph_op1(g, TRI_OP_CONV2D, "c2", (tri_vid[]){c, param(g, "w2", "6,6,3,3")}, 2, &conv);
    tri_vid p = tri_graph_op1(g, TRI_OP_MAXPOOL, "pool", &d, 1, &conv);
    tri_vid a = unary(g, TRI_OP_AVGPOOL, "avg", p);

    add_mse(g, tri_graph_op1(g, TRI_OP_RESHAPE, "flat", &a, 1, &flat));
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_CONV2D_DW), 2);
    cr_assert_eq(count_kind(g, TRI_OP_CONV2D_DX), 1);
    cr_assert_eq(nth(g, TRI_OP_CONV2D_DX, 0)->attrs.window.h, 5);
    cr_assert_eq(count_kind(g, TRI_OP_MAXPOOL_GRAD), 1);
    cr_assert_eq(count_kind(g, TRI_OP_AVGPOOL_GRAD), 1);
    cr_assert_eq(count_kind(g, TRI_OP_RESHAPE), 2);
    tri_graph_destroy(g);
}

Test(autodiff, dropout_repeats_its_mask)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs drop = {.dropout = {.p = 0.25, .stream = 7, .seed = 3}};
    tri_vid c = tri_graph_state(g, "counters", TRI_I64, shape_of("8"), (struct tri_init){0});

    g->counters = c;
    add_mse(g, tri_graph_op1(g, TRI_OP_DROPOUT, "drop", (tri_vid[]){param(g, "w", "4,3"), c}, 2,
                             &drop));
    differentiate(g);
    cr_assert_eq(count_kind(g, TRI_OP_DROPOUT), 2);
    cr_assert_eq(nth(g, TRI_OP_DROPOUT, 1)->in[1], c);
    cr_assert_eq(nth(g, TRI_OP_DROPOUT, 1)->attrs.dropout.stream, 7);
    tri_graph_destroy(g);
}
