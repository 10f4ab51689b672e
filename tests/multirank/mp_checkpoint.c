/* Checkpoints saved and loaded by several ranks. The folder's name comes in TRI_TEST_DIR. */
#include "mp_worker.h"

#include "collectives/comm_mpi.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/rundir.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 20000, COUNT = 1000, NTENSOR = 3 };

static float weight[COUNT], moment[COUNT];
static int64_t counter[1];

static float value(int64_t step, int i)
{
    return (float)(step * COUNT + i) * 0.25f;
}

static void fill(int64_t step)
{
    for (int i = 0; i < COUNT; i++) {
        weight[i] = value(step, i);
        moment[i] = -value(step, i);
    }
    counter[0] = step;
}

static bool holds(int64_t step)
{
    for (int i = 0; i < COUNT; i++)
        if (weight[i] != value(step, i) || moment[i] != -value(step, i))
            return false;
    return counter[0] == step;
}

/* Rank r owns elements [r * COUNT / size, (r + 1) * COUNT / size); the last rank
 * owns the counter. */
static void describe(struct tri_checkpoint_tensor t[NTENSOR], int rank, int size)
{
    int64_t first = (int64_t)rank * COUNT / size, end = (int64_t)(rank + 1) * COUNT / size;
    struct tri_shape matrix = {.ndim = 2, .dim = {COUNT / 10, 10}}, one = {.ndim = 1, .dim = {1}};

    t[0] = (struct tri_checkpoint_tensor){"param/w", TRI_F32,     matrix, weight,
                                          first,     end - first, false};
    t[1] = (struct tri_checkpoint_tensor){
        "state/optimizer/w/momentum", TRI_F32, matrix, moment, first, end - first, false};
    t[2] = (struct tri_checkpoint_tensor){"state/counter",  TRI_I64, one, counter, 0,
                                          rank == size - 1, false};
}

static tri_status save(struct tri_comm *comm, int64_t step,
                       tri_status (*probe)(void *, enum tri_checkpoint_phase), void *arg)
{
    struct tri_checkpoint_tensor t[NTENSOR];
    struct tri_checkpoint_item item = {.key = "updates", .integer = step};
    struct tri_checkpoint_save s = {.run_dir = getenv("TRI_TEST_DIR"),
                                    .step = step,
                                    .tensor = t,
                                    .ntensor = NTENSOR,
                                    .item = &item,
                                    .nitem = 1,
                                    .config = "run: {}\n",
                                    .keep = 2,
                                    .probe = probe,
                                    .probe_arg = arg};

    describe(t, tri_comm_rank(comm), tri_comm_size(comm));
    fill(step);
    return tri_checkpoint_save(comm, &s);
}

static tri_status load(struct tri_comm *comm, const char *run_dir, int64_t *step)
{
    struct tri_checkpoint_tensor t[NTENSOR];
    struct tri_checkpoint *c = NULL;
    tri_status st;

    describe(t, tri_comm_rank(comm), tri_comm_size(comm));
    memset(weight, 0, sizeof(weight));
    memset(moment, 0, sizeof(moment));
    TRI_TRY(tri_checkpoint_find(comm, run_dir, "auto", &c));
    *step = c != NULL ? c->manifest.step : 0;
    st = c != NULL ? tri_checkpoint_load(comm, c, t, NTENSOR, false) : TRI_OK;
    tri_checkpoint_close(c);
    return st;
}

static tri_status connect(struct tri_comm **comm)
{
    MPI_Comm world = MPI_COMM_WORLD;

    return tri_comm_mpi_create(&world, "checkpoint", TIMEOUT_MS, comm);
}

/* Goes on from whatever step the folder holds, then saves two more: the next launch may have
 * another size. */
