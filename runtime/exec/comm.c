/* Forwarders of the communicator table, and what is built from its calls: sharing a failure,
 * comparing data. */
#include "runtime/exec/comm.h"

#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_BYTES = 1024,   /* of a shared failure */
    COMPARE_BYTES = 1 << 16 /* piece of data compared at a time */
};

uint64_t tri_comm_bytes_sent(const struct tri_comm *c)
{
    return c != NULL && c->ops->bytes_sent != NULL ? c->ops->bytes_sent(c) : 0;
}

int tri_comm_rank(const struct tri_comm *c)
{
    return c != NULL ? c->rank : 0;
}

int tri_comm_size(const struct tri_comm *c)
{
    return c != NULL ? c->size : 1;
}

tri_status tri_comm_allreduce(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                              enum tri_reduce op, bool fixed_tree)
{
    return c != NULL ? c->ops->allreduce(c, buf, count, dtype, op, fixed_tree) : TRI_OK;
}

tri_status tri_comm_reduce_scatter(struct tri_comm *c, void *buf, int64_t count,
                                   enum tri_dtype dtype, int slices, bool fixed_tree)
{
    return c != NULL ? c->ops->reduce_scatter(c, buf, count, dtype, slices, fixed_tree) : TRI_OK;
}

tri_status tri_comm_gather_slices(struct tri_comm *c, void *buf, int64_t count,
                                  enum tri_dtype dtype, int slices)
{
    return c != NULL ? c->ops->gather_slices(c, buf, count, dtype, slices) : TRI_OK;
}

void tri_comm_slice(int64_t count, int slices, int i, int64_t *first, int64_t *n)
{
    int64_t units = (count + TRI_SLICE_ALIGN - 1) / TRI_SLICE_ALIGN;
    int64_t each = units / slices, rest = units % slices;
    int64_t begin = (i * each + (i < rest ? i : rest)) * TRI_SLICE_ALIGN;
    int64_t end = begin + (each + (i < rest ? 1 : 0)) * TRI_SLICE_ALIGN;

    *first = i < slices && begin < count ? begin : count;
    end = i < slices && end < count ? end : count;
    *n = end - *first;
}

tri_status tri_comm_broadcast(struct tri_comm *c, void *buf, size_t bytes, int root)
{
    return c != NULL ? c->ops->broadcast(c, buf, bytes, root) : TRI_OK;
}

tri_status tri_comm_allgather(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    if (c != NULL)
        return c->ops->allgather(c, send, bytes, recv);
    if (bytes > 0)
        memmove(recv, send, bytes);
    return TRI_OK;
}

tri_status tri_comm_barrier(struct tri_comm *c)
{
    return c != NULL ? c->ops->barrier(c) : TRI_OK;
}

void tri_comm_destroy(struct tri_comm *c)
{
    if (c != NULL)
        c->ops->destroy(c);
}

/* This rank's message as the others shall read it; signed where it is not theirs as well. */
static void write_message(const struct tri_comm *c, bool sign, char text[MESSAGE_BYTES])
{
    char host[TRI_HOST_BYTES];

    tri_host_name(host, sizeof(host));
    if (sign)
        (void)snprintf(text, MESSAGE_BYTES, "rank %d on %s: %s", c->rank, host, tri_error_text());
    else
        (void)snprintf(text, MESSAGE_BYTES, "%s", tri_error_text());
}

tri_status tri_comm_agree(struct tri_comm *c, tri_status mine)
{
    char text[MESSAGE_BYTES] = "";
    int64_t worst[3];
    int first;

    if (tri_comm_size(c) == 1)
        return mine;
    /* The largest code, the lowest failing rank and the smallest code, the latter two negated. */
    worst[0] = mine;
    worst[1] = mine != TRI_OK ? -(int64_t)c->rank : -(int64_t)c->size;
    worst[2] = -(int64_t)mine;
    TRI_TRY(tri_comm_allreduce(c, worst, 3, TRI_I64, TRI_REDUCE_MAX, false));
    if (worst[0] == TRI_OK)
        return TRI_OK;
    first = (int)-worst[1];
    if (c->rank == first)
        write_message(c, worst[0] != -worst[2], text);
    TRI_TRY(tri_comm_broadcast(c, text, sizeof(text), first));
    text[sizeof(text) - 1] = '\0';
    tri_error_set(text);
    return (tri_status)worst[0];
}

/* *equal: the data of this rank is that of rank 0, which is `bytes0` long. */
static tri_status compare(struct tri_comm *c, const unsigned char *data, size_t bytes,
                          size_t bytes0, bool *equal)
{
    tri_status st = TRI_OK;
    unsigned char *piece = tri_calloc(1, COMPARE_BYTES, "piece of compared data");

    st = tri_comm_agree(
        c, piece != NULL ? TRI_OK
                         : tri_fail(TRI_ERR_NOMEM, "cannot allocate %d bytes", COMPARE_BYTES));
    *equal = bytes == bytes0;
    for (size_t at = 0; st == TRI_OK && at < bytes0; at += COMPARE_BYTES) {
        size_t now = bytes0 - at < COMPARE_BYTES ? bytes0 - at : COMPARE_BYTES;

        if (c->rank == 0)
            memcpy(piece, data + at, now);
        st = tri_comm_broadcast(c, piece, now, 0);
        if (st == TRI_OK && *equal)
            *equal = memcmp(piece, data + at, now) == 0;
    }
    tri_free(piece);
    return st;
}

tri_status tri_comm_same(struct tri_comm *c, const void *data, size_t bytes, const char *what)
{
    uint64_t bytes0 = bytes;
    bool equal = true;
    int64_t first;

    if (tri_comm_size(c) == 1)
        return TRI_OK;
    TRI_TRY(tri_comm_broadcast(c, &bytes0, sizeof(bytes0), 0));
    TRI_TRY(compare(c, data, bytes, (size_t)bytes0, &equal));
    first = equal ? c->size : c->rank;
    TRI_TRY(tri_comm_allreduce(c, &first, 1, TRI_I64, TRI_REDUCE_MIN, false));
    if (first == c->size)
        return TRI_OK;
    return tri_fail(TRI_ERR_USAGE, "%s of rank %d differs from that of rank 0", what, (int)first);
}
