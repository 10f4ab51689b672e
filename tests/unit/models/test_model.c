/* Resolution of dimensions, and the forms of a model: training, evaluation, generation. */
#include "tests/unit/models/fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static void refused(const struct tri_model_options *o, const struct tri_data_shape *data,
                    const char *part, const char *other)
{
    struct tri_model_dims dims;

    cr_expect_eq(tri_model_resolve(o, data, &dims), TRI_ERR_USAGE);
    cr_expect_not_null(strstr(tri_error_text(), part), "%s", tri_error_text());
    cr_expect_not_null(strstr(tri_error_text(), other), "%s", tri_error_text());
}

Test(resolve, refuses_contradictions_of_a_gpt_with_both_numbers)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape data = tokens_of(512, 64), images = images_of(28, 1, 10);

    refused(&o, &images, "'gpt'", "tokens");
    o.heads = 3;
    refused(&o, &data, "model.heads: 3", "model.width 128");
    o = options_of(TRI_MODEL_GPT);
    o.vocab = 511;
    refused(&o, &data, "model.vocab: 511", "512");
    o = options_of(TRI_MODEL_GPT);
    o.context = 63;
    refused(&o, &data, "data.sequence: 64", "model.context 63");
    o = options_of(TRI_MODEL_GPT);
    o.preset = "125M";
    refused(&o, &data, "'125M'", "124M");
}

Test(resolve, refuses_what_a_resnet_cannot_take)
{
    struct tri_model_options o = options_of(TRI_MODEL_RESNET);
    struct tri_data_shape data = images_of(28, 1, 10), flat = images_of(28, 1, 10);
    struct tri_data_shape tokens = tokens_of(512, 64);

    refused(&o, &tokens, "'resnet'", "images");
    flat.x = TRI_SHAPE(784);
    refused(&o, &flat, "'resnet'", "images");
    o.depth = 34;
    refused(&o, &data, "model.depth: 34", "152");
    o = options_of(TRI_MODEL_RESNET);
    o.preset = "resnet34";
    refused(&o, &data, "'resnet34'", "resnet18");
    o.depth = 18;
    refused(&o, &data, "'resnet34'", "resnet18");
    o = options_of(TRI_MODEL_RESNET);
    o.classes = 9;
    refused(&o, &data, "model.classes: 9", "10");
}

Test(resolve, refuses_what_an_mlp_cannot_take)
{
    int64_t hidden[TRI_MAX_HIDDEN + 1] = {0};
    struct tri_model_options o = options_of(TRI_MODEL_MLP);
    struct tri_data_shape tokens = tokens_of(512, 64), values = values_of(3, 1);

    refused(&o, &tokens, "'mlp'", "gpt");
    o.hidden = (struct tri_opt_ints){hidden, TRI_MAX_HIDDEN + 1, true};
    refused(&o, &values, "33 layers", "32");
    o = options_of(TRI_MODEL_MLP);
    o.preset = "tiny";
    refused(&o, &values, "'tiny'", "mlp");
}

/* What is given wins over the preset, which wins over the data. */
Test(resolve, given_over_preset_over_data)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape tokens = tokens_of(500, 64), images = images_of(32, 3, 10);
    struct tri_data_shape large = images_of(64, 3, 10);
    struct tri_model_dims d;

    o.preset = "124M";
    o.layers = 2;
    o.vocab = 512;
    GOOD(tri_model_resolve(&o, &tokens, &d));
    cr_assert(d.layers == 2 && d.heads == 12 && d.width == 768 && d.context == 1024);
    cr_assert(d.vocab == 512 && d.outputs == 512 && d.dropout == 0);
    o = options_of(TRI_MODEL_RESNET);
    GOOD(tri_model_resolve(&o, &images, &d));
    cr_assert(d.depth == 20 && d.width == 16 && d.small_stem && d.outputs == 10);
    GOOD(tri_model_resolve(&o, &large, &d));
    cr_assert(d.depth == 50 && d.width == 64 && !d.small_stem);
    o.preset = "resnet18";
    o.classes = 12;
    o.stem = TRI_STEM_LARGE;
    GOOD(tri_model_resolve(&o, &images, &d));
    cr_assert(d.depth == 18 && !d.small_stem && d.outputs == 12);
    o.depth = 101;
    GOOD(tri_model_resolve(&o, &images, &d));
    cr_assert_eq(d.depth, 101);
}

Test(resolve, context_is_known_before_the_data)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    int64_t context;

    o.preset = "124M";
    GOOD(tri_model_context(&o, &context));
    cr_assert_eq(context, 1024);
    o.context = 100;
    GOOD(tri_model_context(&o, &context));
    cr_assert_eq(context, 100);
    o = options_of(TRI_MODEL_MLP);
    GOOD(tri_model_context(&o, &context));
    cr_assert_eq(context, 0);
}

