/* The precision check: one grain in 16 bit beside the same grain in f32. */
#ifndef TRI_LAUNCH_CHECK_H
#define TRI_LAUNCH_CHECK_H

#include "launch/session.h"

/* Compiles the two programs of the check into s->extra: forward and backward of the rank's first
 * grain, with loss and gradients as OUTPUTs (two sets of gradients more of persistent memory).
 * Before tri_session_start. Local. */
tri_status tri_check_compile(struct tri_session *s,
                             const struct tri_compile_spec *spec) TRI_CHECKED;

/* Runs both on the inputs, randomness and loss scale of the step that has just ended, with the
 * weights as they are now, and logs the relative difference of the loss and of the gradient, with
 * the layer whose gradient differs most (every layer at level debug). The difference of a parameter
 * is |g16 - g32| / (|g32| + 1e-3 |all of g32|), 2-norms: a gradient that is next to nothing does
 * not count as wrong. Warns of each that is above `bound`, and of the loss.
 * over: NULL, or receives the names, each with a blank behind it, of the parameters above the bound
 * whose layers keeping them in f32 would change: those that `spec` does not keep yet, and where a
 * loss scale is at work only finite ones, since the scale answers an overflow. A loss above the
 * bound that no gradient explains is put down to the one that differs most. Local. */
tri_status tri_check_run(const struct tri_session *s, int64_t step,
                         const struct tri_precision_spec *spec, double bound,
                         struct tri_text *over) TRI_CHECKED;

/* Rank 0's list to all ranks, in place of theirs. Collective; a failure is shared. */
tri_status tri_check_share(struct tri_comm *comm, struct tri_text *over) TRI_CHECKED;

#endif
