/* Sums by levels: slices on every transport, and all three phases over pretended nodes. */
#include "mp_worker.h"

#include "collectives/comm_mpi.h"
#include "collectives/comm_shm.h"
#include "collectives/world.h"
#include "runtime/core/memory.h"

#include <mpi.h>
#include <string.h>

enum { TIMEOUT_MS = 20000, STAGING = 1 << 16, MOST = 1000003 };

static const MPI_Comm world = MPI_COMM_WORLD;
static const int64_t counts[] = {1, 2, 3, 7, 33, 5000, MOST};
enum { NCOUNTS = sizeof(counts) / sizeof(counts[0]) };

/* Reduce-scatter and gather over c; what a rank does not own is spoilt between them. Small whole
 * numbers: exact in every type. */
static int check_slices(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype t, int slices,
                        int rank, int size)
{
    int64_t first, n;
    float *f = buf;
    uint16_t *h = buf;

    for (int64_t i = 0; i < count; i++)
        if (t == TRI_F32)
            f[i] = (float)(rank + 1 + i % 5);
        else
            h[i] = tri_bf16_from_f32((float)(rank + 1 + i % 5));
    MP_OK(tri_comm_reduce_scatter(c, buf, count, t, slices, false));
    MP_OK(tri_comm_barrier(c));
    tri_comm_slice(count, slices, rank, &first, &n);
    memset(buf, 0x7f, (size_t)first * tri_dtype_bytes(t));
    memset((char *)buf + (size_t)(first + n) * tri_dtype_bytes(t), 0x7f,
           (size_t)(count - first - n) * tri_dtype_bytes(t));
    MP_OK(tri_comm_gather_slices(c, buf, count, t, slices));
    for (int64_t i = 0; i < count; i++) {
        float is = t == TRI_F32 ? f[i] : tri_bf16_to_f32(h[i]);
        float want = (float)(size * (size + 1) / 2 + size * (int)(i % 5));

        MP_CHECK(is == want, "%s %s slices %d count %lld element %lld: %g, not %g", c->ops->name,
                 tri_dtype_name(t), slices, (long long)count, (long long)i, (double)is,
                 (double)want);
    }
    return 0;
}

static int run_slices(int rank, int size)
{
    void *own = tri_alloc_aligned((size_t)MOST * 4, "test");

    for (int kind = 0; kind < 2; kind++) {
        struct tri_comm *c = NULL;
        void *buf[2] = {own, NULL};

        if (kind == 0)
            MP_OK(tri_comm_mpi_create(&world, "test", TIMEOUT_MS, &c));
        else
            MP_OK(tri_comm_shm_create(&world, "test", STAGING, TIMEOUT_MS, &c));
        MP_CHECK(c != NULL, "no communicator");
        if (c->ops->alloc != NULL)
            MP_OK(c->ops->alloc(c, (size_t)MOST * 4, &buf[1]));
        for (int slices = 1; slices <= size; slices++)
            for (int k = 0; k < NCOUNTS; k++)
                for (int b = 0; b < 2 && buf[b] != NULL; b++)
                    if (check_slices(c, buf[b], counts[k], TRI_F32, slices, rank, size) != 0 ||
                        check_slices(c, buf[b], counts[k], TRI_BF16, slices, rank, size) != 0)
                        return 1;
        if (buf[1] != NULL)
            c->ops->free(c, buf[1]);
        tri_comm_destroy(c);
    }
    tri_free(own);
    return 0;
}

/* The three phases in place over count elements. */
static tri_status sum_levels(const struct tri_world *w, float *x, int64_t count, bool tree)
{
    const struct tri_topology *t = &w->topology;
    int64_t first, n;

    TRI_TRY(tri_comm_reduce_scatter(w->intra, x, count, TRI_F32, t->slices, tree));
    tri_comm_slice(count, t->slices, t->local_rank, &first, &n);
    if (n > 0)
        TRI_TRY(tri_comm_allreduce(w->inter, x + first, n, TRI_F32, TRI_REDUCE_SUM, tree));
    return tri_comm_gather_slices(w->intra, x, count, TRI_F32, t->slices);
}

