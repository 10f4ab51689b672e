/* What the runtime needs of a communicator: a small table, implemented in collectives/ (self, MPI,
 * shared memory, simulation).
 *
 * A communicator belongs to one thread at a time and to one purpose; different purposes use
 * different duplicates. All calls are Collective, block the caller (an engine thread, or the main
 * thread between steps), and end with TRI_ERR_TIMEOUT or TRI_ERR_COMM and a message naming rank,
 * peer and operation when the deadline passes or a peer is lost. */
#ifndef TRI_RUNTIME_EXEC_COMM_H
#define TRI_RUNTIME_EXEC_COMM_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tri_reduce { TRI_REDUCE_SUM, TRI_REDUCE_MIN, TRI_REDUCE_MAX };

struct tri_comm {
    const struct tri_comm_ops *ops;
    int rank, size;
    const char *name;   /* "data exchange": for messages; borrowed from the implementation */
    int64_t timeout_ms; /* deadline of each call */
    void *stream;       /* of the device, where ops->on_stream; set by the executor */
};

struct tri_comm_ops {
    const char *name; /* of the transport */
    /* true (NCCL): buffers lie in device memory; a call enqueues on comm->stream, returns at once,
     * and may be captured; it is complete when the stream is, and a peer that is lost shows as an
     * error of `poll`. false: buffers lie in memory of the process, and a call blocks. */
    bool on_stream;
    /* In place over count elements. fixed_tree: the sum of rank values by the binary tree that
     * halves [0, size) recursively, same bits on all ranks (size a power of two). Without it: any
     * order, but the same on every call and equal bits on all ranks. f32, f64, i64; bf16 and f16
     * sum in f32. Mandatory. */
    tri_status (*allreduce)(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                            enum tri_reduce op, bool fixed_tree);
    /* The two halves of a sum, in place over count elements that are cut by tri_comm_slice; slice i
     * belongs to rank i, ranks from `slices` (1..size) on own nothing. After reduce_scatter a
     * rank's slice holds the sum over all ranks, in the order that allreduce would take, and the
     * rest is undefined and must be left alone until the next call. gather_slices hands each slice
     * to all ranks. */
    tri_status (*reduce_scatter)(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                 int slices, bool fixed_tree);
    tri_status (*gather_slices)(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                int slices);
    tri_status (*broadcast)(struct tri_comm *c, void *buf, size_t bytes, int root);
    /* recv holds size * bytes, in rank order. */
    tri_status (*allgather)(struct tri_comm *c, const void *send, size_t bytes, void *recv);
    tri_status (*barrier)(struct tri_comm *c);
    /* Memory that this transport reduces fastest (a shared window); NULL slot: ordinary aligned
     * memory will do. Same size on all ranks. */
    tri_status (*alloc)(struct tri_comm *c, size_t bytes, void **out);
    void (*free)(struct tri_comm *c, void *p);
    /* Bytes that this rank has sent since creation. Local. */
    uint64_t (*bytes_sent)(const struct tri_comm *c);
    /* Where on_stream: asynchronous errors so far, TRI_OK while all is well. After an error the
     * communicator has been aborted: what it had enqueued ends, later calls fail. Local. */
    tri_status (*poll)(struct tri_comm *c);
    void (*destroy)(struct tri_comm *c); /* Collective. Accepts NULL. */
};

/* Forwarders; a NULL communicator is the world of one rank. */
tri_status tri_comm_allreduce(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                              enum tri_reduce op, bool fixed_tree) TRI_CHECKED;
tri_status tri_comm_reduce_scatter(struct tri_comm *c, void *buf, int64_t count,
                                   enum tri_dtype dtype, int slices, bool fixed_tree) TRI_CHECKED;
tri_status tri_comm_gather_slices(struct tri_comm *c, void *buf, int64_t count,
                                  enum tri_dtype dtype, int slices) TRI_CHECKED;
tri_status tri_comm_broadcast(struct tri_comm *c, void *buf, size_t bytes, int root) TRI_CHECKED;
tri_status tri_comm_allgather(struct tri_comm *c, const void *send, size_t bytes,
                              void *recv) TRI_CHECKED;
tri_status tri_comm_barrier(struct tri_comm *c) TRI_CHECKED;
/* 0 where the transport does not count. Local. */
uint64_t tri_comm_bytes_sent(const struct tri_comm *c);
int tri_comm_rank(const struct tri_comm *c);
int tri_comm_size(const struct tri_comm *c);
void tri_comm_destroy(struct tri_comm *c);

enum { TRI_SLICE_ALIGN = 16 }; /* elements: borders of slices are multiples, a cache line of f32 */

/* Slice i of `slices` of count elements: [*first, *first + *n). Nearly equal, the larger ones
 * first; i >= slices: empty. Local. */
void tri_comm_slice(int64_t count, int slices, int i, int64_t *first, int64_t *n);

/* The one way to share a failure: every rank passes its own status and leaves with the worst; the
 * lowest failing rank's message becomes every rank's message (prefixed "rank R on HOST: " when R is
 * not the only one concerned). Collective. */
tri_status tri_comm_agree(struct tri_comm *c, tri_status mine) TRI_CHECKED;
/* Compares `bytes` of data with rank 0's; on a difference every rank fails with TRI_ERR_USAGE and a
 * message naming `what` and the first rank that differs. Collective. */
tri_status tri_comm_same(struct tri_comm *c, const void *data, size_t bytes,
                         const char *what) TRI_CHECKED;

#endif
