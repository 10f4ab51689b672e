/* See comm_mpi.h. One thread at a time; a call that failed leaves the communicator broken, as
 * messages may still be under way. */
#include "collectives/comm_mpi.h"

#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/wait.h"
#include "runtime/core/memory.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>
#include <unistd.h>

enum {
    TAG = 1,
    HOST_BYTES = 64,
    CHUNK_BYTES = 1 << 30,   /* below 2^31, the limit of an MPI count */
    SMALL_BYTES = 1 << 14,   /* up to here latency counts: fewest rounds */
    SEGMENT_BYTES = 8 << 20, /* a reduction is cut here, so that the scratch stays in the cache */
    PLAN_CACHE = 64          /* plans kept; a step uses few different counts */
};

typedef tri_status make_with_number(int rank, int size, int number, int64_t count,
                                    struct tri_rounds *out);

/* A plan and what it was made for. */
struct cached {
    tri_rounds_make *make;       /* NULL: by make_with */
    make_with_number *make_with; /* broadcast from root `number`, parts of `number` slices */
    int64_t count;
    int number;
    struct tri_rounds rounds;
};

struct comm_mpi {
    struct tri_comm base;
    struct tri_link link;
    MPI_Comm comm;
    char *name;
    char (*host)[HOST_BYTES]; /* of each rank */
    size_t chunk;             /* largest message */
    tri_rounds_make *forced;  /* algorithm of all sums; NULL: by size */
    MPI_Request *request;     /* under way; completed ones are MPI_REQUEST_NULL */
    int *request_peer;
    int *finished; /* work array of MPI_Testsome */
    int nrequests, request_cap;
    int nopen; /* requests that are not complete */
    struct cached plan[PLAN_CACHE];
    int nplans;
    unsigned char *scratch;
    size_t scratch_bytes;
    float *wide; /* widened operand of a 16-bit reduction */
    size_t wide_bytes;
    uint64_t sent;
    bool broken;
};

static tri_status fail_mpi(const struct comm_mpi *m, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;

    (void)MPI_Error_string(code, text, &len);
    return tri_fail(TRI_ERR_COMM, "rank %d: communicator '%s': %s failed: %s", m->base.rank,
                    m->name, what, text);
}

#define TRI_MPI(m, call)                                                                           \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MPI_SUCCESS)                                                                  \
            return fail_mpi(m, code_, #call);                                                      \
    } while (0)

static struct comm_mpi *self_of(struct tri_comm *c)
{
    return (struct comm_mpi *)c;
}

static struct comm_mpi *of_link(struct tri_link *l)
{
    return (struct comm_mpi *)(void *)((char *)l - offsetof(struct comm_mpi, link));
}

static tri_status grow_requests(struct comm_mpi *m)
{
    int cap = m->request_cap > 0 ? 2 * m->request_cap : 16;
    void *request = tri_realloc(m->request, (size_t)cap, sizeof(*m->request), "requests");
    void *peer;
    void *finished;

    if (request != NULL)
        m->request = request;
    peer = tri_realloc(m->request_peer, (size_t)cap, sizeof(*m->request_peer), "peers of requests");
    if (peer != NULL)
        m->request_peer = peer;
    finished = tri_realloc(m->finished, (size_t)cap, sizeof(*m->finished), "finished requests");
    if (finished != NULL)
        m->finished = finished;
    if (request == NULL || peer == NULL || finished == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %d requests", m->name,
                        cap);
    m->request_cap = cap;
    return TRI_OK;
}

/* Room for one more request with `peer`. */
static tri_status next_request(struct comm_mpi *m, int peer, MPI_Request **out)
{
    if (m->nrequests == m->request_cap)
        TRI_TRY(grow_requests(m));
    m->request_peer[m->nrequests] = peer;
    *out = &m->request[m->nrequests];
    return TRI_OK;
}

static size_t piece(const struct comm_mpi *m, size_t bytes, size_t at)
{
    return bytes - at < m->chunk ? bytes - at : m->chunk;
}

static tri_status send_mpi(struct tri_link *l, int peer, const void *data, size_t bytes)
{
    struct comm_mpi *m = of_link(l);
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += m->chunk) {
        TRI_TRY(next_request(m, peer, &request));
        TRI_MPI(m, MPI_Isend((const char *)data + at, (int)piece(m, bytes, at), MPI_BYTE, peer, TAG,
                             m->comm, request));
        m->nrequests++;
        m->nopen++;
    }
    m->sent += bytes;
    return TRI_OK;
}

static tri_status recv_mpi(struct tri_link *l, int peer, void *data, size_t bytes)
{
    struct comm_mpi *m = of_link(l);
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += m->chunk) {
        TRI_TRY(next_request(m, peer, &request));
        TRI_MPI(m, MPI_Irecv((char *)data + at, (int)piece(m, bytes, at), MPI_BYTE, peer, TAG,
                             m->comm, request));
        m->nrequests++;
        m->nopen++;
    }
    return TRI_OK;
}

