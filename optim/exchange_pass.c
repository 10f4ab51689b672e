/* Buckets are flat so that a reduction costs one latency for many gradients, and are filled in
 * ready order so that the reduction of the deep layers runs under the backward pass of the shallow
 * ones (the scheme of Li et al., "PyTorch Distributed: experiences on accelerating data parallel
 * training", VLDB 2020, with the ready order known from the graph instead of observed). */
#include "optim/exchange_pass.h"

#include "runtime/core/memory.h"
#include "runtime/exec/comm.h"

#include <stdlib.h>

#define MAX_OPS 16 /* appended for a gradient that has a bucket of its own */

struct tri_exchange_spec tri_exchange_spec_make(const struct tri_gradient_options *gradient,
                                                bool deterministic)
{
    int64_t bytes = tri_gradient_bucket_bytes(gradient);

    return (struct tri_exchange_spec){.bucket_bytes = bytes > 0 ? bytes : TRI_BUCKET_BYTES,
                                      .spread = bytes <= 0,
                                      .fixed_tree = deterministic};
}

struct ready {
    int32_t sum; /* index in g->sum */
    int32_t op;  /* last op that touches its value: it is ready behind this op */
};

static int by_readiness(const void *pa, const void *pb)
{
    const struct ready *a = pa, *b = pb;

    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return a->sum < b->sum ? -1 : a->sum > b->sum;
}

/* The producer of v, or an op behind it that reads v (the reduction overwrites it). */
static int32_t last_touch(const struct tri_graph *g, tri_vid v)
{
    for (int32_t i = g->nop - 1; i > g->value[v].producer; i--)
        for (int k = 0; k < g->op[i].nin; k++)
            if (g->op[i].in[k] == v)
                return i;
    return g->value[v].producer;
}

static size_t padded_bytes(const struct tri_graph *g, const struct ready *r)
{
    return tri_round_up(tri_value_bytes(&g->value[g->sum[r->sum].value]), TRI_PACK_BYTES);
}

/* Number of entries, from the first of `r` on, that share its bucket. */
static int bucket_length(const struct tri_graph *g, const struct ready *r, int n, size_t limit)
{
    enum tri_dtype dtype = g->value[g->sum[r[0].sum].value].dtype;
    size_t bytes = padded_bytes(g, &r[0]);
    int len = 1;

    while (len < n && g->value[g->sum[r[len].sum].value].dtype == dtype &&
           bytes + padded_bytes(g, &r[len]) <= limit)
        bytes += padded_bytes(g, &r[len++]);
    return len;
}

static tri_vid append_collective(struct tri_graph *g, enum tri_op_kind kind, const char *name,
                                 tri_vid x, const struct tri_attr_comm *comm)
{
    struct tri_attrs attrs = {.comm = *comm};

    return tri_graph_op1(g, kind, name, &x, 1, &attrs);
}

/* Gradients of a bucket that are exchanged alike: indices in g->sum. */
struct part {
    const int32_t *sum;
    int n;
    const char *name;
    bool compressed; /* between nodes */
};

/* The sum of the flat bucket of p over all data ranks. */
static tri_vid append_reduction(struct tri_graph *g, const struct part *p, tri_vid flat,
                                const struct tri_exchange_spec *spec)
{
    struct tri_attr_comm all = {.axis = TRI_AXIS_DATA, .fixed_tree = spec->fixed_tree};
    struct tri_attr_comm intra = all, inter = all;
    const char *name = p->name;
    tri_vid x = flat;

    if (spec->slices == 0 || flat == TRI_NONE)
        return append_collective(g, TRI_OP_ALLREDUCE, name, flat, &all);
    intra.level = TRI_LEVEL_INTRA;
    intra.slices = spec->slices;
    inter.level = TRI_LEVEL_INTER;
    tri_comm_slice(tri_shape_count(&g->value[flat].shape), spec->slices, spec->local_rank,
                   &inter.first, &inter.count);
    x = append_collective(g, TRI_OP_REDUCE_SCATTER, tri_pool_printf(&g->pool, "%s.scatter", name),
                          x, &intra);
    if (p->compressed && x != TRI_NONE)
        x = tri_compress_slice(g, p->sum, p->n, tri_pool_printf(&g->pool, "%s.inter", name), x,
                               inter.first, inter.count, &spec->compress);
    else if (inter.count > 0 && x != TRI_NONE)
        x = append_collective(g, TRI_OP_ALLREDUCE, tri_pool_printf(&g->pool, "%s.inter", name), x,
                              &inter);
    return append_collective(g, TRI_OP_ALLGATHER, tri_pool_printf(&g->pool, "%s.gather", name), x,
                             &intra);
}

/* Appends pack, reduction and views of gradients; the views replace the sums' values. */
static void append_sum(struct tri_graph *g, const struct part *p,
                       const struct tri_exchange_spec *spec)
{
    tri_vid *value = tri_pool_alloc(&g->pool, (size_t)p->n * sizeof(*value)), flat, reduced;
    int64_t at = 0;

    if (value == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d gradients", p->n));
        return;
    }
    for (int i = 0; i < p->n; i++)
        value[i] = g->sum[p->sum[i]].value;
    flat = tri_graph_op1(g, TRI_OP_PACK, p->name, value, p->n, NULL);
    reduced = append_reduction(g, p, flat, spec);
    for (int i = 0; i < p->n && reduced != TRI_NONE; i++) {
        const struct tri_value *v = &g->value[value[i]];
        struct tri_attrs view = {.view = {.shape = v->shape}};

        at = tri_pack_next(at, v->dtype);
        view.view.offset = at;
        at += tri_shape_count(&v->shape);
        g->sum[p->sum[i]].value = tri_graph_op1(g, TRI_OP_VIEW, v->name, &reduced, 1, &view);
    }
}

