/* Choice among the variants of a kernel by their time. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_TUNE_H
#define TRI_RUNTIME_KERNELS_CUDA_TUNE_H

#include "runtime/kernels/kernels.h"

TRI_BEGIN_DECLS

/* Runs each of the `count` variants of k a few times on the device of d, over arguments of its own
 * in the device's memory, and leaves the fastest in place. `select` puts a variant into place and
 * sets k->scratch_bytes for it. Times differ from run to run, and so may the choice and the last
 * bits of results: only for a device with `tune`. Local. */
tri_status tri_cuda_tune(const struct tri_kernel_desc *d, struct tri_kernel *k, int count,
                         void (*select)(struct tri_kernel *k, int variant)) TRI_CHECKED;

TRI_END_DECLS
#endif
