/* Optimizer groups: which rate and decay a parameter gets, and which are frozen. */
#ifndef TRI_OPTIM_GROUPS_H
#define TRI_OPTIM_GROUPS_H

#include "optim/optim_options.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"
#include "runtime/graph/graph.h"

struct tri_group_rules {
    double lr, weight_decay;              /* base; its decay is for matrices and filters only */
    const struct tri_group_options *rule; /* optimizer.groups */
    int nrules;
};

/* The rules of section optimizer after its check; borrows its groups. Local. */
struct tri_group_rules tri_group_rules_make(const struct tri_optimizer_options *optimizer);

/* Writes lr, weight_decay and frozen into every parameter's info: the first rule that matches wins,
 * then the base. A rule that matches nothing is a TRI_ERR_USAGE naming it (a later duplicate is
 * not). `report` (may be NULL) gets a line a group with its numbers of tensors and elements.
 * Local. */
tri_status tri_pass_groups(struct tri_graph *g, const struct tri_group_rules *rules,
                           struct tri_text *report) TRI_CHECKED;

#endif
