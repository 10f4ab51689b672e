/* Section model of the configuration. Field names are key names; TRI_OPT_AUTO leaves a dimension to
 * the preset or the data. */
#ifndef TRI_MODELS_MODEL_OPTIONS_H
#define TRI_MODELS_MODEL_OPTIONS_H

#include "runtime/core/options.h"

enum tri_model_name { TRI_MODEL_MLP, TRI_MODEL_RESNET, TRI_MODEL_GPT };
enum tri_stem_choice { TRI_STEM_AUTO, TRI_STEM_SMALL, TRI_STEM_LARGE };

struct tri_model_options {
    int name;           /* enum tri_model_name */
    const char *preset; /* "": none */
    const char *init;   /* HDF5 file with /param/<name>; "": none */
    int64_t layers, heads, width, context, vocab;
    double dropout;             /* TRI_OPT_AUTO: as the preset says, else 0 */
    struct tri_opt_ints hidden; /* not given: model's default; [] is linear */
    int64_t classes;
    int64_t depth; /* resnet */
    int stem;      /* enum tri_stem_choice, resnet */
};

extern const struct tri_opt tri_model_rows[];
extern const size_t tri_model_row_count;

/* TRI_ERR_USAGE: options that contradict each other whatever the data (heads and width). Local. */
tri_status tri_model_options_check(const struct tri_model_options *model) TRI_CHECKED;

#endif
