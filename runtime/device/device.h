/* A device: the memory that the arenas of a run lie in, the streams its kernels run on, and its
 * table of kernels.
 *
 * The CPU runs a kernel on the calling thread: its streams and events are NULL, and ordering by
 * them does nothing. On a GPU every call that takes a stream only enqueues: work of one stream runs
 * in order, and between streams nothing is ordered but by events. Calls are Local. Several threads
 * may use a device at once, each stream one at a time. */
#ifndef TRI_RUNTIME_DEVICE_DEVICE_H
#define TRI_RUNTIME_DEVICE_DEVICE_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_kernel_ops;

/* Implementations put it first in their own struct. */
struct tri_device {
    const struct tri_device_ops *ops;
    const struct tri_kernel_ops *const *kernels; /* its table, TRI_OP_COUNT slots */
    const char *name;                            /* "cpu", "NVIDIA H200": for messages */
    const char *uuid;                            /* see tri_device_uuid */
    const char *bus;                             /* PCI address "0000:3b:00.0"; "": none */
    bool host; /* memory is the process's own, kernels run on the calling thread, and the reference
                  serves where the table has no kernel */
    bool tune; /* kernels prepared from now on may choose among algorithms by timing them, so that
                  results of two runs may differ in the last bits. Set by who opened the device */
};

struct tri_device_ops {
    /* Zeroed memory of the device at a multiple of 256 bytes. TRI_ERR_NOMEM tells what was asked
     * and what is free. */
    tri_status (*alloc)(struct tri_device *d, size_t bytes, void **out);
    void (*free)(struct tri_device *d, void *p); /* accepts NULL */
    /* Zeroed memory of the process that copies to and from the device need not stage (pinned). */
    tri_status (*alloc_host)(struct tri_device *d, size_t bytes, void **out);
    void (*free_host)(struct tri_device *d, void *p);
    /* The same for memory that the process has from elsewhere, until unpin, which comes before it
     * is freed. May fail where the system forbids it: copies then are staged. NULL: no use. */
    tri_status (*pin)(struct tri_device *d, void *p, size_t bytes);
    void (*unpin)(struct tri_device *d, void *p);

    tri_status (*stream_create)(struct tri_device *d, bool urgent, void **out);
    void (*stream_destroy)(struct tri_device *d, void *stream);
    /* Blocks until all work of the stream is done; the first failure of that work is returned. */
    tri_status (*stream_sync)(struct tri_device *d, void *stream);
    /* dst and src in memory of the process or of the device, in any combination. Memory of the
     * process must stay as it is until the copy is done. */
    tri_status (*copy)(struct tri_device *d, void *dst, const void *src, size_t bytes,
                       void *stream);
    tri_status (*fill)(struct tri_device *d, void *dst, int byte, size_t bytes, void *stream);

    /* Only a timed event may be asked for times; the others cost less. */
    tri_status (*event_create)(struct tri_device *d, bool timed, void **out);
    void (*event_destroy)(struct tri_device *d, void *event);
    /* The event stands for all work given to the stream so far, until it is recorded again. */
    tri_status (*event_record)(struct tri_device *d, void *event, void *stream);
    tri_status (*event_wait)(struct tri_device *d, void *event, void *stream); /* stream waits */
    tri_status (*event_sync)(struct tri_device *d, void *event); /* the calling thread waits */
    tri_status (*event_query)(struct tri_device *d, void *event, bool *happened);
    /* Milliseconds between two timed events that have happened. */
    tri_status (*event_elapsed)(struct tri_device *d, void *begin, void *end, float *ms);

    /* What is given to `stream`, and to streams that an event of it has forked, between begin and
     * end becomes a graph instead of being run; forks must have joined `stream` again at end. */
    tri_status (*capture_begin)(struct tri_device *d, void *stream);
    tri_status (*capture_end)(struct tri_device *d, void *stream, void **graph);
    tri_status (*graph_launch)(struct tri_device *d, void *graph, void *stream);
    void (*graph_destroy)(struct tri_device *d, void *graph);

    void (*destroy)(struct tri_device *d); /* accepts NULL */
};

/* The processor and its memory: one for the whole process, never destroyed. Local. */
struct tri_device *tri_device_cpu(void);

/* Number of CUDA devices that this process may use; 0 without driver, without device, or where the
 * CUDA backend (cuda_backend.h) is not installed. Local. */
int tri_device_cuda_count(void);
/* Opens CUDA device `ordinal` of those visible to this process. TRI_ERR_USAGE where the CUDA
 * backend is not installed (says how to build it), without a driver, or when there is no such
 * device. Local. */
tri_status tri_device_cuda_open(int ordinal, struct tri_device **out) TRI_CHECKED;
/* What makes the physical device (or MIG slice) unlike all others, as text ("GPU-5c1f..."): two
 * ranks with one text share a device. "" for the CPU. Local. */
const char *tri_device_uuid(const struct tri_device *d);

/* Closes the device. NULL and the CPU do nothing. Local. */
void tri_device_destroy(struct tri_device *d);

TRI_END_DECLS
#endif
