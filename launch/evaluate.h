/* One pass over the validation split. */
#ifndef TRI_LAUNCH_EVALUATE_H
#define TRI_LAUNCH_EVALUATE_H

#include "launch/job.h"
#include "launch/predictions.h"
#include "launch/session.h"
#include "runtime/telemetry/metrics.h"

struct tri_evaluator;

/* Borrows job and session until destroy. Local. */
tri_status tri_evaluator_create(const struct tri_job *job, const struct tri_session *s,
                                struct tri_evaluator **out) TRI_CHECKED;
void tri_evaluator_destroy(struct tri_evaluator *e);

/* Runs all validation samples, a grain a rank and round, and adds the grains' statistics in the
 * order of the file, so that any number of ranks gives the same bits. `sink` (NULL: none; only rank
 * 0's counts) receives the predictions in file order. Collective; a failure is shared. */
tri_status tri_evaluate(struct tri_evaluator *e, struct tri_predictions *sink,
                        struct tri_eval_metrics *out) TRI_CHECKED;

#endif
