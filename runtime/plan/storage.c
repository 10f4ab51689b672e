/* Storage classes from alias rules. */
#include "runtime/plan/storage.h"

#include "runtime/core/memory.h"

#include <string.h>

tri_vid tri_storage_root(const struct tri_storage_map *m, tri_vid v, size_t *offset)
{
    size_t at = 0;

    while (m->parent[v] != v) {
        at += m->shift[v];
        v = m->parent[v];
    }
    *offset = at;
    return v;
}

/* Root of v with path compression. */
static tri_vid compress(struct tri_storage_map *m, tri_vid v)
{
    size_t at;
    tri_vid root = tri_storage_root(m, v, &at);

    while (m->parent[v] != v) {
        tri_vid up = m->parent[v];
        size_t below = m->shift[v];

        m->parent[v] = root;
        m->shift[v] = at;
        at -= below;
        v = up;
    }
    return root;
}

static const struct tri_value *value_of(const struct tri_storage_map *m, tri_vid v)
{
    return &m->program->graph->value[v];
}

static const char *name_of(const struct tri_storage_map *m, tri_vid v)
{
    const char *name = value_of(m, v)->name;

    return name != NULL ? name : "";
}

/* A persistent value decides over the name under which a storage is kept: what survives a restart,
 * then inputs, then outputs. */
static int keeper_rank(enum tri_role role)
{
    switch (role) {
    case TRI_ROLE_PARAM:
    case TRI_ROLE_STATE:
        return 3;
    case TRI_ROLE_INPUT:
        return 2;
    case TRI_ROLE_OUTPUT:
        return 1;
    default:
        return 0;
    }
}

static tri_status join_keepers(const struct tri_storage_map *m, tri_vid a, tri_vid b, tri_vid *out)
{
    int rank_a = a == TRI_NONE ? 0 : keeper_rank(value_of(m, a)->role);
    int rank_b = b == TRI_NONE ? 0 : keeper_rank(value_of(m, b)->role);

    if (rank_a > 1 && rank_b > 1)
        return tri_fail(TRI_ERR_INTERNAL,
                        "memory: \"%s\" and \"%s\" are both persistent and share memory",
                        name_of(m, a), name_of(m, b));
    *out = rank_a >= rank_b ? a : b;
    return TRI_OK;
}

/* Puts the storage whose root is `from` at `offset` of the storage whose root is `into`. */
static tri_status merge(struct tri_storage_map *m, tri_vid from, tri_vid into, size_t offset)
{
    struct tri_storage *a = &m->storage[from], *b = &m->storage[into];

    if (offset > b->bytes || a->bytes > b->bytes - offset)
        return tri_fail(TRI_ERR_INTERNAL,
                        "memory: \"%s\" of %zu bytes does not fit at byte %zu of \"%s\" (%zu)",
                        name_of(m, from), a->bytes, offset, name_of(m, into), b->bytes);
    TRI_TRY(join_keepers(m, b->keeper, a->keeper, &b->keeper));
    b->exchange = b->exchange || a->exchange;
    b->collective = b->collective || a->collective;
    b->shared = b->shared || a->shared;
    b->packed = b->packed || a->packed;
    if (a->written && (!b->written || a->first < b->first))
        b->first = a->first;
    b->written = b->written || a->written;
    b->last = a->last > b->last ? a->last : b->last;
    m->parent[from] = into;
    m->shift[from] = offset;
    return TRI_OK;
}

/* Output `out`, which nothing is merged with yet, goes to `offset` bytes behind the
 * start of `in`. */
static tri_status follow(struct tri_storage_map *m, tri_vid out, tri_vid in, size_t offset)
{
    size_t at;
    tri_vid root;

    compress(m, in);
    root = tri_storage_root(m, in, &at);
    return merge(m, out, root, at + offset);
}

static enum tri_alias alias_rule(const struct tri_graph *g, const struct tri_op *op, int o,
                                 int *input)
{
    const struct tri_op_info *info = tri_op_info(op->kind);

    if (info->alias == NULL || op->out[o] == TRI_NONE)
        return TRI_ALIAS_NO;
    return info->alias(g, op, o, input);
}

/* RESHAPE, VIEW and outputs that must occupy an input. */
static tri_status merge_musts(struct tri_storage_map *m, const struct tri_op *op)
{
    const struct tri_graph *g = m->program->graph;

    if (op->kind == TRI_OP_PACK) /* its parts come to it: merge_pack */
        return TRI_OK;
    if (op->kind == TRI_OP_RESHAPE)
        return follow(m, op->out[0], op->in[0], 0);
    if (op->kind == TRI_OP_VIEW)
        return follow(m, op->out[0], op->in[0],
                      (size_t)op->attrs.view.offset * tri_dtype_bytes(g->value[op->in[0]].dtype));
    for (int o = 0; o < op->nout; o++) {
        int input = 0;

        if (alias_rule(g, op, o, &input) == TRI_ALIAS_MUST)
            TRI_TRY(follow(m, op->out[o], op->in[input], 0));
    }
    return TRI_OK;
}

