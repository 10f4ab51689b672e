/* The executor: memory for all programs of a run, and the running of a program, step after step.
 *
 * The calling thread is the compute stream; an engine thread per exchange level runs the
 * collectives. In a step nothing is allocated and no lock is taken on the compute thread. A failure
 * on any thread stops the step and is returned by tri_exec_run with its message. */
#ifndef TRI_RUNTIME_EXEC_EXEC_H
#define TRI_RUNTIME_EXEC_EXEC_H

#include "runtime/core/status.h"
#include "runtime/exec/comm.h"
#include "runtime/plan/program.h"

#include <stdbool.h>
#include <stdint.h>

/* Arenas of a run: the persistent one for all programs, step and exchange as large as the largest
 * program needs. */
struct tri_memory {
    unsigned char *base[TRI_ARENA_COUNT];
    size_t bytes[TRI_ARENA_COUNT];
    struct tri_comm *exchange_comm; /* borrowed: allocated the exchange arena; NULL: heap */
};

/* Allocates for all `n` programs (persistent part: layout). exchange_comm may be NULL. Collective
 * over exchange_comm. */
tri_status tri_memory_create(struct tri_memory *m, const struct tri_layout *layout,
                             struct tri_program *const *programs, int n,
                             struct tri_comm *exchange_comm) TRI_CHECKED;
void tri_memory_destroy(struct tri_memory *m);

/* Times of the last run in nanoseconds, each measured. */
struct tri_exec_times {
    int64_t compute_ns; /* inside kernels on the compute thread */
    int64_t wait_ns;    /* compute thread waiting for collectives: exposed communication */
    int64_t total_ns;
};

struct tri_exec_span { /* one instruction in a trace */
    int32_t instr;
    int64_t begin_ns, end_ns; /* tri_now_ns clock */
};

struct tri_exec;

/* Comms by axis and level, borrowed; only those that the program uses must be there, each used by
 * one engine alone (ALL and INTRA by the first, INTER by the second). Starts engine threads
 * when the program has collectives. Local. */
tri_status tri_exec_create(struct tri_program *program, struct tri_memory *memory,
                           struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT],
                           struct tri_exec **out) TRI_CHECKED;
void tri_exec_destroy(struct tri_exec *x);

/* One step. Collective when the program has collectives. A failure stays: later calls return it
 * again. After one, an engine may still be inside a collective until that one's deadline;
 * tri_exec_destroy waits for it. */
tri_status tri_exec_run(struct tri_exec *x) TRI_CHECKED;
void tri_exec_times(const struct tri_exec *x, struct tri_exec_times *out);
/* Spans of the next run are recorded into span[program->ninstr] (borrowed); NULL ends it. */
void tri_exec_trace(struct tri_exec *x, struct tri_exec_span *span);

/* For tests, between steps. Jitter: every thread sleeps up to max_us (below 1000000; 0: not) at
 * random before each instruction and around collectives, from its own stream of `seed`. Poison:
 * temporaries and bucket parts are filled with NaN after each step. Local. */
void tri_exec_jitter(struct tri_exec *x, uint64_t seed, int max_us);
void tri_exec_poison(struct tri_exec *x, bool on);

/* Address of a value: persistent ones any time, outputs after a run. */
void *tri_exec_value(const struct tri_exec *x, tri_vid v);

#endif
