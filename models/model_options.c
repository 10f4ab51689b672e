/* The rows of section model. */
#include "models/model_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_model_options, field)
const struct tri_opt tri_model_rows[] = {
    {"model.name", TRI_OPT_ENUM, AT(name), NULL, "mlp|resnet|gpt", "kind of model", NULL},
    {"model.preset", TRI_OPT_STRING, AT(preset), "", NULL,
     "named dimensions: gpt has tiny, 124M, 350M, 774M, 1558M; resnet has resnet20, resnet32, "
     "resnet56, resnet18, resnet50, resnet101, resnet152; options beside it win",
     NULL},
    {"model.init", TRI_OPT_PATH, AT(init), "", NULL,
     "HDF5 file with /param/<name> to start from; empty: random initial weights", NULL},
    {"model.layers", TRI_OPT_INT_AUTO, AT(layers), "auto", "[1, 10000]", "blocks of a gpt", NULL},
    {"model.heads", TRI_OPT_INT_AUTO, AT(heads), "auto", "[1, 10000]",
     "attention heads of a block; must divide the width", NULL},
    {"model.width", TRI_OPT_INT_AUTO, AT(width), "auto", "[1, 1000000]",
     "gpt: size of an embedding; resnet: channels of the first stage", NULL},
    {"model.context", TRI_OPT_INT_AUTO, AT(context), "auto", "[1, 10000000]",
     "longest sequence in tokens; auto takes the preset's (tiny's 128 without one)", NULL},
    {"model.vocab", TRI_OPT_INT_AUTO, AT(vocab), "auto", "[1, 100000000]",
     "size of the vocabulary; auto takes the data's, a larger one is allowed", NULL},
    {"model.dropout", TRI_OPT_DOUBLE_AUTO, AT(dropout), "auto", "[0, 1)",
     "probability of dropping an activation in training; auto is 0", NULL},
    {"model.hidden", TRI_OPT_INTS, AT(hidden), "null", "[1, 10000000]",
     "sizes of the hidden layers of an mlp; [] is a linear model", NULL},
    {"model.classes", TRI_OPT_INT_AUTO, AT(classes), "auto", "[1, 100000000]",
     "outputs of a classifier; auto takes the data's", NULL},
    {"model.depth", TRI_OPT_INT_AUTO, AT(depth), "auto", "[18, 152]",
     "depth of a resnet: 20, 32, 56 for small images, 18, 50, 101, 152", NULL},
    {"model.stem", TRI_OPT_ENUM, AT(stem), "auto", "auto|small|large",
     "first layer of a resnet: small is 3x3 without pooling, large 7x7 stride 2 with pooling; auto "
     "takes small for images below 64 pixels",
     NULL},
};
const size_t tri_model_row_count = sizeof(tri_model_rows) / sizeof(tri_model_rows[0]);
#undef AT

tri_status tri_model_options_check(const struct tri_model_options *model)
{
    if (model->heads > 0 && model->width > 0 && model->width % model->heads != 0)
        return tri_fail(TRI_ERR_USAGE, "'model.width' %lld is not divisible by 'model.heads' %lld",
                        (long long)model->width, (long long)model->heads);
    return TRI_OK;
}
