/* Section data of the configuration. Field names are key names. */
#ifndef TRI_DATA_DATA_OPTIONS_H
#define TRI_DATA_DATA_OPTIONS_H

#include "runtime/core/options.h"

struct tri_data_options {
    struct tri_opt_strings path;
    int64_t batch;    /* samples of a step over all ranks */
    int64_t grain;    /* samples of a micro-batch; TRI_OPT_AUTO: from batch and ranks */
    int64_t sequence; /* tokens of a sample; TRI_OPT_AUTO: the model's context */
    bool shuffle;
    bool augment;
    int64_t workers;
};

extern const struct tri_opt tri_data_rows[];
extern const size_t tri_data_row_count;

/* TRI_ERR_USAGE: batch not divisible by an explicit grain, an empty path. Local. */
tri_status tri_data_options_check(const struct tri_data_options *data) TRI_CHECKED;

#endif
