/* Lowest-fit placement of blocks by liveness ("best fit with coalescing" of offline dynamic storage
 * allocation; the orders follow Pisarchyk and Lee, "Efficient memory management for deep neural net
 * inference", 2020, section 5).
 *
 * The neighbours of a block are those whose lifetimes meet its own. They are found in an array
 * sorted by first position, in chunks that know their largest last position, so that a chunk that
 * ended before costs one comparison. */
#include "runtime/plan/offsets.h"

#include "runtime/core/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 };

struct span {
    size_t begin, end;
};

struct item {
    struct tri_block b;
    int32_t index; /* in the caller's array */
    bool placed;
    double key; /* rank in the order being tried, larger first */
};

struct placer {
    struct item *item;    /* n, sorted by first position */
    uint32_t *chunk_last; /* largest last position of each chunk of items */
    int32_t *order;       /* n item indices */
    struct span *busy;    /* n: scratch for the neighbours of one block */
    size_t *best;         /* n: offsets of the best order so far, by item */
    int n;
};

enum order_kind { BY_SIZE, BY_AREA, BY_LIFETIME, BY_START, BY_END, ORDER_COUNT };

static double order_key(enum order_kind kind, const struct tri_block *b)
{
    double life = (double)b->last - (double)b->first + 1.0;

    switch (kind) {
    case BY_SIZE:
        return (double)b->bytes;
    case BY_AREA:
        return (double)b->bytes * life;
    case BY_LIFETIME:
        return life;
    case BY_START:
        return -(double)b->first;
    default:
        return (double)b->last;
    }
}

static int compare_first(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    if (a->b.first != b->b.first)
        return a->b.first < b->b.first ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int compare_key(const void *pa, const void *pb, void *ctx)
{
    const struct item *item = ctx;
    int32_t ia = *(const int32_t *)pa, ib = *(const int32_t *)pb;

    if (item[ia].key > item[ib].key || item[ia].key < item[ib].key)
        return item[ia].key > item[ib].key ? -1 : 1;
    return ia < ib ? -1 : ia > ib; /* ties by start: items are sorted by it */
}

static int compare_span(const void *pa, const void *pb)
{
    const struct span *a = pa, *b = pb;

    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Placed blocks that live together with t, as spans in p->busy. */
static size_t collect_busy(struct placer *p, const struct tri_block *t)
{
    size_t nbusy = 0;

    for (int lo = 0; lo < p->n; lo += CHUNK) {
        int hi = lo + CHUNK < p->n ? lo + CHUNK : p->n;

        if (p->item[lo].b.first > t->last)
            break;
        if (p->chunk_last[lo / CHUNK] < t->first)
            continue;
        for (int i = lo; i < hi; i++) {
            const struct item *it = &p->item[i];

            if (it->placed && it->b.first <= t->last && it->b.last >= t->first)
                p->busy[nbusy++] =
                    (struct span){.begin = it->b.offset, .end = it->b.offset + it->b.bytes};
        }
    }
    return nbusy;
}

static size_t lowest_fit(struct placer *p, const struct tri_block *t)
{
    size_t nbusy = collect_busy(p, t), offset = 0;

    qsort(p->busy, nbusy, sizeof(*p->busy), compare_span);
    for (size_t i = 0; i < nbusy; i++) {
        if (p->busy[i].begin >= offset + t->bytes)
            break;
        if (p->busy[i].end > offset)
            offset = p->busy[i].end;
    }
    return offset;
}

/* Places all items in the order of `kind`; returns the arena's size. */
static size_t place_all(struct placer *p, enum order_kind kind)
{
    size_t arena = 0;

    for (int i = 0; i < p->n; i++) {
        p->item[i].placed = false;
        p->item[i].key = order_key(kind, &p->item[i].b);
        p->order[i] = i;
    }
    qsort_r(p->order, (size_t)p->n, sizeof(*p->order), compare_key, p->item);
    for (int i = 0; i < p->n; i++) {
        struct item *it = &p->item[p->order[i]];

        it->b.offset = lowest_fit(p, &it->b);
        it->placed = true;
        if (it->b.offset + it->b.bytes > arena)
            arena = it->b.offset + it->b.bytes;
    }
    return arena;
}

/* Largest sum of live bytes over all positions. */
static tri_status live_peak(const struct tri_block *block, int n, size_t *peak)
{
    uint32_t end = 0;
    int64_t *delta, sum = 0, most = 0;

    for (int i = 0; i < n; i++)
        end = block[i].last > end ? block[i].last : end;
    delta = tri_calloc((size_t)end + 2, sizeof(*delta), "liveness");
    if (delta == NULL)
        return tri_fail(TRI_ERR_NOMEM, "plan: cannot allocate the liveness of %d blocks", n);
    for (int i = 0; i < n; i++) {
        delta[block[i].first] += (int64_t)block[i].bytes;
        delta[block[i].last + 1] -= (int64_t)block[i].bytes;
    }
    for (uint32_t t = 0; t <= end; t++) {
        sum += delta[t];
        most = sum > most ? sum : most;
    }
    tri_free(delta);
    *peak = (size_t)most;
    return TRI_OK;
}

static tri_status init_placer(struct placer *p, const struct tri_block *block, int n)
{
    size_t count = (size_t)n;

    p->n = n;
    p->item = tri_calloc(count, sizeof(*p->item), "placer");
    p->chunk_last = tri_calloc(count / CHUNK + 1, sizeof(*p->chunk_last), "placer");
    p->order = tri_calloc(count, sizeof(*p->order), "placer");
    p->busy = tri_calloc(count, sizeof(*p->busy), "placer");
    p->best = tri_calloc(count, sizeof(*p->best), "placer");
    if (p->item == NULL || p->chunk_last == NULL || p->order == NULL || p->busy == NULL ||
        p->best == NULL)
        return tri_fail(TRI_ERR_NOMEM, "plan: cannot allocate tables for %d blocks", n);
    for (int i = 0; i < n; i++)
        p->item[i] = (struct item){.b = block[i], .index = i};
    qsort(p->item, count, sizeof(*p->item), compare_first);
    for (int i = 0; i < n; i++)
        if (p->item[i].b.last > p->chunk_last[i / CHUNK])
            p->chunk_last[i / CHUNK] = p->item[i].b.last;
    return TRI_OK;
}

static void finish_placer(struct placer *p)
{
    tri_free(p->item);
    tri_free(p->chunk_last);
    tri_free(p->order);
    tri_free(p->busy);
    tri_free(p->best);
}

tri_status tri_plan_offsets(struct tri_block *block, int n, size_t *arena_bytes, size_t *live_bytes)
{
    tri_status st = TRI_OK;
    struct placer p = {0};
    size_t best = SIZE_MAX, peak = 0;

    if (n == 0) {
        *arena_bytes = *live_bytes = 0;
        return TRI_OK;
    }
    TRI_TRY_GOTO(st, init_placer(&p, block, n), finish);
    TRI_TRY_GOTO(st, live_peak(block, n, &peak), finish);
    for (int kind = 0; kind < ORDER_COUNT && best > peak + peak / 50; kind++) {
        size_t arena = place_all(&p, (enum order_kind)kind);

        if (arena >= best)
            continue;
        best = arena;
        for (int i = 0; i < n; i++)
            p.best[i] = p.item[i].b.offset;
    }
    for (int i = 0; i < n; i++)
        block[p.item[i].index].offset = p.best[i];
    *arena_bytes = best;
    *live_bytes = peak;
finish:
    finish_placer(&p);
    return st;
}