static int check_world(const struct tri_world *w, int rank, int size)
{
    const struct tri_topology *t = &w->topology;
    float *x = tri_alloc_aligned((size_t)MOST * sizeof(*x), "test");
    float *flat = tri_alloc_aligned((size_t)MOST * sizeof(*flat), "test");
    uint64_t before = tri_world_exchange_bytes(w);
    bool tree = tri_topology_regular(t);

    MP_CHECK(x != NULL && flat != NULL, "no memory");
    for (int k = 0; k < NCOUNTS; k++) {
        for (int64_t i = 0; i < counts[k]; i++)
            x[i] = (float)rank;
        MP_OK(sum_levels(w, x, counts[k], false));
        for (int64_t i = 0; i < counts[k]; i++)
            MP_CHECK(x[i] / (float)size == (float)(size - 1) / 2,
                     "nodes %d slices %d count %lld element %lld: mean %g", t->nodes, t->slices,
                     (long long)counts[k], (long long)i, (double)(x[i] / (float)size));
        for (int64_t i = 0; i < counts[k]; i++)
            x[i] = flat[i] = 1.0f / (float)(3 * rank + 1 + i % 97);
        MP_OK(sum_levels(w, x, counts[k], tree));
        MP_OK(tri_comm_allreduce(w->exchange, flat, counts[k], TRI_F32, TRI_REDUCE_SUM, tree));
        /* size - 1 roundings of sums below size in either order */
        for (int64_t i = 0; i < counts[k]; i++)
            MP_CHECK(tree ? x[i] == flat[i] : x[i] - flat[i] < 1e-5f && flat[i] - x[i] < 1e-5f,
                     "count %lld element %lld: %a, flat %a", (long long)counts[k], (long long)i,
                     (double)x[i], (double)flat[i]);
    }
    MP_CHECK(size == 1 || tri_world_exchange_bytes(w) > before, "no bytes");
    tri_free(x);
    tri_free(flat);
    return 0;
}

/* Every way to put these ranks on two nodes, one node, a node each, and real nodes. */
static int run_levels(int rank, int size)
{
    for (int first = 0; first <= size; first++) {
        int64_t nodes[16];
        size_t n = 0;
        struct tri_world *w;

        if (first == 0)
            for (n = 0; n < (size_t)size; n++)
                nodes[n] = 1;
        else
            nodes[n++] = first;
        if (first > 0 && first < size)
            nodes[n++] = size - first;
        MP_OK(tri_world_create(&world, NULL, &w));
        MP_OK(tri_topology_pretend(&w->topology, nodes, n));
        MP_CHECK(w->topology.nodes == (int)n, "nodes %d", w->topology.nodes);
        MP_OK(tri_world_add_levels(w, &world));
        if (check_world(w, rank, size) != 0)
            return 1;
        tri_world_destroy(w);
    }
    return 0;
}

/* 3 + 2 ranks: who owns what; nodes that do not hold all ranks are refused. */
static int run_topology(int rank, int size)
{
    static const int64_t nodes[] = {3, 2}, even[] = {2, 2};
    struct tri_topology t;

    MP_CHECK(size == 5, "size %d", size);
    MP_OK(tri_topology_init(&t, &world));
    MP_CHECK(t.nodes == 1 && t.slices == 5 && !tri_topology_regular(&t), "real nodes");
    MP_CHECK(tri_topology_pretend(&t, even, 2) == TRI_ERR_USAGE, "accepted");
    MP_OK(tri_topology_pretend(&t, nodes, 2));
    MP_CHECK(t.nodes == 2 && t.slices == 2 && t.node == (rank >= 3) && !tri_topology_regular(&t),
             "nodes %d slices %d", t.nodes, t.slices);
    MP_CHECK(t.local_rank == (rank < 3 ? rank : rank - 3) && t.local_size == (rank < 3 ? 3 : 2),
             "local rank %d of %d", t.local_rank, t.local_size);
    tri_topology_finish(&t);
    return 0;
}

const struct mp_case mp_level_cases[] = {
    {"slices", run_slices},
    {"levels", run_levels},
    {"topology", run_topology},
    {NULL, NULL},
};
