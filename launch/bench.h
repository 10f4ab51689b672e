/* What the benchmarks of `trireme bench` share: their table, limits of this machine, the text of a
 * result. */
#ifndef TRI_LAUNCH_BENCH_H
#define TRI_LAUNCH_BENCH_H

#include "launch/command.h"
#include "launch/env.h"
#include "runtime/core/text.h"
#include "runtime/exec/measure.h"

/* One of `trireme bench NAME`. argv[0] is NAME; returns the exit code. */
extern const struct tri_command tri_bench_allreduce, tri_bench_kernels, tri_bench_scaling,
    tri_bench_step;

/* Measured on all ranks at once and summed over them (tri_device_measure): operations a second of
 * the best square product, and bytes a second of a triad on CPUs, of a copy on other devices. comm
 * NULL: this process alone. TRI_ERR_NOMEM: a device is full. Collective. */
struct tri_bench_limits {
    double flops_per_s, bytes_per_s;
};
tri_status tri_bench_limits(struct tri_comm *comm, const struct tri_measured *m,
                            struct tri_bench_limits *out) TRI_CHECKED;

/* Sorts the n times; best and median. n >= 1. Local. */
void tri_bench_sort(double *times, int n, double *best, double *median);

/* Of the build, as git describes it; "unknown" where it did not. */
extern const char *const tri_bench_commit;

/* What the caller knows of the environment of a result. */
struct tri_bench_setting {
    const struct tri_topology *topology; /* borrowed; NULL: one rank without MPI */
    int threads;                         /* of a rank */
    const char *link;                    /* between nodes, in the user's words; NULL: not stated */
};
/* Opens the object of a result: "benchmark" and "environment", which holds version, commit,
 * compiler, mpi, products (their library), cpu, cores (of this node), link, ranks, nodes, pretended
 * (nodes), threads, time. The caller appends its own members behind a comma and the closing brace.
 * Local. */
void tri_bench_begin(struct tri_text *json, const char *name, const struct tri_bench_setting *s);
/* Writes the text to `path` on rank 0 of comm; NULL: nowhere. Local. */
tri_status tri_bench_write(const struct tri_comm *comm, const char *path,
                           const struct tri_text *json) TRI_CHECKED;

#endif
