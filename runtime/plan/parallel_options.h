/* Section parallel of the configuration: the axes of the mesh. Field names are key names. */
#ifndef TRI_RUNTIME_PLAN_PARALLEL_OPTIONS_H
#define TRI_RUNTIME_PLAN_PARALLEL_OPTIONS_H

#include "runtime/core/options.h"

enum tri_pipeline_schedule { TRI_PIPELINE_GPIPE, TRI_PIPELINE_1F1B, TRI_PIPELINE_INTERLEAVED };

struct tri_parallel_options {
    int64_t data; /* data ranks; TRI_OPT_AUTO: all that the other axes leave */
    int64_t tensor;
    bool sequence;
    int64_t context, pipeline, expert;
    int64_t shard; /* stage 0..3 */
    int schedule;  /* enum tri_pipeline_schedule */
    bool recompute;
};

extern const struct tri_opt tri_parallel_rows[];
extern const size_t tri_parallel_row_count;

/* TRI_ERR_USAGE for what this version does not partition. Local. */
tri_status tri_parallel_options_check(const struct tri_parallel_options *parallel) TRI_CHECKED;

#endif
