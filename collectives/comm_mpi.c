/* See comm_mpi.h. One thread at a time; a call that failed leaves the communicator broken, as
 * messages may still be under way.
 *
 * Plans run in lanes, each with its own tag, messages and scratch. A long sum is cut into pieces
 * that alternate between two lanes: while one waits or adds, the other's messages keep the link
 * busy. */
#include "collectives/comm_mpi.h"

#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/wait.h"
#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

enum {
    LANES = 2,
    CHUNK_BYTES = 1 << 30, /* below 2^31, the limit of an MPI count */
    SMALL_BYTES = 1 << 14, /* up to here latency counts: fewest rounds */
    PIECES = 4,            /* of a long sum, two for each lane */
    PIECE_MIN = 1 << 18,   /* shorter pieces cost more latency than they hide */
    PIECE_MAX = 4 << 20,   /* longer ones leave the cache */
    PLAN_CACHE = 64        /* plans kept; a step uses few different counts */
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

struct comm_mpi;

/* What one running plan needs. */
struct lane {
    struct tri_link link;
    struct comm_mpi *owner;
    int tag;
    MPI_Request *request; /* under way; completed ones are MPI_REQUEST_NULL */
    int *request_peer;
    int *finished; /* work array of MPI_Testsome */
    int nrequests, request_cap;
    int nopen; /* requests that are not complete */
    unsigned char *scratch;
    size_t scratch_bytes;
    float *wide; /* widened operand of a 16-bit reduction */
    size_t wide_bytes;
};

struct comm_mpi {
    struct tri_comm base;
    MPI_Comm comm;
    char *name;
    char (*host)[TRI_HOST_BYTES]; /* of each rank */
    size_t chunk;                 /* largest message */
    tri_rounds_make *forced;      /* algorithm of all sums; NULL: by size */
    struct lane lane[LANES];      /* [0] serves what runs alone */
    struct cached plan[PLAN_CACHE];
    int nplans;
    uint64_t sent;
    bool broken;
};

/* A part of a sum, in a lane. */
struct piece {
    struct tri_run run;
    void *at;      /* as stored */
    void *data;    /* as summed: at, or widened */
    int64_t count; /* elements */
    int64_t next;  /* first element of the lane's next piece */
    bool busy;
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

static struct lane *of_link(struct tri_link *l)
{
    return (struct lane *)(void *)l; /* the first member of its owner */
}

static tri_status grow_requests(struct lane *l)
{
    int cap = l->request_cap > 0 ? 2 * l->request_cap : 16;
    void *request = tri_realloc(l->request, (size_t)cap, sizeof(*l->request), "requests");
    void *peer;
    void *finished;

    if (request != NULL)
        l->request = request;
    peer = tri_realloc(l->request_peer, (size_t)cap, sizeof(*l->request_peer), "peers of requests");
    if (peer != NULL)
        l->request_peer = peer;
    finished = tri_realloc(l->finished, (size_t)cap, sizeof(*l->finished), "finished requests");
    if (finished != NULL)
        l->finished = finished;
    if (request == NULL || peer == NULL || finished == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %d requests",
                        l->owner->name, cap);
    l->request_cap = cap;
    return TRI_OK;
}

/* Room for one more request with `peer`. */
static tri_status next_request(struct lane *l, int peer, MPI_Request **out)
{
    if (l->nrequests == l->request_cap)
        TRI_TRY(grow_requests(l));
    l->request_peer[l->nrequests] = peer;
    *out = &l->request[l->nrequests];
    return TRI_OK;
}

static size_t message(const struct comm_mpi *m, size_t bytes, size_t at)
{
    return bytes - at < m->chunk ? bytes - at : m->chunk;
}

static tri_status send_mpi(struct tri_link *l, int peer, const void *data, size_t bytes)
{
    struct lane *lane = of_link(l);
    struct comm_mpi *m = lane->owner;
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += m->chunk) {
        TRI_TRY(next_request(lane, peer, &request));
        TRI_MPI(m, MPI_Isend((const char *)data + at, (int)message(m, bytes, at), MPI_BYTE, peer,
                             lane->tag, m->comm, request));
        lane->nrequests++;
        lane->nopen++;
    }
    m->sent += bytes;
    return TRI_OK;
}

static tri_status recv_mpi(struct tri_link *l, int peer, void *data, size_t bytes)
{
    struct lane *lane = of_link(l);
    struct comm_mpi *m = lane->owner;
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += m->chunk) {
        TRI_TRY(next_request(lane, peer, &request));
        TRI_MPI(m, MPI_Irecv((char *)data + at, (int)message(m, bytes, at), MPI_BYTE, peer,
                             lane->tag, m->comm, request));
        lane->nrequests++;
        lane->nopen++;
    }
    return TRI_OK;
}

