/* The NCCL transport: its calls on a stream. nccl_create.c makes and watches communicators. */
#include "collectives/nccl.h"

#include "collectives/reduce.h"
#include "runtime/core/memory.h"

#include <string.h>

enum { STAGING_BYTES = 16 << 20 };

/* What alloc() gave. */
struct nccl_memory {
    void *p, *handle;
    struct nccl_memory *next;
};

static struct comm_nccl *self_of(struct tri_comm *c)
{
    return (struct comm_nccl *)c;
}

static cudaStream_t stream_of(const struct comm_nccl *c)
{
    return (cudaStream_t)c->base.stream;
}

static unsigned char *at(void *buf, int64_t element, enum tri_dtype dtype)
{
    return (unsigned char *)buf + (size_t)element * tri_dtype_bytes(dtype);
}

/* Bytes that a rank of a ring sends in one of the halves of a sum. */
static uint64_t ring_bytes(const struct comm_nccl *c, int64_t count, enum tri_dtype dtype)
{
    return (uint64_t)count * tri_dtype_bytes(dtype) / (uint64_t)c->base.size *
           (uint64_t)(c->base.size - 1);
}

tri_status tri_nccl_type(enum tri_dtype dtype, ncclDataType_t *out)
{
    static const ncclDataType_t types[TRI_DTYPE_COUNT] = {
        [TRI_F32] = ncclFloat32, [TRI_F64] = ncclFloat64, [TRI_BF16] = ncclBfloat16,
        [TRI_F16] = ncclFloat16, [TRI_I32] = ncclInt32,   [TRI_I64] = ncclInt64,
        [TRI_U8] = ncclUint8};

    if ((int)dtype < 0 || dtype >= TRI_DTYPE_COUNT)
        return tri_fail(TRI_ERR_UNSUPPORTED, "NCCL has no element type %d", (int)dtype);
    *out = types[dtype];
    return TRI_OK;
}

/* Ends a group, whose calls gave r so far. */
static ncclResult_t end_group(ncclResult_t r)
{
    ncclResult_t end = ncclGroupEnd();

    return r != ncclSuccess && r != ncclInProgress ? r : end;
}

