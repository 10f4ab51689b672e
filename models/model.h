/* The registry of models: each builds its forward graph for one grain from resolved dimensions. */
#ifndef TRI_MODELS_MODEL_H
#define TRI_MODELS_MODEL_H

#include "models/builder.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

enum tri_task {
    TRI_TASK_LANGUAGE, /* sequences of ids */
    TRI_TASK_CLASSES,  /* x (images [H,W,C], or any shape) and integer labels */
    TRI_TASK_VALUES,   /* x of any shape and values y */
};

/* What a model needs to know of the data: plain numbers, made by the launcher from a dataset. */
struct tri_data_shape {
    enum tri_task task;
    int64_t grain;         /* samples of a grain */
    int64_t sequence;      /* LANGUAGE: positions of a sample */
    int64_t vocab;         /* LANGUAGE: ids are below it */
    int64_t classes;       /* CLASSES */
    struct tri_shape x, y; /* of one sample; images [H,W,C] */
};

#define TRI_MAX_HIDDEN 32

/* Dimensions after preset, options and data have been joined. Fields that a model does not use are
 * 0. */
struct tri_model_dims {
    const struct tri_model_ops *ops;
    const char *preset; /* "" if none */
    int64_t layers, heads, width, context, vocab;
    double dropout;
    int nhidden;
    int64_t hidden[TRI_MAX_HIDDEN];
    int64_t outputs; /* classes, or components of y */
    int depth;       /* resnet: 20, 32, 56, 18, 50, 101, 152 */
    int stem;        /* resnet: enum tri_stem_choice */
    bool small_stem; /* resnet: 3x3 stem without pooling */
};

struct tri_model_ops {
    const char *name;
    /* Fills and checks the dimensions that options left open (0, or dropout < 0). */
    tri_status (*resolve)(struct tri_model_dims *dims, const struct tri_data_shape *data);
    /* Appends the forward ops with their loss; `b->training` decides about dropout and batch
     * statistics. */
    void (*build)(struct tri_builder *b, const struct tri_model_dims *dims,
                  const struct tri_data_shape *data);
    /* Appends the inference form for generation: inputs "tokens.<n>" [1, n] and "offset", key/value
     * caches as transient states, prediction = logits [1, n, V]. NULL: the
     * model cannot generate. */
    void (*build_cached)(struct tri_builder *b, const struct tri_model_dims *dims, int64_t n);
};

extern const struct tri_model_ops tri_model_mlp, tri_model_resnet, tri_model_gpt;

/* The row of that name; TRI_ERR_USAGE with the known names. Local. */
tri_status tri_model_find(const char *name, const struct tri_model_ops **out) TRI_CHECKED;

struct tri_model_options;
/* Joins options (explicit wins over preset over data) and checks them: TRI_ERR_USAGE with both
 * numbers on a contradiction. Local. */
tri_status tri_model_resolve(const struct tri_model_options *options,
                             const struct tri_data_shape *data,
                             struct tri_model_dims *out) TRI_CHECKED;
/* The longest sequence of a language model, known before the data: the default of data.sequence; 0
 * for other models. Local. */
tri_status tri_model_context(const struct tri_model_options *options, int64_t *out) TRI_CHECKED;
/* Builds the grain graph: training or evaluation form. Local. */
tri_status tri_model_build(const struct tri_model_dims *dims, const struct tri_data_shape *data,
                           bool training, uint64_t seed, struct tri_graph **out) TRI_CHECKED;
/* Builds the form for generation: n new positions a run. TRI_ERR_USAGE when the model has none.
 * Local. */
tri_status tri_model_build_cached(const struct tri_model_dims *dims, int64_t n,
                                  struct tri_graph **out) TRI_CHECKED;
/* "gpt layers 12 heads 12 width 768 ..." : the text that a checkpoint compares. */
void tri_model_describe(const struct tri_model_dims *dims, struct tri_text *out);

TRI_END_DECLS
#endif
