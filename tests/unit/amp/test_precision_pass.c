/* What the precision pass makes of graphs: types of values, copies of weights, casts. */
#include "amp/precision_pass.h"
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>
#include <string.h>

/* The graph passes around the precision pass, in the order of launch/compile.c. */
static struct tri_graph *lowered(struct tri_graph *g, const struct tri_precision_spec *spec)
{
    cr_assert_eq(tri_pass_fuse(g), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_pass_autodiff(g), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_pass_precision(g, spec), TRI_OK, "%s", tri_error_text());
    check_graph(g);
    cr_assert_eq(tri_pass_fuse(g), TRI_OK, "%s", tri_error_text());
    check_graph(g);
    return g;
}

static enum tri_dtype type(const struct tri_graph *g, tri_vid v)
{
    return g->value[v].dtype;
}

static void check_sums_are_f32(const struct tri_graph *g)
{
    for (int s = 0; s < g->nsum; s++)
        if (g->sum[s].kind == TRI_SUM_GRAD)
            cr_assert_eq(type(g, g->sum[s].value), TRI_F32, "%s", g->value[g->sum[s].target].name);
}

/* No cast inside a grain: weights come as copies, and the model reads no f32 input. */
Test(precision_pass, gpt_computes_in_16_bit)
{
    struct tri_precision_spec spec = {.compute = TRI_BF16, .grains = 1};
    struct tri_graph *g = lowered(gpt(), &spec);
    const struct tri_op *norm = nth(g, TRI_OP_LAYERNORM, 1);

    cr_assert_eq(count_kind(g, TRI_OP_CAST), 0);
    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        if (op->kind != TRI_OP_MATMUL)
            continue;
        cr_assert_eq(type(g, op->in[0]), TRI_BF16, "%s", op->name);
        cr_assert_eq(type(g, op->in[1]), TRI_BF16, "%s", op->name);
        cr_assert_eq(type(g, op->out[0]), op->attrs.matmul.wide ? TRI_F32 : TRI_BF16, "%s",
                     op->name);
        if (op->nin > 2 && op->in[2] != TRI_NONE)
            cr_assert_eq(g->value[op->in[2]].role, TRI_ROLE_PARAM, "a bias is the master");
    }
    cr_assert_eq(type(g, norm->out[0]), TRI_BF16);
    cr_assert_eq(type(g, norm->out[1]), TRI_F32, "statistics");
    cr_assert_eq(type(g, norm->out[3]), TRI_BF16, "the residual stream");
    cr_assert_eq(type(g, nth(g, TRI_OP_EMBEDDING, 0)->out[0]), TRI_BF16);
    cr_assert_eq(type(g, nth(g, TRI_OP_SOFTMAX_XENT_FUSED, 0)->out[1]), TRI_BF16);
    cr_assert_eq(nth(g, TRI_OP_SOFTMAX_XENT_FUSED, 0)->nin, 2, "bf16 has no loss scale");
    cr_assert_eq(tri_graph_find(g, TRI_LOSS_SCALE_STATE), TRI_NONE);
    check_sums_are_f32(g);
    tri_graph_destroy(g);
}

Test(precision_pass, copies_are_transient_and_made_once)
{
    struct tri_precision_spec spec = {.compute = TRI_F16, .grains = 1};
    struct tri_graph *g = lowered(gpt(), &spec);
    int copies = 0, readers = 0;

    for (tri_vid v = 0; v < g->nvalue; v++) {
        tri_vid copy = g->value[v].role == TRI_ROLE_PARAM ? tri_precision_copy_of(g, v) : TRI_NONE;

        if (copy == TRI_NONE)
            continue;
        copies++;
        cr_assert(g->value[copy].transient && g->value[copy].role == TRI_ROLE_STATE);
        cr_assert_eq(type(g, copy), TRI_F16);
        cr_assert_eq(type(g, v), TRI_F32, "the master");
        cr_assert_eq(g->value[v].shape.ndim, 2, "%s is no matrix", g->value[v].name);
        for (int i = 0; i < g->nop; i++)
            for (int k = 0; k < g->op[i].nin; k++)
                readers += g->op[i].in[k] == v;
    }
    cr_assert_gt(copies, 3);
    cr_assert_eq(readers, 0, "a grain reads the copy only");
    tri_graph_destroy(g);
}

static bool reads(const struct tri_op *op, tri_vid v)
{
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] == v)
            return true;
    return false;
}

