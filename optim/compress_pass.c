/* Each gradient is compressed on its own and only the payloads share a bucket, so that residuals
 * and results do not depend on how gradients are packed.
 *
 * A payload goes to all ranks (GATHER) and every rank sums all of them in rank order. Low rank
 * needs two sums instead, of the left and of the right factors. */
#include "optim/compress_internal.h"

#include "optim/compressors/compressors.h"
#include "runtime/core/memory.h"

tri_vid tri_compress_state(struct tri_graph *g, const char *parameter, const char *what,
                           struct tri_shape shape, enum tri_init_kind init)
{
    return tri_graph_state(g, tri_pool_printf(&g->pool, "compress/%s/%s", parameter, what), TRI_F32,
                           shape, (struct tri_init){.kind = init, .a = 1});
}

struct tri_piece tri_piece_whole(const struct tri_shape *s)
{
    return (struct tri_piece){.whole = *s, .shape = *s, .count = tri_shape_count(s)};
}

struct tri_piece tri_piece_cut(const struct tri_shape *whole, int64_t at, int64_t first,
                               int64_t end)
{
    int64_t stop = at + tri_shape_count(whole);
    struct tri_piece p = {.whole = *whole};

    first = first > at ? first : at;
    end = end < stop ? end : stop;
    p.count = end > first ? end - first : 0;
    p.first = p.count > 0 ? first - at : 0;
    p.shape = tri_shape_make(1, (const int64_t[]){p.count > 0 ? p.count : 1});
    return p;
}

tri_vid tri_compress_own_state(struct tri_graph *g, const char *parameter, const char *what,
                               const struct tri_piece *p, enum tri_init_kind init,
                               const struct tri_compress_spec *spec)
{
    struct tri_by_rank *own = tri_pool_alloc(&g->pool, sizeof(*own));
    tri_vid v = tri_compress_state(g, parameter, what, p->shape, init);

    if (own == NULL)
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot describe a state"));
    if (v == TRI_NONE || own == NULL)
        return TRI_NONE;
    *own = (struct tri_by_rank){.whole = p->whole,
                                .row = spec->rank,
                                .rows = spec->ranks,
                                .first = p->first,
                                .count = p->count};
    g->value[v].by_rank = own;
    return v;
}

/* The payload of x, a piece of the gradient of s. Without elements: only the states. */
static tri_vid compress_one(struct tri_graph *g, struct tri_sum *s, tri_vid x,
                            const struct tri_piece *p, const struct tri_compress_spec *spec)
{
    const char *name = g->value[s->target].name;
    tri_vid in[4] = {x, TRI_NONE, g->counters, TRI_NONE};
    struct tri_attrs a = {.compress = tri_compress_attributes(spec)};

    a.compress.stream = tri_hash_name(name);
    in[1] = tri_compress_own_state(g, name, "residual", p, TRI_INIT_ZERO, spec);
    if (spec->momentum != 0) {
        in[3] = tri_compress_own_state(g, name, "velocity", p, TRI_INIT_ZERO, spec);
        s->corrected = true;
    }
    return p->count > 0 ? tri_graph_op1(g, TRI_OP_COMPRESS, name, in, 4, &a) : TRI_NONE;
}

/* All ranks' payloads of the n of payload[] that are not TRI_NONE; the stride of a rank's. */
static tri_vid gather(struct tri_graph *g, const tri_vid *payload, int n, const char *name,
                      const struct tri_compress_spec *spec, int64_t *stride)
{
    struct tri_attrs comm = {
        .comm = {.axis = TRI_AXIS_DATA, .level = spec->level, .ranks = spec->ranks}};
    tri_vid *part = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*part)), flat;
    int count = 0;

    if (part == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d payloads", n));
        return TRI_NONE;
    }
    for (int i = 0; i < n; i++)
        if (payload[i] != TRI_NONE)
            part[count++] = payload[i];
    if (count == 0)
        return TRI_NONE;
    flat = tri_graph_op1(g, TRI_OP_PACK, name, part, count, NULL);
    if (flat == TRI_NONE)
        return TRI_NONE;
    *stride = tri_shape_count(&g->value[flat].shape);
    return tri_graph_op1(g, TRI_OP_GATHER, name, &flat, 1, &comm);
}

/* Decodes what lies at *at of the payloads (moved behind it), into x from `first` on where given.
 */
