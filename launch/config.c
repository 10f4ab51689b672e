/* Puts the sections of all modules together. */
#include "launch/config.h"
#include "runtime/core/memory.h"

#include <stddef.h>
#include <string.h>

enum { SECTION_COUNT = 13 };

/* Row counts live in other files, so that the table is filled at run time. */
static const struct tri_opt_section *all_sections(struct tri_opt_section sections[SECTION_COUNT])
{
    size_t n = 0;

#define ADD(rows, field)                                                                           \
    sections[n++] = (struct tri_opt_section){rows##_rows, rows##_row_count,                        \
                                             offsetof(struct tri_config, field)}
    ADD(tri_run, run);
    ADD(tri_device, device);
    ADD(tri_model, model);
    ADD(tri_data, data);
    ADD(tri_parallel, parallel);
    ADD(tri_precision, precision);
    ADD(tri_optimizer, optimizer);
    ADD(tri_schedule, schedule);
    ADD(tri_gradient, gradient);
    ADD(tri_checkpoint, checkpoint);
    ADD(tri_telemetry, telemetry);
    ADD(tri_timeout, timeouts);
    ADD(tri_debug, debug);
#undef ADD
    TRI_ASSERT(n == SECTION_COUNT);
    return sections;
}

/* What tri_config_destroy frees: the table must live as long as the options. */
struct owned_config {
    struct tri_config cfg;
    struct tri_opt_section sections[SECTION_COUNT];
};

static tri_status create(struct tri_config **out)
{
    struct owned_config *o = tri_calloc(1, sizeof(*o), "configuration");
    tri_status st;

    if (o == NULL)
        return tri_fail(TRI_ERR_NOMEM, "configuration: out of memory");
    st = tri_opts_create(all_sections(o->sections), SECTION_COUNT, &o->cfg, &o->cfg.opts);
    if (st != TRI_OK) {
        tri_free(o);
        return st;
    }
    *out = &o->cfg;
    return TRI_OK;
}

void tri_config_destroy(struct tri_config *cfg)
{
    if (cfg == NULL)
        return;
    tri_opts_destroy(cfg->opts);
    tri_free(cfg); /* the first member of its owner */
}

static tri_status apply_overrides(struct tri_config *cfg, const char *const *overrides, int count)
{
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_opts_override(cfg->opts, overrides[i]));
    return tri_opts_check_required(cfg->opts);
}

tri_status tri_config_load(const char *path, const char *const *overrides, int count,
                           struct tri_config **out)
{
    struct tri_config *cfg;
    tri_status st = TRI_OK;

    TRI_TRY(create(&cfg));
    if (path != NULL)
        TRI_TRY_GOTO(st, tri_opts_read_file(cfg->opts, path), destroy);
    TRI_TRY_GOTO(st, apply_overrides(cfg, overrides, count), destroy);
    *out = cfg;
    return TRI_OK;

destroy:
    tri_config_destroy(cfg);
    return st;
}

tri_status tri_config_load_text(const char *name, const char *text, const char *const *overrides,
                                int count, struct tri_config **out)
{
    struct tri_config *cfg;
    tri_status st;

    TRI_TRY(create(&cfg));
    TRI_TRY_GOTO(st, tri_opts_read_text(cfg->opts, name, text, strlen(text)), destroy);
    TRI_TRY_GOTO(st, apply_overrides(cfg, overrides, count), destroy);
    *out = cfg;
    return TRI_OK;

destroy:
    tri_config_destroy(cfg);
    return st;
}

/* Contradictions between sections. */
static tri_status check_across(const struct tri_config *cfg)
{
    const long long sequence = cfg->data.sequence, context = cfg->model.context;

    if (cfg->model.name == TRI_MODEL_GPT && sequence > 0 && context > 0 && sequence > context)
        return tri_fail(TRI_ERR_USAGE, "'data.sequence' %lld is longer than 'model.context' %lld",
                        sequence, context);
    if (cfg->checkpoint.best != TRI_BEST_NONE && cfg->run.eval_every == 0)
        return tri_fail(TRI_ERR_USAGE,
                        "'checkpoint.best' needs evaluations, but 'run.eval_every' is 0");
    if (cfg->checkpoint.best == TRI_BEST_ACCURACY && cfg->model.name == TRI_MODEL_GPT)
        return tri_fail(TRI_ERR_USAGE, "'checkpoint.best' accuracy is for classifiers; a gpt has "
                                       "loss");
    return TRI_OK;
}

tri_status tri_config_check(struct tri_config *cfg)
{
    TRI_TRY(tri_run_options_check(&cfg->run));
    TRI_TRY(tri_device_options_check(&cfg->device));
    TRI_TRY(tri_model_options_check(&cfg->model));
    TRI_TRY(tri_data_options_check(&cfg->data));
    TRI_TRY(tri_parallel_options_check(&cfg->parallel));
    TRI_TRY(tri_precision_options_check(&cfg->precision));
    TRI_TRY(tri_optimizer_options_check(&cfg->optimizer));
    TRI_TRY(tri_schedule_options_check(&cfg->schedule));
    TRI_TRY(tri_gradient_options_check(&cfg->gradient));
    TRI_TRY(tri_debug_options_check(&cfg->debug));
    return check_across(cfg);
}

bool tri_config_given(const struct tri_config *cfg, const char *key)
{
    return tri_opts_given(cfg->opts, key);
}

void tri_config_print(const struct tri_config *cfg, struct tri_text *out)
{
    tri_opts_print(cfg->opts, out);
}

tri_status tri_config_describe(const char *key, struct tri_text *out)
{
    struct tri_opt_section sections[SECTION_COUNT];

    return tri_opts_describe(all_sections(sections), SECTION_COUNT, key, out);
}
