/* The NCCL transport on emulated devices, one a rank: mp_nccl CASE under mpirun. Ends with 0 when
 * the case holds; a message and 1 else. */
#include "collectives/comm_mpi.h"
#include "collectives/comm_nccl.h"
#include "runtime/core/log.h"
#include "runtime/device/device.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, #condition,     \
                    tri_error_text());                                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call) CHECK((call) == TRI_OK)

enum { MAX = 70000 };

static int rank, size;
static struct tri_comm *control, *comm;
static struct tri_device *device;
static void *stream;
static float *buf; /* on the device, MAX * size */
static float host[MAX * 8];

static void set_up(void)
{
    MPI_Comm world = MPI_COMM_WORLD;

    CHECK_OK(tri_comm_mpi_create(&world, "control", 20000, &control));
    CHECK_OK(tri_device_cuda_open(0, &device));
    CHECK_OK(device->ops->stream_create(device, false, &stream));
    CHECK_OK(tri_comm_nccl_create(control, device, "data", 20000, &comm));
    comm->stream = stream;
    CHECK(comm->rank == rank && comm->size == size && comm->ops->on_stream);
    CHECK_OK(comm->ops->alloc(comm, sizeof(float) * MAX * (size_t)size, (void **)&buf));
}

static void tear_down(void)
{
    comm->ops->free(comm, buf);
    tri_comm_destroy(comm);
    device->ops->stream_destroy(device, stream);
    tri_device_destroy(device);
    tri_comm_destroy(control);
}

/* Rank r's element i: sums of some of them round, so that the order shows. */
static float value(int r, int64_t i)
{
    return (float)((r + 1) * (i % 101 + 1)) * 0.1f;
}

static float tree(int first, int n, int64_t i)
{
    return n == 1 ? value(first, i) : tree(first, n / 2, i) + tree(first + n / 2, n / 2, i);
}

static void upload(int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        host[i] = value(rank, i);
    CHECK_OK(device->ops->copy(device, buf, host, (size_t)count * sizeof(float), stream));
}

static void download(int64_t count)
{
    CHECK_OK(device->ops->copy(device, host, buf, (size_t)count * sizeof(float), stream));
    CHECK_OK(device->ops->stream_sync(device, stream));
    CHECK_OK(comm->ops->poll(comm));
}

static bool near_tree(float x, int64_t i)
{
    float d = x - tree(0, size, i);

    return d < 1e-4f && d > -1e-4f;
}

static void case_sums(void)
{
    const int64_t counts[] = {1, 5, 64, 1000, 4096, MAX};

    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (int fixed = 0; fixed < 2; fixed++) {
            upload(counts[k]);
            CHECK_OK(tri_comm_allreduce(comm, buf, counts[k], TRI_F32, TRI_REDUCE_SUM, fixed != 0));
            download(counts[k]);
            for (int64_t i = 0; i < counts[k]; i++)
                CHECK(fixed ? host[i] == tree(0, size, i) : near_tree(host[i], i));
        }
    }
    upload(100);
    CHECK_OK(tri_comm_allreduce(comm, buf, 100, TRI_F32, TRI_REDUCE_MAX, false));
    download(100);
    CHECK(host[7] == value(size - 1, 7));
    CHECK((comm->ops->bytes_sent(comm) > 0) == (size > 1));
    CHECK_OK(tri_comm_barrier(comm));
}

static void case_slices(void)
{
    const int64_t counts[] = {3, 64 * 4, 1000, 4099};

    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (int slices = 1; slices <= size; slices++) {
            for (int fixed = 0; fixed < 2; fixed++) {
                upload(counts[k]);
                CHECK_OK(tri_comm_reduce_scatter(comm, buf, counts[k], TRI_F32, slices, fixed));
                CHECK_OK(tri_comm_gather_slices(comm, buf, counts[k], TRI_F32, slices));
                download(counts[k]);
                for (int64_t i = 0; i < counts[k]; i++)
                    CHECK(fixed ? host[i] == tree(0, size, i) : near_tree(host[i], i));
            }
        }
    }
}

static void case_copies(void)
{
    upload(1000);
    CHECK_OK(tri_comm_broadcast(comm, buf, 4000, size - 1));
    download(1000);
    for (int i = 0; i < 1000; i++)
        CHECK(host[i] == value(size - 1, i));
    upload(1000);
    CHECK_OK(tri_comm_allgather(comm, buf, 4000, buf + 1000));
    download(1000 * (size + 1));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 1000; i++)
            CHECK(host[(r + 1) * 1000 + i] == value(r, i));
}

