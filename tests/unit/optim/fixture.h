/* A small network with uneven parameters, taken through the passes before the one under test. */
#ifndef TRI_TESTS_UNIT_OPTIM_FIXTURE_H
#define TRI_TESTS_UNIT_OPTIM_FIXTURE_H

#include "models/builder.h"
#include "runtime/plan/mesh.h"

#define GOOD(call) cr_assert_eq(call, TRI_OK, "%s", tri_error_text())

/* x [2, 5] -> a linear layer "first" of 7 (weight 35, bias 7 elements) -> layer norm "norm" (7, 7)
 * -> relu -> "last" of 1000 (7000, 1000) -> cross-entropy. */
struct tri_graph *grain_graph(void);
/* The step graph of one rank of `ranks` with one grain each: forward and backward, before the
 * exchange. */
struct tri_graph *step_graph(int ranks, int rank);
/* The n-th op of a kind, or NULL. */
const struct tri_op *nth_op(const struct tri_graph *g, enum tri_op_kind kind, int n);
/* The optimizer op of the parameter called `name`; NULL: none. */
const struct tri_op *step_of(const struct tri_graph *g, const char *name);

#endif
