/* mp_worker CASE [single|serialized|multiple]: runs one case on all ranks; exit code 0: good on
 * this rank. */
#include "mp_worker.h"

#include "runtime/core/log.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const struct mp_case *find_case(const char *name)
{
    const struct mp_case *tables[] = {mp_checkpoint_cases, mp_comm_cases, mp_compress_cases,
                                      mp_exchange_cases, mp_level_cases};

    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct mp_case *c = tables[t]; c->name != NULL; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    return NULL;
}

static int thread_level(const char *name)
{
    if (strcmp(name, "single") == 0)
        return MPI_THREAD_SINGLE;
    return strcmp(name, "serialized") == 0 ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
}

int main(int argc, char **argv)
{
    const struct mp_case *c = argc > 1 ? find_case(argv[1]) : NULL;
    int granted;
    int rank;
    int size;
    int failed;

    if (c == NULL) {
        (void)fprintf(stderr, "mp_worker: no case '%s'\n", argc > 1 ? argv[1] : "");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, thread_level(argc > 2 ? argv[2] : "multiple"), &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    tri_log_init(rank, TRI_LOG_WARN);
    failed = c->run(rank, size);
    if (failed != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
