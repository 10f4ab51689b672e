/* What the shared object of the CUDA backend (libtrireme_cuda) exports.
 *
 * The libraries of CUDA take a tenth of a second to load and are absent from most machines, so they
 * hang on an object of its own, which is loaded by the first call that needs a device. A program
 * that links the object itself gets that one. */
#ifndef TRI_RUNTIME_DEVICE_CUDA_BACKEND_H
#define TRI_RUNTIME_DEVICE_CUDA_BACKEND_H

#include "runtime/device/device.h"
#include "runtime/exec/comm.h"

#define TRI_CUDA_BACKEND "tri_cuda_backend" /* the exported symbol, a struct tri_cuda_backend */

struct tri_cuda_backend {
    int (*count)(void); /* 0 without driver or device */
    tri_status (*open)(int ordinal, struct tri_device **out);
    /* A communicator over the ranks of `control` (borrowed for the call), whose devices all differ;
     * ops->on_stream. Collective over control. NULL: the backend has none. */
    tri_status (*comm_create)(struct tri_comm *control, struct tri_device *device, const char *name,
                              int64_t timeout_ms, struct tri_comm **out);
    /* The ranks of `parent`, made by comm_create, that pass one color >= 0, in the order of key and
     * rank. Collective over control, which has the ranks of parent. */
    tri_status (*comm_split)(struct tri_comm *parent, struct tri_comm *control, int color, int key,
                             const char *name, struct tri_comm **out);
};

/* Loads the object at the first call. TRI_ERR_USAGE: it is not there or cannot be loaded, with how
 * to build it. Local. */
tri_status tri_cuda_backend_load(const struct tri_cuda_backend **out) TRI_CHECKED;

#endif
