#include "tests/unit/exec/fake_comm.h"

#include "runtime/core/memory.h"

#include <criterion/criterion.h>
#include <string.h>

static double load(const void *buf, int64_t i, enum tri_dtype dtype)
{
    switch (dtype) {
    case TRI_F32:
        return (double)((const float *)buf)[i];
    case TRI_F64:
        return ((const double *)buf)[i];
    default:
        return (double)((const int64_t *)buf)[i];
    }
}

static void store(void *buf, int64_t i, enum tri_dtype dtype, double x)
{
    switch (dtype) {
    case TRI_F32:
        ((float *)buf)[i] = (float)x;
        break;
    case TRI_F64:
        ((double *)buf)[i] = x;
        break;
    default:
        ((int64_t *)buf)[i] = (int64_t)x;
        break;
    }
}

static double combine(double a, double b, enum tri_reduce op)
{
    if (op == TRI_REDUCE_SUM)
        return a + b;
    return (op == TRI_REDUCE_MAX) == (a > b) ? a : b;
}

static tri_status allreduce_fake(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                 enum tri_reduce op, bool fixed_tree)
{
    struct fake_comm *f = (struct fake_comm *)c;
    struct fake_world *w = f->world;
    size_t bytes = (size_t)count * tri_dtype_bytes(dtype);
    void *sum = tri_calloc(1, bytes + 1, "sum");

    (void)fixed_tree;
    if (++f->calls == w->fail_call) {
        tri_free(sum);
        return tri_fail(TRI_ERR_COMM, "rank %d lost its peer", c->rank);
    }
    w->buf[c->rank] = buf;
    pthread_barrier_wait(&w->barrier);
    for (int64_t i = 0; i < count; i++) {
        double x = load(w->buf[0], i, dtype);

        for (int r = 1; r < w->size; r++)
            x = combine(x, load(w->buf[r], i, dtype), op);
        store(sum, i, dtype, x);
    }
    pthread_barrier_wait(&w->barrier);
    memcpy(buf, sum, bytes);
    tri_free(sum);
    return TRI_OK;
}

static tri_status reduce_scatter_fake(struct tri_comm *c, void *buf, int64_t count,
                                      enum tri_dtype dtype, int slices, bool fixed_tree)
{
    struct fake_world *w = ((struct fake_comm *)c)->world;
    size_t elem = tri_dtype_bytes(dtype);
    int64_t first, n;

    (void)fixed_tree;
    tri_comm_slice(count, slices, c->rank, &first, &n);
    w->buf[c->rank] = buf;
    pthread_barrier_wait(&w->barrier);
    for (int64_t i = first; i < first + n; i++) {
        double x = load(w->buf[0], i, dtype);

        for (int r = 1; r < w->size; r++)
            x += load(w->buf[r], i, dtype);
        store(buf, i, dtype, x);
    }
    pthread_barrier_wait(&w->barrier);
    /* Nobody may use the rest. */
    memset(buf, 0xff, (size_t)first * elem);
    memset((char *)buf + (size_t)(first + n) * elem, 0xff, (size_t)(count - first - n) * elem);
    return TRI_OK;
}

static tri_status gather_slices_fake(struct tri_comm *c, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices)
{
    struct fake_world *w = ((struct fake_comm *)c)->world;
    size_t elem = tri_dtype_bytes(dtype);

    w->buf[c->rank] = buf;
    pthread_barrier_wait(&w->barrier);
    for (int i = 0; i < slices; i++) {
        int64_t first, n;

        tri_comm_slice(count, slices, i, &first, &n);
        if (i != c->rank)
            memcpy((char *)buf + (size_t)first * elem, (char *)w->buf[i] + (size_t)first * elem,
                   (size_t)n * elem);
    }
    pthread_barrier_wait(&w->barrier);
    return TRI_OK;
}

static tri_status broadcast_fake(struct tri_comm *c, void *buf, size_t bytes, int root)
{
    struct fake_world *w = ((struct fake_comm *)c)->world;

    w->buf[c->rank] = buf;
    pthread_barrier_wait(&w->barrier);
    if (c->rank != root)
        memcpy(buf, w->buf[root], bytes);
    pthread_barrier_wait(&w->barrier);
    return TRI_OK;
}

static tri_status allgather_fake(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    struct fake_world *w = ((struct fake_comm *)c)->world;

    memcpy((unsigned char *)recv + (size_t)c->rank * bytes, send, bytes);
    w->buf[c->rank] = recv;
    pthread_barrier_wait(&w->barrier);
    for (int r = 0; r < w->size; r++)
        if (r != c->rank)
            memcpy((unsigned char *)recv + (size_t)r * bytes,
                   (unsigned char *)w->buf[r] + (size_t)r * bytes, bytes);
    pthread_barrier_wait(&w->barrier);
    return TRI_OK;
}

static tri_status barrier_fake(struct tri_comm *c)
{
    pthread_barrier_wait(&((struct fake_comm *)c)->world->barrier);
    return TRI_OK;
}

static const struct tri_comm_ops fake_ops = {.name = "fake",
                                             .allreduce = allreduce_fake,
                                             .reduce_scatter = reduce_scatter_fake,
                                             .gather_slices = gather_slices_fake,
                                             .broadcast = broadcast_fake,
                                             .allgather = allgather_fake,
                                             .barrier = barrier_fake};

void fake_world_init(struct fake_world *w, int size)
{
    *w = (struct fake_world){.size = size};
    pthread_barrier_init(&w->barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        w->comm[r].world = w;
        w->comm[r].base = (struct tri_comm){
            .ops = &fake_ops, .rank = r, .size = size, .name = "fake", .timeout_ms = 1000};
    }
}

void fake_world_finish(struct fake_world *w)
{
    pthread_barrier_destroy(&w->barrier);
}

struct job {
    struct tri_comm *comm;
    int (*body)(struct tri_comm *comm, void *arg);
    void *arg;
    int answer;
};

static void *run_job(void *arg)
{
    struct job *j = arg;

    j->answer = j->body(j->comm, j->arg);
    return NULL;
}

void fake_world_run(struct fake_world *w, int (*body)(struct tri_comm *comm, void *arg), void *arg)
{
    struct job job[FAKE_MAX_RANKS];
    pthread_t thread[FAKE_MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        job[r] = (struct job){.comm = &w->comm[r].base, .body = body, .arg = arg};
        cr_assert_eq(pthread_create(&thread[r], NULL, run_job, &job[r]), 0);
    }
    for (int r = 0; r < w->size; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < w->size; r++)
        cr_assert_eq(job[r].answer, 0, "rank %d failed at check %d", r, job[r].answer);
}
