/* Each pattern of the fuse pass, and what must keep it from matching. */
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

static void fuse(struct tri_graph *g)
{
    cr_assert_eq(tri_pass_fuse(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
}

Test(fuse, cross_entropy_with_its_gradient)
{
    struct tri_graph *g = new_graph();
    tri_vid w = param(g, "w", "6,9"), stats;

    add_xent(g, unary(g, TRI_OP_GELU, "f", w));
    stats = g->loss_stats;
    cr_assert_eq(tri_pass_autodiff(g), TRI_OK);
    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_SOFTMAX_XENT), 0);
    cr_assert_eq(count_kind(g, TRI_OP_SOFTMAX_XENT_GRAD), 0);
    cr_assert_eq(nth(g, TRI_OP_SOFTMAX_XENT_FUSED, 0)->out[0], stats);
    cr_assert_eq(nth(g, TRI_OP_GELU_GRAD, 0)->in[0], nth(g, TRI_OP_SOFTMAX_XENT_FUSED, 0)->out[1]);
    tri_graph_destroy(g);
}

Test(fuse, gpt_before_and_after_autodiff)
{
    struct tri_graph *g = gpt();

    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 0);
    cr_assert_eq(nth(g, TRI_OP_LAYERNORM, 0)->nin, 3);
    cr_assert_eq(nth(g, TRI_OP_LAYERNORM, 1)->nin, 4);
    cr_assert_neq(nth(g, TRI_OP_LAYERNORM, 1)->out[3], TRI_NONE);
    cr_assert_str_eq(nth(g, TRI_OP_LAYERNORM, 1)->name, "ln_2");
    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 1, "the residual past ln_1");
    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 0);
    for (int i = 1; i < 3; i++)
        cr_assert_neq(nth(g, TRI_OP_LAYERNORM_GRAD, i)->in[5], TRI_NONE);
    tri_graph_destroy(g);
}

