/* Each gradient is compressed on its own and only the payloads share a bucket, so that residuals
 * and results do not depend on how gradients are packed.
 *
 * A payload goes to all ranks (GATHER) and every rank sums all of them in rank order. Low rank
 * needs two sums instead, of the left and of the right factors. */
#include "optim/compress_pass.h"

#include "optim/compressors/compressors.h"
#include "runtime/core/memory.h"

#include <math.h>

/* Multiply-adds per second of the low-rank kernels on one thread: CPU time on a 1024 x 1024 matrix
 * at rank 4, as the rates of the compressors on a million elements. */
static const double LOW_RANK_RATE = 1.8e9;

/* Assumed until links are measured: shared memory, and 1 Gbit/s. */
static const struct tri_link_rate inside_node = {4e9, 2e-6}, between_nodes = {1.2e8, 5e-5};

static const struct tri_compressor *method_of(int name)
{
    switch (name) {
    case TRI_COMPRESS_FP16:
        return &tri_compressor_fp16;
    case TRI_COMPRESS_BF16:
        return &tri_compressor_bf16;
    case TRI_COMPRESS_INT8:
        return &tri_compressor_int8;
    case TRI_COMPRESS_ONEBIT:
        return &tri_compressor_onebit;
    case TRI_COMPRESS_TOPK:
        return &tri_compressor_topk;
    case TRI_COMPRESS_RANDK:
        return &tri_compressor_randk;
    default:
        return NULL;
    }
}

/* Why compression between nodes cannot be; NULL: it can. */
static const char *refuse(const struct tri_gradient_options *gradient,
                          const struct tri_compress_layout *l)
{
    if (gradient->compress.level == TRI_COMPRESS_ALL || l->nodes == l->ranks)
        return NULL;
    if (l->nodes == 1)
        return "all ranks share one node (gradient.compress.level is inter)";
    if (l->slices == 0)
        return "the exchange is flat (gradient.compress.level is inter)";
    if (gradient->compress.name == TRI_COMPRESS_POWERSGD)
        return "slices of nodes are no matrices (gradient.compress.level is inter)";
    return NULL;
}

/* topk, randk */
static bool chooses(const struct tri_compress_spec *spec)
{
    return spec->method != NULL && spec->method->clear_sent != NULL;
}

struct tri_compress_spec tri_compress_spec_make(const struct tri_gradient_options *gradient,
                                                const struct tri_optimizer_options *o,
                                                uint64_t seed, const struct tri_compress_layout *l)
{
    bool inter = gradient->compress.level == TRI_COMPRESS_INTER && l->nodes < l->ranks;
    struct tri_compress_spec s = {
        .name = tri_compress_name(gradient->compress.name),
        .off = refuse(gradient, l),
        .link = l->nodes > 1 ? between_nodes : inside_node,
        .level = inter ? TRI_LEVEL_INTER : TRI_LEVEL_ALL,
        .rank = inter ? l->node : l->rank,
        .ranks = inter ? l->nodes : l->ranks,
        .slices = inter ? l->slices : 1,
        .method = method_of(gradient->compress.name),
        .ratio = gradient->compress.ratio,
        .last_ratio = gradient->compress.ratio,
        .force = gradient->compress.force,
        .seed = seed,
    };

    if (gradient->compress.name == TRI_COMPRESS_NONE || s.off != NULL) {
        s.method = NULL;
        s.force = false;
        return s;
    }
    if (gradient->compress.name == TRI_COMPRESS_POWERSGD)
        s.low_rank = gradient->compress.rank;
    if (chooses(&s) && o->name == TRI_OPTIMIZER_CHOICE_SGD &&
        gradient->compress.momentum_correction != TRI_CORRECTION_FALSE) {
        s.momentum = o->momentum;
        s.nesterov = o->nesterov;
    }
    return s;
}

int tri_compress_stages(const struct tri_compress_spec *spec)
{
    int n = 0;

    if (!chooses(spec))
        return spec->method != NULL || spec->low_rank > 0 ? 1 : 0;
    while (n < TRI_COMPRESS_MAX_STAGES && pow(0.25, n + 1) > spec->ratio)
        n++;
    return n;
}

struct tri_compress_spec tri_compress_stage(const struct tri_compress_spec *spec, int k)
{
    struct tri_compress_spec s = *spec;

    if (!chooses(spec))
        return (struct tri_compress_spec){0};
    s.ratio = pow(0.25, k + 1);
    return s;
}

struct tri_attr_compress tri_compress_attributes(const struct tri_compress_spec *spec)
{
    return (struct tri_attr_compress){.method = spec->method,
                                      .level = spec->level,
                                      .rank = spec->rank,
                                      .ranks = spec->ranks,
                                      .seed = spec->seed,
                                      .ratio = spec->ratio,
                                      .momentum = spec->momentum,
                                      .nesterov = spec->nesterov};
}

