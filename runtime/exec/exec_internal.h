/* What the compute thread (exec.c) and the engine threads (engine.c) of an executor share. */
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

/* Keeps the first failure of any thread with the calling thread's message. */
void tri_exec_fail(struct tri_exec *x, tri_status st);
/* Sleeps up to max_us. */
void tri_exec_shake(struct tri_exec_jitter *j);
/* Starts the engine of a stream; it runs the stream's items once for each go until stop. */
tri_status tri_engine_start(struct tri_exec_stream *s) TRI_CHECKED;
void tri_engine_join(struct tri_exec_stream *s);

#endif
