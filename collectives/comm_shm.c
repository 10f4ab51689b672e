/* See comm_shm.h. */
#include "collectives/comm_shm.h"

#include "collectives/comm_mpi.h"
#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/shm_barrier.h"
#include "collectives/shm_window.h"
#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    SLICE_ALIGN = 32,   /* elements: slices of ranks share no cache line from 2 bytes up */
    FEW_ELEMENTS = 256, /* up to here one rank reduces all: fewer lines travel */
    SMALL_BYTES = 32768 /* of all ranks: up to here a barrier costs more than a sum by each rank,
                         * where they share cores */
};

struct comm_shm {
    struct tri_comm base;
    MPI_Comm comm;
    struct tri_comm *setup; /* over MPI: agreements before windows are made */
    char *name;
    struct tri_shm_window *windows; /* of alloc() */
    struct tri_shm_window *flags;
    struct tri_shm_staging staging;
    struct tri_shm_barrier barrier;
    const void **from; /* work arrays of one pointer a rank */
    void **to;
    uint64_t sent;
    bool crowded; /* more ranks than cores */
    bool broken;
    struct comm_shm *next; /* in the list of abandoned ones */
};

/* Peers may still read and write the windows of a communicator that failed, and MPI frees a window
 * only with all of them: such communicators stay until the process ends. */
static struct comm_shm *_Atomic abandoned;

static struct comm_shm *self_of(struct tri_comm *c)
{
    return (struct comm_shm *)c;
}

static tri_status enter(const struct comm_shm *s, const char *what)
{
    if (!s->broken)
        return TRI_OK;
    return tri_fail(TRI_ERR_COMM, "rank %d: %s on communicator '%s', which has failed before",
                    s->base.rank, what, s->name);
}

static tri_status meet(struct comm_shm *s, const char *what)
{
    int late = 0;
    char host[TRI_HOST_BYTES];

    if (tri_shm_barrier_wait(&s->barrier, s->base.timeout_ms, &late))
        return TRI_OK;
    s->broken = true;
    tri_host_name(host, sizeof(host));
    return tri_fail(TRI_ERR_TIMEOUT,
                    "rank %d on %s: %s on communicator '%s' waited %lld ms for rank %d on %s",
                    s->base.rank, host, what, s->name, (long long)s->base.timeout_ms, late, host);
}

/* The elements that `rank` reduces. */
static void slice_of(int rank, int size, int64_t count, int64_t *first, int64_t *n)
{
    int64_t lines = (count + SLICE_ALIGN - 1) / SLICE_ALIGN;
    int64_t end;

    if (count <= FEW_ELEMENTS) {
        *first = 0;
        *n = rank == 0 ? count : 0;
        return;
    }
    tri_rounds_block(lines, size, rank, first, n);
    *first *= SLICE_ALIGN;
    end = *first + *n * SLICE_ALIGN;
    end = end < count ? end : count;
    *n = end > *first ? end - *first : 0;
}

/* from[] and to[]: `at` bytes behind the start of everybody's part. */
static void point_at(struct comm_shm *s, const struct tri_shm_window *w, size_t at)
{
    for (int r = 0; r < s->base.size; r++)
        s->from[r] = s->to[r] = w->part[r] + at;
}

/* The communicator works, and knows this sum. */
static tri_status check_sum(const struct comm_shm *s, const char *what, enum tri_dtype dtype,
                            enum tri_reduce op, bool fixed_tree)
{
    tri_reduce_fn *fn;

    TRI_TRY(enter(s, what));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), op, &fn));
    return tri_reduce_check_tree(s->base.size, fixed_tree);
}

static tri_status allreduce_window(struct comm_shm *s, const struct tri_shm_window *w,
                                   unsigned char *buf, int64_t count, enum tri_dtype dtype,
                                   enum tri_reduce op)
{
    int64_t first;
    int64_t n;

