/* See env.h. Which number counts: MPI's. A launcher's variable is an error only when it shows that
 * this process was meant to be one of several and MPI has not heard of it; then N separate
 * trainings would write one folder. */
#include "launch/env.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static long number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long v;

    if (text == NULL || *text == '\0')
        return -1;
    v = strtol(text, &end, 10);
    return *end == '\0' && v >= 0 ? v : -1;
}

void tri_env_read_settings(struct tri_env_settings *out)
{
    static const char *const levels[] = {"error", "warn", "info", "debug", "trace"};
    const char *log = getenv("TRI_LOG");
    long threads = number("OMP_NUM_THREADS");
    long level = number("TRI_LOG");

    *out = (struct tri_env_settings){.log_level = TRI_LOG_INFO};
    for (int i = 0; log != NULL && i <= TRI_LOG_TRACE; i++)
        if (strcmp(log, levels[i]) == 0)
            level = i;
    if (level >= 0 && level <= TRI_LOG_TRACE)
        out->log_level = (enum tri_log_level)level;
    if (threads > 0 && threads < 65536)
        out->threads = (int)threads;
}

void tri_env_read_launcher(struct tri_env_launcher *out)
{
    *out = (struct tri_env_launcher){
        .ompi_size = number("OMPI_COMM_WORLD_SIZE"),
        .pmi_size = number("PMI_SIZE"),
        .slurm_ntasks = number("SLURM_NTASKS"),
        .slurm_procid = number("SLURM_PROCID"),
        .rank = number("RANK"),
        .world_size = number("WORLD_SIZE"),
    };
}

static tri_status fail_size(long expected, int size, const char *variable)
{
    return tri_fail(TRI_ERR_USAGE,
                    "launcher and MPI disagree on the number of ranks: expected %ld, got %d "
                    "(%s=%ld); start with "
                    "mpirun, or with srun --mpi=pmix",
                    expected, size, variable, expected);
}

static bool differs(long variable, long mpi)
{
    return variable >= 0 && variable != mpi;
}

tri_status tri_env_check_launcher(const struct tri_env_launcher *l, int rank, int size, bool *stale)
{
    bool launched = l->ompi_size >= 0 || l->pmi_size >= 0;

    *stale = differs(l->rank, rank) || differs(l->world_size, size);
    if (differs(l->ompi_size, size))
        return fail_size(l->ompi_size, size, "OMPI_COMM_WORLD_SIZE");
    if (l->ompi_size < 0 && differs(l->pmi_size, size))
        return fail_size(l->pmi_size, size, "PMI_SIZE");
    /* A task of srun that MPI takes for a job of one. Under mpirun the allocation may have any
     * size. */
    if (!launched && size == 1 && l->slurm_ntasks > 1 && l->slurm_procid >= 0)
        return fail_size(l->slurm_ntasks, size, "SLURM_NTASKS");
    /* mpirun inside a batch script inherits the script's task number 0. */
    *stale = *stale || (l->slurm_procid > 0 && l->slurm_procid != rank);
    return TRI_OK;
}

tri_status tri_env_init(struct tri_env *env)
{
    struct tri_env_settings settings;
    struct tri_env_launcher launcher;
    static MPI_Comm world;
    int granted = MPI_THREAD_SINGLE;
    bool stale = false;
    int64_t first;

    *env = (struct tri_env){.size = 1};
    tri_env_read_settings(&settings);
    tri_env_read_launcher(&launcher);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &granted) != MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "MPI cannot be initialised");
    world = MPI_COMM_WORLD;
    env->mpi_comm = &world;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &env->rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &env->size);
    tri_log_init(env->size > 1 ? env->rank : -1, settings.log_level);
    TRI_TRY(tri_env_check_launcher(&launcher, env->rank, env->size, &stale));
    if (env->size > 1 && granted != MPI_THREAD_MULTIPLE)
        return tri_fail(TRI_ERR_UNSUPPORTED,
                        "this MPI does not give MPI_THREAD_MULTIPLE, which %d ranks need",
                        env->size);
    TRI_TRY(tri_world_create(&world, NULL, &env->world));
    /* One line for the job: the lowest rank whose variables are stale. */
    first = stale ? env->rank : env->size;
    TRI_TRY(tri_comm_allreduce(env->world->control, &first, 1, TRI_I64, TRI_REDUCE_MIN, false));
    if (first == env->rank)
        tri_warn("environment variables of another launcher (RANK, WORLD_SIZE or SLURM_PROCID) are "
                 "ignored: MPI says "
                 "rank %d of %d",
                 env->rank, env->size);
    return TRI_OK;
}

tri_status tri_env_enter_first(const struct tri_env *env, int ranks, struct tri_env *out)
{
    static MPI_Comm first;

    *out = (struct tri_env){.rank = env->rank, .size = ranks};
    if (MPI_Comm_split(MPI_COMM_WORLD, env->rank < ranks ? 0 : MPI_UNDEFINED, env->rank, &first) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "the first %d ranks cannot be split from the others", ranks);
    if (first == MPI_COMM_NULL)
        return TRI_OK;
    out->mpi_comm = &first;
    return tri_world_create(&first, NULL, &out->world);
}

void tri_env_leave(struct tri_env *first)
{
    MPI_Comm comm;

    tri_world_destroy(first->world);
    if (first->mpi_comm != NULL) {
        comm = *(const MPI_Comm *)first->mpi_comm;
        (void)MPI_Comm_free(&comm);
    }
    *first = (struct tri_env){0};
}

void tri_env_finish(struct tri_env *env)
{
    int started = 0;

    tri_world_destroy(env->world);
    env->world = NULL;
    (void)MPI_Initialized(&started);
    if (started != 0)
        (void)MPI_Finalize();
}

void tri_env_abort(int code)
{
    (void)MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

void tri_env_set_timeout(struct tri_env *env, int64_t timeout_ms)
{
    tri_world_set_timeout(env->world, timeout_ms);
}
