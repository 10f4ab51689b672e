/* Learning-rate schedule and the joint decision of a step on the processor. */
#include "runtime/kernels/control.h"

#include "runtime/kernels/control_formula.h"

double tri_schedule_factor(const struct tri_control *c, int64_t u)
{
    return tri_formula_schedule(c, u);
}

void tri_control_scalars(const struct tri_control *c, const double *stats, const int64_t *counters,
                         const float *loss_scale, void *const *sumsq, int nsumsq, double *scalars)
{
    double sum = 0;

    for (int i = 0; i < nsumsq; i++)
        sum += *(const double *)sumsq[i];
    tri_formula_control(c, stats, counters, loss_scale, sum, scalars);
}