    point_at(s, w, (size_t)(buf - w->part[s->base.rank]));
    slice_of(s->base.rank, s->base.size, count, &first, &n);
    TRI_TRY(meet(s, "allreduce"));
    if (n > 0)
        TRI_TRY(tri_reduce_many(s->to, s->base.size, s->from, s->base.size, first, n, dtype, op));
    return meet(s, "allreduce");
}

/* This rank's place in the next half of the staging; peers' by from[]. */
static unsigned char *next_half(struct comm_shm *s)
{
    size_t at = tri_shm_staging_next(&s->staging);

    point_at(s, s->staging.window, at);
    return s->staging.window->part[s->base.rank] + at;
}

/* Copy in, and each rank reduces all: one barrier. */
static tri_status allreduce_small(struct comm_shm *s, void *buf, int64_t count,
                                  enum tri_dtype dtype, enum tri_reduce op)
{
    unsigned char *mine = next_half(s);

    memcpy(mine, buf, (size_t)count * tri_dtype_bytes(dtype));
    TRI_TRY(meet(s, "allreduce"));
    return tri_reduce_many(&buf, 1, s->from, s->base.size, 0, count, dtype, op);
}

/* One piece: copy in, reduce the own slice to the own staging, copy everybody's slice out. */
static tri_status allreduce_piece(struct comm_shm *s, unsigned char *buf, int64_t count,
                                  enum tri_dtype dtype, enum tri_reduce op)
{
    size_t elem = tri_dtype_bytes(dtype);
    unsigned char *mine = next_half(s);
    void *to[1] = {mine};
    int64_t first;
    int64_t n;

    memcpy(mine, buf, (size_t)count * elem);
    slice_of(s->base.rank, s->base.size, count, &first, &n);
    TRI_TRY(meet(s, "allreduce"));
    if (n > 0)
        TRI_TRY(tri_reduce_many(to, 1, s->from, s->base.size, first, n, dtype, op));
    TRI_TRY(meet(s, "allreduce"));
    for (int r = 0; r < s->base.size; r++) {
        slice_of(r, s->base.size, count, &first, &n);
        if (n > 0)
            memcpy(buf + (size_t)first * elem,
                   (const unsigned char *)s->from[r] + (size_t)first * elem, (size_t)n * elem);
    }
    return TRI_OK;
}

static tri_status allreduce_shm(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                enum tri_reduce op, bool fixed_tree)
{
    struct comm_shm *s = self_of(c);
    size_t elem = tri_dtype_bytes(dtype);
    int64_t piece = (int64_t)(s->staging.half_bytes / elem);
    const struct tri_shm_window *w = tri_shm_window_find(s->windows, buf, (size_t)count * elem);

    TRI_TRY(check_sum(s, "allreduce", dtype, op, fixed_tree));
    /* What the ring would send: a slice to and from each peer. */
    s->sent += 2 * (uint64_t)count * elem * (uint64_t)(c->size - 1) / (uint64_t)c->size;
    if (s->crowded && count > 0 && count <= piece &&
        (size_t)count * elem <= SMALL_BYTES / (size_t)c->size)
        return allreduce_small(s, buf, count, dtype, op);
    if (w != NULL && count > 0)
        return allreduce_window(s, w, buf, count, dtype, op);
    for (int64_t at = 0; at < count; at += piece)
        TRI_TRY(allreduce_piece(s, (unsigned char *)buf + (size_t)at * elem,
                                count - at < piece ? count - at : piece, dtype, op));
    return TRI_OK;
}

/* Parts of one slice that a staged exchange moves at a time: the same for all slices, so that all
 * owners work at once. */
static int64_t slice_piece(const struct comm_shm *s, size_t elem, int slices)
{
    int64_t piece =
        (int64_t)(s->staging.half_bytes / elem) / slices / TRI_SLICE_ALIGN * TRI_SLICE_ALIGN;

    return piece > 0 ? piece : 1;
}

/* Elements [at, at + piece) of slice i, as far as there are any. */
static int64_t part_of_slice(int64_t count, int slices, int i, int64_t at, int64_t piece,
                             int64_t *first)
{
    int64_t n;

    tri_comm_slice(count, slices, i, first, &n);
    n = n > at ? n - at : 0;
    *first += at;
    return n < piece ? n : piece;
}