/* Pairs of neighbours, and one rank that is left out. */
static void case_split(void)
{
    struct tri_comm *pair = NULL;
    float x = (float)rank;

    CHECK_OK(
        tri_comm_nccl_split(comm, control, rank == size - 1 ? -1 : rank / 2, -rank, "pair", &pair));
    CHECK((pair == NULL) == (rank == size - 1));
    if (pair == NULL)
        return;
    pair->stream = stream;
    CHECK(pair->rank == (pair->size == 2 ? 1 - rank % 2 : 0));
    CHECK_OK(device->ops->copy(device, buf, &x, sizeof(x), stream));
    CHECK_OK(tri_comm_allreduce(pair, buf, 1, TRI_F32, TRI_REDUCE_SUM, false));
    download(1);
    CHECK(host[0] == (pair->size == 2 ? (float)(rank / 2 * 4 + 1) : (float)rank));
    tri_comm_destroy(pair);
}

/* Sums within a captured graph, replayed; another thread may ask for memory meanwhile. */
static void case_capture(void)
{
    void *graph = NULL, *p = NULL;

    upload(1000);
    CHECK_OK(tri_comm_allreduce(comm, buf, 1000, TRI_F32, TRI_REDUCE_SUM, true));
    upload(1000);
    CHECK_OK(device->ops->stream_sync(device, stream));
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_OK(device->ops->alloc(device, 64, &p));
    device->ops->free(device, p);
    CHECK_OK(tri_comm_allreduce(comm, buf, 1000, TRI_F32, TRI_REDUCE_SUM, true));
    CHECK_OK(tri_comm_allreduce(comm, buf, 1000, TRI_F32, TRI_REDUCE_MAX, false));
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    for (int i = 0; i < 3; i++)
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
    download(1000);
    for (int i = 0; i < 1000; i++)
        CHECK(host[i] == tree(0, size, i) * (float)(size * size));
    device->ops->graph_destroy(device, graph);
}

/* Two ranks choose one device: an error on all ranks that names both. */
static void case_shared_device(void)
{
    MPI_Comm world = MPI_COMM_WORLD;

    CHECK_OK(tri_comm_mpi_create(&world, "control", 20000, &control));
    CHECK_OK(tri_device_cuda_open(0, &device));
    CHECK(tri_comm_nccl_create(control, device, "data", 20000, &comm) == TRI_ERR_USAGE);
    CHECK(strstr(tri_error_text(), "ranks 0 and 1 share the device") != NULL);
    tri_device_destroy(device);
    tri_comm_destroy(control);
}

/* Polls until the communicator fails. */
static tri_status poll_to_the_end(void)
{
    int64_t end = tri_now_ns() + INT64_C(15000000000);
    tri_status st = TRI_OK;

    while (st == TRI_OK && tri_now_ns() < end) {
        usleep(1000);
        st = comm->ops->poll(comm);
    }
    return st;
}

/* The last rank stays away: the others stop at the deadline, or at once when it has died. What they
 * had enqueued ends. */
static void case_alone(bool dies)
{
    tri_status st;

    comm->timeout_ms = dies ? 20000 : 300;
    if (rank == size - 1) {
        if (dies)
            kill(getpid(), SIGKILL);
        usleep(1500000);
        return;
    }
    CHECK_OK(tri_comm_allreduce(comm, buf, 10, TRI_F32, TRI_REDUCE_SUM, false));
    st = poll_to_the_end();
    CHECK(st == (dies ? TRI_ERR_COMM : TRI_ERR_TIMEOUT));
    CHECK(strstr(tri_error_text(), "communicator 'data'") != NULL);
    CHECK_OK(device->ops->stream_sync(device, stream));
    CHECK(tri_comm_allreduce(comm, buf, 10, TRI_F32, TRI_REDUCE_SUM, false) == TRI_ERR_COMM);
    if (dies) {
        fprintf(stderr, "rank %d stopped: %s\n", rank, tri_error_text());
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int given;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "shared_device") == 0) {
        case_shared_device();
        MPI_Finalize();
        return 0;
    }
    set_up();
    if (strcmp(what, "sums") == 0)
        case_sums();
    else if (strcmp(what, "slices") == 0)
        case_slices();
    else if (strcmp(what, "copies") == 0)
        case_copies();
    else if (strcmp(what, "split") == 0)
        case_split();
    else if (strcmp(what, "capture") == 0)
        case_capture();
    else if (strcmp(what, "late") == 0 || strcmp(what, "dead") == 0)
        case_alone(strcmp(what, "dead") == 0);
    else
        CHECK(!"a case of that name");
    tear_down();
    MPI_Finalize();
    return 0;
}
