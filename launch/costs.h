/* The cost table of a job: what its machines or devices compute and what sums over its ranks take.
 * Measured at the first start, agreed, and kept in the run folder and in checkpoints, so that what
 * `auto` has chosen by it stays what it was. */
#ifndef TRI_LAUNCH_COSTS_H
#define TRI_LAUNCH_COSTS_H

#include "collectives/world.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/exec/measure.h"

enum tri_cost_source {
    TRI_COSTS_UNKNOWN,
    TRI_COSTS_MEASURED,
    TRI_COSTS_FILE,
    TRI_COSTS_CHECKPOINT
};

struct tri_cost_table {
    enum tri_cost_source source;
    int64_t ranks, nodes, slices; /* the layout that it holds for */
    int64_t device;               /* 0: the CPU; of a CUDA device with products in fp32 1, tf32 2,
                                     bf16 3, fp16 4 */
    int64_t nccl;                 /* 1: sums travel between devices by NCCL, 0: by MPI */
    struct tri_costs costs;
};

enum { TRI_COST_ITEMS = 7 + 2 * TRI_LEVEL_COUNT };

/* The table as items of a checkpoint, and back (UNKNOWN where some are missing). Local. */
void tri_cost_table_save(const struct tri_cost_table *c,
                         struct tri_checkpoint_item item[TRI_COST_ITEMS]);
void tri_cost_table_load(const struct tri_checkpoint *from, struct tri_cost_table *c);

/* RUN_DIR/costs.yaml. A file that is not there makes the table UNKNOWN; one that cannot be
 * understood is TRI_ERR_USAGE with its line. Local. */
tri_status tri_cost_table_read(const char *run_dir, struct tri_cost_table *c) TRI_CHECKED;
/* TRI_ERR_IO. Local. */
tri_status tri_cost_table_write(const char *run_dir, const struct tri_cost_table *c) TRI_CHECKED;
/* Reads on rank 0, for all. Collective. Same on all ranks: run_dir. */
tri_status tri_cost_table_share(const char *run_dir, struct tri_comm *control,
                                struct tri_cost_table *c) TRI_CHECKED;

/* The table is known and holds for these ranks, which compute as m says and sum by NCCL or by MPI.
 * Local. */
bool tri_cost_table_fits(const struct tri_cost_table *c, const struct tri_topology *t,
                         const struct tri_measured *m, bool nccl);
/* Measures in about 0.6 s; the slowest rank counts. The levels of w are connected: all of them
 * between devices (tri_world_use_device), or none. Collective. */
tri_status tri_cost_table_measure(const struct tri_world *w, const struct tri_measured *m,
                                  struct tri_cost_table *c) TRI_CHECKED;
/* Where the table comes from, for messages: "measured", "by the costs of the run folder". Local. */
const char *tri_cost_table_origin(const struct tri_cost_table *c);

#endif
