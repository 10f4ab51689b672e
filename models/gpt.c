/* gpt: GPT-2 (Radford et al. 2019) with the names and Conv1D shapes of GPT2LMHeadModel's
 * state_dict; the head is tied to the embedding. Initial values as the paper and its code:
 * normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers). */
#include "models/model.h"

#include <math.h>
#include <string.h>

#define INIT_STD 0.02f

struct preset {
    const char *name;
    int64_t layers, heads, width, context;
};

static const struct preset presets[] = {
    {"tiny", 4, 4, 128, 128},     {"124M", 12, 12, 768, 1024},   {"350M", 24, 16, 1024, 1024},
    {"774M", 36, 20, 1280, 1024}, {"1558M", 48, 25, 1600, 1024},
};

static tri_status apply_preset(struct tri_model_dims *d)
{
    const char *name = d->preset[0] != '\0' ? d->preset : "tiny";

    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        const struct preset *p = &presets[i];

        if (strcmp(p->name, name) != 0)
            continue;
        d->layers = d->layers > 0 ? d->layers : p->layers;
        d->heads = d->heads > 0 ? d->heads : p->heads;
        d->width = d->width > 0 ? d->width : p->width;
        d->context = d->context > 0 ? d->context : p->context;
        return TRI_OK;
    }
    return tri_fail(TRI_ERR_USAGE,
                    "model.preset: '%s' is unknown for gpt (tiny, 124M, 350M, 774M, 1558M)", name);
}

static tri_status resolve_gpt(struct tri_model_dims *d, const struct tri_data_shape *data)
{
    if (data->task != TRI_TASK_LANGUAGE)
        return tri_fail(TRI_ERR_USAGE, "model 'gpt' needs a dataset of tokens");
    TRI_TRY(apply_preset(d));
    d->dropout = d->dropout >= 0 ? d->dropout : 0;
    d->vocab = d->vocab > 0 ? d->vocab : data->vocab;
    d->outputs = d->vocab;
    if (d->vocab < data->vocab)
        return tri_fail(TRI_ERR_USAGE,
                        "model.vocab: %lld is smaller than the data's vocabulary of %lld",
                        (long long)d->vocab, (long long)data->vocab);
    if (d->width % d->heads != 0)
        return tri_fail(TRI_ERR_USAGE, "model.heads: %lld does not divide model.width %lld",
                        (long long)d->heads, (long long)d->width);
    if (data->sequence > d->context)
        return tri_fail(TRI_ERR_USAGE, "data.sequence: %lld is longer than model.context %lld",
                        (long long)data->sequence, (long long)d->context);
    return TRI_OK;
}

/* The embeddings and the blocks; attention is made by `attend` so that training and generation
 * share the rest. */
struct gpt {
    struct tri_builder *b;
    const struct tri_model_dims *d;
    tri_vid wte, offset; /* offset: TRI_NONE in training */
};

static tri_vid attend(struct gpt *m, tri_vid qkv, const char *name)
{
    struct tri_builder *b = m->b;
    const struct tri_model_dims *d = m->d;
    struct tri_attrs attrs = {.attention = {.heads = d->heads, .causal = true}};
    tri_vid cache[2];

    if (m->offset == TRI_NONE)
        return tri_attention(b, qkv, name, d->heads, d->dropout);
    for (int i = 0; i < 2; i++) {
        cache[i] = tri_graph_state(
            b->graph, tri_name(b, "%s.%s_cache", name, i == 0 ? "key" : "value"), TRI_F32,
            TRI_SHAPE(1, d->context, d->width), (struct tri_init){.kind = TRI_INIT_ZERO});
        if (cache[i] == TRI_NONE)
            return TRI_NONE;
        b->graph->value[cache[i]].transient = true;
    }
    return tri_graph_op1(b->graph, TRI_OP_ATTENTION_CACHED, name,
                         (tri_vid[]){qkv, cache[0], cache[1], m->offset}, 4, &attrs);
}

/* x + attention(norm(x)), then + mlp(norm(.)): the pre-norm block of GPT-2. */
static tri_vid block(struct gpt *m, tri_vid x, int64_t layer)
{
    struct tri_builder *b = m->b;
    const char *h = tri_name(b, "transformer.h.%lld", (long long)layer);
    int64_t C = m->d->width;
    float deep = INIT_STD / (float)sqrt(2.0 * (double)m->d->layers);
    double p = m->d->dropout;
    tri_vid y;

    y = tri_layernorm(b, x, tri_name(b, "%s.ln_1", h));
    y = tri_linear_conv1d(b, y, tri_name(b, "%s.attn.c_attn", h), 3 * C, INIT_STD);
    y = attend(m, y, tri_name(b, "%s.attn", h));
    y = tri_linear_conv1d(b, y, tri_name(b, "%s.attn.c_proj", h), C, deep);
    x = tri_add(b, x, tri_dropout(b, y, tri_name(b, "%s.attn.dropout", h), p));
    y = tri_layernorm(b, x, tri_name(b, "%s.ln_2", h));
    y = tri_gelu(b, tri_linear_conv1d(b, y, tri_name(b, "%s.mlp.c_fc", h), 4 * C, INIT_STD));
    y = tri_linear_conv1d(b, y, tri_name(b, "%s.mlp.c_proj", h), C, deep);
    return tri_add(b, x, tri_dropout(b, y, tri_name(b, "%s.mlp.dropout", h), p));
}

static tri_vid logits(struct gpt *m, tri_vid tokens)
{
    struct tri_builder *b = m->b;
    const struct tri_model_dims *d = m->d;
    struct tri_init init = {.kind = TRI_INIT_NORMAL, .a = INIT_STD};
    tri_vid wpe, x;

    m->wte = tri_param(b, "transformer.wte.weight", TRI_SHAPE(d->vocab, d->width), init);
    wpe = tri_param(b, "transformer.wpe.weight", TRI_SHAPE(d->context, d->width), init);
    x = tri_embedding(b, tokens, m->wte, wpe, m->offset);
    x = tri_dropout(b, x, "transformer.drop", d->dropout);
    for (int64_t i = 0; i < d->layers; i++)
        x = block(m, x, i);
    x = tri_layernorm(b, x, "transformer.ln_f");
    return tri_linear_tied(b, x, "lm_head", m->wte);
}

static void build_gpt(struct tri_builder *b, const struct tri_model_dims *d,
                      const struct tri_data_shape *data)
{
    struct tri_shape bt = TRI_SHAPE(data->grain, data->sequence);
    struct gpt m = {.b = b, .d = d, .offset = TRI_NONE};
    tri_vid y = logits(&m, tri_input(b, "tokens", TRI_I32, bt));

    tri_loss_softmax(b, y, tri_input(b, "targets", TRI_I32, bt));
}

static void build_gpt_cached(struct tri_builder *b, const struct tri_model_dims *d, int64_t n)
{
    struct gpt m = {.b = b, .d = d};
    tri_vid tokens =
        tri_input(b, tri_name(b, "tokens.%lld", (long long)n), TRI_I32, TRI_SHAPE(1, n));

    m.offset = tri_input(b, "offset", TRI_I32, TRI_SHAPE(1));
    b->graph->prediction = logits(&m, tokens);
}

const struct tri_model_ops tri_model_gpt = {
    .name = "gpt", .resolve = resolve_gpt, .build = build_gpt, .build_cached = build_gpt_cached};
