/* The rows of optimizer, schedule and gradient. */
#include "optim/optim_options.h"

#include "runtime/graph/ops.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OPTIMIZERS  "sgd|adamw|lamb|lars"
#define COMPRESSORS "none|fp16|bf16|int8|onebit|topk|randk|powersgd"

#define AT(field) offsetof(struct tri_group_options, field)
static const struct tri_opt group_rows[] = {
    {"match", TRI_OPT_STRING, AT(match), NULL, NULL,
     "glob of parameter names; the first group that matches wins", NULL},
    {"lr", TRI_OPT_DOUBLE_AUTO, AT(lr), "auto", "[0, inf)",
     "learning rate in place of optimizer.lr", NULL},
    {"weight_decay", TRI_OPT_DOUBLE_AUTO, AT(weight_decay), "auto", "[0, inf)",
     "decay in place of optimizer.weight_decay, for every kind of parameter", NULL},
    {"freeze", TRI_OPT_BOOL, AT(freeze), "false", NULL, "keep these parameters as they are", NULL},
};
#undef AT

static const struct tri_opt_record group_record = {
    group_rows, sizeof(group_rows) / sizeof(group_rows[0]), sizeof(struct tri_group_options)};

#define AT(field) offsetof(struct tri_optimizer_options, field)
const struct tri_opt tri_optimizer_rows[] = {
    {"optimizer.name", TRI_OPT_ENUM, AT(name), "adamw", OPTIMIZERS,
     "rule of the update (lamb and lars are not available yet)", NULL},
    {"optimizer.lr", TRI_OPT_DOUBLE_AUTO, AT(lr), "auto", "[0, inf)",
     "learning rate; auto is 0.1 for sgd and 0.001 for adamw", NULL},
    {"optimizer.momentum", TRI_OPT_DOUBLE_AUTO, AT(momentum), "auto", "[0, 1)",
     "sgd: momentum; auto is 0.9", NULL},
    {"optimizer.nesterov", TRI_OPT_BOOL, AT(nesterov), "false", NULL,
     "sgd: Nesterov's form of momentum", NULL},
    {"optimizer.betas", TRI_OPT_DOUBLES, AT(betas), "null", "[0, 1)",
     "adamw: decay of the two running means; null is [0.9, 0.999]", NULL},
    {"optimizer.eps", TRI_OPT_DOUBLE_AUTO, AT(eps), "auto", "(0, inf)",
     "adamw: added to the root of the second mean; auto is 1e-8", NULL},
    {"optimizer.weight_decay", TRI_OPT_DOUBLE_AUTO, AT(weight_decay), "auto", "[0, inf)",
     "decay of matrices and filters, coupled for sgd, decoupled for adamw; auto is 0 for sgd and "
     "0.01 for adamw",
     NULL},
    {"optimizer.groups", TRI_OPT_RECORDS, AT(groups), "null", NULL,
     "parameters with values of their own", &group_record},
};
const size_t tri_optimizer_row_count = sizeof(tri_optimizer_rows) / sizeof(tri_optimizer_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_schedule_options, field)
const struct tri_opt tri_schedule_rows[] = {
    {"schedule.name", TRI_OPT_ENUM, AT(name), "constant", "constant|linear|cosine|step",
     "course of the learning rate after warm-up", NULL},
    {"schedule.warmup", TRI_OPT_INT, AT(warmup), "0", "[0, inf)",
     "updates in which the rate grows linearly to lr", NULL},
    {"schedule.final", TRI_OPT_DOUBLE, AT(final), "0", "[0, 1]",
     "linear, cosine: rate at the last planned step as a fraction of lr", NULL},
    {"schedule.milestones", TRI_OPT_INTS, AT(milestones), "null", "[1, inf)",
     "step: updates after which the rate is multiplied by gamma, rising", NULL},
    {"schedule.gamma", TRI_OPT_DOUBLE, AT(gamma), "0.1", "(0, inf)", "step: factor at a milestone",
     NULL},
};
const size_t tri_schedule_row_count = sizeof(tri_schedule_rows) / sizeof(tri_schedule_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_gradient_options, field)
const struct tri_opt tri_gradient_rows[] = {
    {"gradient.clip_norm", TRI_OPT_DOUBLE, AT(clip_norm), "0", "[0, inf)",
     "largest global norm of the gradient, larger ones are scaled down to it; 0: no clipping",
     NULL},
    {"gradient.bucket_mb", TRI_OPT_DOUBLE_AUTO, AT(bucket_mb), "auto", "(0, 65536]",
     "size of an exchange bucket in MiB; auto is a twelfth of the gradient, from 1 to 25; give "
     "this "
     "or bucket_bytes",
     NULL},
    {"gradient.bucket_bytes", TRI_OPT_INT_AUTO, AT(bucket_bytes), "auto", "[1, 7e10]",
     "size of an exchange bucket in bytes; give this or bucket_mb", NULL},
    {"gradient.overlap", TRI_OPT_BOOL, AT(overlap), "true", NULL,
     "exchange gradients while backward goes on", NULL},
    {"gradient.hierarchy", TRI_OPT_ENUM, AT(hierarchy), "auto", "auto|flat|two_level",
     "flat reduces over all ranks at once, two_level inside nodes first, then between them; auto "
     "takes what is faster",
     NULL},
    {"gradient.compress.name", TRI_OPT_ENUM, AT(compress.name), "none", COMPRESSORS,
     "compression of exchanged gradients, with error feedback", NULL},
    {"gradient.compress.ratio", TRI_OPT_DOUBLE, AT(compress.ratio), "0.01", "(0, 1]",
     "topk, randk: fraction of the elements that is sent", NULL},
    {"gradient.compress.rank", TRI_OPT_INT, AT(compress.rank), "4", "[1, 1024]",
     "powersgd: rank of the approximation", NULL},
    {"gradient.compress.level", TRI_OPT_ENUM, AT(compress.level), "inter", "inter|all",
     "compress between nodes only, or everywhere", NULL},
    {"gradient.compress.force", TRI_OPT_BOOL, AT(compress.force), "false", NULL,
     "compress even where the estimate says that it does not pay, and on one rank", NULL},
    {"gradient.compress.warmup", TRI_OPT_INT, AT(compress.warmup), "0", "[0, inf)",
     "updates of a warm-up: topk and randk keep 1/4 of the elements, then 1/16 ..., others are off",
     NULL},
    {"gradient.compress.momentum_correction", TRI_OPT_ENUM, AT(compress.momentum_correction),
     "auto", "auto|true|false",
     "topk, randk under sgd: accumulate momentum before the choice of elements; auto is true",
     NULL},
};
const size_t tri_gradient_row_count = sizeof(tri_gradient_rows) / sizeof(tri_gradient_rows[0]);
#undef AT