static tri_status test_mpi(struct tri_link *l, bool *done)
{
    struct comm_mpi *m = of_link(l);
    int n = 0;

    if (m->nopen > 0) {
        TRI_MPI(m, MPI_Testsome(m->nrequests, m->request, &n, m->finished, MPI_STATUSES_IGNORE));
        if (n != MPI_UNDEFINED)
            m->nopen -= n;
    }
    *done = m->nopen == 0;
    if (*done)
        m->nrequests = 0;
    return TRI_OK;
}

static tri_status fail_timeout(const struct comm_mpi *m, const char *what)
{
    int peer = m->base.rank;

    for (int i = 0; i < m->nrequests; i++)
        if (m->request[i] != MPI_REQUEST_NULL)
            peer = m->request_peer[i];
    return tri_fail(TRI_ERR_TIMEOUT,
                    "rank %d on %s: %s on communicator '%s' waited %lld ms for rank %d on %s",
                    m->base.rank, m->host[m->base.rank], what, m->name,
                    (long long)m->base.timeout_ms, peer, m->host[peer]);
}

static tri_status grow_scratch(struct comm_mpi *m, size_t bytes)
{
    if (bytes <= m->scratch_bytes)
        return TRI_OK;
    tri_free(m->scratch);
    m->scratch_bytes = 0;
    m->scratch = tri_alloc_aligned(bytes, "scratch of a communicator");
    if (m->scratch == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", m->name,
                        bytes);
    m->scratch_bytes = bytes;
    return TRI_OK;
}

/* The plan for what `wanted` says, from the cache or new; when the cache is full the oldest one
 * goes. */
static tri_status find_plan(struct comm_mpi *m, struct cached wanted, const struct tri_rounds **out)
{
    struct cached *slot;

    for (int i = 0; i < m->nplans && i < PLAN_CACHE; i++) {
        slot = &m->plan[i];
        if (slot->make == wanted.make && slot->make_with == wanted.make_with &&
            slot->count == wanted.count && slot->number == wanted.number) {
            *out = &slot->rounds;
            return TRI_OK;
        }
    }
    if (wanted.make != NULL)
        TRI_TRY(wanted.make(m->base.rank, m->base.size, wanted.count, &wanted.rounds));
    else
        TRI_TRY(wanted.make_with(m->base.rank, m->base.size, wanted.number, wanted.count,
                                 &wanted.rounds));
    slot = &m->plan[m->nplans % PLAN_CACHE];
    tri_rounds_finish(&slot->rounds);
    *slot = wanted;
    m->nplans = m->nplans + 1 < 2 * PLAN_CACHE ? m->nplans + 1 : PLAN_CACHE;
    *out = &slot->rounds;
    return TRI_OK;
}

/* Runs a plan over `data` to its end or to the deadline. */
static tri_status run_plan(struct comm_mpi *m, const struct tri_rounds *plan, void *data,
                           size_t elem, tri_reduce_fn *reduce, struct tri_wait *wait,
                           const char *what)
{
    struct tri_run run = {.plan = plan, .elem = elem, .reduce = reduce, .rank = m->base.rank};
    tri_status st = TRI_OK;
    bool done = false;

    TRI_TRY(grow_scratch(m, (size_t)plan->scratch * elem));
    run.area[TRI_AREA_DATA] = data;
    run.area[TRI_AREA_SCRATCH] = m->scratch;
    while (st == TRI_OK && !done) {
        int32_t round = run.round;

        st = tri_run_poll(&run, &m->link, &done);
        if (run.round != round)
            wait->turns = 0;
        if (st == TRI_OK && !done && !tri_wait_pause(wait))
            st = fail_timeout(m, what);
    }
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

/* The algorithm for a segment. The choice depends on what all ranks know. */
static tri_rounds_make *choose(const struct comm_mpi *m, int64_t count, size_t elem)
{
    int size = m->base.size;

    if (m->forced != NULL)
        return m->forced;
    if ((size_t)count * elem <= SMALL_BYTES)
        return tri_rounds_doubling;
    return (size & (size - 1)) == 0 ? tri_rounds_halving : tri_rounds_ring;
}

/* Widens elements of a 16-bit type, or points at them. */
static tri_status widen(struct comm_mpi *m, void *at, int64_t count, enum tri_dtype dtype,
                        void **out)
{
    size_t bytes = (size_t)count * sizeof(float);

    *out = at;
    if (tri_reduce_dtype(dtype) == dtype)
        return TRI_OK;
    if (bytes > m->wide_bytes) {
        tri_free(m->wide);
        m->wide_bytes = 0;
        m->wide = tri_alloc_aligned(bytes, "widened operand of a reduction");
        if (m->wide == NULL)
            return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", m->name,
                            bytes);
        m->wide_bytes = bytes;
    }
    tri_reduce_widen(m->wide, at, count, dtype);
    *out = m->wide;
    return TRI_OK;
}

static tri_status check_tree(const struct tri_comm *c, bool fixed_tree)
{
    if (fixed_tree && (c->size & (c->size - 1)) != 0)
        return tri_fail(TRI_ERR_USAGE, "a fixed-tree sum needs a power of two of ranks, not %d",
                        c->size);
    return TRI_OK;
}

