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
 * not count as wrong. Warns of each that is above `bound`. Local. */
tri_status tri_check_run(const struct tri_session *s, int64_t step, double bound) TRI_CHECKED;

#endif
