/* Which ops compute in 16 bit. */
#ifndef TRI_AMP_POLICY_H
#define TRI_AMP_POLICY_H

#include "runtime/graph/graph.h"

#include <stdbool.h>

TRI_BEGIN_DECLS

enum tri_policy {
    TRI_POLICY_F32,   /* reads and writes f32 */
    TRI_POLICY_HALF,  /* the arguments in half_in and half_out are 16-bit; sums inside are f32 */
    TRI_POLICY_WIDEST /* the widest of its inputs' types */
};

/* Products, convolutions, attention, norms, pools, look-ups and elementwise ops are HALF: what they
 * hand on is stored in 16 bit, while statistics, exponentials and sums are f32 inside the kernel.
 * Losses read 16-bit predictions and hand 16-bit gradients back, but compute in f32. ADD is WIDEST.
 * All that happens once a step (sums of squares, control, optimizers) is F32. */
enum tri_policy tri_policy_of(enum tri_op_kind kind);

/* The first of the patterns (fnmatch) that takes `name`, or -1. */
int tri_policy_match(const char *const *pattern, int npattern, const char *name);

TRI_END_DECLS
#endif
