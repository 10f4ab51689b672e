/* The plans of rounds.h and the engine that runs them. */
#include "collectives/rounds.h"

#include "runtime/core/memory.h"
#include "runtime/exec/comm.h"

#include <limits.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static tri_status add(struct tri_rounds *r, struct tri_action a)
{
    if (a.count == 0)
        return TRI_OK;
    if (r->nactions == r->action_cap) {
        int32_t cap = r->action_cap > 0 ? 2 * r->action_cap : 16;
        void *p =
            tri_realloc(r->action, (size_t)cap, sizeof(*r->action), "actions of a collective");

        if (p == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d actions of a collective", cap);
        r->action = p;
        r->action_cap = cap;
    }
    r->action[r->nactions++] = a;
    return TRI_OK;
}

static tri_status send_part(struct tri_rounds *r, int peer, int64_t at, int64_t count)
{
    return add(r, (struct tri_action){.kind = TRI_ACT_SEND,
                                      .peer = peer,
                                      .from = TRI_AREA_DATA,
                                      .from_at = at,
                                      .count = count});
}

static tri_status recv_part(struct tri_rounds *r, int peer, enum tri_area to, int64_t at,
                            int64_t count)
{
    if (to == TRI_AREA_SCRATCH && at + count > r->scratch)
        r->scratch = at + count;
    return add(r, (struct tri_action){
                      .kind = TRI_ACT_RECV, .peer = peer, .to = to, .to_at = at, .count = count});
}

/* Receives a part from the start of the scratch on and reduces it into the data. */
static tri_status recv_reduce(struct tri_rounds *r, int peer, int64_t at, int64_t count)
{
    TRI_TRY(recv_part(r, peer, TRI_AREA_SCRATCH, 0, count));
    return add(r, (struct tri_action){.kind = TRI_ACT_REDUCE,
                                      .peer = peer,
                                      .from = TRI_AREA_SCRATCH,
                                      .to = TRI_AREA_DATA,
                                      .to_at = at,
                                      .count = count});
}

/* Ends a round; rounds without actions vanish. */
static tri_status end_round(struct tri_rounds *r)
{
    if (r->nactions == (r->nrounds > 0 ? r->end[r->nrounds - 1] : 0))
        return TRI_OK;
    if (r->nrounds == r->round_cap) {
        int32_t cap = r->round_cap > 0 ? 2 * r->round_cap : 8;
        void *p = tri_realloc(r->end, (size_t)cap, sizeof(*r->end), "rounds of a collective");

        if (p == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d rounds of a collective", cap);
        r->end = p;
        r->round_cap = cap;
    }
    r->end[r->nrounds++] = r->nactions;
    return TRI_OK;
}

void tri_rounds_block(int64_t count, int size, int b, int64_t *first, int64_t *n)
{
    int64_t each = count / size;
    int64_t rest = count % size;

    *first = b * each + min64(b, rest);
    *n = each + (b < rest ? 1 : 0);
}

static int wrap(int rank, int size)
{
    return ((rank % size) + size) % size;
}

static tri_status append_reduce_scatter(int rank, int size, int64_t count, struct tri_rounds *out)
{
    /* In round s rank r passes block r-1-s to its right neighbour, so that block b is complete on
     * rank b. */
    for (int s = 0; s < size - 1; s++) {
        int64_t at;
        int64_t n;

        tri_rounds_block(count, size, wrap(rank - 1 - s, size), &at, &n);
        TRI_TRY(send_part(out, wrap(rank + 1, size), at, n));
        tri_rounds_block(count, size, wrap(rank - 2 - s, size), &at, &n);
        TRI_TRY(recv_reduce(out, wrap(rank - 1, size), at, n));
        TRI_TRY(end_round(out));
    }
    return TRI_OK;
}

static tri_status append_gather_blocks(int rank, int size, int64_t count, struct tri_rounds *out)
{
    for (int s = 0; s < size - 1; s++) {
        int64_t at;
        int64_t n;

        tri_rounds_block(count, size, wrap(rank - s, size), &at, &n);
        TRI_TRY(send_part(out, wrap(rank + 1, size), at, n));
        tri_rounds_block(count, size, wrap(rank - 1 - s, size), &at, &n);
        TRI_TRY(recv_part(out, wrap(rank - 1, size), TRI_AREA_DATA, at, n));
        TRI_TRY(end_round(out));
    }
    return TRI_OK;
}

/* Frees a plan that could not be completed. */
static tri_status complete(tri_status st, struct tri_rounds *out)
{
    if (st != TRI_OK)
        tri_rounds_finish(out);
    return st;
}

tri_status tri_rounds_reduce_scatter(int rank, int size, int64_t count, struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_reduce_scatter(rank, size, count, out), out);
}

tri_status tri_rounds_gather_blocks(int rank, int size, int64_t count, struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_gather_blocks(rank, size, count, out), out);
}

