/* The rows of section precision. */
#include "amp/precision_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_precision_options, field)
const struct tri_opt tri_precision_rows[] = {
    {"precision.compute", TRI_OPT_ENUM, AT(compute), "fp32", "fp32|tf32|bf16|fp16",
     "type of products and activations; fp16 has a loss scale, bf16 none; tf32 is fp32 on CPUs",
     NULL},
    {"precision.keep_fp32", TRI_OPT_STRINGS, AT(keep_fp32), "null", NULL,
     "patterns of names of layers and parameters that stay in fp32; without effect when compute is"
     " fp32",
     NULL},
    {"precision.loss_scale.initial", TRI_OPT_DOUBLE, AT(loss_scale.initial), "65536", "[1, inf)",
     "first loss scale of fp16", NULL},
    {"precision.loss_scale.growth_interval", TRI_OPT_INT, AT(loss_scale.growth_interval), "2000",
     "[1, inf)", "steps without overflow before the loss scale grows", NULL},
    {"precision.loss_scale.factor", TRI_OPT_DOUBLE, AT(loss_scale.factor), "2", "(1, inf)",
     "the loss scale grows and shrinks by this factor", NULL},
    {"precision.loss_scale.floor", TRI_OPT_DOUBLE, AT(loss_scale.floor), "1", "(0, inf)",
     "the loss scale never goes below; overflow at the floor fails the run", NULL},
    {"precision.check_every", TRI_OPT_INT, AT(check_every), "0", "[0, inf)",
     "steps between comparisons of a grain with fp32; 0: never; without effect when compute is "
     "fp32",
     NULL},
    {"precision.check_bound", TRI_OPT_DOUBLE, AT(check_bound), "0.1", "(0, inf)",
     "largest relative difference of the loss or of a layer's gradient that a comparison accepts",
     NULL},
    {"precision.check_action", TRI_OPT_ENUM, AT(check_action), "warn", "warn|restore",
     "what a larger difference does: a warning, or back to the newest checkpoint (without one to "
     "the "
     "start), from where the layers it was found in stay in fp32",
     NULL},
};
const size_t tri_precision_row_count = sizeof(tri_precision_rows) / sizeof(tri_precision_rows[0]);
#undef AT

struct tri_precision_spec tri_precision_spec_make(const struct tri_precision_options *precision,
                                                  int64_t grains)
{
    struct tri_precision_spec s = {.compute = TRI_F32,
                                   .keep_fp32 = precision->keep_fp32.v,
                                   .nkeep = (int)precision->keep_fp32.count,
                                   .grains = grains,
                                   .tf32 = precision->compute == TRI_COMPUTE_TF32};

    if (precision->compute == TRI_COMPUTE_BF16)
        s.compute = TRI_BF16;
    if (precision->compute == TRI_COMPUTE_FP16) {
        s.compute = TRI_F16;
        s.initial_scale = precision->loss_scale.initial;
    }
    return s;
}

void tri_precision_control(const struct tri_precision_options *precision, struct tri_control *c)
{
    c->scale_factor = precision->loss_scale.factor;
    c->scale_floor = precision->loss_scale.floor;
    c->scale_interval = precision->loss_scale.growth_interval;
}

tri_status tri_precision_options_check(const struct tri_precision_options *precision)
{
    if (precision->loss_scale.floor > precision->loss_scale.initial)
        return tri_fail(
            TRI_ERR_USAGE,
            "'precision.loss_scale.floor' %g is above 'precision.loss_scale.initial' %g",
            precision->loss_scale.floor, precision->loss_scale.initial);
    return TRI_OK;
}
