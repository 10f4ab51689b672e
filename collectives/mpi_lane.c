/* See mpi_lane.h. */
#include "collectives/mpi_lane.h"

#include "collectives/reduce.h"
#include "runtime/core/memory.h"

tri_status tri_mpi_port_fail(const struct tri_mpi_port *p, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;

    (void)MPI_Error_string(code, text, &len);
    return tri_fail(TRI_ERR_COMM, "rank %d: communicator '%s': %s failed: %s", p->rank, p->name,
                    what, text);
}

static struct tri_mpi_lane *of_link(struct tri_link *l)
{
    return (struct tri_mpi_lane *)(void *)l; /* the first member of its owner */
}

static tri_status grow_requests(struct tri_mpi_lane *l)
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
                        l->port->name, cap);
    l->request_cap = cap;
    return TRI_OK;
}

/* Room for one more request with `peer`. */
static tri_status next_request(struct tri_mpi_lane *l, int peer, MPI_Request **out)
{
    if (l->nrequests == l->request_cap)
        TRI_TRY(grow_requests(l));
    l->request_peer[l->nrequests] = peer;
    *out = &l->request[l->nrequests];
    return TRI_OK;
}

static size_t message(const struct tri_mpi_port *p, size_t bytes, size_t at)
{
    return bytes - at < p->chunk ? bytes - at : p->chunk;
}

static tri_status send_mpi(struct tri_link *link, int peer, const void *data, size_t bytes)
{
    struct tri_mpi_lane *l = of_link(link);
    struct tri_mpi_port *p = l->port;
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += p->chunk) {
        TRI_TRY(next_request(l, peer, &request));
        TRI_MPI(p, MPI_Isend((const char *)data + at, (int)message(p, bytes, at), MPI_BYTE, peer,
                             l->tag, p->comm, request));
        l->nrequests++;
        l->nopen++;
    }
    p->sent += bytes;
    return TRI_OK;
}

static tri_status recv_mpi(struct tri_link *link, int peer, void *data, size_t bytes)
{
    struct tri_mpi_lane *l = of_link(link);
    struct tri_mpi_port *p = l->port;
    MPI_Request *request;

    for (size_t at = 0; at < bytes; at += p->chunk) {
        TRI_TRY(next_request(l, peer, &request));
        TRI_MPI(p, MPI_Irecv((char *)data + at, (int)message(p, bytes, at), MPI_BYTE, peer, l->tag,
                             p->comm, request));
        l->nrequests++;
        l->nopen++;
    }
    return TRI_OK;
}

static tri_status test_mpi(struct tri_link *link, bool *done)
{
    struct tri_mpi_lane *l = of_link(link);
    int n = 0;

    if (l->nopen > 0) {
        TRI_MPI(l->port,
                MPI_Testsome(l->nrequests, l->request, &n, l->finished, MPI_STATUSES_IGNORE));
        if (n != MPI_UNDEFINED)
            l->nopen -= n;
    }
    *done = l->nopen == 0;
    if (*done)
        l->nrequests = 0;
    return TRI_OK;
}

static tri_status grow_scratch(struct tri_mpi_lane *l, size_t bytes)
{
    if (bytes <= l->scratch_bytes)
        return TRI_OK;
    tri_free(l->scratch);
    l->scratch_bytes = 0;
    l->scratch = tri_alloc_aligned(bytes, "scratch of a communicator");
    if (l->scratch == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes",
                        l->port->name, bytes);
    l->scratch_bytes = bytes;
    return TRI_OK;
}

tri_status tri_mpi_lane_begin(struct tri_mpi_lane *l, const struct tri_rounds *plan, void *data,
                              size_t elem, tri_reduce_fn *reduce, struct tri_run *run)
{
    TRI_TRY(grow_scratch(l, (size_t)plan->scratch * elem));
    *run = (struct tri_run){.plan = plan, .elem = elem, .reduce = reduce, .rank = l->port->rank};
    run->area[TRI_AREA_DATA] = data;
    run->area[TRI_AREA_SCRATCH] = l->scratch;
    return TRI_OK;
}

tri_status tri_mpi_lane_poll(struct tri_mpi_lane *l, struct tri_run *run, struct tri_wait *wait,
                             bool *done)
{
    int32_t round = run->round;

    TRI_TRY(tri_run_poll(run, &l->link, done));
    if (run->round != round)
        wait->turns = 0;
    return TRI_OK;
}

tri_status tri_mpi_lane_widen(struct tri_mpi_lane *l, void *at, int64_t count, enum tri_dtype dtype,
                              void **out)
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
                            l->port->name, bytes);
        l->wide_bytes = bytes;
    }
    tri_reduce_widen(l->wide, at, count, dtype);
    *out = l->wide;
    return TRI_OK;
}

int tri_mpi_lane_awaited(const struct tri_mpi_lane *l)
{
    int peer = -1;

    for (int i = 0; i < l->nrequests; i++)
        if (l->request[i] != MPI_REQUEST_NULL)
            peer = l->request_peer[i];
    return peer;
}

void tri_mpi_lane_init(struct tri_mpi_lane *l, struct tri_mpi_port *port, int tag)
{
    *l = (struct tri_mpi_lane){
        .link = {.send = send_mpi, .recv = recv_mpi, .test = test_mpi}, .port = port, .tag = tag};
}

void tri_mpi_lane_finish(struct tri_mpi_lane *l)
{
    tri_free(l->scratch);
    tri_free(l->wide);
    tri_free(l->request);
    tri_free(l->request_peer);
    tri_free(l->finished);
    *l = (struct tri_mpi_lane){0};
}
