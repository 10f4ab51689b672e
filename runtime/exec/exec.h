/* The executor: memory for all programs of a run, and the running of a program, step after step.
 *
 * On the CPU the calling thread is the compute stream, and an engine thread per exchange level runs
 * the collectives. On another device each stream of the program is a stream of the device, and an
 * instruction that somebody waits for has an event. The calling thread issues what only enqueues,
 * in the program's order; a stream with collectives that block (MPI) has an engine thread, which
 * carries its buffers through memory of the process. In a step nothing is allocated and no lock is
 * taken on the compute thread. A failure on any thread stops the step and is returned by
 * tri_exec_run with its message. */
#ifndef TRI_RUNTIME_EXEC_EXEC_H
#define TRI_RUNTIME_EXEC_EXEC_H

#include "runtime/core/status.h"
#include "runtime/device/device.h"
#include "runtime/exec/comm.h"
#include "runtime/plan/program.h"

#include <stdbool.h>
#include <stdint.h>

/* Arenas of a run: the persistent one for all programs, step and exchange as large as the largest
 * program needs. On a device that is not the host, memory of the process mirrors the persistent
 * arena (untouched pages cost nothing), and the exchange arena where a transport that blocks needs
 * it. */
struct tri_memory {
    struct tri_device *device;              /* borrowed */
    unsigned char *base[TRI_ARENA_COUNT];   /* on the device */
    unsigned char *mirror[TRI_ARENA_COUNT]; /* in the process; on the CPU the same; or NULL */
    size_t bytes[TRI_ARENA_COUNT];
    struct tri_comm *exchange_comm; /* borrowed: allocated the exchange arena or, when it blocks,
                                       its mirror; NULL: ordinary memory */
    bool pinned;                    /* that mirror is page-locked for the device */
};

/* Allocates for all `n` programs of one device (persistent part: layout). exchange: the transport
 * of most collectives. control and exchange may be NULL. TRI_ERR_NOMEM tells what all arenas take.
 * Collective over control; a failure is shared. */
tri_status tri_memory_create(struct tri_memory *m, struct tri_device *device,
                             const struct tri_layout *layout, struct tri_program *const *programs,
                             int n, struct tri_comm *control,
                             struct tri_comm *exchange) TRI_CHECKED;
void tri_memory_destroy(struct tri_memory *m);

/* Times of the last run in nanoseconds, each measured; on a device by its events. */
struct tri_exec_times {
    int64_t compute_ns; /* total without wait */
    int64_t wait_ns;    /* compute stream waiting for collectives: exposed communication; in a step
                           of graphs only what lies between them */
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

/* Makes the steps from the second on replay graphs of the device instead of issuing each
 * instruction, but for steps that are traced. Returns the number of graphs that make a step: 1, or
 * more where a collective that blocks lies between; 0: the device has no graphs. Before the first
 * run. Local. */
int tri_exec_graph(struct tri_exec *x);

/* Address in memory of the process of a persistent value: inputs are copied to the device at the
 * begin of a run and outputs back at its end; what lies there of parameters and states is as of the
 * last pull or push. NULL: the value is not kept. */
void *tri_exec_value(const struct tri_exec *x, tri_vid v);
/* Copies a parameter or a state from the device to its address in the process (pull) or back
 * (push), between runs. Nothing to do on the CPU. Local. */
tri_status tri_exec_pull(const struct tri_exec *x, tri_vid v) TRI_CHECKED;
tri_status tri_exec_push(const struct tri_exec *x, tri_vid v) TRI_CHECKED;
/* Copies any value that is still in memory after a run, as temporaries are that nothing was put
 * over. Local. */
tri_status tri_exec_read(const struct tri_exec *x, tri_vid v, void *to) TRI_CHECKED;

#endif
