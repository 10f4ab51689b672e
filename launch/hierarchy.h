/* Whether gradients are summed over all ranks at once or in two levels: inside nodes, then between
 * them. */
#ifndef TRI_LAUNCH_HIERARCHY_H
#define TRI_LAUNCH_HIERARCHY_H

#include "collectives/world.h"
#include "optim/exchange_pass.h"
#include "optim/optim_options.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/graph/ops.h"

/* What a sum of n bytes costs on each level: latency_s + n / bytes_per_s. Measured once for a
 * layout of ranks, then kept in checkpoints, so that the choice stays what it was. */
struct tri_level_costs {
    bool known;
    int64_t ranks, nodes, slices; /* the layout */
    double latency_s[TRI_LEVEL_COUNT], bytes_per_s[TRI_LEVEL_COUNT];
};

enum { TRI_LEVEL_ITEMS = 3 + 2 * TRI_LEVEL_COUNT };

/* The costs as items of a checkpoint, and back (known is false where they are missing). Local. */
void tri_level_costs_save(const struct tri_level_costs *c,
                          struct tri_checkpoint_item item[TRI_LEVEL_ITEMS]);
void tri_level_costs_load(const struct tri_checkpoint *from, struct tri_level_costs *c);

/* Seconds of a sum of `bytes` over all ranks: flat, and the three phases one after the other.
 * Local. */
void tri_level_costs_predict(const struct tri_level_costs *c, int64_t bytes, double *flat,
                             double *two);

/* Decides by `wanted` (enum tri_hierarchy_choice), which auto settles by the costs: those of *c if
 * they are known for this layout, else measured now (0.2 s). With a fixed tree two levels need a
 * topology that is regular, else the sum is flat. Fills spec->slices and spec->local_rank, connects
 * the levels of the world where they are used, and says why on rank 0. Collective. Same on all
 * ranks: wanted, spec, *c. */
tri_status tri_hierarchy_choose(struct tri_world *w, const void *mpi_comm, int wanted,
                                struct tri_level_costs *c,
                                struct tri_exchange_spec *spec) TRI_CHECKED;

/* Fills spec->compress from the options, for the levels that spec has; t NULL: all ranks on one
 * node. The link of the estimate is the one in costs where they are known. Local. */
void tri_compression_choose(const struct tri_gradient_options *gradient,
                            const struct tri_optimizer_options *optimizer,
                            const struct tri_mesh *mesh, const struct tri_topology *t,
                            uint64_t seed, const struct tri_level_costs *costs,
                            struct tri_exchange_spec *spec);

#endif
