/* Section checkpoint of the configuration. Field names are key names. */
#ifndef TRI_RUNTIME_CHECKPOINT_CHECKPOINT_OPTIONS_H
#define TRI_RUNTIME_CHECKPOINT_CHECKPOINT_OPTIONS_H

#include "runtime/core/options.h"

enum tri_best_choice { TRI_BEST_NONE, TRI_BEST_LOSS, TRI_BEST_ACCURACY };

struct tri_checkpoint_options {
    int64_t every; /* steps; 0: at the end only */
    int64_t keep;  /* newest ones; best and latest are always kept */
    bool async;
    int best; /* enum tri_best_choice */
};

extern const struct tri_opt tri_checkpoint_rows[];
extern const size_t tri_checkpoint_row_count;

#endif