static bool go_on(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

/* Whether all ranks own slices of n elements, without a rest. */
static bool slices_are_equal(const struct comm_nccl *c, int64_t count, int slices, int64_t *n)
{
    int64_t first, last;

    tri_comm_slice(count, slices, 0, &first, n);
    tri_comm_slice(count, slices, slices - 1, &first, &last);
    return slices == c->base.size && *n == last && *n * slices == count;
}

/* --- fixed tree --- */

static tri_status ensure_staging(struct comm_nccl *c)
{
    if (c->staging != NULL)
        return TRI_OK;
    return c->device->base.ops->alloc(&c->device->base, STAGING_BYTES, &c->staging);
}

/* Piece [from, from + n) of each slice goes to its owner, whose part for rank r lies r times `mine`
 * elements behind the start of the staging. */
static ncclResult_t swap_pieces(struct comm_nccl *c, void *buf, int64_t count, enum tri_dtype dtype,
                                int slices, int64_t from, int64_t piece, int64_t mine)
{
    ncclDataType_t type = ncclUint8;
    size_t bytes = tri_dtype_bytes(dtype);
    ncclResult_t r = ncclGroupStart();

    for (int peer = 0; peer < c->base.size && go_on(r); peer++) {
        int64_t first, n;

        tri_comm_slice(count, slices, peer, &first, &n);
        n = n - from < piece ? n - from : piece;
        if (n > 0)
            r = ncclSend(at(buf, first + from, dtype), (size_t)n * bytes, type, peer, c->nccl,
                         stream_of(c));
        if (mine > 0 && go_on(r))
            r = ncclRecv(at(c->staging, peer * mine, dtype), (size_t)mine * bytes, type, peer,
                         c->nccl, stream_of(c));
    }
    return end_group(r);
}

tri_status tri_nccl_scatter_tree(struct comm_nccl *c, void *buf, int64_t count,
                                 enum tri_dtype dtype, int slices)
{
    int64_t piece = STAGING_BYTES / c->base.size / (int64_t)tri_dtype_bytes(dtype);
    int64_t first, largest, mine_first, mine;

    TRI_TRY(tri_reduce_check_tree(c->base.size, true));
    TRI_TRY(ensure_staging(c));
    tri_comm_slice(count, slices, 0, &first, &largest);
    tri_comm_slice(count, slices, c->base.rank, &mine_first, &mine);
    for (int64_t from = 0; from < largest; from += piece) {
        int64_t n = mine - from < piece ? mine - from : piece;

        n = n > 0 ? n : 0;
        TRI_TRY(tri_nccl_leave(c, swap_pieces(c, buf, count, dtype, slices, from, piece, n), 0,
                               "fixed-tree sum"));
        if (n > 0)
            TRI_TRY(tri_nccl_add_tree(at(buf, mine_first + from, dtype), c->staging, n,
                                      c->base.size, dtype, c->base.stream));
    }
    c->sent += ring_bytes(c, count, dtype);
    return TRI_OK;
}

/* --- calls --- */

static tri_status gather_slices_nccl(struct tri_comm *base, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices)
{
    struct comm_nccl *c = self_of(base);
    ncclDataType_t type = ncclFloat32;
    ncclResult_t r;
    int64_t first, n;

    TRI_TRY(tri_nccl_enter(c, "gather of slices"));
    TRI_TRY(tri_nccl_type(dtype, &type));
    if (slices_are_equal(c, count, slices, &n)) {
        r = ncclAllGather(at(buf, base->rank * n, dtype), buf, (size_t)n, type, c->nccl,
                          stream_of(c));
        return tri_nccl_leave(c, r, ring_bytes(c, count, dtype), "gather of slices");
    }
    r = ncclGroupStart();
    for (int i = 0; i < slices && go_on(r); i++) {
        tri_comm_slice(count, slices, i, &first, &n);
        if (n > 0)
            r = ncclBroadcast(at(buf, first, dtype), at(buf, first, dtype), (size_t)n, type, i,
                              c->nccl, stream_of(c));
    }
    return tri_nccl_leave(c, end_group(r), ring_bytes(c, count, dtype), "gather of slices");
}

static tri_status reduce_scatter_nccl(struct tri_comm *base, void *buf, int64_t count,
                                      enum tri_dtype dtype, int slices, bool fixed_tree)
{
    struct comm_nccl *c = self_of(base);
    ncclDataType_t type = ncclFloat32;
    ncclResult_t r;
    int64_t first, n;

    TRI_TRY(tri_nccl_enter(c, "reduce-scatter"));
    TRI_TRY(tri_nccl_type(dtype, &type));
    if (fixed_tree)
        return tri_nccl_scatter_tree(c, buf, count, dtype, slices);
    if (slices_are_equal(c, count, slices, &n)) {
        r = ncclReduceScatter(buf, at(buf, base->rank * n, dtype), (size_t)n, type, ncclSum,
                              c->nccl, stream_of(c));
        return tri_nccl_leave(c, r, ring_bytes(c, count, dtype), "reduce-scatter");
    }
    r = ncclGroupStart();
    for (int i = 0; i < slices && go_on(r); i++) {
        tri_comm_slice(count, slices, i, &first, &n);
        if (n > 0)
            r = ncclReduce(at(buf, first, dtype), at(buf, first, dtype), (size_t)n, type, ncclSum,
                           i, c->nccl, stream_of(c));
    }
    return tri_nccl_leave(c, end_group(r), ring_bytes(c, count, dtype), "reduce-scatter");
}

static tri_status allreduce_nccl(struct tri_comm *base, void *buf, int64_t count,
                                 enum tri_dtype dtype, enum tri_reduce op, bool fixed_tree)
{
    static const ncclRedOp_t ops[] = {
        [TRI_REDUCE_SUM] = ncclSum, [TRI_REDUCE_MIN] = ncclMin, [TRI_REDUCE_MAX] = ncclMax};
    struct comm_nccl *c = self_of(base);
    ncclDataType_t type = ncclFloat32;
    ncclResult_t r;

    TRI_TRY(tri_nccl_enter(c, "allreduce"));
    TRI_TRY(tri_nccl_type(dtype, &type));
    if (fixed_tree && op == TRI_REDUCE_SUM) {
        TRI_TRY(tri_nccl_scatter_tree(c, buf, count, dtype, base->size));
        return gather_slices_nccl(base, buf, count, dtype, base->size);
    }
    r = ncclAllReduce(buf, buf, (size_t)count, type, ops[op], c->nccl, stream_of(c));
    return tri_nccl_leave(c, r, 2 * ring_bytes(c, count, dtype), "allreduce");
}

static tri_status broadcast_nccl(struct tri_comm *base, void *buf, size_t bytes, int root)
{
    struct comm_nccl *c = self_of(base);
    ncclResult_t r;

    TRI_TRY(tri_nccl_enter(c, "broadcast"));
    r = ncclBroadcast(buf, buf, bytes, ncclUint8, root, c->nccl, stream_of(c));
    return tri_nccl_leave(c, r, base->size > 1 ? bytes : 0, "broadcast");
}

static tri_status allgather_nccl(struct tri_comm *base, const void *send, size_t bytes, void *recv)
{
    struct comm_nccl *c = self_of(base);
    ncclResult_t r;

    TRI_TRY(tri_nccl_enter(c, "allgather"));
    r = ncclAllGather(send, recv, bytes, ncclUint8, c->nccl, stream_of(c));
    return tri_nccl_leave(c, r, bytes * (uint64_t)(base->size - 1), "allgather");
}

/* The stream goes on when the streams of all ranks have come here. */
static tri_status barrier_nccl(struct tri_comm *base)
{
    struct comm_nccl *c = self_of(base);
    ncclResult_t r;

    TRI_TRY(tri_nccl_enter(c, "barrier"));
    r = ncclAllReduce(c->word, c->word, 1, ncclInt64, ncclMax, c->nccl, stream_of(c));
    return tri_nccl_leave(c, r, 0, "barrier");
}

/* --- memory --- */

/* Registered, so that NCCL reads and writes it without a copy of its own. */
static tri_status alloc_nccl(struct tri_comm *base, size_t bytes, void **out)
{
    struct comm_nccl *c = self_of(base);
    struct nccl_memory *m;

    TRI_TRY(tri_nccl_enter(c, "allocation"));
    m = tri_calloc(1, sizeof(*m), "record of registered memory");
    if (m == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate", c->name);
    if (ncclMemAlloc(&m->p, bytes) != ncclSuccess) {
        (void)cudaGetLastError();
        tri_free(m);
        return tri_fail(TRI_ERR_NOMEM, "%s has no room for %.1f MB of exchange buffers",
                        c->device->base.name, (double)bytes / 1e6);
    }
    m->next = c->memory;
    c->memory = m;
    TRI_CUDA(cudaMemset(m->p, 0, bytes));
    TRI_CUDA(cudaStreamSynchronize(NULL));
    TRI_TRY(tri_nccl_settle(c, ncclCommRegister(c->nccl, m->p, bytes, &m->handle), "registration"));
    *out = m->p;
    return TRI_OK;
}

static void free_nccl(struct tri_comm *base, void *p)
{
    struct comm_nccl *c = self_of(base);

    for (struct nccl_memory **m = &c->memory; *m != NULL; m = &(*m)->next) {
        struct nccl_memory *found = *m;

        if (found->p != p)
            continue;
        *m = found->next;
        (void)cudaSetDevice(c->device->ordinal);
        if (c->nccl != NULL && found->handle != NULL)
            (void)ncclCommDeregister(c->nccl, found->handle);
        (void)ncclMemFree(p);
        tri_free(found);
        return;
    }
}

static uint64_t bytes_sent_nccl(const struct tri_comm *base)
{
    return ((const struct comm_nccl *)base)->sent;
}

static void destroy_nccl(struct tri_comm *base)
{
    struct comm_nccl *c = self_of(base);

    if (c == NULL)
        return;
    (void)cudaSetDevice(c->device->ordinal);
    while (c->memory != NULL)
        free_nccl(base, c->memory->p);
    if (c->nccl != NULL && tri_nccl_settle(c, ncclCommFinalize(c->nccl), "end") == TRI_OK)
        (void)ncclCommDestroy(c->nccl);
    if (c->watch != NULL)
        (void)cudaEventDestroy(c->watch);
    c->device->base.ops->free(&c->device->base, c->staging);
    c->device->base.ops->free(&c->device->base, c->word);
    tri_free(c->name);
    tri_free(c);
}

const struct tri_comm_ops tri_nccl_ops = {
    .name = "NCCL",
    .on_stream = true,
    .allreduce = allreduce_nccl,
    .reduce_scatter = reduce_scatter_nccl,
    .gather_slices = gather_slices_nccl,
    .broadcast = broadcast_nccl,
    .allgather = allgather_nccl,
    .barrier = barrier_nccl,
    .alloc = alloc_nccl,
    .free = free_nccl,
    .bytes_sent = bytes_sent_nccl,
    .poll = tri_nccl_poll,
    .destroy = destroy_nccl,
};