static tri_status merge_pack(struct tri_storage_map *m, const struct tri_op *op)
{
    size_t at = 0, base;
    tri_vid flat = compress(m, op->out[0]);

    tri_storage_root(m, op->out[0], &base);
    m->storage[flat].packed = true;
    for (int i = 0; i < op->nin; i++) {
        size_t inside, bytes = tri_value_bytes(value_of(m, op->in[i]));
        tri_vid part = compress(m, op->in[i]);
        const struct tri_storage *s = &m->storage[part];

        tri_storage_root(m, op->in[i], &inside);
        if (s->keeper != TRI_NONE)
            return tri_fail(TRI_ERR_INTERNAL, "memory: part \"%s\" of pack \"%s\" is persistent",
                            name_of(m, op->in[i]), op->name);
        if (part == flat || s->packed)
            return tri_fail(TRI_ERR_INTERNAL,
                            "memory: part \"%s\" of pack \"%s\" is in a pack already",
                            name_of(m, op->in[i]), op->name);
        if (inside != 0 || s->bytes != bytes)
            return tri_fail(TRI_ERR_INTERNAL,
                            "memory: part \"%s\" of pack \"%s\" is a piece of another value",
                            name_of(m, op->in[i]), op->name);
        at = tri_round_up(at, TRI_PACK_BYTES);
        TRI_TRY(merge(m, part, flat, base + at));
        at += bytes;
    }
    return TRI_OK;
}

/* May output o take the memory of op's input? Nobody else may need it later, and the op may see it
 * once only. */
static bool may_reuse(struct tri_storage_map *m, int32_t op_index, int o, int input)
{
    const struct tri_op *op = &m->program->graph->op[op_index];
    tri_vid in = compress(m, op->in[input]), out = compress(m, op->out[o]);
    const struct tri_storage *s = &m->storage[in];

    if (in == out || s->keeper != TRI_NONE || s->exchange || !s->written ||
        m->storage[out].keeper != TRI_NONE)
        return false;
    if (s->bytes != tri_value_bytes(value_of(m, op->in[input])) ||
        s->bytes != tri_value_bytes(value_of(m, op->out[o])) || s->last != m->position[op_index])
        return false;
    for (int i = 0; i < op->nin; i++)
        if (i != input && op->in[i] != TRI_NONE && compress(m, op->in[i]) == in)
            return false;
    for (int i = 0; i < op->nout; i++)
        if (op->out[i] != TRI_NONE && compress(m, op->out[i]) == in)
            return false;
    return true;
}

static tri_status merge_mays(struct tri_storage_map *m, int32_t op_index)
{
    const struct tri_graph *g = m->program->graph;
    const struct tri_op *op = &g->op[op_index];

    for (int o = 0; o < op->nout; o++) {
        int input = 0;
        size_t at;
        tri_vid out;

        if (alias_rule(g, op, o, &input) != TRI_ALIAS_MAY || op->in[input] == TRI_NONE ||
            !may_reuse(m, op_index, o, input))
            continue;
        out = tri_storage_root(m, op->out[o], &at);
        TRI_TRY(merge(m, compress(m, op->in[input]), out, at));
    }
    return TRI_OK;
}

/* Positions of the uses of single values, before any merging. */
static void note_uses(struct tri_storage_map *m)
{
    const struct tri_program *p = m->program;

    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_instr *in = &p->instr[i];
        const struct tri_op *op = &p->graph->op[in->op];
        bool engine = in->stream != TRI_STREAM_COMPUTE;
        uint32_t position = engine ? UINT32_MAX : in->seq;

        m->position[in->op] = engine ? 0 : in->seq;
        for (int k = 0; k < op->nin + op->nout; k++) {
            tri_vid v = k < op->nin ? op->in[k] : op->out[k - op->nin];
            struct tri_storage *s;

            if (v == TRI_NONE)
                continue;
            s = &m->storage[v];
            s->exchange = s->exchange || engine;
            s->collective = s->collective || in->kernel == TRI_NONE;
            s->shared = s->shared || (in->kernel == TRI_NONE && in->stream != TRI_STREAM_INTER);
            s->last = position > s->last ? position : s->last;
            if (k >= op->nin) {
                s->written = true;
                s->first = position;
            }
        }
    }
}

static tri_status init_map(struct tri_storage_map *m, const struct tri_program *p)
{
    const struct tri_graph *g = p->graph;
    size_t nvalue = (size_t)g->nvalue + 1;

    m->program = p;
    m->position = tri_calloc((size_t)g->nop + 1, sizeof(*m->position), "storage map");
    m->parent = tri_calloc(nvalue, sizeof(*m->parent), "storage map");
    m->shift = tri_calloc(nvalue, sizeof(*m->shift), "storage map");
    m->storage = tri_calloc(nvalue, sizeof(*m->storage), "storage map");
    if (m->position == NULL || m->parent == NULL || m->shift == NULL || m->storage == NULL)
        return tri_fail(TRI_ERR_NOMEM, "memory: cannot allocate tables for %d values", g->nvalue);
    for (int v = 0; v < g->nvalue; v++) {
        m->parent[v] = v;
        m->storage[v].bytes = tri_value_bytes(&g->value[v]);
        m->storage[v].keeper = g->value[v].role == TRI_ROLE_TEMP ? TRI_NONE : v;
    }
    return TRI_OK;
}

tri_status tri_storage_build(struct tri_storage_map *m, const struct tri_program *p)
{
    const struct tri_graph *g = p->graph;

    TRI_TRY(init_map(m, p));
    note_uses(m);
    for (int o = 0; o < g->nop; o++)
        TRI_TRY(merge_musts(m, &g->op[o]));
    for (int o = 0; o < g->nop; o++)
        if (g->op[o].kind == TRI_OP_PACK)
            TRI_TRY(merge_pack(m, &g->op[o]));
    for (int o = 0; o < g->nop; o++)
        if (m->position[o] > 0)
            TRI_TRY(merge_mays(m, o));
    return TRI_OK;
}

void tri_storage_finish(struct tri_storage_map *m)
{
    tri_free(m->position);
    tri_free(m->parent);
    tri_free(m->shift);
    tri_free(m->storage);
}
