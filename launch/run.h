/* A training run of a program's own model: any graph that models/builder.h can write, on the ranks
 * of a communicator, without configuration file, dataset or run folder.
 *
 *     tri_graph_create(&g);                        the forward pass of one grain, with its loss:
 *     b = (struct tri_builder){.graph = g, .training = true};
 *     x = tri_input(&b, "x", TRI_F32, TRI_SHAPE(8, 3)); ... tri_loss_mse(&b, h, y);
 *     tri_run_create(&spec, g, &run);
 *     each step: fill tri_run_input(run, "x", k) for each grain k of this rank; tri_run_step(run);
 *                tri_run_scalar(run, TRI_SCALAR_LOSS)
 *     tri_run_destroy(run);
 *
 * A step computes spec.batch samples over all ranks, cut into grains of spec.grain samples. The
 * graph is compiled as that of `trireme train`: the same passes, kernels, exchange and optimizers.
 * One object belongs to one thread of the program. */
#ifndef TRI_LAUNCH_RUN_H
#define TRI_LAUNCH_RUN_H

#include "runtime/core/status.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/mesh.h"

#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_run;

struct tri_run_spec {
    const void *mpi_comm; /* an MPI_Comm *: the ranks that train; duplicated, stays the caller's.
                             NULL: this process alone, and MPI is not touched */
    int64_t batch;        /* samples of a step over all ranks */
    int64_t grain;        /* samples that the graph was built for */
    /* "key=value" as in RUN.yaml, NULL at the end: optimizer.*, schedule.*, gradient.*, run.seed,
     * run.steps (where a schedule ends), run.deterministic, run.threads, timeouts.collective_s.
     * NULL: defaults. */
    const char *const *settings;
};

/* Compiles the training step of `grain` (taken, also on failure), compares it between ranks,
 * allocates and gives parameters and states their initial values; inputs "nreal" are set to
 * spec->grain. More than one rank needs MPI_THREAD_MULTIPLE. Sets the OpenMP threads of the calling
 * thread. TRI_ERR_USAGE: settings, sizes or thread level; otherwise as the passes say. A failure on
 * one rank is one on all. Collective. Same on all ranks: spec, grain. */
tri_status tri_run_create(const struct tri_run_spec *spec, struct tri_graph *grain,
                          struct tri_run **out) TRI_CHECKED;
/* Collective. Accepts NULL. */
void tri_run_destroy(struct tri_run *run);

/* Which of the batch's grains this rank computes. Local. */
const struct tri_grains *tri_run_grains(const struct tri_run *run);
/* Where input `name` of this rank's k-th grain (0 <= k < grains.count) is read from by each step;
 * NULL: no such input, or nothing reads it. Local. */
void *tri_run_input(const struct tri_run *run, const char *name, int64_t k);
/* A parameter or state by name, to be read or written between steps; NULL: unknown. What is written
 * must be the same on all ranks. Local. */
void *tri_run_value(const struct tri_run *run, const char *name);

/* One step over the inputs. A failure stays: later calls return it again, and other ranks may not
 * know of it. Collective. */
tri_status tri_run_step(struct tri_run *run) TRI_CHECKED;
/* Of the last step, equal on all ranks: mean loss, norm of the gradient, number of targets ... 0
 * before the first step. Local. */
double tri_run_scalar(const struct tri_run *run, enum tri_scalar_index which);
/* A hash of all parameters, after a check that every rank holds the same bits (else TRI_ERR_NUMERIC
 * naming parameter and ranks). Collective. */
tri_status tri_run_hash(const struct tri_run *run, uint64_t *hash) TRI_CHECKED;

TRI_END_DECLS
#endif
