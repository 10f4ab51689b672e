/* A sorted array of ranges: an arena is in few hundred pieces at a time, so moving the tail is
 * cheaper than a tree. */
#include "runtime/plan/ranges.h"

#include "runtime/core/memory.h"

#include <string.h>

tri_status tri_ranges_init(struct tri_ranges *r, size_t bytes)
{
    r->cap = 64;
    r->range = tri_calloc((size_t)r->cap, sizeof(*r->range), "ranges");
    if (r->range == NULL)
        return tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate ranges");
    r->range[0] = (struct tri_range){.owner = TRI_OWNER_NONE, .writer = TRI_NONE};
    r->n = 1;
    r->bytes = bytes;
    return TRI_OK;
}

void tri_ranges_finish(struct tri_ranges *r)
{
    tri_free(r->range);
}

/* Index of the range that holds byte `at`. */
static int find_range(const struct tri_ranges *r, size_t at)
{
    int lo = 0, hi = r->n;

    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;

        if (r->range[mid].begin <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Index of the range that begins at `at`, after a cut if need be; r->n for the arena's end. */
static int cut_at(struct tri_ranges *r, size_t at)
{
    int i;

    if (at >= r->bytes)
        return r->n;
    i = find_range(r, at);
    if (r->range[i].begin == at)
        return i;
    memmove(&r->range[i + 1], &r->range[i], (size_t)(r->n - i) * sizeof(*r->range));
    r->range[i + 1].begin = at;
    r->n++;
    return i + 1;
}

tri_status tri_ranges_cut(struct tri_ranges *r, size_t begin, size_t end, int *first, int *last)
{
    if (r->n + 2 > r->cap) {
        int cap = 2 * r->cap;
        struct tri_range *range = tri_realloc(r->range, (size_t)cap, sizeof(*range), "ranges");

        if (range == NULL)
            return tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate %d ranges", cap);
        r->range = range;
        r->cap = cap;
    }
    *first = cut_at(r, begin);
    *last = cut_at(r, end);
    return TRI_OK;
}

void tri_ranges_own(struct tri_ranges *r, int first, int last, tri_vid owner, int32_t writer)
{
    size_t begin = r->range[first].begin;

    r->range[first] = (struct tri_range){.begin = begin, .owner = owner, .writer = writer};
    memmove(&r->range[first + 1], &r->range[last], (size_t)(r->n - last) * sizeof(*r->range));
    r->n -= last - first - 1;
}
