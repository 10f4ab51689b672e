/* A transport inside one process: runs the plans of all ranks in turn, to test algorithms without a
 * launcher. */
#ifndef TRI_COLLECTIVES_SIMULATE_H
#define TRI_COLLECTIVES_SIMULATE_H

#include "collectives/rounds.h"

/* Runs plan[r] over data[r] for each rank r of `size`, ranks by turns, until all are complete.
 * Messages are buffered. TRI_ERR_INTERNAL: a receive without its send, a send that nobody received,
 * a message of another length than expected, each naming the ranks. Local. */
tri_status tri_simulate(int size, const struct tri_rounds *plan, void *const *data, size_t elem,
                        tri_reduce_fn *reduce) TRI_CHECKED;

#endif