Test(fuse, gelu_into_the_products_around_it)
{
    struct tri_graph *g = gpt();
    tri_vid y = nth(g, TRI_OP_GELU, 0)->out[0], x = nth(g, TRI_OP_GELU, 0)->in[0];

    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_pass_fuse_products(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
    cr_assert_eq(count_kind(g, TRI_OP_GELU) + count_kind(g, TRI_OP_GELU_GRAD), 0);
    cr_assert_eq(nth(g, TRI_OP_MATMUL_GELU, 0)->out[0], y);
    cr_assert_eq(nth(g, TRI_OP_MATMUL_GELU, 0)->out[1], x);
    cr_assert_eq(nth(g, TRI_OP_MATMUL_GELU_GRAD, 0)->in[2], x);
    tri_graph_destroy(g);
}

Test(fuse, gelu_of_a_product_that_nobody_differentiates)
{
    struct tri_graph *g = new_graph();
    tri_vid x = binary(g, TRI_OP_MATMUL, "product", param(g, "a", "4,3"), param(g, "b", "3,5"));

    tri_graph_output(g, unary(g, TRI_OP_GELU, "gelu", x), "y");
    cr_assert_eq(tri_pass_fuse_products(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
    cr_assert_eq(nth(g, TRI_OP_MATMUL_GELU, 0)->out[1], TRI_NONE);
    cr_assert_eq(nth(g, TRI_OP_MATMUL_GELU, 0)->in[2], TRI_NONE);
    tri_graph_destroy(g);
}

Test(fuse, gelu_of_a_running_sum_stays)
{
    struct tri_graph *g = new_graph();
    tri_vid a = param(g, "a", "4,3"), b = param(g, "b", "3,5"), acc;

    acc = binary(g, TRI_OP_MATMUL, "first", a, b);
    acc = tri_graph_op1(g, TRI_OP_MATMUL, "second", (tri_vid[]){a, b, TRI_NONE, acc}, 4, NULL);
    tri_graph_output(g, unary(g, TRI_OP_GELU, "gelu", acc), "y");
    cr_assert_eq(tri_pass_fuse_products(g), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(count_kind(g, TRI_OP_GELU), 1);
    tri_graph_destroy(g);
}

Test(fuse, norm_that_is_not_the_first_reader_stays)
{
    struct tri_graph *g = new_graph();
    tri_vid s = binary(g, TRI_OP_ADD, "add", param(g, "a", "4,3"), param(g, "b", "4,3"));
    tri_vid gamma = param(g, "gamma", "3"), beta = param(g, "beta", "3");

    unary(g, TRI_OP_RELU, "first", s);
    tri_graph_op1(g, TRI_OP_LAYERNORM, "norm", (tri_vid[]){s, gamma, beta}, 3, NULL);
    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 1);
    tri_graph_destroy(g);
}

static tri_vid batchnorm(struct tri_graph *g, const char *name, tri_vid x)
{
    tri_vid in[] = {x, tri_graph_find(g, "gamma"), tri_graph_find(g, "beta"),
                    tri_graph_find(g, "n")};

    return tri_graph_op1(g, TRI_OP_BATCHNORM, name, in, 4, NULL);
}

static struct tri_graph *norms(void)
{
    struct tri_graph *g = new_graph();

    tri_graph_input(g, "n", TRI_I32, shape_of("1"));
    param(g, "gamma", "3");
    param(g, "beta", "3");
    param(g, "x", "8,3");
    return g;
}

Test(fuse, batchnorm_relu)
{
    struct tri_graph *g = norms();
    tri_vid y = unary(g, TRI_OP_RELU, "relu", batchnorm(g, "bn", tri_graph_find(g, "x")));

    add_mse(g, y);
    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_RELU), 0);
    cr_assert_eq(nth(g, TRI_OP_BATCHNORM, 0)->out[0], y);
    cr_assert(nth(g, TRI_OP_BATCHNORM, 0)->attrs.norm.relu);
    tri_graph_destroy(g);
}

/* The shortcut is computed behind the batch norm, which must move to where the sum stood. */
Test(fuse, batchnorm_add_relu)
{
    for (int side = 0; side < 2; side++) {
        struct tri_graph *g = norms();
        tri_vid bn = batchnorm(g, "bn", tri_graph_find(g, "x"));
        tri_vid shortcut = unary(g, TRI_OP_GELU, "shortcut", tri_graph_find(g, "x"));
        tri_vid s = side == 0 ? binary(g, TRI_OP_ADD, "add", bn, shortcut)
                              : binary(g, TRI_OP_ADD, "add", shortcut, bn);
        const struct tri_op *op;

        add_mse(g, unary(g, TRI_OP_RELU, "relu", s));
        tri_graph_add_sum(g, TRI_SUM_MOMENTS, g->op[0].out[3], TRI_NONE, TRI_NONE);
        fuse(g);
        op = nth(g, TRI_OP_BATCHNORM, 0);
        cr_assert_eq(op->in[4], shortcut);
        cr_assert(op->attrs.norm.relu);
        cr_assert_str_eq(op->name, "bn");
        cr_assert_eq(g->nop, 3);
        cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
        cr_assert_neq(nth(g, TRI_OP_BATCHNORM_GRAD, 0)->out[3], TRI_NONE);
        tri_graph_destroy(g);
    }
}

Test(fuse, batchnorm_of_evaluation)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "8,3"), v = param(g, "v", "3");
    tri_vid in[] = {x, v, v, v, v};
    tri_vid bn = tri_graph_op1(g, TRI_OP_BATCHNORM_INFER, "bn", in, 5, NULL);

    add_mse(g, unary(g, TRI_OP_RELU, "relu", binary(g, TRI_OP_ADD, "add", bn, x)));
    fuse(g);
    cr_assert_eq(g->nop, 2);
    cr_assert_eq(nth(g, TRI_OP_BATCHNORM_INFER, 0)->in[5], x);
    tri_graph_destroy(g);
}

Test(fuse, a_sum_that_is_read_elsewhere_stays)
{
    struct tri_graph *g = norms();
    tri_vid bn = batchnorm(g, "bn", tri_graph_find(g, "x"));
    tri_vid s = binary(g, TRI_OP_ADD, "add", bn, tri_graph_find(g, "x"));

    add_mse(g, binary(g, TRI_OP_ADD, "again", s, unary(g, TRI_OP_RELU, "relu", s)));
    fuse(g);
    cr_assert_eq(count_kind(g, TRI_OP_RELU), 1);
    cr_assert_eq(count_kind(g, TRI_OP_ADD), 2);
    tri_graph_destroy(g);
}

