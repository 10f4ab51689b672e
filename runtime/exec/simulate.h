/* The simulator: a program's predicted time on a machine that a few numbers describe. */
#ifndef TRI_RUNTIME_EXEC_SIMULATE_H
#define TRI_RUNTIME_EXEC_SIMULATE_H

#include "runtime/core/status.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/program.h"

/* A sum of n bytes over the ranks of a level takes latency_s + n / bytes_per_s; its scattering half
 * and its gathering half take half of that each. bytes_per_s 0: nothing is sent there. */
struct tri_sum_cost {
    double latency_s, bytes_per_s;
};

/* Cost table of one rank. */
struct tri_costs {
    double flops_per_s; /* of products */
    double bytes_per_s; /* of memory, all threads of the rank */
    struct tri_sum_cost level[TRI_LEVEL_COUNT];
};

struct tri_simulation {
    double step_s;
    double exposed_comm_s;           /* the compute stream waits */
    double busy_s[TRI_STREAM_COUNT]; /* by stream, without waits */
};

/* A kernel takes the longer of its operations and its bytes (the roofline model: Williams,
 * Waterman, Patterson, CACM 2009). Streams and waits are those of the program, so that collectives
 * of different streams run side by side. What collectives take from the cores that compute is left
 * out. Local. */
tri_status tri_program_simulate(const struct tri_program *p, const struct tri_costs *costs,
                                struct tri_simulation *out) TRI_CHECKED;

/* A sum over `ranks` whose messages take latency_s and whose links carry bytes_per_s each way: 2
 * log2(P) latencies and 2 (P-1)/P of the bytes (Rabenseifner's algorithm: Thakur, Rabenseifner,
 * Gropp, IJHPCA 2005). One rank: no cost. Local. */
struct tri_sum_cost tri_sum_cost_of_link(int ranks, double latency_s, double bytes_per_s);

/* Measures this machine in about 0.4 s: square products by the table's MATMUL kernel, and a triad.
 * Sums are not measured: the levels stay as they are. Local. */
tri_status tri_costs_measure(const struct tri_kernel_ops *const *table, int nthreads,
                             struct tri_costs *out) TRI_CHECKED;

#endif
