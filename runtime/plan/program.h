/* The program: what one rank executes in a step. Made by schedule (streams, waits), completed by
 * memory (places), checked by verify.
 *
 * Each stream runs its instructions in order. A wait says: go on when that stream has completed so
 * many of its instructions of this step. Nothing else orders anything. */
#ifndef TRI_RUNTIME_PLAN_PROGRAM_H
#define TRI_RUNTIME_PLAN_PROGRAM_H

#include "runtime/core/status.h"
#include "runtime/exec/comm.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/mesh.h"

#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

enum tri_stream { TRI_STREAM_COMPUTE, TRI_STREAM_INTRA, TRI_STREAM_INTER, TRI_STREAM_COUNT };

/* Classes of memory, one allocation each. */
enum tri_arena {
    TRI_ARENA_PERSISTENT, /* params, states, inputs, outputs: shared by all programs of a run */
    TRI_ARENA_STEP,       /* temporaries, placed by liveness */
    TRI_ARENA_EXCHANGE,   /* buckets; from the transport; nothing is reused inside a step */
    TRI_ARENA_COUNT
};

struct tri_place {
    enum tri_arena arena;
    int32_t storage; /* values with one storage share memory (aliases, parts of a pack) */
    size_t offset;   /* bytes from the arena's start */
};

struct tri_instr {
    int32_t op;     /* in the program's graph */
    int32_t kernel; /* in program->kernel; TRI_NONE for a collective */
    enum tri_stream stream;
    uint32_t seq;                    /* 1, 2, ... in its stream */
    uint32_t wait[TRI_STREAM_COUNT]; /* so many of that stream must be complete; 0: none */
    bool signal;                     /* somebody waits for this one */
    size_t scratch_offset;           /* in the step arena; meaningful when the kernel has scratch */
};

/* Places of persistent values by name: grows as programs are compiled, so that train, eval and
 * generation share one memory. */
struct tri_layout;
tri_status tri_layout_create(struct tri_layout **out) TRI_CHECKED;
void tri_layout_destroy(struct tri_layout *l);
/* Offset of `name` (bytes large, placed at first call; another size later is an internal error).
 * Local. */
tri_status tri_layout_place(struct tri_layout *l, const char *name, size_t bytes,
                            size_t *offset) TRI_CHECKED;
size_t tri_layout_bytes(const struct tri_layout *l);

struct tri_program {
    struct tri_graph *graph;   /* owned: the step graph */
    struct tri_device *device; /* borrowed: what the kernels are prepared for */
    struct tri_instr *instr;   /* in one valid global order, all streams mixed */
    int ninstr;
    uint32_t stream_count[TRI_STREAM_COUNT]; /* instructions of each stream */
    struct tri_kernel **kernel;
    int nkernel;
    struct tri_place *place; /* one a value of the graph; storage < 0: never materialised */
    size_t arena_bytes[TRI_ARENA_COUNT]; /* PERSISTENT: the layout's size when memory was planned */
    size_t live_bytes; /* largest sum of live bytes of the step arena: a lower bound */
};

/* schedule: prepares kernels from `table` for `device` (borrowed; NULL: the CPU), shared by
 * signature, assigns streams, orders, and computes waits. Takes the graph (also on failure). */
tri_status tri_plan_schedule(struct tri_graph *graph, const struct tri_kernel_ops *const *table,
                             struct tri_device *device, int nthreads, bool overlap,
                             struct tri_program **out) TRI_CHECKED;
/* memory: storage classes from alias rules, liveness over the compute stream, offsets (largest
 * first, lowest fit). */
tri_status tri_plan_memory(struct tri_program *p, struct tri_layout *layout) TRI_CHECKED;
/* verify: shapes and dtypes again from the op table; one writer a value; inputs written before they
 * are read; no read of a value after its memory was overwritten; overlapping places never live
 * together; each wait satisfiable and every cross-stream dependence covered by a wait. */
tri_status tri_plan_verify(const struct tri_program *p) TRI_CHECKED;
/* Collectives in order (kind, dtype, count, slices, name) must be equal: those between nodes over
 * `inter` (NULL: this rank has none), all others over `comm`. Collective over both. */
tri_status tri_plan_agree(const struct tri_program *p, struct tri_comm *comm,
                          struct tri_comm *inter) TRI_CHECKED;
void tri_program_destroy(struct tri_program *p);

/* Sums over the instructions, by phase: what `plan` prints. */
struct tri_plan_summary {
    double flops[TRI_PHASE_COUNT];
    double bytes_touched[TRI_PHASE_COUNT]; /* inputs + outputs of kernels */
    double comm_bytes;                     /* payload of collectives */
    int64_t params;                        /* elements */
    int64_t instrs, collectives;
};
void tri_plan_summarise(const struct tri_program *p, struct tri_plan_summary *out);
/* Work of one instruction: operations and bytes of inputs and outputs; for a collective no
 * operations and the bytes of its payload. Local. */
void tri_plan_cost(const struct tri_program *p, const struct tri_instr *in, double *flops,
                   double *bytes);

TRI_END_DECLS
#endif
