/* See comm_mpi.h. One thread at a time; a call that failed leaves the communicator broken, as
 * messages may still be under way. Sums run in both lanes (mpi_sum.h), all else in the first. */
#include "collectives/comm_mpi.h"

#include "collectives/mpi_lane.h"
#include "collectives/mpi_sum.h"
#include "collectives/plan_cache.h"
#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/wait.h"
#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <mpi.h>
#include <stdatomic.h>
#include <string.h>

struct comm_mpi {
    struct tri_comm base;
    struct tri_mpi_port port;
    char *name;
    char (*host)[TRI_HOST_BYTES]; /* of each rank */
    tri_rounds_make *forced;      /* algorithm of all sums; NULL: by size */
    struct tri_mpi_lane lane[TRI_LANES];
    struct tri_plan_cache plans;
    bool broken;
    struct comm_mpi *next; /* in the list of abandoned ones */
};

/* Messages that never completed still name the buffers of a communicator that failed: it stays,
 * with its MPI side, until the process ends. */
static struct comm_mpi *_Atomic abandoned;

static struct comm_mpi *self_of(struct tri_comm *c)
{
    return (struct comm_mpi *)c;
}

static tri_status fail_timeout(const struct comm_mpi *m, const char *what)
{
    int peer = m->base.rank;
    int awaited;

    for (int k = 0; k < TRI_LANES; k++) {
        awaited = tri_mpi_lane_awaited(&m->lane[k]);
        peer = awaited >= 0 ? awaited : peer;
    }
    return tri_fail(TRI_ERR_TIMEOUT,
                    "rank %d on %s: %s on communicator '%s' waited %lld ms for rank %d on %s",
                    m->base.rank, m->host[m->base.rank], what, m->name,
                    (long long)m->base.timeout_ms, peer, m->host[peer]);
}

static tri_status find_plan(struct comm_mpi *m, struct tri_plan_key key,
                            const struct tri_rounds **out)
{
    return tri_plan_cache_find(&m->plans, m->base.rank, m->base.size, key, out);
}

/* Runs a plan over `data` to its end or to the deadline. */
static tri_status run_plan(struct comm_mpi *m, const struct tri_rounds *plan, void *data,
                           size_t elem, tri_reduce_fn *reduce, struct tri_wait *wait,
                           const char *what)
{
    struct tri_run run;
    bool done = false;
    tri_status st;

    TRI_TRY(tri_mpi_lane_begin(&m->lane[0], plan, data, elem, reduce, &run));
    do {
        st = tri_mpi_lane_poll(&m->lane[0], &run, wait, &done);
        if (st == TRI_OK && !done && !tri_wait_pause(wait))
            st = fail_timeout(m, what);
    } while (st == TRI_OK && !done);
    m->broken = m->broken || st != TRI_OK;
    return st;
}

static tri_status check_usable(const struct comm_mpi *m, const char *what)
{
    if (!m->broken)
        return TRI_OK;
    return tri_fail(TRI_ERR_COMM, "rank %d on %s: %s on communicator '%s', which has failed before",
                    m->base.rank, m->host[m->base.rank], what, m->name);
}

static tri_status run_sum(struct comm_mpi *m, struct tri_mpi_sum *s, struct tri_wait *wait)
{
    bool done = false;

    for (;;) {
        TRI_TRY(tri_mpi_sum_poll(s, wait, &done));
        if (done)
            return TRI_OK;
        if (!tri_wait_pause(wait))
            return fail_timeout(m, "allreduce");
    }
}

static tri_status allreduce_mpi(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                enum tri_reduce op, bool fixed_tree)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    struct tri_mpi_sum s;
    tri_status st;

    TRI_TRY(check_usable(m, "allreduce"));
    TRI_TRY(tri_reduce_check_tree(c->size, fixed_tree));
    TRI_TRY(tri_mpi_sum_begin(&s, m->lane, &m->plans, m->forced, buf, count, dtype, op));
    st = run_sum(m, &s, &wait);
    m->broken = m->broken || st != TRI_OK;
    return st;
}

static tri_status reduce_scatter_mpi(struct tri_comm *c, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices, bool fixed_tree)
{
    struct comm_mpi *m = self_of(c);
    size_t elem = tri_dtype_bytes(tri_reduce_dtype(dtype));
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    struct tri_plan_key wanted = {
        .make_with = tri_rounds_scatter_slices, .count = count, .number = slices};
    const struct tri_rounds *plan;
    tri_reduce_fn *fn;
    int64_t first, n;
    void *data;

    TRI_TRY(check_usable(m, "reduce-scatter"));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), TRI_REDUCE_SUM, &fn));
    TRI_TRY(tri_reduce_check_tree(c->size, fixed_tree));
    TRI_TRY(find_plan(m, wanted, &plan));
    TRI_TRY(tri_mpi_lane_widen(&m->lane[0], buf, count, dtype, &data));
    TRI_TRY(run_plan(m, plan, data, elem, fn, &wait, "reduce-scatter"));
    tri_comm_slice(count, slices, c->rank, &first, &n);
    if (data != buf)
        tri_reduce_narrow((unsigned char *)buf + (size_t)first * tri_dtype_bytes(dtype),
                          (float *)data + first, n, dtype);
    return TRI_OK;
}

