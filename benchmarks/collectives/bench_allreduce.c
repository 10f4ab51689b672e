/* Time of a sum over all ranks by our transports beside MPI_Allreduce, in one run.
 *
 *     mpirun -n 2 --bind-to none bench_allreduce [repetitions]
 *
 * Each line: bytes, then the shortest and the median of the slowest rank's times in microseconds:
 * `window` (memory from the transport), `staged` (ordinary memory over shared memory), `rounds`
 * (over MPI messages), and MPI_Allreduce. Every result is checked. */
#include "collectives/comm_mpi.h"
#include "collectives/comm_shm.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAYS = 4, MOST_BYTES = 64 << 20, MAX_REPEATS = 200, STAGING = 4 << 20 };

struct way {
    const char *name;
    struct tri_comm *comm; /* NULL: MPI_Allreduce */
    float *data;
};

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static tri_status sum(const struct way *w, int64_t count)
{
    if (w->comm != NULL)
        return tri_comm_allreduce(w->comm, w->data, count, TRI_F32, TRI_REDUCE_SUM, false);
    if (MPI_Allreduce(MPI_IN_PLACE, w->data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "MPI_Allreduce failed");
    return TRI_OK;
}

/* *best and *median of the slowest rank, in microseconds. */
static tri_status measure(const struct way *w, int64_t count, int repeats, double *best,
                          double *median)
{
    double times[MAX_REPEATS];
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int k = -2; k < repeats; k++) {
        double t;
        int64_t begin;

        for (int64_t i = 0; i < count; i++)
            w->data[i] = (float)(rank + i % 7);
        MPI_Barrier(MPI_COMM_WORLD);
        begin = tri_now_ns();
        TRI_TRY(sum(w, count));
        t = (double)(tri_now_ns() - begin) * 1e-3;
        for (int64_t i = 0; i < count; i++)
            if (w->data[i] != (float)(size * (i % 7) + size * (size - 1) / 2))
                return tri_fail(TRI_ERR_INTERNAL, "%s: element %lld is wrong", w->name,
                                (long long)i);
        MPI_Allreduce(MPI_IN_PLACE, &t, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (k >= 0)
            times[k] = t;
    }
    qsort(times, (size_t)repeats, sizeof(times[0]), compare_times);
    *best = times[0];
    *median = times[repeats / 2];
    return TRI_OK;
}

static tri_status compare_all(int repeats)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    struct way way[WAYS] = {{"window", NULL, NULL},
                            {"staged", NULL, NULL},
                            {"rounds", NULL, NULL},
                            {"MPI", NULL, NULL}};
    void *window;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    TRI_TRY(tri_comm_shm_create(&world, "shm", STAGING, 60000, &way[0].comm));
    if (way[0].comm == NULL)
        return tri_fail(TRI_ERR_USAGE, "there is no shared memory between these ranks");
    TRI_TRY(tri_comm_mpi_create(&world, "mpi", 60000, &way[2].comm));
    way[1].comm = way[0].comm;
    TRI_TRY(way[0].comm->ops->alloc(way[0].comm, MOST_BYTES, &window));
    way[0].data = window;
    way[1].data = way[2].data = way[3].data = tri_alloc_aligned(MOST_BYTES, "data");
    if (way[1].data == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d bytes", MOST_BYTES);
    for (size_t bytes = 4096; bytes <= MOST_BYTES; bytes *= 4) {
        int n = bytes > (4 << 20) ? (repeats + 3) / 4 : repeats;

        if (rank == 0)
            (void)printf("%9zu B", bytes);
        for (int k = 0; k < WAYS; k++) {
            double best, median;

            TRI_TRY(measure(&way[k], (int64_t)(bytes / sizeof(float)), n, &best, &median));
            if (rank == 0)
                (void)printf("  %s %.1f / %.1f", way[k].name, best, median);
        }
        if (rank == 0)
            (void)printf("  us (best / median)\n");
    }
    tri_free(way[1].data);
    tri_comm_destroy(way[2].comm);
    tri_comm_destroy(way[0].comm);
    return TRI_OK;
}

int main(int argc, char **argv)
{
    int repeats = argc > 1 ? atoi(argv[1]) : 20;
    int level;

    if (repeats < 1 || repeats > MAX_REPEATS) {
        (void)fprintf(stderr, "bench_allreduce: 1 to %d repetitions\n", MAX_REPEATS);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (compare_all(repeats) != TRI_OK) {
        (void)fprintf(stderr, "bench_allreduce: %s\n", tri_error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
