/* A model of this program's own, built and trained on the installed headers: a regression net with
 * a residual layer learns a function of three numbers.
 *
 *     mpirun -n N own_model [key=value]
 *
 * Prints the loss of the first and the last step and the hash of the weights, the same for N = 1,
 * 2 and 4, since the run is deterministic. */
#include <trireme.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 32, GRAIN = 8, IN = 3, WIDTH = 16, STEPS = 200 };

static void build(struct tri_graph *g)
{
    struct tri_builder b = {.graph = g, .training = true};
    tri_vid x = tri_input(&b, "x", TRI_F32, TRI_SHAPE(GRAIN, IN));
    tri_vid h = tri_relu(&b, tri_linear(&b, x, "first", WIDTH));

    h = tri_add(&b, h, tri_gelu(&b, tri_linear(&b, tri_layernorm(&b, h, "norm"), "inner", WIDTH)));
    h = tri_linear(&b, h, "last", 1);
    tri_loss_mse(&b, h, tri_input(&b, "y", TRI_F32, TRI_SHAPE(GRAIN, 1)));
}

/* Sample i of a step's batch; y = sin(3 x0) + x1 x2. */
static void make_sample(int step, long i, float *x, float *y)
{
    for (long k = 0; k < IN; k++)
        x[k] = (float)((i * 37 + k * 101 + step * 53) % 128) / 64 - 1;
    *y = sinf(3 * x[0]) + x[1] * x[2];
}

static tri_status train(struct tri_run *run, double *first, double *last)
{
    const struct tri_grains *grains = tri_run_grains(run);

    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < grains->count; k++) {
            float *x = tri_run_input(run, "x", k), *y = tri_run_input(run, "y", k);

            for (int i = 0; i < GRAIN; i++)
                make_sample(step, (grains->first + k) * GRAIN + i, x + i * IN, y + i);
        }
        TRI_TRY(tri_run_step(run));
        *last = tri_run_scalar(run, TRI_SCALAR_LOSS);
        *first = step == 0 ? *last : *first;
    }
    return TRI_OK;
}

static tri_status run_all(MPI_Comm comm, int rank, const char *setting)
{
    const char *settings[] = {"optimizer.lr=0.01", "run.deterministic=true", setting, NULL};
    struct tri_run_spec spec = {
        .mpi_comm = &comm, .batch = BATCH, .grain = GRAIN, .settings = settings};
    struct tri_graph *g;
    struct tri_run *run;
    double first = 0, last = 0;
    uint64_t hash;

    TRI_TRY(tri_graph_create(&g));
    build(g);
    TRI_TRY(tri_run_create(&spec, g, &run));
    TRI_TRY(train(run, &first, &last));
    TRI_TRY(tri_run_hash(run, &hash));
    if (rank == 0)
        printf("loss %a -> %a weights %016llx\n", first, last, (unsigned long long)hash);
    tri_run_destroy(run);
    return last < 0.1 * first ? TRI_OK : tri_fail(TRI_ERR_NUMERIC, "loss %g -> %g", first, last);
}

int main(int argc, char **argv)
{
    int level, rank;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (run_all(MPI_COMM_WORLD, rank, argc > 1 ? argv[1] : NULL) != TRI_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, tri_error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