static int go_on(int rank, int size)
{
    struct tri_comm *comm = NULL;
    int64_t step = -1;

    (void)size;
    MP_OK(connect(&comm));
    MP_OK(load(comm, getenv("TRI_TEST_DIR"), &step));
    MP_CHECK(step == 0 || holds(step), "rank %d step %lld", rank, (long long)step);
    MP_OK(save(comm, step + 1, NULL, NULL));
    MP_OK(save(comm, step + 2, NULL, NULL));
    MP_OK(load(comm, getenv("TRI_TEST_DIR"), &step));
    MP_CHECK(holds(step), "rank %d step %lld", rank, (long long)step);
    tri_comm_destroy(comm);
    return 0;
}

struct failure {
    enum tri_checkpoint_phase at;
    int rank, mine;
};

static tri_status fail_on_rank(void *arg, enum tri_checkpoint_phase phase)
{
    const struct failure *f = arg;

    return phase == f->at && f->rank == f->mine ? tri_fail(TRI_ERR_IO, "made up") : TRI_OK;
}

/* A failure of one rank in any phase ends the save on all, and the old checkpoint stays. */
static int one_fails(int rank, int size)
{
    struct tri_comm *comm = NULL;
    int64_t step = -1;

    MP_OK(connect(&comm));
    MP_OK(save(comm, 5, NULL, NULL));
    for (int p = TRI_CHECKPOINT_LAYOUT; p <= TRI_CHECKPOINT_PUBLISH; p++) {
        struct failure f = {(enum tri_checkpoint_phase)p, size - 1, rank};
        tri_status st = save(comm, 6, fail_on_rank, &f);
        /* Rank 0 may have published before it learns of a failure elsewhere in that phase. */
        MP_CHECK(st == TRI_ERR_IO, "rank %d phase %d: %s", rank, p, tri_status_name(st));
        MP_CHECK(strstr(tri_error_text(), "made up"), "rank %d: %s", rank, tri_error_text());
        MP_OK(load(comm, getenv("TRI_TEST_DIR"), &step));
        MP_CHECK(holds(step) && step == (p == TRI_CHECKPOINT_PUBLISH ? 6 : 5), "step %lld",
                 (long long)step);
    }
    tri_comm_destroy(comm);
    return 0;
}

/* The same relative path leads somewhere else on the last rank: all stop, with a message. */
static int hidden(int rank, int size)
{
    struct tri_comm *comm = NULL;
    int64_t step = -1;
    tri_status st;

    MP_OK(connect(&comm));
    MP_OK(save(comm, 1, NULL, NULL));
    MP_CHECK(chdir(rank == size - 1 ? "/" : getenv("TRI_TEST_DIR")) == 0, "chdir");
    st = load(comm, ".", &step);
    MP_CHECK(st == TRI_ERR_CHECKPOINT, "rank %d: %s", rank, tri_status_name(st));
    MP_CHECK(strstr(tri_error_text(), "model.h5"), "rank %d: %s", rank, tri_error_text());
    tri_comm_destroy(comm);
    return 0;
}

/* The run folder is locked by rank 0 and all ranks hear of a refusal. */
static int locked(int rank, int size)
{
    struct tri_comm *comm = NULL;
    struct tri_rundir *first = NULL, *second = NULL;
    tri_status st;

    (void)size;
    MP_OK(connect(&comm));
    MP_OK(tri_rundir_open(comm, getenv("TRI_TEST_DIR"), &first));
    st = tri_rundir_open(comm, getenv("TRI_TEST_DIR"), &second);
    MP_CHECK(st == TRI_ERR_USAGE && strstr(tri_error_text(), "in use"), "rank %d: %s", rank,
             tri_error_text());
    tri_rundir_close(first);
    tri_comm_destroy(comm);
    return 0;
}

const struct mp_case mp_checkpoint_cases[] = {
    {"checkpoint_go_on", go_on},
    {"checkpoint_one_fails", one_fails},
    {"checkpoint_hidden", hidden},
    {"checkpoint_locked", locked},
    {NULL, NULL},
};
