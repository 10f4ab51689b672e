/* The decisions of a training step, as pure functions of numbers: learning-rate schedule, joint
 * finite check, norm, clipping.
 *
 * The reference and every CPU kernel of CONTROL call these, so that there is one place for the
 * formulas. */
#ifndef TRI_RUNTIME_KERNELS_CONTROL_H
#define TRI_RUNTIME_KERNELS_CONTROL_H

#include "runtime/graph/ops.h"

#include <stdint.h>

TRI_BEGIN_DECLS

/* Factor on the base rate for update u (from 1), with W = c->warmup, S = c->total, f = c->final:
 *   u <= W:   u / W
 *   CONSTANT: 1
 *   LINEAR:   1 + (f - 1) p            p = (u - W) / (S - W) clamped to [0, 1]; 1 when S <= W
 *   COSINE:   f + (1 - f) (1 + cos(pi p)) / 2       (Loshchilov and Hutter, "SGDR", 2017, one
 * period) STEP:     gamma ^ (number of milestones m with u > m) Local. */
double tri_schedule_factor(const struct tri_control *c, int64_t u);

/* Fills scalars[TRI_SCALAR_COUNT] of a step from the summed loss statistics, the counters after
 * STEP_BEGIN and the sums of squares of the summed gradients (one double behind each of the nsumsq
 * pointers, added in their order):
 *   finite = every sumsq and the loss are finite;  norm = sqrt(sum of sumsq) / targets
 *   grad scale = min(1, clip / norm) / targets;    bias_i = 1 - beta_i ^ (updates + 1)
 * Without targets the loss, the norm and the gradient scale are 0. With a loss scale s (else NULL)
 * both divisors are targets * s * unit, so that clipping sees true gradients, and
 *   a skipped step: s' = max(s / factor, floor), the run of good steps begins again at 0
 *   the interval'th good step in a row: s' = s factor (unless that is infinite), likewise 0
 *   else s' = s  (Micikevicius et al., "Mixed precision training", 2018). Local. */
void tri_control_scalars(const struct tri_control *c, const double *stats, const int64_t *counters,
                         const float *loss_scale, void *const *sumsq, int nsumsq, double *scalars);

TRI_END_DECLS
#endif
