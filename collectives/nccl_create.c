/* The NCCL transport: making communicators, and watching them. All waits for NCCL are polls with
 * the communicator's deadline; after an error or a missed deadline it is aborted. */
#include "collectives/nccl.h"

#include "collectives/wait.h"
#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <string.h>

/* Ends what has been enqueued; later calls fail. */
static void abort_comm(struct comm_nccl *c)
{
    if (c->nccl != NULL)
        (void)ncclCommAbort(c->nccl);
    c->nccl = NULL;
}

static tri_status fail_nccl(struct comm_nccl *c, ncclResult_t r, const char *what)
{
    char host[TRI_HOST_BYTES];
    const char *detail = c->nccl != NULL ? ncclGetLastError(c->nccl) : "";
    tri_status st;

    tri_host_name(host, sizeof(host));
    st = tri_fail(r == ncclInvalidUsage ? TRI_ERR_USAGE : TRI_ERR_COMM,
                  "rank %d on %s: %s on communicator '%s': NCCL: %s%s%s", c->base.rank, host, what,
                  c->name, ncclGetErrorString(r), *detail != '\0' ? ": " : "", detail);
    abort_comm(c);
    return st;
}

static tri_status fail_late(struct comm_nccl *c, const char *what)
{
    char host[TRI_HOST_BYTES];

    tri_host_name(host, sizeof(host));
    abort_comm(c);
    return tri_fail(TRI_ERR_TIMEOUT, "rank %d on %s: %s on communicator '%s' waited %lld ms",
                    c->base.rank, host, what, c->name, (long long)c->base.timeout_ms);
}

tri_status tri_nccl_settle(struct comm_nccl *c, ncclResult_t r, const char *what)
{
    struct tri_wait w = tri_wait_begin(c->base.timeout_ms);

    while (r == ncclInProgress) {
        ncclResult_t e = ncclCommGetAsyncError(c->nccl, &r);

        if (e != ncclSuccess)
            return fail_nccl(c, e, what);
        if (r == ncclInProgress && !tri_wait_pause(&w))
            return fail_late(c, what);
    }
    return r == ncclSuccess ? TRI_OK : fail_nccl(c, r, what);
}

tri_status tri_nccl_enter(struct comm_nccl *c, const char *what)
{
    if (c->nccl == NULL)
        return tri_fail(TRI_ERR_COMM, "rank %d: %s on communicator '%s', which has failed before",
                        c->base.rank, what, c->name);
    TRI_CUDA(cudaSetDevice(c->device->ordinal));
    return TRI_OK;
}

/* Begins to watch the last call, unless an earlier one is watched or the stream is captured. */
static tri_status watch_call(struct comm_nccl *c)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStream_t stream = (cudaStream_t)c->base.stream;

    if (c->watch_ns != 0 || c->base.timeout_ms < 0)
        return TRI_OK;
    TRI_CUDA(cudaStreamIsCapturing(stream, &status));
    if (status != cudaStreamCaptureStatusNone)
        return TRI_OK;
    TRI_CUDA(cudaEventRecord(c->watch, stream));
    c->watch_ns = tri_now_ns();
    return TRI_OK;
}

tri_status tri_nccl_leave(struct comm_nccl *c, ncclResult_t r, uint64_t sent, const char *what)
{
    TRI_TRY(tri_nccl_settle(c, r, what));
    c->sent += sent;
    return watch_call(c);
}