/* A gradient as a matrix: first dim x all others. */
static void matrix_of(const struct tri_value *v, int64_t *n, int64_t *m)
{
    *n = v->shape.ndim > 0 ? v->shape.dim[0] : 1;
    *m = *n > 0 ? tri_shape_count(&v->shape) / *n : 0;
}

bool tri_compress_can(const struct tri_graph *g, const struct tri_sum *s,
                      const struct tri_compress_spec *spec)
{
    const struct tri_value *v = &g->value[s->value];
    int64_t n, m, count = tri_shape_count(&v->shape);

    if ((spec->method == NULL && spec->low_rank == 0) || s->kind != TRI_SUM_GRAD ||
        v->dtype != TRI_F32 || count == 0 || count > UINT32_MAX)
        return false;
    matrix_of(v, &n, &m);
    return spec->low_rank == 0 || (v->shape.ndim > 1 && (n + m) * spec->low_rank < n * m &&
                                   spec->low_rank <= n && spec->low_rank <= m);
}

static void add_estimate(const struct tri_compress_spec *spec, int64_t count, int64_t payload,
                         double sent, double work, struct tri_compress_estimate *e)
{
    double bytes = 4.0 * (double)count, share = 2.0 * (spec->ranks - 1) / spec->ranks;

    e->bytes += 4 * count;
    e->payload += payload;
    e->plain_s += share * bytes / spec->link.bytes_per_s / spec->slices;
    e->compressed_s += (sent / spec->link.bytes_per_s + work) / spec->slices;
}

void tri_compress_estimate_count(const struct tri_compress_spec *spec, int64_t count,
                                 struct tri_compress_estimate *e)
{
    struct tri_attr_compress a = tri_compress_attributes(spec);
    double work = 4.0 * (double)count / spec->method->bytes_per_s;
    int64_t payload;

    a.ratio = spec->last_ratio;
    payload = spec->method->bytes(&a, count);
    work *= spec->method->clear_sent != NULL ? 1 : (1.0 + spec->ranks) / 2;
    add_estimate(spec, count, payload, (spec->ranks - 1.0) * (double)payload, work, e);
}

void tri_compress_estimate_add(const struct tri_graph *g, const struct tri_sum *s,
                               const struct tri_compress_spec *spec,
                               struct tri_compress_estimate *e)
{
    const struct tri_value *v = &g->value[s->value];
    int64_t count = tri_shape_count(&v->shape), n, m, payload;

    if (spec->low_rank == 0) {
        tri_compress_estimate_count(spec, count, e);
        return;
    }
    matrix_of(v, &n, &m);
    payload = 4 * (n + m) * spec->low_rank;
    add_estimate(spec, count, payload, 2.0 * (spec->ranks - 1) / spec->ranks * (double)payload,
                 4.0 * (double)(count * spec->low_rank) / LOW_RANK_RATE, e);
}

void tri_compress_report(const struct tri_compress_spec *spec,
                         const struct tri_compress_estimate *e, struct tri_text *report)
{
    if (report == NULL || spec->name == NULL)
        return;
    if (spec->off != NULL)
        tri_text_printf(report, "compression %s: none, %s\n", spec->name, spec->off);
    else
        tri_text_printf(report,
                        "compression %s: %.3f of %.3f MiB a rank, estimated %.3f against %.3f ms "
                        "over a link of %.3f GB/s%s\n",
                        spec->name, (double)e->payload / 1048576.0, (double)e->bytes / 1048576.0,
                        e->compressed_s * 1e3, e->plain_s * 1e3, spec->link.bytes_per_s * 1e-9,
                        spec->force              ? " (forced)"
                        : e->payload == e->bytes ? ": does not pay"
                                                 : "");
}

static const char *state_name(struct tri_graph *g, const char *parameter, const char *what)
{
    return tri_pool_printf(&g->pool, "compress/%s/%s", parameter, what);
}

static tri_vid make_state(struct tri_graph *g, const char *parameter, const char *what,
                          struct tri_shape shape, enum tri_init_kind init)
{
    return tri_graph_state(g, state_name(g, parameter, what), TRI_F32, shape,
                           (struct tri_init){.kind = init, .a = 1});
}

/* Elements [first, first + shape) of a gradient that are compressed together. */
struct piece {
    struct tri_shape whole, shape;
    int64_t first, count; /* count 0: nothing of it is this rank's */
};

static struct piece whole_piece(const struct tri_shape *s)
{
    return (struct piece){.whole = *s, .shape = *s, .count = tri_shape_count(s)};
}

