/* The NCCL transport as its own files see it (comm_nccl.h says what it does). */
#ifndef TRI_COLLECTIVES_NCCL_H
#define TRI_COLLECTIVES_NCCL_H

#include "runtime/device/cuda_device.h"
#include "runtime/exec/comm.h"

#include <nccl.h>

TRI_BEGIN_DECLS

struct comm_nccl {
    struct tri_comm base;
    struct tri_cuda_device *device; /* borrowed */
    ncclComm_t nccl;                /* NULL after an abort */
    char *name;
    void *word;    /* one element on the device, for barriers */
    void *staging; /* of the fixed tree, STAGING_BYTES; NULL before its first call */
    uint64_t sent;
    cudaEvent_t watch; /* behind the call whose deadline is watched */
    int64_t watch_ns;  /* when that call was enqueued; 0: none is watched */
    struct nccl_memory *memory;
};

/* Implementations of the backend's table, see comm_nccl.h. */
tri_status tri_nccl_create(struct tri_comm *control, struct tri_device *device, const char *name,
                           int64_t timeout_ms, struct tri_comm **out);
tri_status tri_nccl_split(struct tri_comm *parent, struct tri_comm *control, int color, int key,
                          const char *name, struct tri_comm **out);

/* Waits for a call that NCCL does in the background; `what` for the message. Local. */
tri_status tri_nccl_settle(struct comm_nccl *c, ncclResult_t r, const char *what);
tri_status tri_nccl_poll(struct tri_comm *c); /* the slot of the table */
/* Before and after each call that enqueues. Local. */
tri_status tri_nccl_enter(struct comm_nccl *c, const char *what);
tri_status tri_nccl_leave(struct comm_nccl *c, ncclResult_t r, uint64_t sent, const char *what);
tri_status tri_nccl_type(enum tri_dtype dtype, ncclDataType_t *out);

/* After it a rank's slice (tri_comm_slice) holds the fixed-tree sum. Collective. */
tri_status tri_nccl_scatter_tree(struct comm_nccl *c, void *buf, int64_t count,
                                 enum tri_dtype dtype, int slices);
/* to[i] = tree sum over `size` (a power of two) parts of n elements each. Local. */
tri_status tri_nccl_add_tree(void *to, const void *parts, int64_t n, int size, enum tri_dtype dtype,
                             void *stream);

extern const struct tri_comm_ops tri_nccl_ops;

TRI_END_DECLS
#endif
