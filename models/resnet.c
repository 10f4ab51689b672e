/* resnet: He et al., "Deep residual learning for image recognition" (2015), with torchvision's
 * names.
 *
 * Depths 18, 50, 101, 152 have four stages from width 64 on; 20, 32, 56 are the small-image nets of
 * section 4.2: three stages from width 16 on. Shortcuts that change shape are 1x1 projections.
 * Images below 64 pixels get a 3x3 stem without pooling; larger ones the 7x7 stem with stride 2 and
 * a max-pool. Filters start as He's normal (fan out), gains at 1. */
#include "models/model.h"
#include "models/model_options.h"

#include <string.h>

#define SMALL_IMAGE 64

struct depth {
    const char *preset;
    int depth, stages, blocks[4];
    bool bottleneck;
    int64_t width; /* default of the first stage */
};

static const struct depth depths[] = {
    {"resnet20", 20, 3, {3, 3, 3, 0}, false, 16},   {"resnet32", 32, 3, {5, 5, 5, 0}, false, 16},
    {"resnet56", 56, 3, {9, 9, 9, 0}, false, 16},   {"resnet18", 18, 4, {2, 2, 2, 2}, false, 64},
    {"resnet50", 50, 4, {3, 4, 6, 3}, true, 64},    {"resnet101", 101, 4, {3, 4, 23, 3}, true, 64},
    {"resnet152", 152, 4, {3, 8, 36, 3}, true, 64},
};

static const struct depth *find_depth(const char *preset)
{
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++)
        if (strcmp(depths[i].preset, preset) == 0)
            return &depths[i];
    return NULL;
}

/* By depth, else by preset, else by the size of the image. */
static const struct depth *find_net(const struct tri_model_dims *d, int64_t height)
{
    for (size_t i = 0; d->depth > 0 && i < sizeof(depths) / sizeof(depths[0]); i++)
        if (depths[i].depth == d->depth)
            return &depths[i];
    if (d->depth > 0)
        return NULL;
    if (d->preset[0] != '\0')
        return find_depth(d->preset);
    return find_depth(height < SMALL_IMAGE ? "resnet20" : "resnet50");
}

static tri_status resolve_resnet(struct tri_model_dims *d, const struct tri_data_shape *data)
{
    const struct depth *net;

    if (data->task != TRI_TASK_CLASSES || data->x.ndim != 3)
        return tri_fail(TRI_ERR_USAGE, "model 'resnet' needs a dataset of images and labels");
    if (d->preset[0] != '\0' && find_depth(d->preset) == NULL)
        return tri_fail(
            TRI_ERR_USAGE,
            "model.preset: '%s' is unknown for resnet (resnet20, resnet32, resnet56, resnet18, "
            "resnet50, resnet101, resnet152)",
            d->preset);
    net = find_net(d, data->x.dim[0]);
    if (net == NULL)
        return tri_fail(TRI_ERR_USAGE,
                        "model.depth: %d is unknown for resnet (20, 32, 56, 18, 50, 101, 152)",
                        d->depth);
    d->depth = net->depth;
    d->width = d->width > 0 ? d->width : net->width;
    d->preset = net->preset;
    d->small_stem =
        d->stem == TRI_STEM_SMALL || (d->stem == TRI_STEM_AUTO && data->x.dim[0] < SMALL_IMAGE);
    return TRI_OK;
}

static tri_vid conv_norm(struct tri_builder *b, tri_vid x, const char *path, int number,
                         int64_t out, int64_t k, int64_t stride)
{
    x = tri_conv2d(b, x, tri_name(b, "%sconv%d", path, number), out, k, stride, k / 2);
    return tri_batchnorm(b, x, tri_name(b, "%sbn%d", path, number));
}

/* The identity, or a projection where the shape changes. */
static tri_vid shortcut(struct tri_builder *b, tri_vid x, const char *path, int64_t out,
                        int64_t stride)
{
    if (x == TRI_NONE || (stride == 1 && tri_shape_cols(&b->graph->value[x].shape) == out))
        return x;
    x = tri_conv2d(b, x, tri_name(b, "%sdownsample.0", path), out, 1, stride, 0);
    return tri_batchnorm(b, x, tri_name(b, "%sdownsample.1", path));
}

static tri_vid basic_block(struct tri_builder *b, tri_vid x, const char *path, int64_t width,
                           int64_t stride)
{
    tri_vid y = tri_relu(b, conv_norm(b, x, path, 1, width, 3, stride));

    y = conv_norm(b, y, path, 2, width, 3, 1);
    return tri_relu(b, tri_add(b, y, shortcut(b, x, path, width, stride)));
}

/* The stride sits in the 3x3 convolution, as in torchvision. */
static tri_vid bottleneck_block(struct tri_builder *b, tri_vid x, const char *path, int64_t width,
                                int64_t stride)
{
    tri_vid y = tri_relu(b, conv_norm(b, x, path, 1, width, 1, 1));

    y = tri_relu(b, conv_norm(b, y, path, 2, width, 3, stride));
    y = conv_norm(b, y, path, 3, 4 * width, 1, 1);
    return tri_relu(b, tri_add(b, y, shortcut(b, x, path, 4 * width, stride)));
}

static void build_resnet(struct tri_builder *b, const struct tri_model_dims *d,
                         const struct tri_data_shape *data)
{
    const struct depth *net = find_depth(d->preset);
    int64_t B = data->grain, width = d->width;
    tri_vid x =
        tri_input(b, "x", TRI_F32, TRI_SHAPE(B, data->x.dim[0], data->x.dim[1], data->x.dim[2]));

    x = d->small_stem ? conv_norm(b, x, "", 1, width, 3, 1) : conv_norm(b, x, "", 1, width, 7, 2);
    x = tri_relu(b, x);
    if (!d->small_stem)
        x = tri_maxpool(b, x, 3, 2, 1);
    for (int stage = 0; stage < net->stages; stage++, width *= 2)
        for (int i = 0; i < net->blocks[stage]; i++) {
            const char *path = tri_name(b, "layer%d.%d.", stage + 1, i);
            int64_t stride = i == 0 && stage > 0 ? 2 : 1;

            x = net->bottleneck ? bottleneck_block(b, x, path, width, stride)
                                : basic_block(b, x, path, width, stride);
        }
    x = tri_linear(b, tri_avgpool(b, x), "fc", d->outputs);
    tri_loss_softmax(b, x, tri_input(b, "labels", TRI_I32, TRI_SHAPE(B)));
}

const struct tri_model_ops tri_model_resnet = {
    .name = "resnet", .resolve = resolve_resnet, .build = build_resnet};
