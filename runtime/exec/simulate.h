/* The simulator: a program's predicted time on a machine that a few numbers describe. */
#ifndef TRI_RUNTIME_EXEC_SIMULATE_H
#define TRI_RUNTIME_EXEC_SIMULATE_H

#include "runtime/core/status.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/program.h"

/* Cost table of one rank. */
struct tri_costs {
    double flops_per_s;      /* of products */
    double bytes_per_s;      /* of memory, all threads of the rank */
    double latency_s;        /* of one message between ranks */
    double comm_bytes_per_s; /* of one rank's link, each direction */
};

struct tri_simulation {
    double step_s;
    double exposed_comm_s;           /* the compute stream waits */
    double busy_s[TRI_STREAM_COUNT]; /* by stream, without waits */
};

/* A kernel takes the longer of its operations and its bytes (the roofline model: Williams,
 * Waterman, Patterson, CACM 2009). A sum of n bytes over P ranks takes 2 log2(P) latency + 2
 * (P-1)/P n / bandwidth (Rabenseifner's algorithm: Thakur, Rabenseifner, Gropp, IJHPCA 2005).
 * Streams and waits are those of the program. `nranks`: size of the axis that exchanges. Local. */
tri_status tri_program_simulate(const struct tri_program *p, const struct tri_costs *costs,
                                int nranks, struct tri_simulation *out) TRI_CHECKED;

/* Measures this machine in about 0.4 s: square products by the table's MATMUL kernel, and a triad.
 * Messages are not measured: latency_s and comm_bytes_per_s are estimates for ranks that share this
 * machine's memory. Local. */
tri_status tri_costs_measure(const struct tri_kernel_ops *const *table, int nthreads,
                             struct tri_costs *out) TRI_CHECKED;

#endif
