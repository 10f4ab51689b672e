/* mlp: linear layers with ReLU between, on the flattened input; classes or values. Parameters
 * layers.<i>.weight and .bias. */
#include "models/model.h"

static tri_status resolve_mlp(struct tri_model_dims *d, const struct tri_data_shape *data)
{
    if (data->task == TRI_TASK_LANGUAGE)
        return tri_fail(
            TRI_ERR_USAGE,
            "model 'mlp' needs images or values, the data holds tokens (use model.name: gpt)");
    if (d->preset[0] != '\0')
        return tri_fail(TRI_ERR_USAGE, "model.preset: '%s' is unknown for mlp, which has none",
                        d->preset);
    return d->outputs > 0 ? TRI_OK
                          : tri_fail(TRI_ERR_USAGE, "model 'mlp': the data has no outputs");
}

static void build_mlp(struct tri_builder *b, const struct tri_model_dims *d,
                      const struct tri_data_shape *data)
{
    int64_t B = data->grain, n = tri_shape_count(&data->x);
    struct tri_shape xs = {.ndim = data->x.ndim + 1, .dim = {B}};
    tri_vid h;

    for (int i = 0; i < data->x.ndim; i++)
        xs.dim[i + 1] = data->x.dim[i];
    h = tri_input(b, "x", TRI_F32, xs);
    if (xs.ndim != 2)
        h = tri_reshape(b, h, TRI_SHAPE(B, n));
    for (int i = 0; i < d->nhidden; i++)
        h = tri_relu(b, tri_linear(b, h, tri_name(b, "layers.%d", i), d->hidden[i]));
    h = tri_linear(b, h, tri_name(b, "layers.%d", d->nhidden), d->outputs);
    if (data->task == TRI_TASK_VALUES)
        tri_loss_mse(b, h, tri_input(b, "y", TRI_F32, TRI_SHAPE(B, d->outputs)));
    else
        tri_loss_softmax(b, h, tri_input(b, "labels", TRI_I32, TRI_SHAPE(B)));
}

const struct tri_model_ops tri_model_mlp = {
    .name = "mlp", .resolve = resolve_mlp, .build = build_mlp};