/* Sorts the sums of r[0..len) into those that are compressed and, behind them, those that are
 * exchanged as they are; returns the number of the former. */
static int split_bucket(const struct tri_graph *g, const struct ready *r, int len,
                        const struct tri_compress_spec *spec, int32_t *sorted,
                        struct tri_compress_estimate *total)
{
    struct tri_compress_estimate e = {0};
    int n = 0, nplain = 0;
    bool pays;

    for (int i = 0; i < len; i++)
        if (tri_compress_can(g, &g->sum[r[i].sum], spec))
            tri_compress_estimate_add(g, &g->sum[r[i].sum], spec, &e);
    pays = spec->force || e.compressed_s < e.plain_s;
    for (int i = 0; i < len; i++)
        if (pays && tri_compress_can(g, &g->sum[r[i].sum], spec))
            sorted[n++] = r[i].sum;
    for (int i = 0; i < len; i++)
        if (!pays || !tri_compress_can(g, &g->sum[r[i].sum], spec))
            sorted[n + nplain++] = r[i].sum;
    total->bytes += e.bytes;
    total->plain_s += e.plain_s;
    total->payload += pays ? e.payload : e.bytes;
    total->compressed_s += pays ? e.compressed_s : e.plain_s;
    return n;
}

static void append_bucket(struct tri_graph *g, const struct tri_mesh *mesh, const struct ready *r,
                          int len, int number, const struct tri_exchange_spec *spec,
                          int32_t *sorted, struct tri_compress_estimate *total)
{
    const struct tri_compress_spec *c = &spec->compress;
    struct part dense = {.name = tri_pool_printf(&g->pool, "bucket.%d", number)}, few = {0};

    few.n = split_bucket(g, r, len, c, sorted, total);
    few.sum = sorted;
    few.compressed = true;
    dense.sum = sorted + few.n;
    dense.n = len - few.n;
    if (few.n > 0)
        few.name = tri_pool_printf(&g->pool, "bucket.%d.%s", number, c->name);
    if (few.n > 0 && c->level == TRI_LEVEL_INTER)
        append_sum(g, &few, spec);
    else if (few.n > 0)
        tri_compress_bucket(g, few.sum, few.n, few.name, c);
    if (dense.n > 0 && mesh->size[TRI_AXIS_DATA] > 1)
        append_sum(g, &dense, spec);
}

/* Largest size of a bucket. */
static size_t bucket_limit(const struct tri_graph *g, const struct ready *r,
                           const struct tri_exchange_spec *spec)
{
    size_t limit = (size_t)spec->bucket_bytes, total = 0;

    if (!spec->spread)
        return limit;
    for (int i = 0; i < g->nsum; i++)
        total += padded_bytes(g, &r[i]);
    total /= TRI_SPREAD_BUCKETS;
    total = total > TRI_FIRST_BUCKET_BYTES ? total : TRI_FIRST_BUCKET_BYTES;
    return total < limit ? total : limit;
}

/* Appends all buckets and returns the execution order: key[i] says where op i belongs. */
static tri_status append_buckets(struct tri_graph *g, const struct tri_mesh *mesh, struct ready *r,
                                 const struct tri_exchange_spec *spec, int64_t *key)
{
    size_t limit = bucket_limit(g, r, spec);
    size_t first = limit < TRI_FIRST_BUCKET_BYTES ? limit : TRI_FIRST_BUCKET_BYTES;
    int32_t *sorted = tri_calloc((size_t)g->nsum, sizeof(*sorted), "sums of a bucket");
    struct tri_compress_estimate total = {0};
    int nold = g->nop, keyed = g->nop;

    if (sorted == NULL)
        return tri_fail(TRI_ERR_NOMEM, "exchange: cannot allocate %d parts", g->nsum);
    for (int i = 0; i < nold; i++)
        key[i] = 2 * i;
    for (int begin = 0, number = 0; begin < g->nsum; number++) {
        int len = bucket_length(g, r + begin, g->nsum - begin, number == 0 ? first : limit);
        int32_t last = r[begin + len - 1].op;

        append_bucket(g, mesh, r + begin, len, number, spec, sorted, &total);
        while (keyed < g->nop)
            key[keyed++] = 2 * (int64_t)last + 1;
        begin += len;
    }
    tri_free(sorted);
    tri_compress_report(&spec->compress, &total, spec->report);
    return tri_graph_status(g);
}

tri_status tri_pass_exchange(struct tri_graph *g, const struct tri_mesh *mesh,
                             const struct tri_exchange_spec *spec)
{
    size_t max_ops = (size_t)g->nop + MAX_OPS * (size_t)g->nsum;
    struct ready *r;
    int64_t *key;
    tri_status st = TRI_OK;

    TRI_ASSERT(spec->bucket_bytes > 0);
    if (g->nsum == 0 || (mesh->size[TRI_AXIS_DATA] == 1 && !spec->compress.force))
        return TRI_OK;
    r = tri_calloc((size_t)g->nsum, sizeof(*r), "ready order");
    key = tri_calloc(max_ops, sizeof(*key), "order of ops");
    if (r == NULL || key == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "exchange: cannot allocate the order of %zu ops", max_ops);
        goto free_all;
    }
    for (int i = 0; i < g->nsum; i++)
        r[i] = (struct ready){.sum = i, .op = last_touch(g, g->sum[i].value)};
    qsort(r, (size_t)g->nsum, sizeof(*r), by_readiness);
    g->phase = TRI_PHASE_EXCHANGE;
    g->grain = TRI_NONE;
    TRI_TRY_GOTO(st, append_buckets(g, mesh, r, spec, key), free_all);
    st = tri_graph_order(g, key);

free_all:
    tri_free(key);
    tri_free(r);
    return st;
}