/* One piece of each slice: copy in, sum the own one to the buffer. */
static tri_status scatter_piece(struct comm_shm *s, unsigned char *buf, int64_t count,
                                enum tri_dtype dtype, int slices, int64_t at, int64_t piece)
{
    size_t elem = tri_dtype_bytes(dtype);
    unsigned char *mine = next_half(s);
    int64_t first, n;
    void *to[1];

    for (int i = 0; i < slices; i++) {
        n = part_of_slice(count, slices, i, at, piece, &first);
        memcpy(mine + (size_t)(i * piece) * elem, buf + (size_t)first * elem, (size_t)n * elem);
    }
    TRI_TRY(meet(s, "reduce-scatter"));
    n = part_of_slice(count, slices, s->base.rank, at, piece, &first);
    if (n == 0)
        return TRI_OK;
    for (int r = 0; r < s->base.size; r++)
        s->from[r] = (const unsigned char *)s->from[r] + (size_t)(s->base.rank * piece) * elem;
    to[0] = buf + (size_t)first * elem;
    return tri_reduce_many(to, 1, s->from, s->base.size, 0, n, dtype, TRI_REDUCE_SUM);
}

static tri_status reduce_scatter_shm(struct tri_comm *c, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices, bool fixed_tree)
{
    struct comm_shm *s = self_of(c);
    size_t elem = tri_dtype_bytes(dtype);
    const struct tri_shm_window *w = tri_shm_window_find(s->windows, buf, (size_t)count * elem);
    int64_t piece = slice_piece(s, elem, slices);
    int64_t first, n;

    TRI_TRY(check_sum(s, "reduce-scatter", dtype, TRI_REDUCE_SUM, fixed_tree));
    tri_comm_slice(count, slices, c->rank, &first, &n);
    s->sent += (uint64_t)(count - n) * elem;
    if (w == NULL) {
        tri_comm_slice(count, slices, 0, &first, &n); /* no slice is longer */
        for (int64_t at = 0; at < n; at += piece)
            TRI_TRY(scatter_piece(s, buf, count, dtype, slices, at, piece));
        return TRI_OK;
    }
    /* No barrier behind: peers read only parts that this rank leaves alone until it has met them
     * in the next call. */
    TRI_TRY(meet(s, "reduce-scatter"));
    point_at(s, w, (size_t)((unsigned char *)buf - w->part[c->rank]));
    return n == 0 ? TRI_OK
                  : tri_reduce_many(&s->to[c->rank], 1, s->from, c->size, first, n, dtype,
                                    TRI_REDUCE_SUM);
}

/* One piece of each slice: owners copy in, all copy out. */
static tri_status gather_piece(struct comm_shm *s, unsigned char *buf, int64_t count, size_t elem,
                               int slices, int64_t at, int64_t piece)
{
    unsigned char *mine = next_half(s);
    int64_t first;
    int64_t n = part_of_slice(count, slices, s->base.rank, at, piece, &first);

    memcpy(mine, buf + (size_t)first * elem, (size_t)n * elem);
    TRI_TRY(meet(s, "gather"));
    for (int i = 0; i < slices; i++) {
        n = part_of_slice(count, slices, i, at, piece, &first);
        if (i != s->base.rank)
            memcpy(buf + (size_t)first * elem, s->from[i], (size_t)n * elem);
    }
    return TRI_OK;
}

static tri_status gather_slices_shm(struct tri_comm *c, void *buf, int64_t count,
                                    enum tri_dtype dtype, int slices)
{
    struct comm_shm *s = self_of(c);
    size_t elem = tri_dtype_bytes(dtype);
    const struct tri_shm_window *w = tri_shm_window_find(s->windows, buf, (size_t)count * elem);
    int64_t piece = (int64_t)(s->staging.half_bytes / elem);
    int64_t first, n;

