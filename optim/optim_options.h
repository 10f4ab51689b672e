/* Sections optimizer, schedule and gradient of the configuration. Field names are key names. */
#ifndef TRI_OPTIM_OPTIM_OPTIONS_H
#define TRI_OPTIM_OPTIM_OPTIONS_H

#include "runtime/core/options.h"

enum tri_optimizer_choice {
    TRI_OPTIMIZER_CHOICE_SGD,
    TRI_OPTIMIZER_CHOICE_ADAMW,
    TRI_OPTIMIZER_CHOICE_LAMB,
    TRI_OPTIMIZER_CHOICE_LARS
};

/* One item of optimizer.groups: parameters whose name matches (fnmatch); the first match wins. */
struct tri_group_options {
    const char *match;
    double lr, weight_decay; /* TRI_OPT_AUTO: the base's */
    bool freeze;
};

/* Values left to the name of the optimizer are TRI_OPT_AUTO (betas: not given) until
 * tri_optimizer_options_check. */
struct tri_optimizer_options {
    int name; /* enum tri_optimizer_choice */
    double lr, momentum;
    bool nesterov;
    struct tri_opt_doubles betas; /* two */
    double eps, weight_decay;
    struct tri_opt_records groups; /* of struct tri_group_options */
};

enum tri_schedule_choice {
    TRI_SCHEDULE_CHOICE_CONSTANT,
    TRI_SCHEDULE_CHOICE_LINEAR,
    TRI_SCHEDULE_CHOICE_COSINE,
    TRI_SCHEDULE_CHOICE_STEP
};

struct tri_schedule_options {
    int name;                       /* enum tri_schedule_choice */
    int64_t warmup;                 /* updates */
    double final;                   /* fraction of lr */
    struct tri_opt_ints milestones; /* updates, rising */
    double gamma;
};

enum tri_hierarchy_choice { TRI_HIERARCHY_AUTO, TRI_HIERARCHY_FLAT, TRI_HIERARCHY_TWO_LEVEL };
enum tri_compress_choice {
    TRI_COMPRESS_NONE,
    TRI_COMPRESS_FP16,
    TRI_COMPRESS_BF16,
    TRI_COMPRESS_INT8,
    TRI_COMPRESS_ONEBIT,
    TRI_COMPRESS_TOPK,
    TRI_COMPRESS_RANDK,
    TRI_COMPRESS_POWERSGD
};
enum tri_correction_choice { TRI_CORRECTION_AUTO, TRI_CORRECTION_TRUE, TRI_CORRECTION_FALSE };
enum tri_compress_level { TRI_COMPRESS_INTER, TRI_COMPRESS_ALL };

struct tri_gradient_options {
    double clip_norm;     /* 0: no clipping */
    double bucket_mb;     /* MiB; TRI_OPT_AUTO */
    int64_t bucket_bytes; /* TRI_OPT_AUTO; read both through tri_gradient_bucket_bytes */
    bool overlap;
    int hierarchy; /* enum tri_hierarchy_choice */
    struct {
        int name; /* enum tri_compress_choice */
        double ratio;
        int64_t rank;
        int level; /* enum tri_compress_level */
        bool force;
        int64_t warmup;          /* updates */
        int momentum_correction; /* enum tri_correction_choice */
    } compress;
};

extern const struct tri_opt tri_optimizer_rows[], tri_schedule_rows[], tri_gradient_rows[];
extern const size_t tri_optimizer_row_count, tri_schedule_row_count, tri_gradient_row_count;

/* Puts the defaults that depend on the optimizer's name in place and checks. TRI_ERR_USAGE.
 * Local. */
tri_status tri_optimizer_options_check(struct tri_optimizer_options *optimizer) TRI_CHECKED;
/* TRI_ERR_USAGE: milestones not rising, too many, missing for step, given without it. Local. */
tri_status tri_schedule_options_check(const struct tri_schedule_options *schedule) TRI_CHECKED;
/* TRI_ERR_USAGE: two sizes of a bucket, or what this version does not exchange by. Local. */
tri_status tri_gradient_options_check(const struct tri_gradient_options *gradient) TRI_CHECKED;
/* The name of an enum tri_compress_choice; NULL for none. Local. */
const char *tri_compress_name(int choice);
/* Size of a bucket in bytes, whichever key gave it; TRI_OPT_AUTO when none did. Local. */
int64_t tri_gradient_bucket_bytes(const struct tri_gradient_options *gradient);
/* Defaults, then the pairs of `text`: "key=value" separated by blanks, keys with or without
 * "gradient." in front (NULL: none), then the check, for an exchange without optimizer and graph:
 * keys that mean nothing there are refused. TRI_ERR_USAGE, TRI_ERR_NOMEM. Local. */
tri_status tri_gradient_options_parse(const char *text,
                                      struct tri_gradient_options *out) TRI_CHECKED;

#endif
