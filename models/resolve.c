/* Dimensions from three sources: what the configuration says wins over the preset, which wins over
 * what the data fixes. */
#include "models/model.h"
#include "models/model_options.h"

#define MLP_HIDDEN 128 /* the one hidden layer of an mlp without model.hidden */

/* In the order of enum tri_model_name. */
static const struct tri_model_ops *const by_choice[] = {&tri_model_mlp, &tri_model_resnet,
                                                        &tri_model_gpt};

static int64_t given_or_zero(int64_t v)
{
    return v > 0 ? v : 0;
}

static tri_status resolve_outputs(const struct tri_model_options *o,
                                  const struct tri_data_shape *data, struct tri_model_dims *d)
{
    if (data->task == TRI_TASK_VALUES) {
        d->outputs = tri_shape_count(&data->y);
        return TRI_OK;
    }
    d->outputs = o->classes > 0 ? o->classes : data->classes;
    if (data->task == TRI_TASK_CLASSES && d->outputs < data->classes)
        return tri_fail(TRI_ERR_USAGE,
                        "model.classes: %lld is smaller than the data's %lld classes",
                        (long long)d->outputs, (long long)data->classes);
    return TRI_OK;
}

static tri_status resolve_hidden(const struct tri_model_options *o, struct tri_model_dims *d)
{
    if (!o->hidden.given) {
        d->nhidden = 1;
        d->hidden[0] = MLP_HIDDEN;
        return TRI_OK;
    }
    if (o->hidden.count > TRI_MAX_HIDDEN)
        return tri_fail(TRI_ERR_USAGE, "model.hidden: %zu layers, at most %d are allowed",
                        o->hidden.count, TRI_MAX_HIDDEN);
    d->nhidden = (int)o->hidden.count;
    for (int i = 0; i < d->nhidden; i++)
        d->hidden[i] = o->hidden.v[i];
    return TRI_OK;
}

tri_status tri_model_resolve(const struct tri_model_options *o, const struct tri_data_shape *data,
                             struct tri_model_dims *out)
{
    struct tri_model_dims d = {
        .ops = by_choice[o->name], .preset = o->preset, .dropout = o->dropout};

    d.layers = given_or_zero(o->layers);
    d.heads = given_or_zero(o->heads);
    d.width = given_or_zero(o->width);
    d.context = given_or_zero(o->context);
    d.vocab = given_or_zero(o->vocab);
    d.depth = (int)given_or_zero(o->depth);
    d.stem = o->stem;
    TRI_TRY(resolve_outputs(o, data, &d));
    if (o->name == TRI_MODEL_MLP)
        TRI_TRY(resolve_hidden(o, &d));
    TRI_TRY(d.ops->resolve(&d, data));
    *out = d;
    return TRI_OK;
}

tri_status tri_model_context(const struct tri_model_options *o, int64_t *out)
{
    struct tri_data_shape any = {.task = TRI_TASK_LANGUAGE};
    struct tri_model_dims d;

    *out = 0;
    if (o->name != TRI_MODEL_GPT)
        return TRI_OK;
    TRI_TRY(tri_model_resolve(o, &any, &d));
    *out = d.context;
    return TRI_OK;
}
