/* See mpi_sum.h. */
#include "collectives/mpi_sum.h"

#include "collectives/reduce.h"
#include "runtime/core/memory.h"

enum {
    SMALL_BYTES = 1 << 14, /* up to here latency counts: fewest rounds */
    PIECES = 4,            /* of a long sum, two for each lane */
    PIECE_MIN = 1 << 18,   /* shorter pieces cost more latency than they hide */
    PIECE_MAX = 4 << 20    /* longer ones leave the cache */
};

/* The algorithm for a piece. The choice depends on what all ranks know. */
static tri_rounds_make *choose(int size, tri_rounds_make *forced, int64_t count, size_t elem)
{
    if (forced != NULL)
        return forced;
    if ((size_t)count * elem <= SMALL_BYTES)
        return tri_rounds_doubling;
    return (size & (size - 1)) == 0 ? tri_rounds_halving : tri_rounds_ring;
}

/* Elements of a piece, whole cache lines. */
static int64_t piece_length(int64_t count, size_t elem)
{
    size_t bytes = tri_round_up((size_t)count * elem / PIECES, TRI_ALIGN_BYTES);

    bytes = bytes > PIECE_MIN ? bytes : PIECE_MIN;
    return (int64_t)((bytes < PIECE_MAX ? bytes : PIECE_MAX) / elem);
}

/* Finds both plans before any runs, as a new one may take the place of an old one in the cache: the
 * second look at the first makes it anew if the other took its place. */
static tri_status find_plans(struct tri_mpi_sum *s, struct tri_plan_cache *plans,
                             tri_rounds_make *forced)
{
    int rank = s->lane->port->rank;
    int size = s->lane->port->size;
    int64_t last = (s->count - 1) % s->length + 1;
    int64_t full = s->count < s->length ? last : s->length;
    struct tri_plan_key a = {.make = choose(size, forced, full, s->elem), .count = full};
    struct tri_plan_key b = {.make = choose(size, forced, last, s->elem), .count = last};

    TRI_TRY(tri_plan_cache_find(plans, rank, size, a, &s->plan));
    TRI_TRY(tri_plan_cache_find(plans, rank, size, b, &s->last_plan));
    return tri_plan_cache_find(plans, rank, size, a, &s->plan);
}

tri_status tri_mpi_sum_begin(struct tri_mpi_sum *s, struct tri_mpi_lane *lane,
                             struct tri_plan_cache *plans, tri_rounds_make *forced, void *buf,
                             int64_t count, enum tri_dtype dtype, enum tri_reduce op)
{
    *s = (struct tri_mpi_sum){.lane = lane,
                              .buf = buf,
                              .count = count,
                              .dtype = dtype,
                              .stored = tri_dtype_bytes(dtype),
                              .elem = tri_dtype_bytes(tri_reduce_dtype(dtype))};
    TRI_TRY(tri_reduce_find(tri_reduce_dtype(dtype), op, &s->fn));
    s->length = piece_length(count, s->elem);
    for (int k = 0; k < TRI_LANES; k++)
        s->piece[k].next = k * s->length;
    return count > 0 ? find_plans(s, plans, forced) : TRI_OK;
}

static tri_status begin_piece(struct tri_mpi_sum *s, int k)
{
    struct tri_mpi_piece *p = &s->piece[k];
    int64_t left = s->count - p->next;
    const struct tri_rounds *plan = left > s->length ? s->plan : s->last_plan;

    p->at = s->buf + (size_t)p->next * s->stored;
    p->count = left < s->length ? left : s->length;
    TRI_TRY(tri_mpi_lane_widen(&s->lane[k], p->at, p->count, s->dtype, &p->data));
    TRI_TRY(tri_mpi_lane_begin(&s->lane[k], plan, p->data, s->elem, s->fn, &p->run));
    p->next += TRI_LANES * s->length;
    p->busy = true;
    return TRI_OK;
}

/* Gives lane k its next piece, or polls the one that it has. *done stays true when there is no more
 * to do. */
static tri_status advance(struct tri_mpi_sum *s, int k, struct tri_wait *wait, bool *done)
{
    struct tri_mpi_piece *p = &s->piece[k];
    bool ended = false;

    if (!p->busy && p->next < s->count)
        TRI_TRY(begin_piece(s, k));
    if (p->busy)
        TRI_TRY(tri_mpi_lane_poll(&s->lane[k], &p->run, wait, &ended));
    if (ended) {
        if (p->data != p->at)
            tri_reduce_narrow(p->at, p->data, p->count, s->dtype);
        p->busy = false;
        wait->turns = 0;
    }
    *done = *done && !p->busy && p->next >= s->count;
    return TRI_OK;
}

/* Lane k takes pieces k, k + TRI_LANES, ... on every rank, whichever lane is ahead. */
tri_status tri_mpi_sum_poll(struct tri_mpi_sum *s, struct tri_wait *wait, bool *done)
{
    bool all = true;

    for (int k = 0; k < TRI_LANES; k++)
        TRI_TRY(advance(s, k, wait, &all));
    *done = all;
    return TRI_OK;
}

tri_status tri_mpi_scratch(int size, int slices, int64_t count, enum tri_dtype dtype, size_t *bytes)
{
    const size_t elem = tri_dtype_bytes(tri_reduce_dtype(dtype));
    const bool wide = tri_reduce_dtype(dtype) != dtype;
    int64_t length = piece_length(count, elem), lanes;
    struct tri_rounds plan = {0};

    if (slices > 0) {
        TRI_TRY(tri_rounds_scatter_slices(0, size, slices, count, &plan));
        length = count;
        lanes = 1;
    } else {
        lanes = count > length ? TRI_LANES : 1;
        length = count < length ? count : length;
        TRI_TRY(choose(size, NULL, length, elem)(0, size, length, &plan));
    }
    *bytes = (size_t)lanes * ((size_t)plan.scratch * elem + (wide ? (size_t)length * elem : 0));
    tri_rounds_finish(&plan);
    return TRI_OK;
}
