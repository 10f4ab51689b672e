/* Reading rows of a dataset, and the check of all ids and labels. */
#include "data/dataset_priv.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <string.h>

enum { CHECK_PIECE = 1 << 20 }; /* elements of one read of the check */

/* What a column of integers may hold. */
struct range {
    int64_t limit; /* exclusive; 0: not known */
    bool ignore;   /* TRI_IGNORE is allowed too */
};

static tri_status bad_value(const struct tri_column *c, int64_t row, int64_t v, struct range r)
{
    const struct tri_column_part *p = tri_column_find(c, row);
    const char *ignore = r.ignore ? " or -100" : "";

    if (r.limit == 0 && v > 0)
        r.limit = INT32_MAX;
    if (r.limit == 0)
        return tri_fail(TRI_ERR_DATA, "'%s': '%s' row %lld is %lld, must not be negative%s%s",
                        p->path, c->entry, (long long)(row - p->first), (long long)v,
                        r.ignore ? ", except" : "", r.ignore ? " -100" : "");
    return tri_fail(TRI_ERR_DATA, "'%s': '%s' row %lld is %lld, must be 0..%lld%s", p->path,
                    c->entry, (long long)(row - p->first), (long long)v, (long long)r.limit - 1,
                    ignore);
}

/* Scans rows [first, last) of an integer column. */
static tri_status scan(const struct tri_column *c, int64_t first, int64_t last, struct range r,
                       int64_t *buf, int64_t *max)
{
    int64_t top = r.limit > 0 ? r.limit : INT32_MAX;

    while (first < last) {
        int64_t n = last - first < CHECK_PIECE ? last - first : CHECK_PIECE;

        TRI_TRY(tri_column_read(c, first, n, H5T_NATIVE_INT64, buf));
        for (int64_t i = 0; i < n; i++) {
            if ((uint64_t)buf[i] >= (uint64_t)top && !(r.ignore && buf[i] == TRI_IGNORE))
                return bad_value(c, first + i, buf[i], r);
            if (buf[i] > *max)
                *max = buf[i];
        }
        first += n;
    }
    return TRI_OK;
}

struct checking {
    struct tri_dataset *ds;
    int part, nparts;
    int64_t vocab, classes;
    int64_t max_id, max_label;
    int64_t *buf;
};

/* The share of [0, n) that belongs to part p of nparts. */
static int64_t share(int64_t n, int p, int nparts)
{
    return n / nparts * p + n % nparts * p / nparts;
}

static tri_status scan_part(struct checking *k, const struct tri_column *c, struct range r,
                            int64_t *max)
{
    return scan(c, share(c->rows, k->part, k->nparts), share(c->rows, k->part + 1, k->nparts), r,
                k->buf, max);
}

static tri_status check_all(void *arg)
{
    struct checking *k = arg;
    bool tokens = k->ds->info.kind == TRI_DATA_TOKENS;
    struct range ids = {k->vocab, false}, targets = {k->vocab, true}, labels = {k->classes, true};

    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        const struct tri_split_columns *c = &k->ds->split[s];

        if (tokens && c->x.nparts > 0)
            TRI_TRY(scan_part(k, &c->x, ids, &k->max_id));
        if (tokens && c->y.nparts > 0)
            TRI_TRY(scan_part(k, &c->y, targets, &k->max_id));
        if (!tokens && c->y.nparts > 0 && c->y.integers)
            TRI_TRY(scan_part(k, &c->y, labels, &k->max_label));
    }
    return TRI_OK;
}

tri_status tri_dataset_check(struct tri_dataset *ds, int part, int nparts, int64_t vocab,
                             int64_t classes, int64_t *max_id, int64_t *max_label)
{
    struct checking k = {
        .ds = ds, .part = part, .nparts = nparts, .vocab = vocab, .classes = classes};
    tri_status st;

    TRI_ASSERT(nparts > 0 && part >= 0 && part < nparts);
    k.max_id = k.max_label = -1;
    k.buf = tri_calloc(CHECK_PIECE, sizeof(*k.buf), "data check");
    if (k.buf == NULL)
        return tri_fail(TRI_ERR_NOMEM, "data check: cannot allocate its buffer");
    st = tri_io_call(check_all, &k);
    tri_free(k.buf);
    if (st == TRI_OK) {
        *max_id = k.max_id;
        *max_label = k.max_label;
    }
    return st;
}

