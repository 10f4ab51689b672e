/* What the files of an executor share: the compute thread (exec.c), the engine threads (engine.c)
 * and the calls for a device with streams (exec_device.h). */
#ifndef TRI_RUNTIME_EXEC_EXEC_INTERNAL_H
#define TRI_RUNTIME_EXEC_EXEC_INTERNAL_H

#include "runtime/exec/exec.h"

#include "runtime/core/counter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { TRI_EXEC_TEXT_BYTES = 1024 };

/* An instruction with everything resolved. */
struct tri_exec_item {
    int32_t instr;
    int stream;
    uint32_t seq;
    uint32_t wait[TRI_STREAM_COUNT];
    bool signal, waits;        /* waits: any of wait[] is set */
    struct tri_kernel *kernel; /* NULL: a collective */
    struct tri_kernel_args args;
    struct tri_comm *comm; /* of a collective; NULL: nobody to exchange with */
    enum tri_op_kind collective;
    void *buf;
    void *gathered; /* GATHER: place of the ranks' data */
    int64_t count;
    enum tri_dtype dtype;
    int slices;
    bool fixed_tree;
    /* on a device with streams */
    void *event;              /* that a later one waits for; NULL: nobody does */
    unsigned char *staging;   /* of a collective that blocks: its buffer in the process */
    size_t piece_bytes;       /* of that, copied and exchanged at once */
    int segment;              /* graph that the item belongs to */
    struct tri_exec_gap *gap; /* times its waits; NULL: does not wait, or not on compute */
    bool wakes_engine;        /* an engine waits for it */
};

/* Random sleeps of one thread. */
struct tri_exec_jitter {
    uint64_t state;
    int max_us; /* 0: none */
};

struct tri_exec_stream {
    struct tri_exec *x;
    struct tri_exec_item *item; /* in order */
    uint32_t count;
    struct tri_counter done; /* step_base + instructions complete; at the end of a step + count */
    struct tri_exec_jitter jitter;
    pthread_t thread; /* engines */
    bool started;
};

struct tri_exec {
    struct tri_program *program;
    struct tri_memory *memory;
    struct tri_exec_stream stream[TRI_STREAM_COUNT];
    struct tri_exec_item *items; /* of all streams */
    void **pointers;             /* arguments of all items */
    struct tri_counter go;       /* number of steps begun */
    uint32_t steps;
    _Atomic bool stop;   /* engines end at the next go */
    _Atomic int failing; /* 1: a thread is writing the failure, 2: written */
    tri_status failure;
    char failure_text[TRI_EXEC_TEXT_BYTES];
    struct tri_exec_span *span;
    struct tri_exec_times times;
    bool poison;
    struct tri_exec_device *device; /* NULL: the CPU */
};

/* Counter value of stream t once `seq` instructions of step `step` (from 1) are complete. An engine
 * passes its own number of the step: after its last signal the compute thread may have begun the
 * next one. */
static inline uint32_t tri_exec_mark(const struct tri_exec *x, int t, uint32_t step, uint32_t seq)
{
    return (step - 1) * x->stream[t].count + seq;
}

static inline bool tri_exec_failed(const struct tri_exec *x)
{
    return atomic_load_explicit(&x->failing, memory_order_acquire) != 0;
}

/* Address on the device; NULL: v is none, or never materialised. */
void *tri_exec_address(const struct tri_exec *x, tri_vid v);
/* The stored failure as this thread's own; the thread that found it may still be writing. */
tri_status tri_exec_take_failure(struct tri_exec *x);
/* Keeps the first failure of any thread with the calling thread's message. */
void tri_exec_fail(struct tri_exec *x, tri_status st);
/* Sleeps up to max_us. */
void tri_exec_shake(struct tri_exec_jitter *j);
/* A collective over buf, and for GATHER to `gathered`, wherever the communicator wants them. */
tri_status tri_engine_collective(const struct tri_exec_item *it, void *buf,
                                 void *gathered) TRI_CHECKED;
/* Starts the engine of a stream; it runs the stream's items once for each go until stop. */
tri_status tri_engine_start(struct tri_exec_stream *s) TRI_CHECKED;
void tri_engine_join(struct tri_exec_stream *s);

#endif
