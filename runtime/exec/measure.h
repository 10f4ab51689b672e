/* Measurement of the device that a rank computes on: what its kernels take, by its own clock, and
 * what bounds them. */
#ifndef TRI_RUNTIME_EXEC_MEASURE_H
#define TRI_RUNTIME_EXEC_MEASURE_H

#include "runtime/exec/simulate.h"

/* Seconds of one run of k on a device that is not the CPU, best and median over batches of runs
 * that each fill about 2 ms, on args->stream. Local. */
tri_status tri_device_time(struct tri_device *d, const struct tri_kernel *k,
                           const struct tri_kernel_args *args, double *best_s,
                           double *median_s) TRI_CHECKED;

/* Whose rates are measured. */
struct tri_measured {
    struct tri_device *device; /* borrowed */
    int threads;               /* of the rank, where the device is the CPU */
    enum tri_dtype compute;    /* of products; the CPU's are measured in f32 */
    bool tf32;                 /* with f32: products round their operands */
};

/* Fills out->flops_per_s and out->bytes_per_s; the levels stay as they are. The CPU as by
 * tri_costs_measure. Another device: the best square product of random numbers (N = 512 to 8192, as
 * far as 50 ms allow one), and a copy inside its memory of at most 256 MiB, read and written; about
 * 0.3 s on a GPU. Where its memory is nearly full smaller ones must do; with none at all
 * TRI_ERR_NOMEM. Local. */
tri_status tri_device_measure(const struct tri_measured *m, struct tri_costs *out) TRI_CHECKED;

#endif
