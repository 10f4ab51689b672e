/* The environment of a process: MPI, the launcher, environment variables. The only file of the
 * program that reads variables, and the only one that starts and ends MPI. */
#ifndef TRI_LAUNCH_ENV_H
#define TRI_LAUNCH_ENV_H

#include "collectives/world.h"
#include "runtime/core/log.h"

#include <stdbool.h>

struct tri_env {
    struct tri_world *world; /* owned */
    const void *mpi_comm;    /* an MPI_Comm *: all ranks; NULL before tri_env_init */
    int rank, size;
};

/* What variables say; a missing or malformed number is 0. */
struct tri_env_settings {
    enum tri_log_level log_level; /* TRI_LOG: error ... trace, or 0..4; default info */
    int threads;                  /* OMP_NUM_THREADS */
};

/* What launchers left in the environment; -1: not there. */
struct tri_env_launcher {
    long ompi_size;    /* OMPI_COMM_WORLD_SIZE: set by mpirun */
    long pmi_size;     /* PMI_SIZE: set by srun --mpi=pmi2 and other launchers */
    long slurm_ntasks; /* SLURM_NTASKS */
    long slurm_procid; /* SLURM_PROCID: this is a task of srun, or a batch script */
    long rank;         /* RANK, WORLD_SIZE: of launchers that we do not use */
    long world_size;
};

/* Reads the variables. Local. */
void tri_env_read_settings(struct tri_env_settings *out);
void tri_env_read_launcher(struct tri_env_launcher *out);

/* Compares the launcher's view with MPI's rank and size. TRI_ERR_USAGE when processes were started
 * that MPI does not know of ("expected 4, got 1"); *stale: variables that are wrong but harmless,
 * as MPI's numbers are used. Local. */
tri_status tri_env_check_launcher(const struct tri_env_launcher *l, int rank, int size,
                                  bool *stale) TRI_CHECKED;

/* Starts MPI with all threads allowed (TRI_ERR_UNSUPPORTED where several ranks do not get that: the
 * engines and the saver call it beside the main thread), sets up the log, checks the launcher,
 * connects the ranks. On failure MPI may have started: call tri_env_finish in every case. The
 * program's own arguments are not touched. Collective. */
tri_status tri_env_init(struct tri_env *env) TRI_CHECKED;
/* Deadline of every call on the job's communicators. Same on all ranks. Local. */
void tri_env_set_timeout(struct tri_env *env, int64_t timeout_ms);
/* The first `ranks` ranks (1..env->size) as a job of their own, in *out; on the others out->world
 * is NULL. One at a time: give it back with tri_env_leave before the next, and before
 * tri_env_finish. Collective; the creation of the new world is so for its ranks. */
tri_status tri_env_enter_first(const struct tri_env *env, int ranks,
                               struct tri_env *out) TRI_CHECKED;
/* Collective over the ranks of `first`. A zeroed one does nothing. */
void tri_env_leave(struct tri_env *first);
/* Ends MPI in order. Collective. */
void tri_env_finish(struct tri_env *env);
/* Ends the whole job at once: for failures that other ranks may not know of. */
void tri_env_abort(int code) __attribute__((noreturn));

#endif
