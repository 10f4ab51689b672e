/* The list of models, and the building of their graphs. */
#include "models/model.h"

#include <string.h>

static const struct tri_model_ops *const models[] = {&tri_model_mlp, &tri_model_resnet,
                                                     &tri_model_gpt};

#define NMODELS (sizeof(models) / sizeof(models[0]))

tri_status tri_model_find(const char *name, const struct tri_model_ops **out)
{
    for (size_t i = 0; i < NMODELS; i++)
        if (strcmp(models[i]->name, name) == 0) {
            *out = models[i];
            return TRI_OK;
        }
    return tri_fail(TRI_ERR_USAGE, "model.name: '%s' is unknown (mlp, resnet, gpt)", name);
}

static tri_status take_if_good(struct tri_graph *g, struct tri_graph **out)
{
    tri_status st = tri_graph_status(g);

    if (st != TRI_OK) {
        tri_graph_destroy(g);
        return st;
    }
    *out = g;
    return TRI_OK;
}

tri_status tri_model_build(const struct tri_model_dims *dims, const struct tri_data_shape *data,
                           bool training, uint64_t seed, struct tri_graph **out)
{
    struct tri_builder b = {.training = training, .seed = seed};

    TRI_TRY(tri_graph_create(&b.graph));
    dims->ops->build(&b, dims, data);
    return take_if_good(b.graph, out);
}

tri_status tri_model_build_cached(const struct tri_model_dims *dims, int64_t n,
                                  struct tri_graph **out)
{
    struct tri_builder b = {.training = false};

    if (dims->ops->build_cached == NULL)
        return tri_fail(TRI_ERR_USAGE, "model '%s' cannot generate text", dims->ops->name);
    TRI_TRY(tri_graph_create(&b.graph));
    dims->ops->build_cached(&b, dims, n);
    return take_if_good(b.graph, out);
}

void tri_model_describe(const struct tri_model_dims *d, struct tri_text *out)
{
    tri_text_printf(out, "%s", d->ops->name);
    if (d->depth > 0)
        tri_text_printf(out, " depth %d", d->depth);
    if (d->layers > 0)
        tri_text_printf(out, " layers %lld heads %lld", (long long)d->layers, (long long)d->heads);
    if (d->width > 0)
        tri_text_printf(out, " width %lld", (long long)d->width);
    if (d->context > 0)
        tri_text_printf(out, " context %lld", (long long)d->context);
    for (int i = 0; i < d->nhidden; i++)
        tri_text_printf(out, "%s%lld", i == 0 ? " hidden " : ",", (long long)d->hidden[i]);
    tri_text_printf(out, " outputs %lld", (long long)d->outputs);
}
