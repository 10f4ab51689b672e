/* Running one reference kernel over a few numbers, for tests whose values are worked
 * out by hand. */
#ifndef TRI_TESTS_UNIT_KERNELS_BY_HAND_H
#define TRI_TESTS_UNIT_KERNELS_BY_HAND_H

#include "runtime/kernels/kernels.h"

#include <criterion/criterion.h>
#include <math.h>

#define NEAR(a, b)                                                                                 \
    cr_assert(fabs((double)(a) - (double)(b)) <= 1e-6 * fmax(1e-3, fabs((double)(b))),             \
              "%.9g, not %.9g", (double)(a), (double)(b))

/* Runs the reference kernel of a kind over buffers whose shapes do not matter
 * beyond their counts. */
static inline void run(enum tri_op_kind kind, const struct tri_attrs *at, int nin,
                       const struct tri_arg *arg, void **in, int nout, void **out)
{
    struct tri_kernel_desc d = {
        .kind = kind, .attrs = *at, .nin = nin, .nout = nout, .in = arg, .out = arg};
    struct tri_kernel *k;

    cr_assert_eq(tri_kernels_ref[kind]->prepare(&d, &k), TRI_OK);
    cr_assert_eq(k->ops->run(k, &(struct tri_kernel_args){.in = in, .out = out}), TRI_OK);
    k->ops->destroy(k);
}

#endif
