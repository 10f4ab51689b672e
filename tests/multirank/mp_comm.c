/* Communicators of every transport against exact values. */
#include "mp_worker.h"

#include "collectives/comm_mpi.h"
#include "collectives/comm_shm.h"
#include "collectives/topology.h"
#include "collectives/world.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 20000, STAGING = 1 << 16, TRANSPORTS = 2 };

static const MPI_Comm world = MPI_COMM_WORLD;
static const int64_t counts[] = {0, 1, 2, 3, 7, 97, 5000, 1000003};
enum { NCOUNTS = sizeof(counts) / sizeof(counts[0]) };

static tri_status connect_kind(int kind, struct tri_comm **out)
{
    *out = NULL;
    if (kind == 0)
        return tri_comm_mpi_create(&world, "test", TIMEOUT_MS, out);
    return tri_comm_shm_create(&world, "test", STAGING, TIMEOUT_MS, out);
}

static void fill(void *buf, int64_t count, enum tri_dtype t, int rank)
{
    for (int64_t i = 0; i < count; i++) {
        int v = rank + 1 + (int)(i % 13);

        if (t == TRI_F32)
            ((float *)buf)[i] = (float)v;
        else if (t == TRI_F64)
            ((double *)buf)[i] = v;
        else if (t == TRI_I64)
            ((int64_t *)buf)[i] = v;
        else
            ((uint16_t *)buf)[i] =
                t == TRI_F16 ? tri_f16_from_f32((float)v) : tri_bf16_from_f32((float)v);
    }
}

static double value(const void *buf, int64_t i, enum tri_dtype t)
{
    if (t == TRI_F32)
        return ((const float *)buf)[i];
    if (t == TRI_F64)
        return ((const double *)buf)[i];
    if (t == TRI_I64)
        return (double)((const int64_t *)buf)[i];
    return t == TRI_F16 ? tri_f16_to_f32(((const uint16_t *)buf)[i])
                        : tri_bf16_to_f32(((const uint16_t *)buf)[i]);
}

static int check_sum(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype t,
                     enum tri_reduce op, int rank, int size)
{
    fill(buf, count, t, rank);
    MP_OK(tri_comm_allreduce(c, buf, count, t, op, false));
    for (int64_t i = 0; i < count; i++) {
        double low = 1 + (double)(i % 13);
        double sum = size * low + (double)size * (size - 1) / 2;
        double want = op == TRI_REDUCE_SUM ? sum : op == TRI_REDUCE_MIN ? low : low + size - 1;

        MP_CHECK(value(buf, i, t) == want, "%s %s op %d count %lld element %lld: %g, not %g",
                 c->ops->name, tri_dtype_name(t), (int)op, (long long)count, (long long)i,
                 value(buf, i, t), want);
    }
    return 0;
}

/* Sums, minima and maxima of every type; ordinary memory and memory from the transport. */
static int run_allreduce(int rank, int size)
{
    static const enum tri_dtype types[] = {TRI_F32, TRI_F64, TRI_I64, TRI_BF16, TRI_F16};

    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct tri_comm *c;
        void *own = tri_alloc_aligned((size_t)counts[NCOUNTS - 1] * 8, "test");
        void *window = NULL;
        int bad = 0;

        MP_OK(connect_kind(kind, &c));
        MP_CHECK(c != NULL && own != NULL, "no communicator");
        if (c->ops->alloc != NULL)
            MP_OK(c->ops->alloc(c, (size_t)counts[NCOUNTS - 1] * 8, &window));
        for (size_t t = 0; t < 5; t++)
            for (int k = 0; k < NCOUNTS; k++)
                for (int op = 0; op < 3; op++) {
                    bad |= check_sum(c, own, counts[k], types[t], (enum tri_reduce)op, rank, size);
                    if (window != NULL)
                        bad |= check_sum(c, window, counts[k], types[t], (enum tri_reduce)op, rank,
                                         size);
                    if (bad != 0)
                        return 1;
                }
        MP_CHECK(size == 1 || c->ops->bytes_sent(c) > 0, "nothing was sent");
        if (window != NULL)
            c->ops->free(c, window);
        tri_free(own);
        tri_comm_destroy(c);
    }
    return 0;
}

