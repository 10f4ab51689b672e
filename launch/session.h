/* A compiled model in memory: programs, arenas, executors and the list of everything that survives
 * a restart. */
#ifndef TRI_LAUNCH_SESSION_H
#define TRI_LAUNCH_SESSION_H

#include "collectives/world.h"
#include "launch/compile.h"
#include "optim/compress_pass.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/exec/exec.h"

/* One value that a checkpoint keeps. */
struct tri_kept {
    const char *name; /* of the parameter or state in the graph */
    bool param;       /* trained: counts in weights_hash */
};

struct tri_session {
    struct tri_layout *layout;
    struct tri_program *train, *eval,
        *extra[2]; /* NULL where not asked for; extra: generation, precision check */
    struct tri_memory memory;
    struct tri_exec *train_exec, *eval_exec, *extra_exec[2];
    /* The training step in the stages of a compression's warm-up: the same parameters and kept
     * states as train. */
    struct tri_program *warm[TRI_COMPRESS_MAX_STAGES];
    struct tri_exec *warm_exec[TRI_COMPRESS_MAX_STAGES];
    int nwarm;
    const struct tri_program *now; /* borrowed: what the next training step runs; train at first */
    struct tri_exec *now_exec;     /* borrowed */
    struct tri_checkpoint_tensor *tensor; /* parameters and buffers, then states */
    struct tri_kept *kept;                /* beside tensor */
    int ntensor;
    struct tri_pool pool;
};

/* Takes the programs in s (set by the caller together with layout; NULL: none): allocates memory,
 * creates executors, lists the tensors. world NULL: one rank without MPI. On failure s is finished.
 * Collective; a failure is shared. */
tri_status tri_session_start(struct tri_session *s, const struct tri_world *world) TRI_CHECKED;
void tri_session_finish(struct tri_session *s);

/* Compiles the stages of a compression's warm-up of `warmup` updates (0: none) into s->warm, behind
 * s->train of the same spec and in s->layout. On failure the caller finishes s. Local. */
tri_status tri_session_compile_warmup(struct tri_session *s, const struct tri_compile_spec *spec,
                                      int64_t warmup) TRI_CHECKED;

/* Bytes of an arena that all programs of s share. Local. */
size_t tri_session_arena_bytes(const struct tri_session *s, enum tri_arena arena);
/* Bytes of messages (tri_hierarchy_scratch) of the training step, in any stage. Local. */
tri_status tri_session_scratch(const struct tri_session *s, const struct tri_topology *t,
                               bool shared, size_t *bytes) TRI_CHECKED;

/* From the next step on the training step is that of stage k of the warm-up, k = nwarm: train.
 * Same on all ranks: k. Local. */
void tri_session_stage(struct tri_session *s, int k);

/* Adds host data to what checkpoints keep (at most one a session). name and data are borrowed.
 * Local. */
void tri_session_keep(struct tri_session *s, struct tri_checkpoint_tensor tensor);

/* Steps of the training program become graphs of the device where it has them; says so on rank 0
 * (`say`) with how many make a step. Local. */
void tri_session_graph(struct tri_session *s, bool say);

/* Copies all parameters and states from the device to memory of the process, where checkpoints and
 * hashes read them (pull), or back after they were written there (push). On the CPU they are there
 * already. Local. */
tri_status tri_session_pull(const struct tri_session *s) TRI_CHECKED;
tri_status tri_session_push(const struct tri_session *s) TRI_CHECKED;

/* Initial values of all parameters and states (seed, name, index), transient ones included.
 * Local. */
tri_status tri_session_fill(struct tri_session *s, uint64_t seed) TRI_CHECKED;
/* Parameters and buffers from an HDF5 file with /param/<name>. Collective. */
tri_status tri_session_read_weights(struct tri_session *s, struct tri_comm *comm,
                                    const char *path) TRI_CHECKED;

/* Makes the 16-bit copies of the training program from the parameters as they are: after they were
 * filled or read, before the first step. Local. */
tri_status tri_session_round_weights(struct tri_session *s) TRI_CHECKED;

/* Address and value of `name` (param, state, input, output) in the memory of `x`, or NULL.
 * Local. */
void *tri_session_find(const struct tri_program *p, const struct tri_exec *x, const char *name);

/* The sum mod 2^64 of mix(name, index, bits) over all parameters. With `check`, every rank hashes
 * its own copies, and copies that differ are TRI_ERR_NUMERIC naming the first parameter and the
 * ranks in the minority (with two, both). Collective when check. */
tri_status tri_session_hash(const struct tri_session *s, struct tri_comm *comm, bool check,
                            uint64_t *hash) TRI_CHECKED;

#endif
