/* A tiny interpreter of graphs: every value has a buffer of its own, ops run one after another with
 * reference kernels. */
#ifndef TRI_TESTS_UNIT_KERNELS_INTERP_H
#define TRI_TESTS_UNIT_KERNELS_INTERP_H

#include "runtime/graph/graph.h"

struct interp {
    const struct tri_graph *g; /* borrowed; complete before interp_init */
    void **buf;                /* one a value, zeroed at first */
};

void interp_init(struct interp *x, const struct tri_graph *g);
void interp_finish(struct interp *x);
/* Runs ops [first, last). Failures are Criterion failures. */
void interp_run(struct interp *x, int first, int last);

#endif