static tri_vid decompress_one(struct tri_graph *g, const char *parameter, tri_vid gathered,
                              int64_t stride, int64_t *at, int64_t bytes, struct tri_shape shape,
                              tri_vid x, int64_t first, const struct tri_compress_spec *spec)
{
    struct tri_attrs a = {.compress = tri_compress_attributes(spec)};

    *at = tri_pack_next(*at, TRI_U8);
    a.compress.stream = tri_hash_name(parameter);
    a.compress.offset = *at;
    a.compress.stride = stride;
    a.compress.first = first;
    a.compress.shape = shape;
    *at += bytes;
    return tri_graph_op1(g, TRI_OP_DECOMPRESS, parameter, (tri_vid[]){gathered, g->counters, x}, 3,
                         &a);
}

static void append_payloads(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                            const struct tri_compress_spec *spec)
{
    tri_vid *payload = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*payload)), all;
    int64_t at = 0, stride = 0;

    if (payload == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d payloads", n));
        return;
    }
    for (int i = 0; i < n; i++) {
        struct tri_sum *s = &g->sum[sum[i]];
        struct tri_piece p = tri_piece_whole(&g->value[s->value].shape);

        payload[i] = compress_one(g, s, s->value, &p, spec);
    }
    all = gather(g, payload, n, name, spec, &stride);
    for (int i = 0; i < n && all != TRI_NONE; i++) {
        struct tri_sum *s = &g->sum[sum[i]];

        s->value = decompress_one(g, g->value[s->target].name, all, stride, &at,
                                  tri_shape_count(&g->value[payload[i]].shape),
                                  g->value[s->value].shape, TRI_NONE, 0, spec);
    }
}

static tri_vid payload_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                             tri_vid x, int64_t first, int64_t count,
                             const struct tri_compress_spec *spec)
{
    struct tri_piece *piece = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*piece));
    tri_vid *payload = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*payload)), all;
    int64_t *place = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*place)), at = 0, stride = 0;

    if (piece == NULL || payload == NULL || place == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d pieces", n));
        return TRI_NONE;
    }
    for (int i = 0; i < n; i++) {
        struct tri_sum *s = &g->sum[sum[i]];
        struct tri_shape whole = g->value[s->value].shape;
        tri_vid part = TRI_NONE;

        at = tri_pack_next(at, TRI_F32);
        piece[i] = tri_piece_cut(&whole, at, first, first + count);
        place[i] = at + piece[i].first;
        at += tri_shape_count(&whole);
        if (piece[i].count > 0)
            part = tri_graph_op1(
                g, TRI_OP_VIEW, g->value[s->target].name, &x, 1,
                &(struct tri_attrs){.view = {.offset = place[i], .shape = piece[i].shape}});
        payload[i] = compress_one(g, s, part, &piece[i], spec);
    }
    at = 0;
    all = gather(g, payload, n, name, spec, &stride);
    for (int i = 0; i < n && all != TRI_NONE; i++)
        if (payload[i] != TRI_NONE)
            x = decompress_one(g, g->value[g->sum[sum[i]].target].name, all, stride, &at,
                               tri_shape_count(&g->value[payload[i]].shape), piece[i].shape, x,
                               place[i], spec);
    return x;
}

void tri_compress_bucket(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                         const struct tri_compress_spec *spec)
{
    if (spec->low_rank > 0)
        tri_low_rank_bucket(g, sum, n, name, spec);
    else
        append_payloads(g, sum, n, name, spec);
}

tri_vid tri_compress_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                           tri_vid x, int64_t first, int64_t count,
                           const struct tri_compress_spec *spec)
{
    return spec->low_rank > 0 ? tri_low_rank_slice(g, sum, n, name, x, first, count, spec)
                              : payload_slice(g, sum, n, name, x, first, count, spec);
}

static void commit(struct tri_graph *g, const char *name, tri_vid state, tri_vid next,
                   tri_vid scalars)
{
    tri_graph_op1(g, TRI_OP_COMMIT, name, (tri_vid[]){state, next, scalars}, 3, NULL);
}

void tri_compress_commit(struct tri_graph *g, tri_vid scalars)
{
    for (int o = 0, n = g->nop; o < n && scalars != TRI_NONE; o++) {
        const struct tri_op op = g->op[o];

        if (op.kind == TRI_OP_COMPRESS) {
            commit(g, op.name, op.in[1], op.out[1], scalars);
            if (op.nin > 3 && op.in[3] != TRI_NONE)
                commit(g, op.name, op.in[3], op.out[2], scalars);
        }
        tri_low_rank_commit(g, &op, scalars);
    }
}