Test(resolve, models_are_found_by_name)
{
    const struct tri_model_ops *ops;

    GOOD(tri_model_find("gpt", &ops));
    cr_assert_eq(ops, &tri_model_gpt);
    cr_assert_eq(tri_model_find("gtp", &ops), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "mlp, resnet, gpt"));
}

/* Same parameters in the same order. */
static void same_params(const struct tri_graph *a, const struct tri_graph *b)
{
    int k = 0;

    for (int i = 0; i < a->nvalue; i++) {
        if (a->value[i].role != TRI_ROLE_PARAM)
            continue;
        while (k < b->nvalue && b->value[k].role != TRI_ROLE_PARAM)
            k++;
        cr_assert_lt(k, b->nvalue);
        cr_assert_str_eq(a->value[i].name, b->value[k].name);
        cr_assert(tri_shape_equal(&a->value[i].shape, &b->value[k].shape));
        k++;
    }
}

/* Behind the embedding and twice a block, and in each attention. */
Test(forms, dropout_acts_in_training_only_and_only_above_0)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape data = tokens_of(512, 64);
    struct tri_graph *dry = build(&o, &data, true), *wet, *eval;

    cr_assert_eq(count_ops(dry, TRI_OP_DROPOUT), 0);
    cr_assert_eq(dry->counters, TRI_NONE);
    o.dropout = 0.1;
    wet = build(&o, &data, true);
    eval = build(&o, &data, false);
    cr_assert_eq(count_ops(wet, TRI_OP_DROPOUT), 1 + 2 * 4);
    cr_assert_neq(wet->counters, TRI_NONE);
    cr_assert_eq(count_ops(eval, TRI_OP_DROPOUT), 0);
    cr_assert_eq(eval->counters, TRI_NONE);
    for (int i = 0; i < wet->nop; i++)
        if (wet->op[i].kind == TRI_OP_ATTENTION)
            cr_assert(wet->op[i].attrs.attention.p == 0.1 && wet->op[i].in[1] == wet->counters);
    for (int i = 0; i < eval->nop; i++)
        if (eval->op[i].kind == TRI_OP_ATTENTION)
            cr_assert(eval->op[i].attrs.attention.p == 0 && eval->op[i].in[1] == TRI_NONE);
    same_params(wet, eval);
    same_params(wet, dry);
    tri_graph_destroy(dry);
    tri_graph_destroy(wet);
    tri_graph_destroy(eval);
}

Test(forms, batch_norm_takes_the_running_statistics_in_evaluation)
{
    struct tri_model_options o = options_of(TRI_MODEL_RESNET);
    struct tri_data_shape data = images_of(28, 1, 10);
    struct tri_graph *train = build(&o, &data, true), *eval = build(&o, &data, false);

    cr_assert_eq(count_ops(train, TRI_OP_BATCHNORM), 21);
    cr_assert_eq(count_ops(train, TRI_OP_BATCHNORM_INFER), 0);
    cr_assert_eq(train->nsum, 21 + 1); /* moments and loss statistics */
    cr_assert_eq(count_ops(eval, TRI_OP_BATCHNORM), 0);
    cr_assert_eq(count_ops(eval, TRI_OP_BATCHNORM_INFER), 21);
    cr_assert_eq(eval->nsum, 1);
    cr_assert_eq(tri_graph_find(eval, "nreal"), TRI_NONE);
    same_params(train, eval);
    tri_graph_destroy(train);
    tri_graph_destroy(eval);
}

Test(forms, generation_keeps_keys_and_values)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape data = tokens_of(512, 64);
    struct tri_model_dims dims;
    struct tri_graph *train = build(&o, &data, true), *g;
    struct tri_shape logits;
    int caches = 0;

    GOOD(tri_model_resolve(&o, &data, &dims));
    GOOD(tri_model_build_cached(&dims, 5, &g));
    for (int i = 0; i < g->nvalue; i++)
        caches += g->value[i].role == TRI_ROLE_STATE && g->value[i].transient;
    cr_assert_eq(caches, 2 * 4);
    has(g, "transformer.h.3.attn.key_cache", TRI_ROLE_STATE, "1,128,128");
    has(g, "tokens.5", TRI_ROLE_INPUT, "1,5");
    has(g, "offset", TRI_ROLE_INPUT, "1");
    cr_assert_eq(count_ops(g, TRI_OP_ATTENTION_CACHED), 4);
    cr_assert_eq(g->loss_stats, TRI_NONE);
    logits = TRI_SHAPE(1, 5, 512);
    cr_assert(tri_shape_equal(&g->value[g->prediction].shape, &logits));
    same_params(train, g);
    tri_graph_destroy(train);
    tri_graph_destroy(g);
}

Test(forms, other_models_cannot_generate)
{
    struct tri_model_options o = options_of(TRI_MODEL_MLP);
    struct tri_data_shape data = values_of(3, 1);
    struct tri_model_dims dims;
    struct tri_graph *g;

    GOOD(tri_model_resolve(&o, &data, &dims));
    cr_assert_eq(tri_model_build_cached(&dims, 1, &g), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "'mlp'"));
}