/* Inexact sums: the bits of the tree over ranks, on each transport, in and out of a window. */
static int run_tree(int rank, int size)
{
    enum { N = 70001 };
    struct tri_comm *c[TRANSPORTS];
    static float buf[3][N];
    void *window = NULL;
    float *part[3] = {buf[0], buf[1], buf[2]};

    for (int kind = 0; kind < TRANSPORTS; kind++)
        MP_OK(connect_kind(kind, &c[kind]));
    MP_OK(c[1]->ops->alloc(c[1], sizeof(buf[0]), &window));
    part[2] = window;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < N; i++)
            part[k][i] = 1.0f / (float)(1 + rank * 17 + i);
        MP_OK(tri_comm_allreduce(c[k > 0], part[k], N, TRI_F32, TRI_REDUCE_SUM, true));
    }
    for (int i = 0; i < N; i++) {
        float level[16];

        for (int r = 0; r < size; r++)
            level[r] = 1.0f / (float)(1 + r * 17 + i);
        for (int n = size; n > 1; n /= 2)
            for (int r = 0; r < n / 2; r++)
                level[r] = level[2 * r] + level[2 * r + 1];
        for (int k = 0; k < 3; k++)
            MP_CHECK(part[k][i] == level[0], "way %d element %d: %a, not %a", k, i,
                     (double)part[k][i], (double)level[0]);
    }
    c[1]->ops->free(c[1], window);
    tri_comm_destroy(c[1]);
    tri_comm_destroy(c[0]);
    return 0;
}

/* A tree needs a power of two: 3 ranks. */
static int run_tree_refused(int rank, int size)
{
    (void)size;
    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct tri_comm *c;
        float x = 1;

        MP_OK(connect_kind(kind, &c));
        MP_CHECK(tri_comm_allreduce(c, &x, 1, TRI_F32, TRI_REDUCE_SUM, true) == TRI_ERR_USAGE,
                 "accepted");
        MP_OK(tri_comm_allreduce(c, &x, 1, TRI_F32, TRI_REDUCE_SUM, false));
        tri_comm_destroy(c);
    }
    return 0;
}

/* Messages cut at 1000 elements against no limit. */
static int run_chunks(int rank, int size)
{
    static const int64_t lengths[] = {999, 1000, 1001, 2500, 8000, 100000};
    static float cut[100000];
    static float whole[100000];
    struct tri_comm *c;
    struct tri_comm *limited;

    (void)size;
    MP_OK(tri_comm_mpi_create(&world, "whole", TIMEOUT_MS, &c));
    MP_OK(tri_comm_mpi_create(&world, "cut", TIMEOUT_MS, &limited));
    tri_comm_mpi_set_chunk(limited, 1000 * sizeof(float));
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        for (int64_t i = 0; i < lengths[k]; i++)
            cut[i] = whole[i] = 1.0f / (float)(rank * 3 + i + 1);
        MP_OK(tri_comm_allreduce(c, whole, lengths[k], TRI_F32, TRI_REDUCE_SUM, false));
        MP_OK(tri_comm_allreduce(limited, cut, lengths[k], TRI_F32, TRI_REDUCE_SUM, false));
        MP_CHECK(memcmp(cut, whole, (size_t)lengths[k] * sizeof(float)) == 0, "length %lld",
                 (long long)lengths[k]);
        if (rank != 0)
            memset(cut, 0, (size_t)lengths[k] * sizeof(float));
        MP_OK(tri_comm_broadcast(limited, cut, (size_t)lengths[k] * sizeof(float), 0));
        MP_CHECK(memcmp(cut, whole, (size_t)lengths[k] * sizeof(float)) == 0, "broadcast %lld",
                 (long long)lengths[k]);
    }
    tri_comm_destroy(limited);
    tri_comm_destroy(c);
    return 0;
}

/* One thread of the next case: sums over its own communicator. */
struct counter_thread {
    struct tri_comm *c;
    int rank, size, seed, bad;
};

static void *count_steps(void *arg)
{
    struct counter_thread *t = arg;

    for (int step = 0; step < 1000 && t->bad == 0; step++) {
        int64_t v[4] = {t->rank, step, t->seed, 1};

        if (tri_comm_allreduce(t->c, v, 4, TRI_I64, TRI_REDUCE_SUM, false) != TRI_OK)
            t->bad = 1;
        if (v[0] != t->size * (t->size - 1) / 2 || v[1] != (int64_t)t->size * step ||
            v[2] != t->size * t->seed || v[3] != t->size)
            t->bad = 2;
    }
    return NULL;
}