static void resolve(double *value, double if_auto)
{
    if (*value == (double)TRI_OPT_AUTO)
        *value = if_auto;
}

tri_status tri_optimizer_options_check(struct tri_optimizer_options *o)
{
    static const double adam_betas[2] = {0.9, 0.999};
    const bool sgd = o->name == TRI_OPTIMIZER_CHOICE_SGD;

    if (o->name == TRI_OPTIMIZER_CHOICE_LAMB || o->name == TRI_OPTIMIZER_CHOICE_LARS)
        return tri_fail(TRI_ERR_USAGE,
                        "'optimizer.name' %s is not available yet: sgd and adamw are",
                        tri_opt_choice(OPTIMIZERS, o->name));
    if (o->betas.given && o->betas.count != 2)
        return tri_fail(TRI_ERR_USAGE, "'optimizer.betas' must hold 2 numbers, not %zu",
                        o->betas.count);
    resolve(&o->lr, sgd ? 0.1 : 1e-3);
    resolve(&o->momentum, sgd ? 0.9 : 0.0);
    resolve(&o->eps, 1e-8);
    resolve(&o->weight_decay, sgd ? 0.0 : 0.01);
    if (!o->betas.given)
        o->betas = (struct tri_opt_doubles){adam_betas, 2, true};
    if (o->nesterov && (!sgd || o->momentum == 0.0))
        return tri_fail(TRI_ERR_USAGE, "'optimizer.nesterov' needs sgd with a momentum above 0");
    if (!sgd && o->momentum != 0.0)
        return tri_fail(TRI_ERR_USAGE, "'optimizer.momentum' is for sgd; adamw has betas");
    return TRI_OK;
}

tri_status tri_schedule_options_check(const struct tri_schedule_options *s)
{
    const bool by_steps = s->name == TRI_SCHEDULE_CHOICE_STEP;

    if (by_steps && s->milestones.count == 0)
        return tri_fail(TRI_ERR_USAGE, "'schedule.name' step needs 'schedule.milestones'");
    if (!by_steps && s->milestones.count != 0)
        return tri_fail(TRI_ERR_USAGE, "'schedule.milestones' needs 'schedule.name' step");
    if (s->milestones.count > TRI_MAX_MILESTONES)
        return tri_fail(TRI_ERR_USAGE, "'schedule.milestones' holds %zu, at most %d are possible",
                        s->milestones.count, TRI_MAX_MILESTONES);
    for (size_t i = 1; i < s->milestones.count; i++) {
        if (s->milestones.v[i] <= s->milestones.v[i - 1])
            return tri_fail(TRI_ERR_USAGE, "'schedule.milestones' must rise: %lld follows %lld",
                            (long long)s->milestones.v[i], (long long)s->milestones.v[i - 1]);
    }
    return TRI_OK;
}