tri_status tri_nccl_poll(struct tri_comm *base)
{
    struct comm_nccl *c = (struct comm_nccl *)base;
    ncclResult_t state = ncclSuccess, e;

    TRI_TRY(tri_nccl_enter(c, "poll"));
    e = ncclCommGetAsyncError(c->nccl, &state);
    if (e != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
        return fail_nccl(c, e != ncclSuccess ? e : state, "exchange");
    if (c->watch_ns == 0)
        return TRI_OK;
    switch (cudaEventQuery(c->watch)) {
    case cudaSuccess:
        c->watch_ns = 0;
        return TRI_OK;
    case cudaErrorNotReady:
        (void)cudaGetLastError();
        break;
    default:
        return tri_cuda_fail("cudaEventQuery", cudaGetLastError());
    }
    if (tri_now_ns() - c->watch_ns > base->timeout_ms * 1000000)
        return fail_late(c, "exchange");
    return TRI_OK;
}

/* --- making --- */

/* A communicator without its NCCL handle. */
static tri_status create_shell(struct tri_device *device, const char *name, int64_t timeout_ms,
                               struct comm_nccl **out)
{
    struct comm_nccl *c = tri_calloc(1, sizeof(*c), "NCCL communicator");
    tri_status st;

    if (c == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate", name);
    c->device = tri_cuda_device(device);
    c->name = tri_strdup(name);
    c->base = (struct tri_comm){.ops = &tri_nccl_ops, .name = c->name, .timeout_ms = timeout_ms};
    if (c->name == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate", name);
        goto destroy;
    }
    TRI_TRY_GOTO(st, device->ops->alloc(device, sizeof(int64_t), &c->word), destroy);
    if (cudaEventCreateWithFlags(&c->watch, cudaEventDisableTiming) != cudaSuccess) {
        st = tri_cuda_fail("cudaEventCreateWithFlags", cudaGetLastError());
        goto destroy;
    }
    *out = c;
    return TRI_OK;

destroy:
    tri_nccl_ops.destroy(&c->base);
    return st;
}

/* NCCL refuses two ranks on one device, on all ranks and without saying which. */
static tri_status check_devices(struct tri_comm *control, const struct tri_device *device)
{
    enum { BYTES = 64 };
    char mine[BYTES] = "", *all;
    tri_status st;

    strncpy(mine, tri_device_uuid(device), BYTES - 1);
    all = tri_calloc((size_t)control->size, BYTES, "identifiers of devices");
    st = all == NULL ? tri_fail(TRI_ERR_NOMEM, "cannot allocate") : TRI_OK;
    TRI_TRY_GOTO(st, tri_comm_agree(control, st), free_all);
    TRI_TRY_GOTO(st, tri_comm_allgather(control, mine, BYTES, all), free_all);
    for (int r = 0; r < control->size && st == TRI_OK; r++)
        for (int q = 0; q < r && st == TRI_OK; q++)
            if (memcmp(all + (size_t)r * BYTES, all + (size_t)q * BYTES, BYTES) == 0)
                st = tri_fail(TRI_ERR_USAGE,
                              "ranks %d and %d share the device %.64s: NCCL takes one rank a "
                              "device",
                              q, r, all + (size_t)r * BYTES);
free_all:
    tri_free(all);
    return st;
}

/* Waits until the handle is ready; adds what it says of itself. */
static tri_status take_handle(struct comm_nccl *c, ncclResult_t r, const char *what)
{
    TRI_TRY(tri_nccl_settle(c, r, what));
    if (ncclCommCount(c->nccl, &c->base.size) != ncclSuccess ||
        ncclCommUserRank(c->nccl, &c->base.rank) != ncclSuccess)
        return fail_nccl(c, ncclInternalError, what);
    return TRI_OK;
}

static tri_status connect_ranks(struct comm_nccl *c, struct tri_comm *control)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};
    ncclResult_t r = ncclSuccess;

    config.blocking = 0;
    if (control->rank == 0)
        r = ncclGetUniqueId(&id);
    TRI_TRY(tri_comm_agree(control, r == ncclSuccess ? TRI_OK : fail_nccl(c, r, "identifier")));
    TRI_TRY(tri_comm_broadcast(control, &id, sizeof(id), 0));
    TRI_CUDA(cudaSetDevice(c->device->ordinal));
    r = ncclCommInitRankConfig(&c->nccl, control->size, id, control->rank, &config);
    return tri_comm_agree(control, take_handle(c, r, "connecting"));
}

tri_status tri_nccl_create(struct tri_comm *control, struct tri_device *device, const char *name,
                           int64_t timeout_ms, struct tri_comm **out)
{
    struct comm_nccl *c = NULL;
    tri_status st;

    TRI_TRY(check_devices(control, device));
    TRI_TRY_GOTO(st, tri_comm_agree(control, create_shell(device, name, timeout_ms, &c)), destroy);
    c->base.rank = control->rank;
    c->base.size = control->size;
    TRI_TRY_GOTO(st, connect_ranks(c, control), destroy);
    *out = &c->base;
    return TRI_OK;

destroy:
    if (c != NULL)
        abort_comm(c);
    tri_nccl_ops.destroy((struct tri_comm *)c);
    return st;
}

static tri_status split_parent(struct comm_nccl *parent, int color, int key, struct comm_nccl *c)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t r;

    config.blocking = 0;
    TRI_TRY(tri_nccl_enter(parent, "split"));
    r = ncclCommSplit(parent->nccl, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &c->nccl, &config);
    TRI_TRY(tri_nccl_settle(parent, r, "split"));
    return color < 0 ? TRI_OK : take_handle(c, ncclInProgress, "split");
}

tri_status tri_nccl_split(struct tri_comm *parent, struct tri_comm *control, int color, int key,
                          const char *name, struct tri_comm **out)
{
    struct comm_nccl *p = (struct comm_nccl *)parent, *c = NULL;
    tri_status st;

    TRI_TRY_GOTO(
        st, tri_comm_agree(control, create_shell(&p->device->base, name, parent->timeout_ms, &c)),
        destroy);
    TRI_TRY_GOTO(st, tri_comm_agree(control, split_parent(p, color, key, c)), destroy);
    if (color < 0) {
        tri_nccl_ops.destroy(&c->base);
        c = NULL;
    }
    *out = (struct tri_comm *)c;
    return TRI_OK;

destroy:
    if (c != NULL)
        abort_comm(c);
    tri_nccl_ops.destroy((struct tri_comm *)c);
    return st;
}