/* Two threads, each with a communicator of its own, sums of equal size. */
static int run_threads(int rank, int size)
{
    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct counter_thread t[2];
        pthread_t thread;

        for (int i = 0; i < 2; i++) {
            t[i] = (struct counter_thread){.rank = rank, .size = size, .seed = 100 + i};
            MP_OK(connect_kind(kind, &t[i].c));
        }
        MP_CHECK(pthread_create(&thread, NULL, count_steps, &t[1]) == 0, "no thread");
        count_steps(&t[0]);
        pthread_join(thread, NULL);
        MP_CHECK(t[0].bad == 0 && t[1].bad == 0, "%d %d: %s", t[0].bad, t[1].bad, tri_error_text());
        tri_comm_destroy(t[0].c);
        tri_comm_destroy(t[1].c);
    }
    return 0;
}

static int run_moves(int rank, int size)
{
    enum { N = 100001 };
    static unsigned char mine[N];
    unsigned char *all = tri_calloc((size_t)size, N, "test");

    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct tri_comm *c;

        MP_OK(connect_kind(kind, &c));
        memset(mine, rank + 1, N);
        MP_OK(tri_comm_allgather(c, mine, N, all));
        for (int r = 0; r < size; r++)
            MP_CHECK(all[r * N] == r + 1 && all[r * N + N - 1] == r + 1, "part %d", r);
        for (int root = 0; root < size; root++) {
            memset(mine, rank + 1, N);
            MP_OK(tri_comm_broadcast(c, mine, N, root));
            MP_CHECK(mine[0] == root + 1 && mine[N - 1] == root + 1, "root %d: %d", root, mine[0]);
            MP_OK(tri_comm_barrier(c));
        }
        tri_comm_destroy(c);
    }
    tri_free(all);
    return 0;
}

static int run_agree(int rank, int size)
{
    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct tri_comm *c;
        tri_status mine = TRI_OK;
        char text[200];

        MP_OK(connect_kind(kind, &c));
        MP_OK(tri_comm_agree(c, TRI_OK));
        if (rank == size - 1)
            mine = tri_fail(TRI_ERR_DATA, "sample %d is bad", rank);
        MP_CHECK(tri_comm_agree(c, mine) == TRI_ERR_DATA, "code");
        (void)snprintf(text, sizeof(text), "rank %d on ", size - 1);
        MP_CHECK(size == 1 || strstr(tri_error_text(), text) == tri_error_text(), "%s",
                 tri_error_text());
        MP_CHECK(strstr(tri_error_text(), "is bad") != NULL, "%s", tri_error_text());
        MP_OK(tri_comm_same(c, "abc", 4, "the letters"));
        (void)snprintf(text, sizeof(text), "seed %d", rank == size - 1 ? 1 : 0);
        if (size > 1) {
            MP_CHECK(tri_comm_same(c, text, strlen(text), "the seed") == TRI_ERR_USAGE, "equal");
            MP_CHECK(strstr(tri_error_text(), "the seed of rank") != NULL, "%s", tri_error_text());
            MP_CHECK(tri_comm_same(c, text, rank == 0 ? 2 : 3, "the seed") == TRI_ERR_USAGE,
                     "equal");
            MP_CHECK(strstr(tri_error_text(), "of rank 1 ") != NULL, "%s", tri_error_text());
        }
        tri_comm_destroy(c);
    }
    return 0;
}

