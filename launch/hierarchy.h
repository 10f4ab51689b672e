/* Whether gradients are summed over all ranks at once or in two levels: inside nodes, then between
 * them. */
#ifndef TRI_LAUNCH_HIERARCHY_H
#define TRI_LAUNCH_HIERARCHY_H

#include "collectives/world.h"
#include "launch/costs.h"
#include "optim/exchange_pass.h"
#include "optim/optim_options.h"
#include "runtime/exec/simulate.h"

/* Predicts the step of the job with this exchange; of rank 0, by its costs. */
typedef tri_status tri_step_predictor(void *arg, const struct tri_exchange_spec *exchange,
                                      const struct tri_costs *costs, struct tri_simulation *out);

/* What auto needs to choose. */
struct tri_hierarchy_args {
    int wanted;                   /* enum tri_hierarchy_choice */
    const char *why;              /* of two levels that are wanted; NULL: "as asked for" */
    struct tri_measured measured; /* what a rank computes on */
    bool nccl;                    /* gradients will travel between devices in both ways: the costs
                                     are known then */
    struct tri_cost_table *costs; /* used if it fits, else measured anew, by MPI */
    tri_step_predictor *predict;  /* NULL: compares one bucket alone */
    void *arg;                    /* of predict */
};

/* Seconds of a sum of `bytes` over all ranks: flat, and the three phases one after the other.
 * Local. */
void tri_hierarchy_predict(const struct tri_cost_table *c, int64_t bytes, double *flat,
                           double *two);

/* Decides by args->wanted. Auto compares the steps that rank 0 predicts for both ways, so that what
 * backward hides costs nothing: a bucket in two levels may take longer and yet leave less exposed,
 * as phases of different buckets run side by side. With a fixed tree two levels need a topology
 * that is regular, else the sum is flat. Fills spec->slices and spec->local_rank, connects the
 * levels of the world where they are used, and says why on rank 0. Collective. Same on all ranks:
 * args but predict and arg, spec, *args->costs. */
tri_status tri_hierarchy_choose(struct tri_world *w, const void *mpi_comm,
                                const struct tri_hierarchy_args *args,
                                struct tri_exchange_spec *spec) TRI_CHECKED;

/* Bytes that the communicators over MPI allocate beside the arenas while p runs, as launched on t;
 * shared: ranks of a node exchange through shared memory. TRI_ERR_NOMEM. Local. */
tri_status tri_hierarchy_scratch(const struct tri_program *p, const struct tri_topology *t,
                                 bool shared, size_t *bytes) TRI_CHECKED;

/* Fills spec->compress from the options, for the levels that spec has; t NULL: all ranks on one
 * node. The link of the estimate is the one in costs where they are known. Local. */
void tri_compression_choose(const struct tri_gradient_options *gradient,
                            const struct tri_optimizer_options *optimizer,
                            const struct tri_mesh *mesh, const struct tri_topology *t,
                            uint64_t seed, const struct tri_cost_table *costs,
                            struct tri_exchange_spec *spec);

#endif
