/* Section precision of the configuration. Field names are key names. */
#ifndef TRI_AMP_PRECISION_OPTIONS_H
#define TRI_AMP_PRECISION_OPTIONS_H

#include "amp/precision_pass.h"
#include "runtime/core/options.h"

enum tri_compute_choice { TRI_COMPUTE_FP32, TRI_COMPUTE_TF32, TRI_COMPUTE_BF16, TRI_COMPUTE_FP16 };
enum tri_check_action { TRI_CHECK_WARN, TRI_CHECK_RESTORE };

struct tri_precision_options {
    int compute; /* enum tri_compute_choice */
    struct tri_opt_strings keep_fp32;
    struct {
        double initial;
        int64_t growth_interval; /* steps */
        double factor, floor;
    } loss_scale;
    int64_t check_every; /* steps; 0: never */
    double check_bound;
    int check_action; /* enum tri_check_action */
};

extern const struct tri_opt tri_precision_rows[];
extern const size_t tri_precision_row_count;

/* What the section says to the precision pass; grains: of a step, over all ranks. Borrows the
 * patterns. Local. */
struct tri_precision_spec tri_precision_spec_make(const struct tri_precision_options *precision,
                                                  int64_t grains);
/* Puts the rule of the loss scale into c. Local. */
void tri_precision_control(const struct tri_precision_options *precision, struct tri_control *c);

/* TRI_ERR_USAGE for what this version does not compute in. Local. */
tri_status tri_precision_options_check(const struct tri_precision_options *precision) TRI_CHECKED;

#endif
