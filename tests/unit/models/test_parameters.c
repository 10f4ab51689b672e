/* Names, shapes and numbers of parameters of every model and preset.
 *
 * Numbers: ResNets at 1000 classes as torchvision's documentation lists them; GPT-2 as the sums of
 * V C + P C + L (12 C^2 + 13 C) + 2 C; the small ResNets by the same sums of filters, gains and
 * biases as the large ones. */
#include "tests/unit/models/fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void counts(struct tri_model_options o, struct tri_data_shape data, int64_t elements,
                   int tensors)
{
    struct tri_graph *g = build(&o, &data, true);
    int n;

    cr_expect_eq(count_params(g, &n), elements, "'%s': %lld parameters, not %lld", o.preset,
                 (long long)count_params(g, &n), (long long)elements);
    cr_expect_eq(n, tensors, "'%s': %d tensors, not %d", o.preset, n, tensors);
    tri_graph_destroy(g);
}

/* A filter and a gain and bias for each convolution, and the last layer: 3 per convolution + 2. */
Test(parameters, of_resnets)
{
    static const struct {
        const char *preset;
        int64_t size, channels, classes, elements;
        int tensors;
    } net[] = {
        {"resnet20", 28, 1, 10, 272186, 3 * 21 + 2},
        {"resnet20", 32, 3, 10, 272474, 3 * 21 + 2},
        {"resnet32", 28, 1, 10, 466618, 3 * 33 + 2},
        {"resnet56", 28, 1, 10, 855482, 3 * 57 + 2},
        {"resnet18", 224, 3, 1000, 11689512, 3 * 20 + 2},
        {"resnet50", 224, 3, 1000, 25557032, 3 * 53 + 2},
        {"resnet101", 224, 3, 1000, 44549160, 3 * 104 + 2},
        {"resnet152", 224, 3, 1000, 60192808, 3 * 155 + 2},
    };

    for (size_t i = 0; i < sizeof(net) / sizeof(net[0]); i++) {
        struct tri_model_options o = options_of(TRI_MODEL_RESNET);

        o.preset = net[i].preset;
        counts(o, images_of(net[i].size, net[i].channels, net[i].classes), net[i].elements,
               net[i].tensors);
    }
}

Test(parameters, of_gpts)
{
    static const struct {
        const char *preset;
        int64_t vocab, elements;
        int layers;
    } gpt[] = {
        {"tiny", 512, 875264, 4},         {"124M", 50257, 124439808, 12},
        {"350M", 50257, 354823168, 24},   {"774M", 50257, 774030080, 36},
        {"1558M", 50257, 1557611200, 48},
    };

    for (size_t i = 0; i < sizeof(gpt) / sizeof(gpt[0]); i++) {
        struct tri_model_options o = options_of(TRI_MODEL_GPT);

        o.preset = gpt[i].preset;
        counts(o, tokens_of(gpt[i].vocab, 64), gpt[i].elements, 12 * gpt[i].layers + 4);
    }
}

Test(parameters, of_mlps)
{
    static const int64_t hidden[] = {20, 30};
    struct tri_model_options o = options_of(TRI_MODEL_MLP);

    counts(o, values_of(7, 3), 7 * 128 + 128 + 128 * 3 + 3, 4);
    o.hidden = (struct tri_opt_ints){NULL, 0, true};
    counts(o, values_of(7, 3), 7 * 3 + 3, 2);
    o.hidden = (struct tri_opt_ints){hidden, 2, true};
    counts(o, images_of(28, 1, 10), 784 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10, 6);
}

Test(parameters, have_the_names_and_shapes_of_torchvision)
{
    static const char *const params[][2] = {
        {"conv1.weight", "64,3,7,7"},
        {"bn1.weight", "64"},
        {"bn1.bias", "64"},
        {"layer1.0.conv1.weight", "64,64,1,1"},
        {"layer1.0.conv2.weight", "64,64,3,3"},
        {"layer1.0.conv3.weight", "256,64,1,1"},
        {"layer1.0.bn3.bias", "256"},
        {"layer1.0.downsample.0.weight", "256,64,1,1"},
        {"layer1.0.downsample.1.weight", "256"},
        {"layer2.0.downsample.0.weight", "512,256,1,1"},
        {"layer3.5.conv2.weight", "256,256,3,3"},
        {"layer4.2.conv1.weight", "512,2048,1,1"},
        {"fc.weight", "1000,2048"},
        {"fc.bias", "1000"},
    };
    struct tri_model_options o = options_of(TRI_MODEL_RESNET);
    struct tri_data_shape data = images_of(224, 3, 1000);
    struct tri_graph *g;

    o.depth = 50;
    g = build(&o, &data, true);
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
        has(g, params[i][0], TRI_ROLE_PARAM, params[i][1]);
    has(g, "bn1.running_mean", TRI_ROLE_STATE, "64");
    has(g, "layer1.0.downsample.1.running_var", TRI_ROLE_STATE, "256");
    cr_assert(g->value[tri_graph_find(g, "bn1.running_mean")].buffer);
    cr_assert_eq(tri_graph_find(g, "layer1.1.downsample.0.weight"), TRI_NONE);
    has(g, "x", TRI_ROLE_INPUT, "2,224,224,3");
    has(g, "labels", TRI_ROLE_INPUT, "2");
    tri_graph_destroy(g);
}

