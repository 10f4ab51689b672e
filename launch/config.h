/* The whole configuration of a run: the sections of all modules, read from
 * RUN.yaml and overrides. */
#ifndef TRI_LAUNCH_CONFIG_H
#define TRI_LAUNCH_CONFIG_H

#include "amp/precision_options.h"
#include "data/data_options.h"
#include "launch/options_run.h"
#include "models/model_options.h"
#include "optim/optim_options.h"
#include "runtime/checkpoint/checkpoint_options.h"
#include "runtime/core/text.h"
#include "runtime/plan/parallel_options.h"

struct tri_config {
    struct tri_run_options run;
    struct tri_device_options device;
    struct tri_model_options model;
    struct tri_data_options data;
    struct tri_parallel_options parallel;
    struct tri_precision_options precision;
    struct tri_optimizer_options optimizer;
    struct tri_schedule_options schedule;
    struct tri_gradient_options gradient;
    struct tri_checkpoint_options checkpoint;
    struct tri_telemetry_options telemetry;
    struct tri_timeout_options timeouts;
    struct tri_debug_options debug;
    struct tri_opts *opts; /* owns strings and lists, knows what was given */
};

/* Defaults, then the file (NULL: none), then the overrides "key=value" in order; required options
 * must be there. Does not check how options fit together. TRI_ERR_USAGE, TRI_ERR_NOMEM. Local. */
tri_status tri_config_load(const char *path, const char *const *overrides, int count,
                           struct tri_config **out) TRI_CHECKED;
/* The same from YAML text in memory; `name` stands for the file in messages. Local. */
tri_status tri_config_load_text(const char *name, const char *text, const char *const *overrides,
                                int count, struct tri_config **out) TRI_CHECKED;
void tri_config_destroy(struct tri_config *cfg);

/* Contradictions that show without data and ranks, and what this version does not have; resolves
 * the defaults that depend on other options (optimizer). TRI_ERR_USAGE with one sentence. Local. */
tri_status tri_config_check(struct tri_config *cfg) TRI_CHECKED;
/* Was the key given, rather than left to its default? Local. */
bool tri_config_given(const struct tri_config *cfg, const char *key);
/* The effective configuration as YAML; loading it gives the same values. Local. */
void tri_config_print(const struct tri_config *cfg, struct tri_text *out);
/* Reference of an option, a section such as "optimizer", or all (NULL). TRI_ERR_USAGE: unknown.
 * Local. */
tri_status tri_config_describe(const char *key, struct tri_text *out) TRI_CHECKED;

#endif
