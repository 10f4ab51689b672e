/* See comm_shm.h. Staging has two halves, used in turn: a half is written by its owner again only
 * after a barrier that every reader of its last contents has entered, so that no piece needs a
 * barrier behind it. */
#include "collectives/comm_shm.h"

#include "collectives/comm_mpi.h"
#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/shm_barrier.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <mpi.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    SLICE_ALIGN = 32,       /* elements: slices of ranks share no cache line from 2 bytes up */
    FEW_ELEMENTS = 256,     /* up to here one rank reduces all: fewer lines travel */
    SPARE_BYTES = 16 << 20, /* of shared memory that stays free for others */
    PAGE_BYTES = 4096
};

/* Memory of all ranks, mapped here. */
struct window {
    struct window *next;
    MPI_Win win;
    unsigned char **part; /* of each rank */
    size_t bytes;         /* per rank */
    bool plain; /* no window: ordinary memory of this rank alone, for want of shared memory */
};

struct comm_shm {
    struct tri_comm base;
    MPI_Comm comm;
    struct tri_comm *setup; /* over MPI: agreements before windows are made */
    char *name;
    struct window *windows; /* of alloc() */
    struct window *staging;
    struct window *flags;
    struct tri_shm_barrier barrier;
    const void **from; /* work arrays of one pointer a rank */
    void **to;
    size_t half_bytes; /* of the staging */
    int half;          /* the next one to use */
    uint64_t sent;
    bool broken;
};

static struct comm_shm *self_of(struct tri_comm *c)
{
    return (struct comm_shm *)c;
}

/* *enough: every rank sees room for windows of `bytes` per rank. If not, rank 0 logs what is taken
 * `instead`. */
static tri_status agree_room(struct comm_shm *s, size_t bytes, const char *instead, bool *enough)
{
    struct statvfs fs;
    uint64_t need = ((uint64_t)bytes + PAGE_BYTES) * (uint64_t)s->base.size + SPARE_BYTES;
    int64_t room = 0;

    if (statvfs("/dev/shm", &fs) == 0)
        room = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize);
    TRI_TRY(tri_comm_allreduce(s->setup, &room, 1, TRI_I64, TRI_REDUCE_MIN, false));
    *enough = (uint64_t)room >= need;
    if (!*enough && s->base.rank == 0)
        tri_warn("communicator '%s': /dev/shm has %lld MB free, %llu MB are needed: using %s",
                 s->name, (long long)(room >> 20), (unsigned long long)(need >> 20), instead);
    return TRI_OK;
}

static void free_window(struct window *w)
{
    if (w == NULL)
        return;
    if (w->plain && w->part != NULL)
        tri_free(w->part[0]);
    if (!w->plain && w->win != MPI_WIN_NULL)
        (void)MPI_Win_free(&w->win);
    tri_free(w->part);
    tri_free(w);
}

/* Maps everybody's part. Pages are touched by their owner: near its memory, and taken now. */
static tri_status map_window(struct comm_shm *s, struct window *w)
{
    void *mine = NULL;

    if (MPI_Win_allocate_shared((MPI_Aint)w->bytes, 1, MPI_INFO_NULL, s->comm, &mine, &w->win) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM,
                        "rank %d: communicator '%s': cannot make a window of %zu bytes",
                        s->base.rank, s->name, w->bytes);
    for (int r = 0; r < s->base.size; r++) {
        MPI_Aint bytes;
        int unit;

        if (MPI_Win_shared_query(w->win, r, &bytes, &unit, &w->part[r]) != MPI_SUCCESS)
            return tri_fail(TRI_ERR_COMM,
                            "rank %d: communicator '%s': cannot map the memory of rank %d",
                            s->base.rank, s->name, r);
    }
    memset(mine, 0, w->bytes);
    return TRI_OK;
}

/* A window of `bytes` per rank, zeroed; ordinary memory when the shared memory does not suffice and
 * `plain_ok`, else *out NULL. */
static tri_status make_window(struct comm_shm *s, size_t bytes, bool plain_ok, struct window **out)
{
    struct window *w = tri_calloc(1, sizeof(*w), "shared window");
    tri_status st = TRI_OK;
    bool enough = false;

    if (w != NULL) {
        w->win = MPI_WIN_NULL;
        w->bytes = tri_round_up(bytes > 0 ? bytes : 1, PAGE_BYTES);
        w->part = tri_calloc((size_t)s->base.size, sizeof(*w->part), "parts of a shared window");
    }
    if (w == NULL || w->part == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate a window", s->name);
    TRI_TRY_GOTO(st, tri_comm_agree(s->setup, st), fail);
    TRI_TRY_GOTO(
        st, agree_room(s, w->bytes, plain_ok ? "ordinary memory" : "MPI messages", &enough), fail);
    if (!enough && !plain_ok) {
        free_window(w);
        *out = NULL;
        return TRI_OK;
    }
    if (enough) {
        st = map_window(s, w);
    } else {
        w->plain = true;
        w->part[0] = tri_alloc_aligned(w->bytes, "exchange memory");
        if (w->part[0] == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", s->name,
                          w->bytes);
    }
    TRI_TRY_GOTO(st, tri_comm_agree(s->setup, st), fail);
    *out = w;
    return TRI_OK;

fail:
    free_window(w);
    return st;
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
    char host[64] = "";

    if (tri_shm_barrier_wait(&s->barrier, s->base.timeout_ms, &late))
        return TRI_OK;
    s->broken = true;
    tri_shm_host(host, sizeof(host));
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

/* The window that holds [buf, buf + bytes) of this rank, or NULL. */
static const struct window *find_window(const struct comm_shm *s, const unsigned char *buf,
                                        size_t bytes)
{
    for (const struct window *w = s->windows; w != NULL; w = w->next) {
        const unsigned char *mine = w->plain ? NULL : w->part[s->base.rank];

        if (mine != NULL && buf >= mine && buf + bytes <= mine + w->bytes)
            return w;
    }
    return NULL;
}

/* from[] and to[]: `at` bytes behind the start of everybody's part. */
static void point_at(struct comm_shm *s, const struct window *w, size_t at)
{
    for (int r = 0; r < s->base.size; r++)
        s->from[r] = s->to[r] = w->part[r] + at;
}

/* The communicator works, and knows this sum. */
static tri_status check_sum(const struct comm_shm *s, const char *what, enum tri_dtype dtype,
                            enum tri_reduce op, bool fixed_tree)
{
    int size = s->base.size;
    tri_reduce_fn *fn;

    TRI_TRY(enter(s, what));
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), op, &fn));
    if (fixed_tree && (size & (size - 1)) != 0)
        return tri_fail(TRI_ERR_USAGE, "a fixed-tree sum needs a power of two of ranks, not %d",
                        size);
    return TRI_OK;
}