static tri_vid make_own_state(struct tri_graph *g, const char *parameter, const char *what,
                              const struct piece *p, const struct tri_compress_spec *spec)
{
    struct tri_by_rank *own = tri_pool_alloc(&g->pool, sizeof(*own));
    tri_vid v = make_state(g, parameter, what, p->shape, TRI_INIT_ZERO);

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
                            const struct piece *p, const struct tri_compress_spec *spec)
{
    const char *name = g->value[s->target].name;
    tri_vid in[4] = {x, TRI_NONE, g->counters, TRI_NONE};
    struct tri_attrs a = {.compress = tri_compress_attributes(spec)};

    a.compress.stream = tri_hash_name(name);
    in[1] = make_own_state(g, name, "residual", p, spec);
    if (spec->momentum != 0) {
        in[3] = make_own_state(g, name, "velocity", p, spec);
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
        struct piece p = whole_piece(&g->value[s->value].shape);

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

/* The part of elements [at, at + shape) of a bucket that lies in [first, end). */
static struct piece cut_piece(const struct tri_shape *whole, int64_t at, int64_t first, int64_t end)
{
    int64_t stop = at + tri_shape_count(whole);
    struct piece p = {.whole = *whole};

    first = first > at ? first : at;
    end = end < stop ? end : stop;
    p.count = end > first ? end - first : 0;
    p.first = p.count > 0 ? first - at : 0;
    p.shape = tri_shape_make(1, (const int64_t[]){p.count > 0 ? p.count : 1});
    return p;
}

tri_vid tri_compress_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                           tri_vid x, int64_t first, int64_t count,
                           const struct tri_compress_spec *spec)
{
    struct piece *piece = tri_pool_alloc(&g->pool, (size_t)n * sizeof(*piece));
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
        piece[i] = cut_piece(&whole, at, first, first + count);
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

/* Packs part[0..n), sums them over the data axis, and replaces each by its view. */
static void sum_parts(struct tri_graph *g, tri_vid *part, int n, const char *name)
{
    struct tri_attrs comm = {.comm = {.axis = TRI_AXIS_DATA}};
    tri_vid flat = tri_graph_op1(g, TRI_OP_PACK, name, part, n, NULL);
    int64_t at = 0;

    flat = tri_graph_op1(g, TRI_OP_ALLREDUCE, name, &flat, 1, &comm);
    for (int i = 0; i < n && flat != TRI_NONE; i++) {
        struct tri_attrs view = {.view = {.shape = g->value[part[i]].shape}};

        at = tri_pack_next(at, TRI_F32);
        view.view.offset = at;
        at += tri_shape_count(&view.view.shape);
        part[i] = tri_graph_op1(g, TRI_OP_VIEW, g->value[part[i]].name, &flat, 1, &view);
    }
}

static void append_low_rank(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                            const struct tri_compress_spec *spec)
{
    tri_vid *part = tri_pool_alloc(&g->pool, 3 * (size_t)n * sizeof(*part)), *x, *basis;

    if (part == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d factors", n));
        return;
    }
    x = part + n;
    basis = x + n;
    for (int i = 0; i < n; i++) {
        const struct tri_sum *s = &g->sum[sum[i]];
        const char *parameter = g->value[s->target].name;
        struct tri_shape right = {.ndim = 2};
        struct piece all = whole_piece(&g->value[s->value].shape);
        tri_vid in[3] = {s->value};
        int32_t op;

        matrix_of(&g->value[s->value], &right.dim[1], &right.dim[0]);
        right.dim[1] = spec->low_rank;
        in[1] = make_own_state(g, parameter, "residual", &all, spec);
        in[2] = make_state(g, parameter, "right", right, TRI_INIT_NORMAL);
        op = tri_graph_op(g, TRI_OP_LOWRANK_LEFT, parameter, in, 3, NULL, UINT32_MAX);
        if (op == TRI_NONE)
            return;
        x[i] = g->op[op].out[0];
        part[i] = g->op[op].out[1];
    }
    sum_parts(g, part, n, tri_pool_printf(&g->pool, "%s.left", name));
    for (int i = 0; i < n; i++) {
        const char *parameter = g->value[g->sum[sum[i]].target].name;
        int32_t op = tri_graph_op(g, TRI_OP_LOWRANK_RIGHT, parameter, (tri_vid[]){x[i], part[i]}, 2,
                                  NULL, UINT32_MAX);

        if (op == TRI_NONE)
            return;
        basis[i] = g->op[op].out[0];
        part[i] = g->op[op].out[1];
    }
    sum_parts(g, part, n, tri_pool_printf(&g->pool, "%s.right", name));
    for (int i = 0; i < n; i++) {
        struct tri_sum *s = &g->sum[sum[i]];
        struct tri_attrs a = {.compress = {.shape = g->value[s->value].shape}};

        s->value = tri_graph_op1(g, TRI_OP_LOWRANK_PRODUCT, g->value[s->target].name,
                                 (tri_vid[]){basis[i], part[i]}, 2, &a);
    }
}

void tri_compress_bucket(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                         const struct tri_compress_spec *spec)
{
    if (spec->low_rank > 0)
        append_low_rank(g, sum, n, name, spec);
    else
        append_payloads(g, sum, n, name, spec);
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
        if (op.kind == TRI_OP_LOWRANK_RIGHT)
            commit(g, op.name, tri_graph_find(g, state_name(g, op.name, "residual")), op.out[2],
                   scalars);
        if (op.kind == TRI_OP_LOWRANK_PRODUCT)
            commit(g, op.name, tri_graph_find(g, state_name(g, op.name, "right")), op.in[1],
                   scalars);
    }
}
