/* See bench_levels.h. The calling thread is the level inside the node; the other one has a thread
 * of its own, which waits for a bucket to be scattered and tells when its slice is summed. */
#include "launch/bench_levels.h"

#include "collectives/world.h"
#include "optim/exchange_pass.h"
#include "runtime/core/counter.h"
#include "runtime/core/memory.h"

#include <pthread.h>
#include <stdio.h>

struct tri_bench_levels {
    struct tri_comm *intra, *inter; /* inter NULL: this rank owns no slice */
    int slices, nodes;
    unsigned char *buf, *apart; /* apart: what comes over the link */
    pthread_t thread;
    bool started;
    /* Buckets so far, of all sums: scattered by the caller, summed by the thread. */
    struct tri_counter scattered, summed;
    uint32_t before; /* buckets of earlier sums */
    bool stop;       /* set before the last advance of `scattered` */
    int64_t count, bucket;
    enum tri_dtype dtype;
    tri_status st; /* of the thread, with its message */
    char message[512];
};

/* Elements of bucket i. */
static int64_t part(const struct tri_bench_levels *l, int64_t i, unsigned char **at)
{
    int64_t first = i * l->bucket;

    *at = l->buf + (size_t)first * tri_dtype_bytes(l->dtype);
    return l->count - first < l->bucket ? l->count - first : l->bucket;
}

static tri_status sum_slice(struct tri_bench_levels *l, int64_t i)
{
    unsigned char *at;
    int64_t n = part(l, i, &at), first;

    if (l->inter == NULL)
        return TRI_OK;
    tri_comm_slice(n, l->slices, tri_comm_rank(l->intra), &first, &n);
    return tri_comm_allreduce(l->inter, at + (size_t)first * tri_dtype_bytes(l->dtype), n, l->dtype,
                              TRI_REDUCE_SUM, false);
}

static void *run_inter(void *arg)
{
    struct tri_bench_levels *l = arg;

    for (uint32_t done = 0;; done++) {
        if (tri_counter_wait(&l->scattered, done + 1, -1) != TRI_OK || l->stop)
            return NULL;
        if (l->st == TRI_OK)
            l->st = sum_slice(l, (int64_t)(done - l->before));
        if (l->st != TRI_OK)
            (void)snprintf(l->message, sizeof(l->message), "%s", tri_error_text());
        tri_counter_set(&l->summed, done + 1);
    }
}

tri_status tri_bench_levels_sum(struct tri_bench_levels *l, int64_t count, enum tri_dtype dtype)
{
    int64_t elem = (int64_t)tri_dtype_bytes(dtype);
    int64_t even = (count + TRI_SPREAD_BUCKETS - 1) / TRI_SPREAD_BUCKETS;
    int64_t least = TRI_FIRST_BUCKET_BYTES / elem, most = TRI_BUCKET_BYTES / elem;
    unsigned char *at;
    int64_t n, buckets;

    l->dtype = dtype;
    l->count = count;
    l->bucket = even < least ? least : even > most ? most : even;
    buckets = (count + l->bucket - 1) / l->bucket;
    for (int64_t i = 0; i < buckets; i++) {
        n = part(l, i, &at);
        TRI_TRY(tri_comm_reduce_scatter(l->intra, at, n, dtype, l->slices, false));
        tri_counter_set(&l->scattered, l->before + (uint32_t)i + 1);
    }
    for (int64_t i = 0; i < buckets; i++) {
        n = part(l, i, &at);
        TRI_TRY(tri_counter_wait(&l->summed, l->before + (uint32_t)i + 1, -1));
        if (l->st != TRI_OK) {
            tri_error_set(l->message);
            return l->st;
        }
        TRI_TRY(tri_comm_gather_slices(l->intra, at, n, dtype, l->slices));
    }
    l->before += (uint32_t)buckets;
    return TRI_OK;
}

tri_status tri_bench_levels_link(struct tri_bench_levels *l, size_t bytes)
{
    size_t slice = 2 * bytes / (size_t)(l->nodes * l->slices);

    if (l->inter == NULL)
        return TRI_OK;
    return tri_comm_allgather(l->inter, l->buf, slice, l->apart);
}

void *tri_bench_levels_buffer(struct tri_bench_levels *l)
{
    return l->buf;
}

/* The shared buffer, or any where the ranks of a node do not share memory. */
static tri_status allocate(struct tri_bench_levels *l, size_t bytes)
{
    void *buf = NULL;

    if (l->intra->ops->alloc != NULL)
        TRI_TRY(l->intra->ops->alloc(l->intra, bytes, &buf));
    else
        buf = tri_alloc_aligned(bytes, "data of a benchmark");
    l->buf = buf;
    l->apart = tri_alloc_aligned(2 * bytes / (size_t)l->slices, "data of a benchmark");
    if (l->buf == NULL || l->apart == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu bytes", bytes);
    return TRI_OK;
}

tri_status tri_bench_levels_create(const void *mpi_comm, const struct tri_topology *t, size_t bytes,
                                   int64_t timeout_ms, struct tri_bench_levels **out)
{
    const struct tri_world_cfg cfg = {.timeout_ms = timeout_ms};
    struct tri_bench_levels *l = tri_calloc(1, sizeof(*l), "two levels");
    tri_status st;

    if (l == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate two levels");
    l->slices = t->slices;
    l->nodes = t->nodes;
    TRI_TRY_GOTO(st, tri_world_connect_levels(mpi_comm, t, &cfg, &l->intra, &l->inter), fail);
    TRI_TRY_GOTO(st, allocate(l, bytes), fail);
    l->started = pthread_create(&l->thread, NULL, run_inter, l) == 0;
    if (!l->started)
        TRI_TRY_GOTO(st, tri_fail(TRI_ERR_NOMEM, "bench: cannot start a thread"), fail);
    *out = l;
    return TRI_OK;

fail:
    tri_bench_levels_destroy(l);
    return st;
}

void tri_bench_levels_destroy(struct tri_bench_levels *l)
{
    if (l == NULL)
        return;
    if (l->started) {
        l->stop = true;
        tri_counter_set(&l->scattered, l->before + 1);
        (void)pthread_join(l->thread, NULL);
    }
    if (l->intra != NULL && l->intra->ops->alloc != NULL)
        l->intra->ops->free(l->intra, l->buf);
    else
        tri_free(l->buf);
    tri_free(l->apart);
    tri_comm_destroy(l->inter);
    tri_comm_destroy(l->intra);
    tri_free(l);
}