    TRI_TRY(enter(s, "gather"));
    tri_comm_slice(count, slices, c->rank, &first, &n);
    s->sent += (uint64_t)n * elem * (uint64_t)(c->size - 1);
    if (w == NULL) {
        tri_comm_slice(count, slices, 0, &first, &n);
        for (int64_t at = 0; at < n; at += piece)
            TRI_TRY(gather_piece(s, buf, count, elem, slices, at, piece));
        return TRI_OK;
    }
    TRI_TRY(meet(s, "gather"));
    point_at(s, w, (size_t)((unsigned char *)buf - w->part[c->rank]));
    for (int d = 1; d <= slices; d++) {
        int i = (c->rank + d) % slices; /* not all at the same owner */

        tri_comm_slice(count, slices, i, &first, &n);
        if (i != c->rank && n > 0)
            memcpy((unsigned char *)buf + (size_t)first * elem,
                   (const unsigned char *)s->from[i] + (size_t)first * elem, (size_t)n * elem);
    }
    return meet(s, "gather");
}

static tri_status broadcast_shm(struct tri_comm *c, void *buf, size_t bytes, int root)
{
    struct comm_shm *s = self_of(c);

    TRI_TRY(enter(s, "broadcast"));
    s->sent += c->rank == root ? bytes : 0;
    for (size_t at = 0; at < bytes; at += s->staging.half_bytes) {
        size_t now = bytes - at < s->staging.half_bytes ? bytes - at : s->staging.half_bytes;
        unsigned char *mine = next_half(s);

        if (c->rank == root)
            memcpy(mine, (unsigned char *)buf + at, now);
        TRI_TRY(meet(s, "broadcast"));
        if (c->rank != root)
            memcpy((unsigned char *)buf + at, s->from[root], now);
    }
    return TRI_OK;
}

static tri_status allgather_shm(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    struct comm_shm *s = self_of(c);

    TRI_TRY(enter(s, "allgather"));
    s->sent += bytes;
    for (size_t at = 0; at < bytes; at += s->staging.half_bytes) {
        size_t now = bytes - at < s->staging.half_bytes ? bytes - at : s->staging.half_bytes;

        memcpy(next_half(s), (const unsigned char *)send + at, now);
        TRI_TRY(meet(s, "allgather"));
        for (int r = 0; r < c->size; r++)
            memcpy((unsigned char *)recv + (size_t)r * bytes + at, s->from[r], now);
    }
    return TRI_OK;
}

static tri_status barrier_shm(struct tri_comm *c)
{
    struct comm_shm *s = self_of(c);

    TRI_TRY(enter(s, "barrier"));
    return meet(s, "barrier");
}

static tri_status alloc_shm(struct tri_comm *c, size_t bytes, void **out)
{
    struct comm_shm *s = self_of(c);
    struct tri_shm_window *w;

    TRI_TRY(tri_shm_window_create(s->comm, s->setup, bytes, true, &w));
    w->next = s->windows;
    s->windows = w;
    *out = tri_shm_window_mine(w);
    return TRI_OK;
}

static void free_shm(struct tri_comm *c, void *p)
{
    struct comm_shm *s = self_of(c);

    if (p == NULL)
        return;
    for (struct tri_shm_window **link = &s->windows; *link != NULL; link = &(*link)->next) {
        struct tri_shm_window *w = *link;

        if (tri_shm_window_mine(w) != p)
            continue;
        *link = w->next;
        /* Freeing a window is collective: not with a peer that may be gone. */
        if (!s->broken)
            tri_shm_window_destroy(w);
        return;
    }
    TRI_ASSERT(!"free of memory that this communicator did not give");
}

static uint64_t bytes_sent_shm(const struct tri_comm *c)
{
    return ((const struct comm_shm *)(const void *)c)->sent;
}