tri_status tri_gradient_options_check(const struct tri_gradient_options *g)
{
    if (g->bucket_mb != (double)TRI_OPT_AUTO && g->bucket_bytes != TRI_OPT_AUTO)
        return tri_fail(
            TRI_ERR_USAGE,
            "'gradient.bucket_mb' and 'gradient.bucket_bytes' are both given: give one");
    if (g->bucket_mb != (double)TRI_OPT_AUTO && g->bucket_mb * 1048576.0 < 1.0)
        return tri_fail(TRI_ERR_USAGE, "'gradient.bucket_mb' %g is less than one byte",
                        g->bucket_mb);
    return TRI_OK;
}

const char *tri_compress_name(int choice)
{
    return choice == TRI_COMPRESS_NONE ? NULL : tri_opt_choice(COMPRESSORS, choice);
}

int64_t tri_gradient_bucket_bytes(const struct tri_gradient_options *g)
{
    if (g->bucket_mb != (double)TRI_OPT_AUTO)
        return (int64_t)(g->bucket_mb * 1048576.0);
    return g->bucket_bytes;
}

/* Applies the pairs of a string; a pair is at most 255 bytes long. */
static tri_status apply_pairs(struct tri_opts *opts, const char *text)
{
    static const char prefix[] = "gradient.";
    char pair[256];

    while (*(text += strspn(text, " \t\n")) != '\0') {
        const size_t n = strcspn(text, " \t\n");
        const bool whole = strncmp(text, prefix, sizeof(prefix) - 1) == 0;

        if (snprintf(pair, sizeof(pair), "%s%.*s", whole ? "" : prefix, (int)n, text) >=
            (int)sizeof(pair))
            return tri_fail(TRI_ERR_USAGE, "'%.*s' is too long for an option", (int)n, text);
        TRI_TRY(tri_opts_override(opts, pair));
        text += n;
    }
    return TRI_OK;
}

/* Every key of compression that is given must mean something to an exchange without optimizer and
 * graph. */
static tri_status check_pairs(const struct tri_opts *opts, const struct tri_gradient_options *g)
{
    static const char *const named[] = {"gradient.compress.ratio", "gradient.compress.level",
                                        "gradient.compress.force"};
    const char *training = g->clip_norm > 0         ? "gradient.clip_norm"
                           : g->compress.warmup > 0 ? "gradient.compress.warmup"
                           : g->compress.momentum_correction == TRI_CORRECTION_TRUE
                               ? "gradient.compress.momentum_correction"
                               : NULL;
    int name = g->compress.name;

    if (training != NULL)
        return tri_fail(TRI_ERR_USAGE,
                        "'%s' belongs to the optimizer of the program, not to the exchange",
                        training);
    if (name == TRI_COMPRESS_POWERSGD || tri_opts_given(opts, "gradient.compress.rank"))
        return tri_fail(TRI_ERR_USAGE, "'gradient.compress.name' powersgd (with its 'rank') needs "
                                       "matrices, the exchange knows flat gradients");
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (name == TRI_COMPRESS_NONE && tri_opts_given(opts, named[i]))
            return tri_fail(TRI_ERR_USAGE, "'%s' needs 'gradient.compress.name'", named[i]);
    if (name != TRI_COMPRESS_TOPK && name != TRI_COMPRESS_RANDK && tri_opts_given(opts, named[0]))
        return tri_fail(TRI_ERR_USAGE, "'%s' needs 'gradient.compress.name' topk or randk",
                        named[0]);
    return TRI_OK;
}

tri_status tri_gradient_options_parse(const char *text, struct tri_gradient_options *out)
{
    const struct tri_opt_section section = {tri_gradient_rows, tri_gradient_row_count, 0};
    struct tri_gradient_options g;
    struct tri_opts *opts;
    tri_status st;

    TRI_TRY(tri_opts_create(&section, 1, &g, &opts));
    st = text == NULL ? TRI_OK : apply_pairs(opts, text);
    if (st == TRI_OK)
        st = tri_gradient_options_check(&g);
    if (st == TRI_OK)
        st = check_pairs(opts, &g);
    tri_opts_destroy(opts); /* no value of this section points into it */
    TRI_TRY(st);
    *out = g;
    return TRI_OK;
}