static tri_status test_mpi(struct tri_link *l, bool *done)
{
    struct lane *lane = of_link(l);
    struct comm_mpi *m = lane->owner;
    int n = 0;

    if (lane->nopen > 0) {
        TRI_MPI(m, MPI_Testsome(lane->nrequests, lane->request, &n, lane->finished,
                                MPI_STATUSES_IGNORE));
        if (n != MPI_UNDEFINED)
            lane->nopen -= n;
    }
    *done = lane->nopen == 0;
    if (*done)
        lane->nrequests = 0;
    return TRI_OK;
}

static tri_status fail_timeout(const struct comm_mpi *m, const char *what)
{
    int peer = m->base.rank;

    for (int k = 0; k < LANES; k++)
        for (int i = 0; i < m->lane[k].nrequests; i++)
            if (m->lane[k].request[i] != MPI_REQUEST_NULL)
                peer = m->lane[k].request_peer[i];
    return tri_fail(TRI_ERR_TIMEOUT,
                    "rank %d on %s: %s on communicator '%s' waited %lld ms for rank %d on %s",
                    m->base.rank, m->host[m->base.rank], what, m->name,
                    (long long)m->base.timeout_ms, peer, m->host[peer]);
}

static tri_status grow_scratch(struct lane *l, size_t bytes)
{
    if (bytes <= l->scratch_bytes)
        return TRI_OK;
    tri_free(l->scratch);
    l->scratch_bytes = 0;
    l->scratch = tri_alloc_aligned(bytes, "scratch of a communicator");
    if (l->scratch == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes",
                        l->owner->name, bytes);
    l->scratch_bytes = bytes;
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

static tri_status begin_run(struct lane *l, const struct tri_rounds *plan, void *data, size_t elem,
                            tri_reduce_fn *reduce, struct tri_run *run)
{
    TRI_TRY(grow_scratch(l, (size_t)plan->scratch * elem));
    *run =
        (struct tri_run){.plan = plan, .elem = elem, .reduce = reduce, .rank = l->owner->base.rank};
    run->area[TRI_AREA_DATA] = data;
    run->area[TRI_AREA_SCRATCH] = l->scratch;
    return TRI_OK;
}

/* Polls once; progress starts a new wait. */
static tri_status poll_run(struct lane *l, struct tri_run *run, struct tri_wait *wait, bool *done)
{
    int32_t round = run->round;

    TRI_TRY(tri_run_poll(run, &l->link, done));
    if (run->round != round)
        wait->turns = 0;
    return TRI_OK;
}

/* Runs a plan over `data` to its end or to the deadline. */
static tri_status run_plan(struct comm_mpi *m, const struct tri_rounds *plan, void *data,
                           size_t elem, tri_reduce_fn *reduce, struct tri_wait *wait,
                           const char *what)
{
    struct tri_run run;
    bool done = false;
    tri_status st;

    TRI_TRY(begin_run(&m->lane[0], plan, data, elem, reduce, &run));
    do {
        st = poll_run(&m->lane[0], &run, wait, &done);
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
static tri_status widen(struct lane *l, void *at, int64_t count, enum tri_dtype dtype, void **out)
{
    size_t bytes = (size_t)count * sizeof(float);

    *out = at;
    if (tri_reduce_dtype(dtype) == dtype)
        return TRI_OK;
    if (bytes > l->wide_bytes) {
        tri_free(l->wide);
        l->wide_bytes = 0;
        l->wide = tri_alloc_aligned(bytes, "widened operand of a reduction");
        if (l->wide == NULL)
            return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes",
                            l->owner->name, bytes);
        l->wide_bytes = bytes;
    }
    tri_reduce_widen(l->wide, at, count, dtype);
    *out = l->wide;
    return TRI_OK;
}

/* A sum under way, cut into pieces of equal length but for the last. */
struct sum {
    unsigned char *buf;
    int64_t count, length; /* elements; length: of a piece */
    enum tri_dtype dtype;
    size_t stored, elem; /* bytes of an element as stored and as summed */
    tri_reduce_fn *fn;
    const struct tri_rounds *plan, *last_plan;
    struct piece piece[LANES];
};

/* Elements of a piece, whole cache lines. */
static int64_t piece_length(int64_t count, size_t elem)
{
    size_t bytes = tri_round_up((size_t)count * elem / PIECES, TRI_ALIGN_BYTES);

    bytes = bytes > PIECE_MIN ? bytes : PIECE_MIN;
    return (int64_t)((bytes < PIECE_MAX ? bytes : PIECE_MAX) / elem);
}

/* Finds both plans before any runs, as a new one may take the place of an old one in the cache: the
 * second look at the first makes it anew if the other took its place. */
static tri_status find_plans(struct comm_mpi *m, struct sum *s)
{
    int64_t last = (s->count - 1) % s->length + 1;
    int64_t full = s->count < s->length ? last : s->length;
    struct cached a = {.make = choose(m, full, s->elem), .count = full};
    struct cached b = {.make = choose(m, last, s->elem), .count = last};

    TRI_TRY(find_plan(m, a, &s->plan));
    TRI_TRY(find_plan(m, b, &s->last_plan));
    return find_plan(m, a, &s->plan);
}

static tri_status begin_piece(struct comm_mpi *m, struct sum *s, int k)
{
    struct piece *p = &s->piece[k];
    int64_t left = s->count - p->next;
    const struct tri_rounds *plan = left > s->length ? s->plan : s->last_plan;

    p->at = s->buf + (size_t)p->next * s->stored;
    p->count = left < s->length ? left : s->length;
    TRI_TRY(widen(&m->lane[k], p->at, p->count, s->dtype, &p->data));
    TRI_TRY(begin_run(&m->lane[k], plan, p->data, s->elem, s->fn, &p->run));
    p->next += LANES * s->length;
    p->busy = true;
    return TRI_OK;
}

/* Gives lane k its next piece, or polls the one that it has. *busy: there is more to do. */
static tri_status advance(struct comm_mpi *m, struct sum *s, int k, struct tri_wait *wait,
                          bool *busy)
{
    struct piece *p = &s->piece[k];
    bool done = false;

    if (!p->busy && p->next < s->count)
        TRI_TRY(begin_piece(m, s, k));
    if (p->busy)
        TRI_TRY(poll_run(&m->lane[k], &p->run, wait, &done));
    if (done) {
        if (p->data != p->at)
            tri_reduce_narrow(p->at, p->data, p->count, s->dtype);
        p->busy = false;
        wait->turns = 0;
    }
    *busy = *busy || p->busy || p->next < s->count;
    return TRI_OK;
}

/* Lane k takes pieces k, k + LANES, ... on every rank, whichever lane is ahead. */
static tri_status run_sum(struct comm_mpi *m, struct sum *s, struct tri_wait *wait)
{
    bool busy = s->count > 0;

    for (int k = 0; k < LANES; k++)
        s->piece[k].next = k * s->length;
    while (busy) {
        busy = false;
        for (int k = 0; k < LANES; k++)
            TRI_TRY(advance(m, s, k, wait, &busy));
        if (busy && !tri_wait_pause(wait))
            return fail_timeout(m, "allreduce");
    }
    return TRI_OK;
}

static tri_status allreduce_mpi(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                enum tri_reduce op, bool fixed_tree)
{
    struct comm_mpi *m = self_of(c);
    struct tri_wait wait = tri_wait_begin(c->timeout_ms);
    struct sum s = {.buf = buf,
                    .count = count,
                    .dtype = dtype,
                    .stored = tri_dtype_bytes(dtype),
                    .elem = tri_dtype_bytes(tri_reduce_dtype(dtype))};
    tri_status st;

    TRI_TRY(check_usable(m, "allreduce"));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), op, &s.fn));
    TRI_TRY(tri_reduce_check_tree(c->size, fixed_tree));
    s.length = piece_length(count, s.elem);
    if (count > 0)
        TRI_TRY(find_plans(m, &s));
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
    struct cached wanted = {
        .make_with = tri_rounds_scatter_slices, .count = count, .number = slices};
    const struct tri_rounds *plan;
    tri_reduce_fn *fn;
    int64_t first, n;
    void *data;

    TRI_TRY(check_usable(m, "reduce-scatter"));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), TRI_REDUCE_SUM, &fn));
    TRI_TRY(tri_reduce_check_tree(c->size, fixed_tree));
    TRI_TRY(find_plan(m, wanted, &plan));
    TRI_TRY(widen(&m->lane[0], buf, count, dtype, &data));
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
    if (!m->broken && m->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&m->comm);
    for (int k = 0; k < LANES; k++) {
        if (!m->broken) {
            tri_free(m->lane[k].scratch);
            tri_free(m->lane[k].wide);
        }
        tri_free(m->lane[k].request);
        tri_free(m->lane[k].request_peer);
        tri_free(m->lane[k].finished);
    }
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
    char host[TRI_HOST_BYTES] = "";

    TRI_MPI(m, MPI_Comm_dup(parent, &m->comm));
    TRI_MPI(m, MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN));
    TRI_MPI(m, MPI_Comm_rank(m->comm, &m->base.rank));
    TRI_MPI(m, MPI_Comm_size(m->comm, &m->base.size));
    m->host = tri_calloc((size_t)m->base.size, sizeof(*m->host), "host names");
    if (m->host == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate host names", m->name);
    tri_host_name(host, sizeof(host));
    TRI_MPI(m, MPI_Allgather(host, TRI_HOST_BYTES, MPI_CHAR, m->host, TRI_HOST_BYTES, MPI_CHAR,
                             m->comm));
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
    for (int k = 0; k < LANES; k++)
        m->lane[k] = (struct lane){.link = {.send = send_mpi, .recv = recv_mpi, .test = test_mpi},
                                   .owner = m,
                                   .tag = k + 1};
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