static void destroy_shm(struct tri_comm *c)
{
    struct comm_shm *s = self_of(c);

    if (s == NULL)
        return;
    if (s->broken) {
        s->next = atomic_load(&abandoned);
        while (!atomic_compare_exchange_weak(&abandoned, &s->next, s))
            ;
        return;
    }
    for (struct tri_shm_window *w = s->windows, *next; w != NULL; w = next) {
        next = w->next;
        tri_shm_window_destroy(w);
    }
    tri_shm_window_destroy(s->staging.window);
    tri_shm_window_destroy(s->flags);
    if (s->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&s->comm);
    tri_comm_destroy(s->setup);
    tri_shm_barrier_finish(&s->barrier);
    tri_free(s->from);
    tri_free(s->to);
    tri_free(s->name);
    tri_free(s);
}

static const struct tri_comm_ops shm_ops = {
    .name = "shared memory",
    .allreduce = allreduce_shm,
    .reduce_scatter = reduce_scatter_shm,
    .gather_slices = gather_slices_shm,
    .broadcast = broadcast_shm,
    .allgather = allgather_shm,
    .barrier = barrier_shm,
    .alloc = alloc_shm,
    .free = free_shm,
    .bytes_sent = bytes_sent_shm,
    .destroy = destroy_shm,
};

/* MPI side, flags, staging. Leaves s->staging NULL when there is no room. */
static tri_status connect_ranks(struct comm_shm *s, MPI_Comm parent, size_t staging_bytes)
{
    int64_t crowded;
    tri_status st = TRI_OK;
    size_t n;

    TRI_TRY(tri_comm_mpi_create(&parent, s->name, s->base.timeout_ms, &s->setup));
    s->base.rank = s->setup->rank;
    s->base.size = s->setup->size;
    crowded = s->base.size > sysconf(_SC_NPROCESSORS_ONLN);
    n = (size_t)s->base.size;
    s->from = tri_calloc(n, sizeof(*s->from), "addresses of peers");
    s->to = tri_calloc(n, sizeof(*s->to), "addresses of peers");
    if (s->from == NULL || s->to == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate its tables", s->name);
    TRI_TRY(tri_comm_agree(s->setup, st));
    if (MPI_Comm_dup(parent, &s->comm) != MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "communicator '%s': MPI_Comm_dup failed", s->name);
    (void)MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    TRI_TRY(tri_shm_window_create(s->comm, s->setup, TRI_SHM_FLAG_BYTES, false, &s->flags));
    if (s->flags == NULL)
        return TRI_OK;
    TRI_TRY(tri_comm_allreduce(s->setup, &crowded, 1, TRI_I64, TRI_REDUCE_MAX, false));
    s->crowded = crowded != 0;
    st = tri_shm_barrier_init(&s->barrier, s->flags->part, s->base.rank, s->base.size, s->crowded);
    TRI_TRY(tri_comm_agree(s->setup, st));
    return tri_shm_staging_init(&s->staging, s->comm, s->setup, staging_bytes);
}

tri_status tri_comm_shm_create(const void *mpi_comm, const char *name, size_t staging_bytes,
                               int64_t timeout_ms, struct tri_comm **out)
{
    struct comm_shm *s = tri_calloc(1, sizeof(*s), "communicator over shared memory");
    tri_status st;

    if (s == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", name,
                        sizeof(*s));
    s->comm = MPI_COMM_NULL;
    s->base.ops = &shm_ops;
    s->base.timeout_ms = timeout_ms;
    s->base.name = s->name = tri_strdup(name);
    st = s->name != NULL
             ? connect_ranks(s, *(const MPI_Comm *)mpi_comm, staging_bytes)
             : tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate its name", name);
    if (st == TRI_OK && s->staging.window != NULL) {
        *out = &s->base;
        return TRI_OK;
    }
    destroy_shm(&s->base);
    *out = NULL;
    return st;
}

void *tri_comm_shm_part(const struct tri_comm *c, const void *buf, int rank)
{
    const struct comm_shm *s = (const struct comm_shm *)(const void *)c;
    const struct tri_shm_window *w = tri_shm_window_find(s->windows, buf, 1);

    TRI_ASSERT(c->ops == &shm_ops);
    return w != NULL ? w->part[rank] + ((const unsigned char *)buf - w->part[c->rank]) : NULL;
}