Test(precision_pass, kept_layers_stay_f32_both_ways)
{
    const char *keep[] = {"f1*"};
    struct tri_precision_spec spec = {.compute = TRI_BF16, .grains = 1};
    struct tri_graph *plain = lowered(mlp(), &spec), *g;
    const char *first = nth(plain, TRI_OP_MATMUL, 0)->name;

    keep[0] = first;
    spec.keep_fp32 = keep;
    spec.nkeep = 1;
    g = lowered(mlp(), &spec);
    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        if (op->kind == TRI_OP_MATMUL)
            cr_assert_eq(type(g, op->in[0]), strcmp(op->name, first) == 0 ? TRI_F32 : TRI_BF16,
                         "%s", op->name);
    }
    for (int n = 0; n < g->nsum; n++) {
        tri_vid v = g->sum[n].target;

        if (g->sum[n].kind != TRI_SUM_GRAD)
            continue;
        cr_assert_eq(tri_precision_keeps(g, v), reads(nth(g, TRI_OP_MATMUL, 0), v), "%s",
                     g->value[v].name);
        cr_assert_not(tri_precision_keeps(plain, plain->sum[n].target), "%s", g->value[v].name);
    }
    /* to the relu, and back from its gradient */
    cr_assert_eq(count_kind(g, TRI_OP_CAST), 2);
    cr_assert_eq(count_kind(plain, TRI_OP_CAST), 1, "the input");
    check_sums_are_f32(g);
    tri_graph_destroy(plain);
    tri_graph_destroy(g);
}

Test(precision_pass, a_pattern_that_takes_nothing_is_refused)
{
    const char *keep[] = {"*", "layer.99"};
    struct tri_precision_spec spec = {
        .compute = TRI_BF16, .keep_fp32 = keep, .nkeep = 2, .grains = 1};
    struct tri_graph *g = mlp();

    cr_assert_eq(tri_pass_autodiff(g), TRI_OK);
    cr_assert_eq(tri_pass_precision(g, &spec), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "layer.99"));
    tri_graph_destroy(g);
}

Test(precision_pass, everything_kept_changes_nothing)
{
    const char *keep[] = {"*"};
    struct tri_precision_spec spec = {
        .compute = TRI_F16, .keep_fp32 = keep, .nkeep = 1, .grains = 1};
    struct tri_graph *g = lowered(gpt(), &spec);

    for (tri_vid v = 0; v < g->nvalue; v++)
        cr_assert(!tri_dtype_is_half(type(g, v)), "%s", g->value[v].name);
    cr_assert_eq(count_kind(g, TRI_OP_CAST), 0);
    tri_graph_destroy(g);
}

Test(precision_pass, tf32_marks_products_and_changes_no_type)
{
    const char *keep[] = {"head"};
    struct tri_precision_spec spec = {
        .compute = TRI_F32, .tf32 = true, .keep_fp32 = keep, .nkeep = 1, .grains = 1};
    struct tri_graph *g = lowered(gpt(), &spec);
    int products = 0, exact = 0;

    for (int i = 0; i < g->nop; i++) {
        if (g->op[i].kind != TRI_OP_MATMUL)
            continue;
        products++;
        exact += !g->op[i].attrs.matmul.tf32;
        cr_assert_eq(g->op[i].attrs.matmul.tf32, strcmp(g->op[i].name, "head") != 0, "%s",
                     g->op[i].name);
    }
    cr_assert_eq(exact, 3, "the kept layer with its two gradients, of %d", products);
    cr_assert_eq(count_kind(g, TRI_OP_CAST), 0);
    for (tri_vid v = 0; v < g->nvalue; v++)
        cr_assert(!tri_dtype_is_half(type(g, v)), "%s", g->value[v].name);
    tri_graph_destroy(g);
}

/* mlp has 4 samples; 3 grains are 12 targets: 2^-4. */
Test(precision_pass, the_loss_scale_meets_the_gradient_of_the_loss)
{
    struct tri_precision_spec spec = {.compute = TRI_F16, .initial_scale = 1024, .grains = 3};
    struct tri_graph *g = lowered(mlp(), &spec);
    tri_vid scale = tri_graph_find(g, TRI_LOSS_SCALE_STATE);
    const struct tri_op *grad = nth(g, TRI_OP_MSE_GRAD, 0);

    cr_assert_neq(scale, TRI_NONE);
    cr_assert_eq(g->value[scale].init.a, 1024.0f);
    cr_assert_eq(grad->in[3], scale);
    cr_assert_eq(grad->attrs.loss.unit, 0x1p-4);
    cr_assert_eq(tri_precision_unit(g), 0x1p-4);
    tri_graph_destroy(g);
    g = lowered(gpt(), &spec);
    cr_assert_eq(nth(g, TRI_OP_SOFTMAX_XENT_FUSED, 0)->in[2],
                 tri_graph_find(g, TRI_LOSS_SCALE_STATE));
    tri_graph_destroy(g);
}

/* An update of 1e-3 is less than half a step of bf16 at 1: it must live in the master. */
Test(precision_pass, copies_round_to_nearest_even)
{
    const float from[] = {1.1000047f, 1.001f, 1.00390625f, 70000.0f};
    uint16_t bf16[4], f16[4];

    tri_precision_round(TRI_BF16, from, bf16, 4);
    tri_precision_round(TRI_F16, from, f16, 4);
    cr_assert_eq(tri_bf16_to_f32(bf16[0]), 1.1015625f);
    cr_assert_eq(tri_bf16_to_f32(bf16[1]), 1.0f);
    cr_assert_eq(tri_bf16_to_f32(bf16[2]), 1.0f, "a tie goes to even");
    cr_assert_eq(f16[3], 0x7c00, "beyond f16: infinite");
}
