/* Building, names, pruning, inserting, drawing. */
#include "tests/unit/graph/fixture.h"

#include "runtime/core/text.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

Test(graph, names_are_found_and_unique)
{
    struct tri_graph *g = new_graph();
    char name[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        cr_assert_eq(param(g, name, "2"), i);
    }
    cr_assert_eq(tri_graph_find(g, "p617"), 617);
    cr_assert_eq(tri_graph_find(g, "p1000"), TRI_NONE);
    cr_assert_eq(param(g, "p3", "2"), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "\"p3\""));
    tri_graph_destroy(g);
    tri_graph_destroy(NULL);
}

Test(graph, an_empty_graph_finds_nothing)
{
    struct tri_graph *g = new_graph();

    cr_assert_eq(tri_graph_find(g, "x"), TRI_NONE);
    tri_graph_destroy(g);
}

Test(graph, decay_is_for_matrices_and_filters)
{
    struct tri_graph *g = new_graph();
    tri_vid w = param(g, "w", "2,3"), b = param(g, "b", "3");

    cr_assert(g->value[w].param->decay);
    cr_assert_not(g->value[b].param->decay);
    tri_graph_destroy(g);
}

Test(graph, the_first_failure_sticks)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "2,3"), w = param(g, "w", "4,5");

    cr_assert_eq(binary(g, TRI_OP_MATMUL, "fc", x, w), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_USAGE);
    cr_assert_str_eq(tri_error_text(), "matmul \"fc\": input 1 \"w\" is f32 [4, 5], needs 3 rows "
                                       "to match input 0 \"x\"");
    cr_assert_eq(unary(g, TRI_OP_RELU, "relu", x), TRI_NONE);
    cr_assert_eq(g->nop, 0);
    tri_graph_destroy(g);
}

Test(graph, inputs_are_counted)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "2,3");

    cr_assert_eq(tri_graph_op(g, TRI_OP_ADD, "one", &x, 1, NULL, 1), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_INTERNAL);
    tri_graph_destroy(g);
    g = new_graph();
    cr_assert_eq(binary(g, TRI_OP_ADD, "none", input(g, "x", "2"), TRI_NONE), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_INTERNAL);
    tri_graph_destroy(g);
}

Test(graph, sizes_are_checked)
{
    struct tri_graph *g = new_graph();

    cr_assert_eq(input(g, "x", "2,0"), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_USAGE);
    tri_graph_destroy(g);
    g = new_graph();
    cr_assert_eq(input(g, "x", "4611686018427387904,4611686018427387904"), TRI_NONE);
    cr_assert_eq(tri_graph_status(g), TRI_ERR_NOMEM);
    tri_graph_destroy(g);
}

Test(graph, prune_keeps_what_is_read)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "2,3");
    tri_vid y = unary(g, TRI_OP_RELU, "used", x);
    tri_vid gamma = param(g, "g", "3"), beta = param(g, "b", "3");
    int32_t norm;

    unary(g, TRI_OP_GELU, "unused", unary(g, TRI_OP_RELU, "unused_too", y));
    norm = tri_graph_op(g, TRI_OP_LAYERNORM, "norm", (tri_vid[]){y, gamma, beta, x}, 4, NULL,
                        UINT32_MAX);
    tri_graph_output(g, g->op[norm].out[0], "y");
    cr_assert_neq(g->op[norm].out[3], TRI_NONE);
    cr_assert_eq(tri_graph_prune(g), TRI_OK);
    cr_assert_eq(g->nop, 2);
    cr_assert_eq(g->op[1].kind, TRI_OP_LAYERNORM);
    cr_assert_eq(g->op[1].out[3], TRI_NONE, "the sum is optional and unread");
    cr_assert_eq(tri_graph_find(g, "y"), g->op[1].out[0]);
    check_graph(g);
    tri_graph_destroy(g);
}

Test(graph, prune_keeps_side_effects)
{
    struct tri_graph *g = new_graph();
    tri_vid c = tri_graph_state(g, "counters", TRI_I64, shape_of("8"), (struct tri_init){0});

    unary(g, TRI_OP_STEP_BEGIN, "begin", c);
    cr_assert_eq(tri_graph_prune(g), TRI_OK);
    cr_assert_eq(g->nop, 1);
    tri_graph_destroy(g);
}

Test(graph, ops_are_put_in_between)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "2,3");
    tri_vid y = unary(g, TRI_OP_RELU, "a", x);

    unary(g, TRI_OP_GELU, "b", y);
    cr_assert_eq(tri_graph_op_before(g, 1, TRI_OP_RELU, "between", &y, 1, NULL, 1), 1);
    cr_assert_str_eq(g->op[2].name, "b");
    check_graph(g);
    tri_graph_destroy(g);
}

Test(graph, dot_shows_ops_and_shapes)
{
    struct tri_graph *g = mlp();
    struct tri_text text = {0};

    cr_assert_eq(tri_graph_dot(g, &text), TRI_OK);
    cr_assert_not_null(strstr(text.data, "digraph"));
    cr_assert_not_null(strstr(text.data, "\"fc1\""));
    cr_assert_not_null(strstr(text.data, "[3, 5]"));
    tri_text_finish(&text);
    tri_graph_destroy(g);
}