static tri_status allreduce_window(struct comm_shm *s, const struct window *w, unsigned char *buf,
                                   int64_t count, enum tri_dtype dtype, enum tri_reduce op)
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
    size_t at = (size_t)s->half * s->half_bytes;

    s->half = 1 - s->half;
    point_at(s, s->staging, at);
    return s->staging->part[s->base.rank] + at;
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
    int64_t piece = (int64_t)(s->half_bytes / elem);
    const struct window *w = find_window(s, buf, (size_t)count * elem);

    TRI_TRY(check_sum(s, "allreduce", dtype, op, fixed_tree));
    /* What the ring would send: a slice to and from each peer. */
    s->sent += 2 * (uint64_t)count * elem * (uint64_t)(c->size - 1) / (uint64_t)c->size;
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
    int64_t piece = (int64_t)(s->half_bytes / elem) / slices / TRI_SLICE_ALIGN * TRI_SLICE_ALIGN;

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
    const struct window *w = find_window(s, buf, (size_t)count * elem);
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
    const struct window *w = find_window(s, buf, (size_t)count * elem);
    int64_t piece = (int64_t)(s->half_bytes / elem);
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
    for (size_t at = 0; at < bytes; at += s->half_bytes) {
        size_t now = bytes - at < s->half_bytes ? bytes - at : s->half_bytes;
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
    for (size_t at = 0; at < bytes; at += s->half_bytes) {
        size_t now = bytes - at < s->half_bytes ? bytes - at : s->half_bytes;

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
    struct window *w;

    TRI_TRY(make_window(s, bytes, true, &w));
    w->next = s->windows;
    s->windows = w;
    *out = w->part[w->plain ? 0 : c->rank];
    return TRI_OK;
}

static void free_shm(struct tri_comm *c, void *p)
{
    struct comm_shm *s = self_of(c);

    if (p == NULL)
        return;
    for (struct window **link = &s->windows; *link != NULL; link = &(*link)->next) {
        struct window *w = *link;

        if (w->part[w->plain ? 0 : c->rank] != p)
            continue;
        *link = w->next;
        /* Freeing a window is collective: not with a peer that may be gone. */
        if (!s->broken)
            free_window(w);
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
    if (!s->broken) {
        for (struct window *w = s->windows, *next; w != NULL; w = next) {
            next = w->next;
            free_window(w);
        }
        free_window(s->staging);
        free_window(s->flags);
        if (s->comm != MPI_COMM_NULL)
            (void)MPI_Comm_free(&s->comm);
        tri_comm_destroy(s->setup);
    }
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
    tri_status st = TRI_OK;
    size_t n;

    TRI_TRY(tri_comm_mpi_create(&parent, s->name, s->base.timeout_ms, &s->setup));
    s->base.rank = s->setup->rank;
    s->base.size = s->setup->size;
    n = (size_t)s->base.size;
    s->from = tri_calloc(n, sizeof(*s->from), "addresses of peers");
    s->to = tri_calloc(n, sizeof(*s->to), "addresses of peers");
    if (s->from == NULL || s->to == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate its tables", s->name);
    TRI_TRY(tri_comm_agree(s->setup, st));
    if (MPI_Comm_dup(parent, &s->comm) != MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "communicator '%s': MPI_Comm_dup failed", s->name);
    (void)MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    TRI_TRY(make_window(s, TRI_SHM_FLAG_BYTES, false, &s->flags));
    if (s->flags == NULL)
        return TRI_OK;
    st = tri_shm_barrier_init(&s->barrier, s->flags->part, s->base.rank, s->base.size);
    TRI_TRY(tri_comm_agree(s->setup, st));
    s->half_bytes = tri_round_up(staging_bytes / 2, PAGE_BYTES);
    return make_window(s, 2 * s->half_bytes, false, &s->staging);
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
    if (st == TRI_OK && s->staging != NULL) {
        *out = &s->base;
        return TRI_OK;
    }
    destroy_shm(&s->base);
    *out = NULL;
    return st;
}
