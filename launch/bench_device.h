/* Timing of kernels on a device, by its own clock. */
#ifndef TRI_LAUNCH_BENCH_DEVICE_H
#define TRI_LAUNCH_BENCH_DEVICE_H

#include "launch/bench.h"
#include "runtime/kernels/kernels.h"

/* Seconds of one run of k, best and median over batches of runs that each fill about 2 ms, on
 * args->stream. Local. */
tri_status tri_bench_device_time(struct tri_device *d, const struct tri_kernel *k,
                                 const struct tri_kernel_args *args, double *best_s,
                                 double *median_s) TRI_CHECKED;

/* What bounds a kernel there: bytes a second of a copy within its memory (read and written), and
 * operations a second of its best square product in bf16 (N = 1024 to 8192, as far as 50 ms allow
 * one). Local. */
tri_status tri_bench_device_limits(struct tri_device *d, void *stream,
                                   struct tri_bench_limits *out) TRI_CHECKED;

#endif