static tri_status allreduce_mpi(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                enum tri_reduce op, bool fixed_tree)
{
    struct comm_mpi *m = self_of(c);
    size_t elem = tri_dtype_bytes(tri_reduce_dtype(dtype));
    int64_t segment = (int64_t)(SEGMENT_BYTES / elem);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    tri_reduce_fn *fn;

    TRI_TRY(check_usable(m, "allreduce"));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), op, &fn));
    TRI_TRY(check_tree(c, fixed_tree));
    for (int64_t at = 0; at < count; at += segment) {
        int64_t now = count - at < segment ? count - at : segment;
        unsigned char *part = (unsigned char *)buf + (size_t)at * tri_dtype_bytes(dtype);
        const struct tri_rounds *plan;
        void *data;

        TRI_TRY(find_plan(m, (struct cached){.make = choose(m, now, elem), .count = now}, &plan));
        TRI_TRY(widen(m, part, now, dtype, &data));
        TRI_TRY(run_plan(m, plan, data, elem, fn, &wait, "allreduce"));
        if (data != part)
            tri_reduce_narrow(part, data, now, dtype);
    }
    return TRI_OK;
}

static tri_status reduce_scatter_mpi(struct tri_comm *c, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices, bool fixed_tree)
{
    struct comm_mpi *m = self_of(c);
    size_t elem = tri_dtype_bytes(tri_reduce_dtype(dtype));
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    struct cached wanted = {
        .make_with = tri_rounds_scatter_slices, .count = count, .number = slices};
    const struct tri_rounds *plan;
    tri_reduce_fn *fn;
    int64_t first, n;
    void *data;

    TRI_TRY(check_usable(m, "reduce-scatter"));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), TRI_REDUCE_SUM, &fn));
    TRI_TRY(check_tree(c, fixed_tree));
    TRI_TRY(find_plan(m, wanted, &plan));
    TRI_TRY(widen(m, buf, count, dtype, &data));
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
    struct cached wanted = {
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
    TRI_TRY(find_plan(
        m,
        (struct cached){.make_with = tri_rounds_broadcast, .count = (int64_t)bytes, .number = root},
        &plan));
    return run_plan(m, plan, buf, 1, NULL, &wait, "broadcast");
}

static tri_status allgather_mpi(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    const struct tri_rounds *plan;

    TRI_TRY(check_usable(m, "allgather"));
    TRI_TRY(find_plan(m, (struct cached){.make = tri_rounds_allgather, .count = (int64_t)bytes},
                      &plan));
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
    TRI_TRY(find_plan(m, (struct cached){.make = tri_rounds_barrier}, &plan));
    return run_plan(m, plan, &token, 1, NULL, &wait, "barrier");
}

static uint64_t bytes_sent_mpi(const struct tri_comm *c)
{
    return ((const struct comm_mpi *)(const void *)c)->sent;
}

static void destroy_mpi(struct tri_comm *c)
{
    struct comm_mpi *m = self_of(c);

    if (m == NULL)
        return;
    for (int i = 0; i < PLAN_CACHE; i++)
        tri_rounds_finish(&m->plan[i].rounds);
    /* Messages that never completed still name these buffers: a broken communicator keeps them, and
     * its MPI side. */
    if (!m->broken) {
        if (m->comm != MPI_COMM_NULL)
            (void)MPI_Comm_free(&m->comm);
        tri_free(m->scratch);
        tri_free(m->wide);
    }
    tri_free(m->request);
    tri_free(m->request_peer);
    tri_free(m->finished);
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
    char host[HOST_BYTES] = "";

    TRI_MPI(m, MPI_Comm_dup(parent, &m->comm));
    TRI_MPI(m, MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN));
    TRI_MPI(m, MPI_Comm_rank(m->comm, &m->base.rank));
    TRI_MPI(m, MPI_Comm_size(m->comm, &m->base.size));
    m->host = tri_calloc((size_t)m->base.size, sizeof(*m->host), "host names");
    if (m->host == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate host names", m->name);
    (void)gethostname(host, sizeof(host) - 1);
    TRI_MPI(m, MPI_Allgather(host, HOST_BYTES, MPI_CHAR, m->host, HOST_BYTES, MPI_CHAR, m->comm));
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
    m->comm = MPI_COMM_NULL;
    m->chunk = CHUNK_BYTES;
    m->link = (struct tri_link){.send = send_mpi, .recv = recv_mpi, .test = test_mpi};
    m->base.ops = &mpi_ops;
    m->base.timeout_ms = timeout_ms;
    m->base.name = m->name = tri_strdup(name);
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
    TRI_ASSERT(c->ops == &mpi_ops && bytes > 0 && bytes <= CHUNK_BYTES);
    self_of(c)->chunk = bytes;
}

void tri_comm_mpi_set_algorithm(struct tri_comm *c, tri_rounds_make *make)
{
    TRI_ASSERT(c->ops == &mpi_ops);
    self_of(c)->forced = make;
}