static tri_status gather_slices_mpi(struct tri_comm *c, void *buf, int64_t count,
                                    enum tri_dtype dtype, int slices)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    struct tri_plan_key wanted = {
        .make_with = tri_rounds_gather_slices, .count = count, .number = slices};
    const struct tri_rounds *plan;

    TRI_TRY(check_usable(m, "gather"));
    TRI_TRY(find_plan(m, wanted, &plan));
    return run_plan(m, plan, buf, tri_dtype_bytes(dtype), NULL, &wait, "gather");
}

static tri_status broadcast_mpi(struct tri_comm *c, void *buf, size_t bytes, int root)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    const struct tri_rounds *plan;

    TRI_TRY(check_usable(m, "broadcast"));
    TRI_TRY(find_plan(m,
                      (struct tri_plan_key){.make_with = tri_rounds_broadcast,
                                            .count = (int64_t)bytes,
                                            .number = root},
                      &plan));
    return run_plan(m, plan, buf, 1, NULL, &wait, "broadcast");
}

static tri_status allgather_mpi(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    const struct tri_rounds *plan;

    TRI_TRY(check_usable(m, "allgather"));
    TRI_TRY(find_plan(
        m, (struct tri_plan_key){.make = tri_rounds_allgather, .count = (int64_t)bytes}, &plan));
    if (bytes > 0)
        memmove((unsigned char *)recv + (size_t)c->rank * bytes, send, bytes);
    return run_plan(m, plan, recv, 1, NULL, &wait, "allgather");
}

static tri_status barrier_mpi(struct tri_comm *c)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    const struct tri_rounds *plan;
    char token = 0;

    TRI_TRY(check_usable(m, "barrier"));
    TRI_TRY(find_plan(m, (struct tri_plan_key){.make = tri_rounds_barrier}, &plan));
    return run_plan(m, plan, &token, 1, NULL, &wait, "barrier");
}

static uint64_t bytes_sent_mpi(const struct tri_comm *c)
{
    return ((const struct comm_mpi *)(const void *)c)->port.sent;
}

static void destroy_mpi(struct tri_comm *c)
{
    struct comm_mpi *m = self_of(c);

    if (m == NULL)
        return;
    if (m->broken) {
        m->next = atomic_load(&abandoned);
        while (!atomic_compare_exchange_weak(&abandoned, &m->next, m))
            ;
        return;
    }
    tri_plan_cache_finish(&m->plans);
    if (m->port.comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&m->port.comm);
    for (int k = 0; k < TRI_LANES; k++)
        tri_mpi_lane_finish(&m->lane[k]);
    tri_free(m->host);
    tri_free(m->name);
    tri_free(m);
}

static const struct tri_comm_ops mpi_ops = {
    .name = "mpi",
    .allreduce = allreduce_mpi,
    .reduce_scatter = reduce_scatter_mpi,
    .gather_slices = gather_slices_mpi,
    .broadcast = broadcast_mpi,
    .allgather = allgather_mpi,
    .barrier = barrier_mpi,
    .bytes_sent = bytes_sent_mpi,
    .destroy = destroy_mpi,
};

/* Duplicates the communicator and collects the host names. */
static tri_status connect_ranks(struct comm_mpi *m, MPI_Comm parent)
{
    struct tri_mpi_port *p = &m->port;
    char host[TRI_HOST_BYTES] = "";

    TRI_MPI(p, MPI_Comm_dup(parent, &p->comm));
    TRI_MPI(p, MPI_Comm_set_errhandler(p->comm, MPI_ERRORS_RETURN));
    TRI_MPI(p, MPI_Comm_rank(p->comm, &p->rank));
    TRI_MPI(p, MPI_Comm_size(p->comm, &p->size));
    m->base.rank = p->rank;
    m->base.size = p->size;
    m->host = tri_calloc((size_t)m->base.size, sizeof(*m->host), "host names");
    if (m->host == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate host names", m->name);
    tri_host_name(host, sizeof(host));
    TRI_MPI(p, MPI_Allgather(host, TRI_HOST_BYTES, MPI_CHAR, m->host, TRI_HOST_BYTES, MPI_CHAR,
                             p->comm));
    return TRI_OK;
}

tri_status tri_comm_mpi_create(const void *mpi_comm, const char *name, int64_t timeout_ms,
                               struct tri_comm **out)
{
    struct comm_mpi *m = tri_calloc(1, sizeof(*m), "communicator over MPI");
    tri_status st;

    if (m == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", name,
                        sizeof(*m));
    m->name = tri_strdup(name);
    m->port =
        (struct tri_mpi_port){.comm = MPI_COMM_NULL, .name = m->name, .chunk = TRI_PORT_CHUNK};
    for (int k = 0; k < TRI_LANES; k++)
        tri_mpi_lane_init(&m->lane[k], &m->port, k + 1);
    m->base.ops = &mpi_ops;
    m->base.timeout_ms = timeout_ms;
    m->base.name = m->name;
    st = m->name != NULL
             ? connect_ranks(m, *(const MPI_Comm *)mpi_comm)
             : tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate its name", name);
    if (st != TRI_OK) {
        destroy_mpi(&m->base);
        return st;
    }
    *out = &m->base;
    return TRI_OK;
}

void tri_comm_mpi_set_chunk(struct tri_comm *c, size_t bytes)
{
    TRI_ASSERT(c->ops == &mpi_ops && bytes > 0 && bytes <= TRI_PORT_CHUNK);
    self_of(c)->port.chunk = bytes;
}

void tri_comm_mpi_set_algorithm(struct tri_comm *c, tri_rounds_make *make)
{
    TRI_ASSERT(c->ops == &mpi_ops);
    self_of(c)->forced = make;
}
