/* Which rank made which gradient overflow: sums of squares of each rank's own totals, taken before
 * the exchange mixes them. */
#ifndef TRI_AMP_OVERFLOW_PASS_H
#define TRI_AMP_OVERFLOW_PASS_H

#include "runtime/core/status.h"
#include "runtime/graph/graph.h"

TRI_BEGIN_DECLS

#define TRI_OVERFLOW_PREFIX "local_sumsq/" /* OUTPUT "local_sumsq/p": f64[1] of parameter p */

/* Puts a SUMSQ right behind the op that completes the rank's total of each gradient, while it is in
 * cache. Behind the pipeline pass (and the faults of debug.inject), before the exchange pass. Costs
 * one read of the gradients a step. Local. */
tri_status tri_pass_overflow(struct tri_graph *g) TRI_CHECKED;

TRI_END_DECLS
#endif
