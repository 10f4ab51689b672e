/* The shape of a job: plain data about who is who. Communicators are made of it in collectives/. */
#ifndef TRI_RUNTIME_PLAN_MESH_H
#define TRI_RUNTIME_PLAN_MESH_H

#include "runtime/core/status.h"
#include "runtime/graph/ops.h"

struct tri_mesh {
    int nranks, rank;
    int size[TRI_AXIS_COUNT];  /* their product is nranks */
    int coord[TRI_AXIS_COUNT]; /* of this rank; ranks are row-major, data slowest */
};

/* The work of one step: G grains of `grain` samples, numbered 0..G-1; data rank d computes [first,
 * first + count). */
struct tri_grains {
    int64_t grain;        /* samples */
    int64_t total;        /* G = batch / grain */
    int64_t first, count; /* this rank's */
};

/* A mesh with all ranks on the data axis. Local. */
struct tri_mesh tri_mesh_data(int nranks, int rank);
const char *tri_axis_name(enum tri_axis axis);

/* Cuts a global batch: batch a multiple of grain, G a multiple of the data ranks, and under
 * `deterministic` data ranks a power of two; else TRI_ERR_USAGE with all numbers. Local. */
tri_status tri_grains_make(const struct tri_mesh *mesh, int64_t batch, int64_t grain,
                           bool deterministic, struct tri_grains *out) TRI_CHECKED;

#endif