int64_t tri_dataset_tokens(const struct tri_dataset *ds, enum tri_split split, int64_t id)
{
    const struct tri_dataset_info *in = &ds->info;
    int64_t usable, left;

    if (in->kind != TRI_DATA_TOKENS)
        return 1;
    usable = in->explicit_targets ? in->rows[split] : in->rows[split] - 1;
    left = usable - id * in->sequence;
    return left < in->sequence ? left : in->sequence;
}

size_t tri_dataset_x_bytes(const struct tri_dataset *ds)
{
    return (size_t)ds->info.x_count * (ds->info.kind == TRI_DATA_IMAGES ? 1 : 4);
}

/* Keeps a small split in memory. */
static tri_status load_small(struct tri_split_columns *c)
{
    if (c->cached)
        return TRI_OK;
    c->cached = true;
    if (tri_column_bytes(&c->x) + tri_column_bytes(&c->y) > TRI_DATA_CACHE_BYTES)
        return TRI_OK;
    TRI_TRY(tri_column_load(&c->x));
    return tri_column_load(&c->y);
}

static tri_status need_scratch(struct tri_dataset *ds, size_t bytes)
{
    if (bytes <= ds->scratch_bytes)
        return TRI_OK;
    tri_free(ds->scratch);
    ds->scratch_bytes = 0;
    ds->scratch = tri_alloc_aligned(bytes, "token scratch");
    if (ds->scratch == NULL)
        return tri_fail(TRI_ERR_NOMEM, "data: cannot allocate %zu bytes to read tokens", bytes);
    ds->scratch_bytes = bytes;
    return TRI_OK;
}

/* Consecutive samples of a token stream: inputs and targets are the same rows, shifted by one or
 * from `targets`. */
static tri_status read_tokens(struct tri_dataset *ds, enum tri_split s, int64_t first,
                              int64_t count, int32_t *x, int32_t *y)
{
    const struct tri_split_columns *c = &ds->split[s];
    int64_t T = ds->info.sequence, shift = ds->info.explicit_targets ? 0 : 1;
    int64_t row = first * T, left = c->x.rows - shift - row, all = count * T;
    int64_t n = left < all ? left : all;

    if (shift == 0) {
        TRI_TRY(tri_column_read(&c->x, row, n, H5T_NATIVE_INT32, x));
        TRI_TRY(tri_column_read(&c->y, row, n, H5T_NATIVE_INT32, y));
    } else {
        TRI_TRY(need_scratch(ds, (size_t)(n + 1) * sizeof(int32_t)));
        TRI_TRY(tri_column_read(&c->x, row, n + 1, H5T_NATIVE_INT32, ds->scratch));
        memcpy(x, ds->scratch, (size_t)n * sizeof(*x));
        memcpy(y, ds->scratch + 1, (size_t)n * sizeof(*y));
    }
    for (int64_t i = n; i < all; i++) {
        x[i] = 0;
        y[i] = TRI_IGNORE;
    }
    return TRI_OK;
}

struct reading {
    struct tri_dataset *ds;
    enum tri_split split;
    int64_t first, count;
    void *x, *y;
};

static tri_status read_samples(void *arg)
{
    struct reading *r = arg;
    struct tri_split_columns *c = &r->ds->split[r->split];

    TRI_TRY(load_small(c));
    if (r->ds->info.kind == TRI_DATA_TOKENS)
        return read_tokens(r->ds, r->split, r->first, r->count, r->x, r->y);
    TRI_TRY(tri_column_read(&c->x, r->first, r->count, c->x.mem_type, r->x));
    return tri_column_read(&c->y, r->first, r->count, c->y.mem_type, r->y);
}

tri_status tri_dataset_read(struct tri_dataset *ds, enum tri_split split, int64_t first,
                            int64_t count, void *x, void *y)
{
    struct reading r = {ds, split, first, count, x, y};

    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= ds->info.samples[split]);
    if (count == 0)
        return TRI_OK;
    return tri_io_call(read_samples, &r);
}