/* The last rank comes late: those who wait for it itself name it, and all end in time. */
static int run_deadline(int rank, int size)
{
    for (int kind = 0; kind < TRANSPORTS; kind++) {
        struct tri_comm *c;
        char text[64];
        int64_t begin;
        int64_t v = 1;

        MP_OK(connect_kind(kind, &c));
        MPI_Barrier(MPI_COMM_WORLD);
        c->timeout_ms = 300;
        begin = tri_now_ns();
        if (rank == size - 1) {
            (void)usleep(1000000);
        } else {
            MP_CHECK(tri_comm_allreduce(c, &v, 1, TRI_I64, TRI_REDUCE_SUM, false) ==
                         TRI_ERR_TIMEOUT,
                     "%s", tri_error_text());
            (void)snprintf(text, sizeof(text), "for rank %d on", size - 1);
            if (kind == 1 || rank == size - 2)
                MP_CHECK(strstr(tri_error_text(), text) != NULL, "%s", tri_error_text());
            MP_CHECK(strstr(tri_error_text(), "allreduce") != NULL, "%s", tri_error_text());
            MP_CHECK(tri_now_ns() - begin < 900000000, "took %lld ns",
                     (long long)(tri_now_ns() - begin));
            MP_CHECK(tri_comm_barrier(c) == TRI_ERR_COMM, "goes on");
        }
        /* Peers have left: the late rank's calls fail too, at the latest when they await an answer.
         */
        c->timeout_ms = 50;
        while (tri_comm_barrier(c) == TRI_OK)
            ;
        tri_comm_destroy(c);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return 0;
}

static int run_world(int rank, int size)
{
    struct tri_world *w;
    int64_t v = rank;

    MP_OK(tri_world_create(&world, NULL, &w));
    MP_CHECK(w->topology.size == size && w->topology.rank == rank && w->topology.nodes == 1,
             "topology");
    MP_CHECK(w->topology.local_size == size && w->topology.local_rank == rank, "local ranks");
    MP_CHECK(w->topology.host[size - 1][0] != '\0', "host names");
    MP_OK(tri_comm_allreduce(w->control, &v, 1, TRI_I64, TRI_REDUCE_SUM, false));
    MP_CHECK(v == (int64_t)size * (size - 1) / 2, "sum %lld", (long long)v);
    MP_OK(tri_comm_barrier(w->exchange));
    MP_OK(tri_comm_barrier(w->io));
    tri_world_destroy(w);
    return 0;
}

/* More shared memory than there is: no communicator, on every rank, and no window call. */
static int run_no_room(int rank, int size)
{
    const struct tri_world_cfg cfg = {.timeout_ms = TIMEOUT_MS, .staging_bytes = (size_t)1 << 45};
    struct tri_topology t;
    struct tri_comm *c;
    int64_t v = 1;

    MP_OK(tri_comm_shm_create(&world, "too large", (size_t)1 << 45, TIMEOUT_MS, &c));
    MP_CHECK(c == NULL, "made");
    MP_OK(tri_topology_init(&t, &world));
    MP_OK(tri_world_connect(&world, &t, "falls back", &cfg, &c));
    MP_CHECK(strcmp(c->ops->name, "mpi") == 0, "%s", c->ops->name);
    MP_OK(tri_comm_allreduce(c, &v, 1, TRI_I64, TRI_REDUCE_SUM, false));
    MP_CHECK(v == size, "sum %lld", (long long)v);
    tri_comm_destroy(c);
    tri_topology_finish(&t);
    return 0;
}

/* A message beyond 2^31 bytes; needs 2 GB a rank, so it is started by hand: mpirun -n 2 mp_worker
 * large. */
static int run_large(int rank, int size)
{
    const size_t bytes = ((size_t)1 << 31) + 8;
    struct tri_comm *c;
    unsigned char *buf = tri_calloc(bytes, 1, "test");
    int64_t *last = (int64_t *)(void *)(buf + bytes - 8);

    MP_CHECK(buf != NULL, "no memory");
    MP_OK(tri_comm_mpi_create(&world, "large", 60000, &c));
    *last = rank + 1;
    MP_OK(tri_comm_broadcast(c, buf, bytes, size - 1));
    MP_CHECK(*last == size, "last %lld", (long long)*last);
    *last = rank + 1;
    MP_OK(tri_comm_allreduce(c, buf, (int64_t)(bytes / 8), TRI_I64, TRI_REDUCE_SUM, false));
    MP_CHECK(*last == (int64_t)size * (size + 1) / 2, "last %lld", (long long)*last);
    tri_comm_destroy(c);
    tri_free(buf);
    return 0;
}

const struct mp_case mp_comm_cases[] = {
    {"no_room", run_no_room},
    {"large", run_large},
    {"allreduce", run_allreduce},
    {"tree", run_tree},
    {"tree_refused", run_tree_refused},
    {"chunks", run_chunks},
    {"threads", run_threads},
    {"moves", run_moves},
    {"agree", run_agree},
    {"deadline", run_deadline},
    {"world", run_world},
    {NULL, NULL},
};