static void fuse_bias_gradients(struct tri_graph *g)
{
    cr_assert_eq(tri_pass_fuse_bias_gradients(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
}

Test(fuse, bias_gradients_into_the_running_totals_of_weights)
{
    struct tri_grains grains = {.grain = 4, .total = 3, .count = 3};
    struct tri_graph *g = mlp(), *step;
    const struct tri_op *first, *second;
    tri_vid w1, b1;

    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_pass_pipeline(g, &grains, false, &step), TRI_OK, "%s", tri_error_text());
    w1 = sum_of(step, TRI_SUM_GRAD, "w1")->value;
    b1 = sum_of(step, TRI_SUM_GRAD, "b1")->value;
    fuse_bias_gradients(step);
    cr_assert_eq(count_kind(step, TRI_OP_COLUMN_SUM), 0);
    cr_assert_eq(count_kind(step, TRI_OP_MATMUL_BGRAD), 6);
    first = nth(step, TRI_OP_MATMUL_BGRAD, 1);
    second = nth(step, TRI_OP_MATMUL_BGRAD, 3);
    cr_assert_eq(first->in[2], TRI_NONE);
    cr_assert_eq(first->in[3], TRI_NONE);
    cr_assert_eq(second->in[2], first->out[0]);
    cr_assert_eq(second->in[3], first->out[1]);
    cr_assert_eq(nth(step, TRI_OP_MATMUL_BGRAD, 5)->out[0], w1);
    cr_assert_eq(nth(step, TRI_OP_MATMUL_BGRAD, 5)->out[1], b1);
    tri_graph_destroy(step);
    tri_graph_destroy(g);
}

/* dw [5,3] = dy^T x of a transposed weight sums its first operand, dw [3,5] = x^T dy its second. */
Test(fuse, bias_gradient_of_either_operand)
{
    for (int of_a = 0; of_a < 2; of_a++) {
        struct tri_graph *g = new_graph();
        tri_vid x = param(g, "x", "4,3"), dy = param(g, "dy", "4,5");
        struct tri_attrs at = {.matmul = {.ta = true}};
        tri_vid in[] = {of_a ? dy : x, of_a ? x : dy};

        tri_graph_output(g, tri_graph_op1(g, TRI_OP_MATMUL, "dw", in, 2, &at), "dw");
        tri_graph_output(g, unary(g, TRI_OP_COLUMN_SUM, "db", dy), "db");
        fuse_bias_gradients(g);
        cr_assert_eq(g->nop, 1);
        cr_assert_eq(g->op[0].attrs.matmul.bgrad_a, of_a == 1);
        cr_assert_eq(g->op[0].out[1], tri_graph_find(g, "db"));
        tri_graph_destroy(g);
    }
}

/* Nothing sums over the rows of dy in dx = dy w; a product in 16 bits would round the sums; and a
 * running total must exist before the product. */
Test(fuse, bias_gradient_that_stays)
{
    for (int what = 0; what < 3; what++) {
        struct tri_graph *g = new_graph();
        enum tri_dtype t = what == 1 ? TRI_BF16 : TRI_F32;
        tri_vid x = tri_graph_input(g, "x", t, shape_of("4,3"));
        tri_vid dy = tri_graph_input(g, "dy", t, shape_of("4,5"));
        tri_vid w = param(g, "w", "5,3"), acc = param(g, "acc", "5");
        struct tri_attrs at = {.matmul = {.ta = what > 0}};
        tri_vid in[] = {what > 0 ? x : dy, what > 0 ? dy : w};

        tri_graph_output(g, tri_graph_op1(g, TRI_OP_MATMUL, "product", in, 2, &at), "y");
        acc = what == 2 ? unary(g, TRI_OP_GELU, "late", acc) : TRI_NONE;
        in[0] = dy;
        in[1] = acc;
        tri_graph_output(g, tri_graph_op1(g, TRI_OP_COLUMN_SUM, "db", in, 2, NULL), "db");
        fuse_bias_gradients(g);
        cr_assert_eq(count_kind(g, TRI_OP_COLUMN_SUM), 1);
        tri_graph_destroy(g);
    }
}
