/* The sections of all modules together: defaults, checks across options, and what is refused for
 * now. */
#include "launch/config.h"

#include <criterion/criterion.h>
#include <string.h>

#define BASE "run: {steps: 10}\nmodel: {name: mlp}\n"

static tri_status load(const char *yaml, const char *override, struct tri_config **cfg)
{
    const char *const overrides[] = {override};
    tri_status st = tri_config_load_text("run.yaml", yaml, overrides, override != NULL, cfg);

    if (st != TRI_OK)
        return st;
    st = tri_config_check(*cfg);
    if (st != TRI_OK)
        tri_config_destroy(*cfg);
    return st;
}

static void refused(const char *override, const char *part)
{
    struct tri_config *cfg;

    cr_assert_eq(load(BASE, override, &cfg), TRI_ERR_USAGE, "%s was accepted", override);
    cr_assert_not_null(strstr(tri_error_text(), part), "%s: %s", override, tri_error_text());
}

static void accepted(const char *override)
{
    struct tri_config *cfg;

    cr_assert_eq(load(BASE, override, &cfg), TRI_OK, "%s", tri_error_text());
    tri_config_destroy(cfg);
}

Test(config, defaults_of_the_optimizers)
{
    struct tri_config *cfg;

    cr_assert_eq(load(BASE, NULL, &cfg), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(cfg->optimizer.lr, 1e-3);
    cr_assert_eq(cfg->optimizer.weight_decay, 0.01);
    cr_assert_eq(cfg->optimizer.betas.v[0], 0.9);
    cr_assert_eq(cfg->run.steps, 10);
    cr_assert_eq(cfg->run.epochs, TRI_OPT_AUTO);
    cr_assert(cfg->data.shuffle);
    cr_assert(tri_config_given(cfg, "run.steps"));
    cr_assert_not(tri_config_given(cfg, "data.grain"));
    tri_config_destroy(cfg);
    cr_assert_eq(load(BASE, "optimizer.name=sgd", &cfg), TRI_OK);
    cr_assert_eq(cfg->optimizer.lr, 0.1);
    cr_assert_eq(cfg->optimizer.momentum, 0.9);
    cr_assert_eq(cfg->optimizer.weight_decay, 0.0);
    tri_config_destroy(cfg);
}

/* What config.yaml of a run holds loads again, passes the check again, and prints the same. */
Test(config, effective_configuration_reads_back)
{
    struct tri_text first = {0}, second = {0};
    struct tri_config *cfg;

    cr_assert_eq(load(BASE, "debug.inject=[{rank: 1, step: 15, where: forward, what: kill}]", &cfg),
                 TRI_OK, "%s", tri_error_text());
    const struct tri_fault_options *fault = cfg->debug.inject.v;
    cr_assert_eq(fault->rank, 1);
    cr_assert_eq(fault->step, 15);
    cr_assert_eq(fault->what, TRI_FAULT_KILL);
    tri_config_print(cfg, &first);
    tri_config_destroy(cfg);
    cr_assert_eq(load(first.data, NULL, &cfg), TRI_OK, "%s", tri_error_text());
    tri_config_print(cfg, &second);
    cr_assert_str_eq(first.data, second.data);
    tri_config_destroy(cfg);
    tri_text_finish(&first);
    tri_text_finish(&second);
}

Test(config, required_and_exclusive_options)
{
    struct tri_config *cfg;

    cr_assert_eq(load("run: {steps: 1}", NULL, &cfg), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "model.name"));
    refused("run.steps=null", "run.steps");
    refused("run.epochs=2", "both given");
    refused("gradient={bucket_mb: 1, bucket_bytes: 5}", "both given");
    cr_assert_eq(load("run: {epochs: 1}\nmodel: {name: mlp}", NULL, &cfg), TRI_OK);
    tri_config_destroy(cfg);
}

Test(config, contradictions)
{
    refused("model={heads: 5, width: 64}", "'model.width' 64 is not divisible by 'model.heads' 5");
    refused("data={batch: 30, grain: 8}", "'data.batch' 30 is not divisible by 'data.grain' 8");
    refused("gradient.bucket_bytes=0", "[1,");
    refused("gradient.bucket_mb=0", "(0,");
    refused("schedule.name=step", "milestones");
    refused("schedule={name: step, milestones: [5, 5]}", "must rise");
    refused(
        "schedule={name: step, milestones: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
        "17]}",
        "holds 17, at most 16");
    refused("optimizer.nesterov=true", "nesterov");
    refused("optimizer.betas=[0.9]", "2 numbers");
    refused("optimizer={name: adamw, momentum: 0.5}", "betas");
    refused("debug.inject=[{step: 1, where: eval, what: nan}]", "bad value");
    accepted("model={heads: 4, width: 64}");
    accepted("schedule={name: step, milestones: [5, 8]}");
    accepted("optimizer={name: sgd, nesterov: true}");
    accepted("model.hidden=[]");
    accepted("schedule.warmup=11"); /* a run cut short by an override */
    accepted("data.augment=true");
}

Test(config, too_many_faults)
{
    struct tri_text list = {0};

    tri_text_printf(&list, "debug.inject=[");
    for (int i = 0; i <= TRI_MAX_FAULTS; i++)
        tri_text_printf(&list, "{step: 1, where: eval, what: sleep}, ");
    tri_text_printf(&list, "]");
    refused(list.data, "65 items, at most 64");
    tri_text_finish(&list);
}

Test(config, refuses_what_is_not_there_yet)
{
    refused("parallel.tensor=2", "parallel.data");
    refused("parallel.shard=1", "parallel.data");
    refused("parallel.recompute=true", "only false");
    accepted("precision.check_action=restore");
    refused("optimizer.name=lamb", "sgd and adamw");
    accepted("parallel.data=4");
    accepted("device.kind=cpu");
    accepted("device.kind=cuda");
    accepted("device.graph=true");
    accepted("device.across=mpi");
    refused("device.across=tcp", "auto, nccl, mpi");
}

Test(config, describes_every_option)
{
    struct tri_text text = {0};

    cr_assert_eq(tri_config_describe("optimizer", &text), TRI_OK);
    cr_assert_not_null(strstr(text.data, "optimizer.weight_decay"));
    cr_assert_null(strstr(text.data, "run.steps"));
    tri_text_finish(&text);
}

Test(config, gradient_options_from_a_string)
{
    struct tri_gradient_options g;

    cr_assert_eq(tri_gradient_options_parse(NULL, &g), TRI_OK);
    cr_assert(g.overlap);
    cr_assert_eq(tri_gradient_bucket_bytes(&g), TRI_OPT_AUTO);
    cr_assert_eq(tri_gradient_options_parse(" bucket_mb=0.5  gradient.overlap=false ", &g), TRI_OK,
                 "%s", tri_error_text());
    cr_assert_not(g.overlap);
    cr_assert_eq(tri_gradient_bucket_bytes(&g), 524288);
    cr_assert_eq(tri_gradient_options_parse("bucket=1", &g), TRI_ERR_USAGE);
    cr_assert_eq(
        tri_gradient_options_parse("clip_norm=0 compress.name=topk compress.ratio=0.1", &g), TRI_OK,
        "%s", tri_error_text());
    cr_assert_eq(g.compress.name, TRI_COMPRESS_TOPK);
    cr_assert_eq(tri_gradient_options_parse("compress.ratio=0.1", &g), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "'gradient.compress.ratio' needs"));
}