Test(parameters, have_the_names_and_shapes_of_gpt2)
{
    static const char *const of_block[][2] = {
        {"ln_1.weight", "128"},
        {"ln_1.bias", "128"},
        {"attn.c_attn.weight", "128,384"},
        {"attn.c_attn.bias", "384"},
        {"attn.c_proj.weight", "128,128"},
        {"attn.c_proj.bias", "128"},
        {"ln_2.weight", "128"},
        {"ln_2.bias", "128"},
        {"mlp.c_fc.weight", "128,512"},
        {"mlp.c_fc.bias", "512"},
        {"mlp.c_proj.weight", "512,128"},
        {"mlp.c_proj.bias", "128"},
    };
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape data = tokens_of(512, 64);
    struct tri_graph *g = build(&o, &data, true);

    for (int layer = 0; layer < 4; layer++)
        for (size_t i = 0; i < sizeof(of_block) / sizeof(of_block[0]); i++) {
            char name[64];

            (void)snprintf(name, sizeof(name), "transformer.h.%d.%s", layer, of_block[i][0]);
            has(g, name, TRI_ROLE_PARAM, of_block[i][1]);
        }
    has(g, "transformer.wte.weight", TRI_ROLE_PARAM, "512,128");
    has(g, "transformer.wpe.weight", TRI_ROLE_PARAM, "128,128");
    has(g, "transformer.ln_f.weight", TRI_ROLE_PARAM, "128");
    has(g, "transformer.ln_f.bias", TRI_ROLE_PARAM, "128");
    has(g, "tokens", TRI_ROLE_INPUT, "2,64");
    has(g, "targets", TRI_ROLE_INPUT, "2,64");
    tri_graph_destroy(g);
}

/* Residual projections start smaller: 0.02 / sqrt(2 layers). */
Test(parameters, start_as_the_papers_say)
{
    struct tri_model_options o = options_of(TRI_MODEL_GPT);
    struct tri_data_shape tokens = tokens_of(512, 64), images = images_of(28, 1, 10);
    struct tri_graph *g = build(&o, &tokens, true);
    const struct tri_param_info *p;

    p = g->value[tri_graph_find(g, "transformer.h.0.mlp.c_proj.weight")].param;
    cr_assert(p->init.kind == TRI_INIT_NORMAL && p->decay);
    cr_assert_float_eq((double)p->init.a, 0.02 / 2.8284271247461903, 1e-9);
    p = g->value[tri_graph_find(g, "transformer.wte.weight")].param;
    cr_assert(p->init.kind == TRI_INIT_NORMAL && p->init.a == 0.02f && p->decay);
    p = g->value[tri_graph_find(g, "transformer.h.0.ln_1.weight")].param;
    cr_assert(p->init.kind == TRI_INIT_ONE && !p->decay);
    tri_graph_destroy(g);

    o = options_of(TRI_MODEL_RESNET);
    g = build(&o, &images, true);
    p = g->value[tri_graph_find(g, "layer2.0.conv1.weight")].param; /* He, fan out 3 * 3 * 32 */
    cr_assert(p->init.kind == TRI_INIT_NORMAL && p->decay);
    cr_assert_float_eq((double)p->init.a, 0.08333333333333333, 1e-8);
    p = g->value[tri_graph_find(g, "fc.bias")].param; /* as torch.nn.Linear: 1 / sqrt(64) */
    cr_assert(p->init.kind == TRI_INIT_UNIFORM && p->init.a == 0.125f && !p->decay);
    cr_assert_eq(g->value[tri_graph_find(g, "bn1.running_var")].init.kind, TRI_INIT_ONE);
    tri_graph_destroy(g);
}
