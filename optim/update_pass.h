/* The update pass: what happens once a step behind the exchange. */
#ifndef TRI_OPTIM_UPDATE_PASS_H
#define TRI_OPTIM_UPDATE_PASS_H

#include "optim/optim_options.h"
#include "runtime/core/status.h"
#include "runtime/graph/graph.h"

enum tri_optimizer_kind { TRI_OPTIMIZER_SGD, TRI_OPTIMIZER_ADAMW };

struct tri_update_spec {
    enum tri_optimizer_kind kind;
    double momentum; /* SGD; 0: no momentum state */
    bool nesterov;
    double beta1, beta2, eps;   /* ADAMW */
    struct tri_control control; /* schedule, clipping, loss scale; the pass adds the rest */
};

/* What the sections optimizer and schedule say after their checks; total: last planned step.
 * Local. */
struct tri_update_spec tri_update_spec_make(const struct tri_optimizer_options *optimizer,
                                            const struct tri_schedule_options *schedule,
                                            double clip_norm, int64_t total);

/* Appends: a SUMSQ a gradient (in the order of g->sum), CONTROL (finite check, norm, clip, rate),
 * BATCHNORM_RUNNING for moments, the optimizer op of each gradient with its states
 * "optimizer/<name>/{momentum | exp_avg, exp_avg_sq}", the CAST that writes its 16-bit copy,
 * SCALE_END where the graph has a loss scale, and STEP_END. Rate and decay of a parameter
 * are those of its info (tri_pass_groups). Sets g->scalars (OUTPUT "scalars"). Same on all ranks:
 * g, spec. */
tri_status tri_pass_update(struct tri_graph *g, const struct tri_update_spec *spec) TRI_CHECKED;

#endif