/* Own parts in the scratch at r * n for rank r: reduces those of [lo, hi) to the place of lo. */
static tri_status append_tree(struct tri_rounds *out, int lo, int hi, int64_t n)
{
    int mid = lo + (hi - lo) / 2;

    if (hi - lo == 1)
        return TRI_OK;
    TRI_TRY(append_tree(out, lo, mid, n));
    TRI_TRY(append_tree(out, mid, hi, n));
    return add(out, (struct tri_action){.kind = TRI_ACT_REDUCE,
                                        .peer = INT_MAX, /* `from` stands for higher ranks */
                                        .from = TRI_AREA_SCRATCH,
                                        .from_at = mid * n,
                                        .to = TRI_AREA_SCRATCH,
                                        .to_at = lo * n,
                                        .count = n});
}

static tri_status append_scatter_slices(int rank, int size, int slices, int64_t count,
                                        struct tri_rounds *out)
{
    int64_t first, n, at, len;

    tri_comm_slice(count, slices, rank, &first, &n);
    for (int d = 1; d < size; d++) {
        int to = wrap(rank + d, size), from = wrap(rank - d, size);

        tri_comm_slice(count, slices, to, &at, &len);
        TRI_TRY(send_part(out, to, at, len));
        TRI_TRY(recv_part(out, from, TRI_AREA_SCRATCH, from * n, n));
    }
    out->scratch = size * n;
    TRI_TRY(add(out, (struct tri_action){.kind = TRI_ACT_COPY,
                                         .from = TRI_AREA_DATA,
                                         .from_at = first,
                                         .to = TRI_AREA_SCRATCH,
                                         .to_at = rank * n,
                                         .count = n}));
    if (n > 0)
        TRI_TRY(append_tree(out, 0, size, n));
    TRI_TRY(add(out, (struct tri_action){.kind = TRI_ACT_COPY,
                                         .from = TRI_AREA_SCRATCH,
                                         .to = TRI_AREA_DATA,
                                         .to_at = first,
                                         .count = n}));
    return end_round(out);
}

tri_status tri_rounds_scatter_slices(int rank, int size, int slices, int64_t count,
                                     struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_scatter_slices(rank, size, slices, count, out), out);
}

static tri_status append_gather_slices(int rank, int size, int slices, int64_t count,
                                       struct tri_rounds *out)
{
    int64_t first, n, at, len;

    tri_comm_slice(count, slices, rank, &first, &n);
    for (int d = 1; d < size; d++) {
        int to = wrap(rank + d, size), from = wrap(rank - d, size);

        tri_comm_slice(count, slices, from, &at, &len);
        TRI_TRY(send_part(out, to, first, n));
        TRI_TRY(recv_part(out, from, TRI_AREA_DATA, at, len));
    }
    return end_round(out);
}

tri_status tri_rounds_gather_slices(int rank, int size, int slices, int64_t count,
                                    struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_gather_slices(rank, size, slices, count, out), out);
}

tri_status tri_rounds_allgather(int rank, int size, int64_t count, struct tri_rounds *out)
{
    return tri_rounds_gather_blocks(rank, size, count * size, out);
}

tri_status tri_rounds_ring(int rank, int size, int64_t count, struct tri_rounds *out)
{
    tri_status st;

    *out = (struct tri_rounds){0};
    st = append_reduce_scatter(rank, size, count, out);
    if (st == TRI_OK)
        st = append_gather_blocks(rank, size, count, out);
    return complete(st, out);
}

/* The part [*lo, *hi) that `rank` keeps after `steps` halvings, the first by bit 0 of the rank. */
static void halved(int rank, int steps, int64_t count, int64_t *lo, int64_t *hi)
{
    *lo = 0;
    *hi = count;
    for (int k = 0; k < steps; k++) {
        int64_t mid = *lo + (*hi - *lo) / 2;

        if ((rank >> k & 1) != 0)
            *lo = mid;
        else
            *hi = mid;
    }
}

static tri_status append_halving(int rank, int size, int64_t count, struct tri_rounds *out)
{
    int steps = 0;
    int64_t lo;
    int64_t hi;
    int64_t other;
    int64_t other_end;

    for (; 1 << steps < size; steps++) {
        int peer = rank ^ 1 << steps;

        halved(peer, steps + 1, count, &other, &other_end);
        TRI_TRY(send_part(out, peer, other, other_end - other));
        halved(rank, steps + 1, count, &lo, &hi);
        TRI_TRY(recv_reduce(out, peer, lo, hi - lo));
        TRI_TRY(end_round(out));
    }
    while (steps-- > 0) {
        int peer = rank ^ 1 << steps;

        halved(rank, steps + 1, count, &lo, &hi);
        TRI_TRY(send_part(out, peer, lo, hi - lo));
        halved(peer, steps + 1, count, &other, &other_end);
        TRI_TRY(recv_part(out, peer, TRI_AREA_DATA, other, other_end - other));
        TRI_TRY(end_round(out));
    }
    return TRI_OK;
}

tri_status tri_rounds_halving(int rank, int size, int64_t count, struct tri_rounds *out)
{
    TRI_ASSERT(size > 0 && (size & (size - 1)) == 0);
    *out = (struct tri_rounds){0};
    return complete(append_halving(rank, size, count, out), out);
}

