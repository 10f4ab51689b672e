/* A collective that blocks, on data of a device: through page-locked memory of the process.
 *
 * A sum whose bits do not depend on the number of elements is cut into pieces, so that the copies
 * of one piece overlap the exchange of the next. All copies of a stream keep its order, therefore
 * two places are enough: the copy that fills one again is behind the copy that empties it. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/log.h"

enum {
    PIECE_BYTES = 4 << 20, /* long against the latency of a message and of a copy */
    POLL_NS = 20000        /* between looks at an event */
};

/* Every element is summed in one order whatever lies beside it: two ranks have only one order. */
static bool may_be_cut(const struct tri_exec_item *it)
{
    return it->collective == TRI_OP_ALLREDUCE && (it->fixed_tree || it->comm->size == 2);
}

static size_t payload(const struct tri_exec_item *it)
{
    return (size_t)it->count * tri_dtype_bytes(it->dtype);
}

void tri_exec_carry_plan(struct tri_exec_item *it)
{
    it->piece_bytes = may_be_cut(it) ? PIECE_BYTES : payload(it);
}

size_t tri_exec_carry_bytes(const struct tri_exec_item *it)
{
    size_t bytes = payload(it);

    if (it->gathered != NULL)
        return bytes * ((size_t)it->comm->size + 1);
    return bytes > 2 * it->piece_bytes ? 2 * it->piece_bytes : bytes;
}

static size_t count_pieces(const struct tri_exec_item *it)
{
    size_t bytes = payload(it);

    return bytes <= it->piece_bytes ? 1 : (bytes + it->piece_bytes - 1) / it->piece_bytes;
}

struct piece {
    unsigned char *device, *process;
    size_t bytes;
    void *arrived; /* event: it is in the process */
};

static struct piece piece_at(const struct tri_exec *x, const struct tri_exec_item *it, size_t i)
{
    size_t at = i * it->piece_bytes, left = payload(it) - at;

    return (struct piece){.device = (unsigned char *)it->buf + at,
                          .process = it->staging + (i % 2) * it->piece_bytes,
                          .bytes = left < it->piece_bytes ? left : it->piece_bytes,
                          .arrived = x->device->arrived[it->stream][i % 2]};
}

static tri_status bring(const struct tri_exec *x, const struct tri_exec_item *it, size_t i)
{
    struct tri_device *d = x->device->d;
    void *stream = x->device->stream[it->stream];
    struct piece p = piece_at(x, it, i);

    TRI_TRY(d->ops->copy(d, p.process, p.device, p.bytes, stream));
    return d->ops->event_record(d, p.arrived, stream);
}

/* The data may depend on a collective of the device, which has no deadline of its own. */
static tri_status await(struct tri_exec *x, const struct tri_exec_item *it, void *event)
{
    struct tri_device *d = x->device->d;
    int64_t begin = tri_now_ns(), limit = it->comm->timeout_ms;
    bool happened = false;

    if (x->device->npolled == 0 || limit < 0)
        return d->ops->event_sync(d, event);
    for (;;) {
        TRI_TRY(d->ops->event_query(d, event, &happened));
        if (happened || tri_exec_failed(x))
            return TRI_OK;
        if (tri_now_ns() - begin > limit * 1000000)
            return tri_fail(TRI_ERR_TIMEOUT,
                            "communicator \"%s\": the device did not hand over its data within "
                            "%lld ms",
                            it->comm->name, (long long)limit);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

static tri_status exchange(const struct tri_exec_item *it, const struct piece *p)
{
    if (p->bytes == payload(it))
        return tri_engine_collective(it, p->process,
                                     it->gathered != NULL ? p->process + p->bytes : NULL);
    return tri_comm_allreduce(it->comm, p->process,
                              (int64_t)(p->bytes / tri_dtype_bytes(it->dtype)), it->dtype,
                              TRI_REDUCE_SUM, it->fixed_tree);
}

tri_status tri_exec_carry(struct tri_exec *x, const struct tri_exec_item *it)
{
    struct tri_device *d = x->device->d;
    void *stream = x->device->stream[it->stream];
    size_t n = count_pieces(it);

    TRI_TRY(bring(x, it, 0));
    for (size_t i = 0; i < n; i++) {
        struct piece p = piece_at(x, it, i);

        if (i + 1 < n)
            TRI_TRY(bring(x, it, i + 1));
        TRI_TRY(await(x, it, p.arrived));
        if (tri_exec_failed(x))
            return TRI_OK;
        if (x->span != NULL && i == 0)
            x->span[it->instr].begin_ns = tri_now_ns();
        TRI_TRY(exchange(it, &p));
        if (x->span != NULL)
            x->span[it->instr].end_ns = tri_now_ns();
        if (it->gathered != NULL)
            TRI_TRY(d->ops->copy(d, it->gathered, p.process + p.bytes,
                                 p.bytes * (size_t)it->comm->size, stream));
        else
            TRI_TRY(d->ops->copy(d, p.device, p.process, p.bytes, stream));
    }
    return TRI_OK;
}
