/* Matching happens once, at build time, on names; flat layouts later never see it. */
#include "optim/groups.h"

#include "runtime/core/memory.h"

#include <fnmatch.h>

/* Totals of one group, for the report. Two a rule: with and without decay. */
struct total {
    double lr, weight_decay;
    bool frozen;
    long long tensors, elements;
};

struct tri_group_rules tri_group_rules_make(const struct tri_optimizer_options *o)
{
    return (struct tri_group_rules){.lr = o->lr,
                                    .weight_decay = o->weight_decay,
                                    .rule = o->groups.v,
                                    .nrules = (int)o->groups.count};
}

static int first_match(const struct tri_group_rules *r, const char *name)
{
    for (int i = 0; i < r->nrules; i++)
        if (fnmatch(r->rule[i].match, name, 0) == 0)
            return i;
    return r->nrules;
}

static void apply(const struct tri_group_rules *r, int rule, struct tri_param_info *info)
{
    info->lr = r->lr;
    info->weight_decay = info->decay ? r->weight_decay : 0;
    if (rule == r->nrules)
        return;
    info->frozen = r->rule[rule].freeze;
    if (r->rule[rule].lr >= 0)
        info->lr = r->rule[rule].lr;
    if (r->rule[rule].weight_decay >= 0)
        info->weight_decay = r->rule[rule].weight_decay;
}

static void count(struct total *t, const struct tri_value *v)
{
    t->lr = v->param->lr;
    t->weight_decay = v->param->weight_decay;
    t->frozen = v->param->frozen;
    t->tensors++;
    t->elements += (long long)tri_shape_count(&v->shape);
}

static void report_group(struct tri_text *out, const char *match, const struct total *t)
{
    if (t->tensors == 0)
        return;
    tri_text_printf(out, "group '%s': %lld tensors, %lld elements, ", match, t->tensors,
                    t->elements);
    if (t->frozen)
        tri_text_printf(out, "frozen\n");
    else
        tri_text_printf(out, "lr %g, weight decay %g\n", t->lr, t->weight_decay);
}

tri_status tri_pass_groups(struct tri_graph *g, const struct tri_group_rules *rules,
                           struct tri_text *report)
{
    struct total *total =
        tri_calloc(2 * ((size_t)rules->nrules + 1), sizeof(*total), "optimizer groups");
    tri_status st = TRI_OK;

    if (total == NULL)
        return tri_fail(TRI_ERR_NOMEM, "optimizer.groups: cannot allocate %d groups",
                        rules->nrules);
    for (int i = 0; i < g->nvalue; i++) {
        struct tri_value *v = &g->value[i];
        int rule;

        if (v->role != TRI_ROLE_PARAM)
            continue;
        rule = first_match(rules, v->name);
        apply(rules, rule, v->param);
        count(&total[2 * rule + (v->param->weight_decay == 0)], v);
    }
    for (int i = 0; i <= rules->nrules; i++) {
        const char *match = i < rules->nrules ? rules->rule[i].match : "*";

        if (i < rules->nrules && total[2 * i].tensors + total[2 * i + 1].tensors == 0)
            st =
                tri_fail(TRI_ERR_USAGE, "optimizer.groups: pattern '%s' takes no parameter", match);
        for (int k = 0; report != NULL && k < 2; k++)
            report_group(report, match, &total[2 * i + k]);
    }
    tri_free(total);
    return st;
}