/* Ranks beyond the largest power of two hand their data to a lower rank first and get the result at
 * the end. */
static tri_status append_doubling(int rank, int size, int64_t count, struct tri_rounds *out)
{
    int core = 1;

    while (2 * core <= size)
        core *= 2;
    if (rank >= core) {
        TRI_TRY(send_part(out, rank - core, 0, count));
        TRI_TRY(end_round(out));
        TRI_TRY(recv_part(out, rank - core, TRI_AREA_DATA, 0, count));
        return end_round(out);
    }
    if (rank + core < size) {
        TRI_TRY(recv_reduce(out, rank + core, 0, count));
        TRI_TRY(end_round(out));
    }
    for (int d = 1; d < core; d *= 2) {
        TRI_TRY(send_part(out, rank ^ d, 0, count));
        TRI_TRY(recv_reduce(out, rank ^ d, 0, count));
        TRI_TRY(end_round(out));
    }
    if (rank + core < size)
        TRI_TRY(send_part(out, rank + core, 0, count));
    return end_round(out);
}

tri_status tri_rounds_doubling(int rank, int size, int64_t count, struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_doubling(rank, size, count, out), out);
}

static tri_status append_barrier(int rank, int size, struct tri_rounds *out)
{
    for (int d = 1; d < size; d *= 2) {
        TRI_TRY(send_part(out, wrap(rank + d, size), 0, 1));
        TRI_TRY(recv_part(out, wrap(rank - d, size), TRI_AREA_SCRATCH, 0, 1));
        TRI_TRY(end_round(out));
    }
    return TRI_OK;
}

tri_status tri_rounds_barrier(int rank, int size, int64_t count, struct tri_rounds *out)
{
    (void)count;
    *out = (struct tri_rounds){0};
    return complete(append_barrier(rank, size, out), out);
}

/* v: rank counted from the root. v receives from v without its lowest set bit and serves the ranks
 * below that bit. */
static tri_status append_broadcast(int rank, int size, int root, int64_t count,
                                   struct tri_rounds *out)
{
    int v = wrap(rank - root, size);
    int low = 1;

    while (low < size && (v & low) == 0)
        low *= 2;
    if (v != 0) {
        TRI_TRY(recv_part(out, wrap(v - low + root, size), TRI_AREA_DATA, 0, count));
        TRI_TRY(end_round(out));
    }
    for (int d = low / 2; d > 0; d /= 2)
        if (v + d < size)
            TRI_TRY(send_part(out, wrap(v + d + root, size), 0, count));
    return end_round(out);
}

tri_status tri_rounds_broadcast(int rank, int size, int root, int64_t count, struct tri_rounds *out)
{
    *out = (struct tri_rounds){0};
    return complete(append_broadcast(rank, size, root, count, out), out);
}

void tri_rounds_finish(struct tri_rounds *r)
{
    tri_free(r->action);
    tri_free(r->end);
    *r = (struct tri_rounds){0};
}

static unsigned char *place(const struct tri_run *run, enum tri_area area, int64_t at)
{
    return run->area[area] + (size_t)at * run->elem;
}

static tri_status post(const struct tri_run *run, const struct tri_action *a, struct tri_link *link)
{
    size_t bytes = (size_t)a->count * run->elem;

    if (a->kind == TRI_ACT_SEND)
        return link->send(link, a->peer, place(run, a->from, a->from_at), bytes);
    if (a->kind == TRI_ACT_RECV)
        return link->recv(link, a->peer, place(run, a->to, a->to_at), bytes);
    return TRI_OK;
}

static void work(const struct tri_run *run, const struct tri_action *a)
{
    unsigned char *to = place(run, a->to, a->to_at);
    const unsigned char *from = place(run, a->from, a->from_at);

    if (a->kind == TRI_ACT_COPY)
        memmove(to, from, (size_t)a->count * run->elem);
    else if (a->kind == TRI_ACT_REDUCE && a->peer < run->rank)
        run->reduce(to, from, to, a->count);
    else if (a->kind == TRI_ACT_REDUCE)
        run->reduce(to, to, from, a->count);
}

tri_status tri_run_poll(struct tri_run *run, struct tri_link *link, bool *done)
{
    const struct tri_rounds *plan = run->plan;

    *done = false;
    for (; run->round < plan->nrounds; run->round++) {
        int32_t first = run->round > 0 ? plan->end[run->round - 1] : 0;
        int32_t end = plan->end[run->round];
        bool complete_round = false;

        for (int32_t i = first; i < end && !run->posted; i++)
            TRI_TRY(post(run, &plan->action[i], link));
        run->posted = true;
        TRI_TRY(link->test(link, &complete_round));
        if (!complete_round)
            return TRI_OK;
        for (int32_t i = first; i < end; i++)
            work(run, &plan->action[i]);
        run->posted = false;
    }
    *done = true;
    return TRI_OK;
}
