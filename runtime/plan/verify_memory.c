/* The memory part of verify: the program is run on who owns each byte instead of on data.
 *
 * Instructions are taken in list order. That is one of many orders in which streams may run, but
 * every conflict between streams (a write and another access to the same bytes) must be ordered by
 * waits, and then all orders leave the same owners: the happens-before test
 * of data-race detectors. */
#include "runtime/plan/verify_internal.h"

#include "runtime/core/memory.h"
#include "runtime/plan/ranges.h"

struct checker {
    const struct tri_program *p;
    tri_clock *clock;
    struct tri_ranges arena[TRI_ARENA_COUNT];
    int32_t instr; /* being checked; ninstr: the host after the step */
};

static size_t value_bytes(const struct tri_program *p, tri_vid v)
{
    return tri_value_bytes(&p->graph->value[v]);
}

static const char *reader_name(const struct checker *c)
{
    return c->instr < c->p->ninstr ? tri_instr_name(c->p, c->instr) : "host";
}

/* Is instruction `other` certainly complete when the current one starts? */
static bool ordered(const struct checker *c, enum tri_stream stream, uint32_t seq)
{
    return c->instr == c->p->ninstr || c->clock[c->instr][stream] >= seq;
}

static tri_status check_place(const struct tri_program *p, tri_vid v)
{
    const struct tri_place *place = &p->place[v];
    size_t bytes = value_bytes(p, v), arena;

    if (place->storage < 0)
        return tri_fail(TRI_ERR_INTERNAL, "verify: value \"%s\" is used but has no place",
                        tri_value_name(p, v));
    arena = p->arena_bytes[place->arena];
    if (place->offset > arena || bytes > arena - place->offset)
        return tri_fail(TRI_ERR_INTERNAL, "verify: value \"%s\" ends behind its arena of %zu bytes",
                        tri_value_name(p, v), arena);
    return TRI_OK;
}

/* The piece `inner` must lie `offset` bytes behind the start of `outer`. */
static tri_status check_inside(const struct tri_program *p, tri_vid inner, tri_vid outer,
                               size_t offset)
{
    const struct tri_place *a = &p->place[inner], *b = &p->place[outer];

    if (a->arena != b->arena || a->storage != b->storage || a->offset != b->offset + offset)
        return tri_fail(TRI_ERR_INTERNAL, "verify: value \"%s\" is not at byte %zu of \"%s\"",
                        tri_value_name(p, inner), offset, tri_value_name(p, outer));
    return TRI_OK;
}

static size_t view_offset(const struct tri_graph *g, const struct tri_op *op)
{
    if (op->kind != TRI_OP_VIEW)
        return 0;
    return (size_t)op->attrs.view.offset * tri_dtype_bytes(g->value[op->in[0]].dtype);
}

static tri_status check_places(const struct tri_program *p)
{
    const struct tri_graph *g = p->graph;

    if (p->place == NULL)
        return tri_fail(TRI_ERR_INTERNAL, "verify: the program has no memory plan");
    for (int o = 0; o < g->nop; o++) {
        const struct tri_op *op = &g->op[o];
        size_t at = 0;

        for (int k = 0; k < op->nin + op->nout; k++) {
            tri_vid v = k < op->nin ? op->in[k] : op->out[k - op->nin];

            if (v != TRI_NONE)
                TRI_TRY(check_place(p, v));
        }
        if (op->kind == TRI_OP_RESHAPE || op->kind == TRI_OP_VIEW)
            TRI_TRY(check_inside(p, op->out[0], op->in[0], view_offset(g, op)));
        for (int k = 0; op->kind == TRI_OP_PACK && k < op->nin; k++) {
            at = tri_round_up(at, TRI_PACK_BYTES);
            TRI_TRY(check_inside(p, op->in[k], op->out[0], at));
            at += value_bytes(p, op->in[k]);
        }
    }
    return TRI_OK;
}

static tri_status refuse_read(const struct checker *c, tri_vid v, const struct tri_range *r)
{
    const struct tri_program *p = c->p;

    if (r->owner == TRI_OWNER_NONE)
        return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" reads \"%s\" before it is written",
                        reader_name(c), tri_value_name(p, v));
    if (r->owner >= 0 && p->place[r->owner].storage != p->place[v].storage)
        return tri_fail(TRI_ERR_INTERNAL, "verify: \"%s\" and \"%s\" overlap while both are live",
                        tri_value_name(p, v), tri_value_name(p, r->owner));
    return tri_fail(
        TRI_ERR_INTERNAL, "verify: op \"%s\" reads \"%s\" after op \"%s\" has overwritten it",
        reader_name(c), tri_value_name(p, v), r->writer < 0 ? "" : tri_instr_name(p, r->writer));
}

/* Bytes [lo, hi) of a value that an instruction or the host wrote. */
static tri_status read_written(struct checker *c, tri_vid v, size_t lo, size_t hi)
{
    const struct tri_program *p = c->p;
    const struct tri_place *place = &p->place[v];
    struct tri_ranges *ranges = &c->arena[place->arena];
    int first, last;

    TRI_TRY(tri_ranges_cut(ranges, place->offset + lo, place->offset + hi, &first, &last));
    for (int i = first; i < last; i++) {
        struct tri_range *r = &ranges->range[i];
        const struct tri_instr *w;

        if (r->owner != v)
            return refuse_read(c, v, r);
        if (c->instr == p->ninstr)
            continue;
        w = r->writer >= 0 ? &p->instr[r->writer] : NULL;
        if (w != NULL && !ordered(c, w->stream, w->seq))
            return tri_fail(TRI_ERR_INTERNAL,
                            "verify: op \"%s\" reads \"%s\" without a wait for op \"%s\"",
                            reader_name(c), tri_value_name(p, v), tri_instr_name(p, r->writer));
        r->read[p->instr[c->instr].stream] = p->instr[c->instr].seq;
    }
    return TRI_OK;
}

/* Bytes [lo, hi) of any value: those of ops that move no data are looked up where they were
 * written. */
static tri_status read_bytes(struct checker *c, tri_vid v, size_t lo, size_t hi)
{
    const struct tri_graph *g = c->p->graph;
    const struct tri_op *op = g->value[v].producer >= 0 ? &g->op[g->value[v].producer] : NULL;
    size_t at = 0;

    if (lo >= hi)
        return TRI_OK;
    if (op == NULL || !tri_op_info(op->kind)->no_kernel)
        return read_written(c, v, lo, hi);
    if (op->kind != TRI_OP_PACK)
        return read_bytes(c, op->in[0], lo + view_offset(g, op), hi + view_offset(g, op));
    for (int k = 0; k < op->nin; k++) {
        size_t bytes = value_bytes(c->p, op->in[k]), from, to;

        at = tri_round_up(at, TRI_PACK_BYTES);
        from = lo > at ? lo - at : 0;
        to = hi > at ? hi - at : 0;
        TRI_TRY(read_bytes(c, op->in[k], from, to < bytes ? to : bytes));
        at += bytes;
    }
    return TRI_OK;
}

/* The current instruction writes `bytes` at `offset` of an arena as `owner`. */
static tri_status write_bytes(struct checker *c, enum tri_arena arena, size_t offset, size_t bytes,
                              tri_vid owner)
{
    const struct tri_program *p = c->p;
    struct tri_ranges *ranges = &c->arena[arena];
    int first, last;

    if (bytes == 0)
        return TRI_OK;
    TRI_TRY(tri_ranges_cut(ranges, offset, offset + bytes, &first, &last));
    for (int i = first; i < last; i++) {
        const struct tri_range *r = &ranges->range[i];
        const struct tri_instr *w = r->writer >= 0 ? &p->instr[r->writer] : NULL;
        bool ok = w == NULL || r->writer == c->instr || ordered(c, w->stream, w->seq);

        for (int t = 0; t < TRI_STREAM_COUNT; t++)
            ok = ok && (t == (int)p->instr[c->instr].stream ||
                        ordered(c, (enum tri_stream)t, r->read[t]));
        if (!ok)
            return tri_fail(
                TRI_ERR_INTERNAL,
                "verify: op \"%s\" overwrites memory that another stream uses, without a wait",
                reader_name(c));
    }
    tri_ranges_own(ranges, first, last, owner, c->instr);
    return TRI_OK;
}

struct piece {
    enum tri_arena arena;
    size_t offset, bytes;
};

static struct piece piece_of(const struct tri_program *p, tri_vid v)
{
    return (struct piece){p->place[v].arena, p->place[v].offset, value_bytes(p, v)};
}

static bool pieces_meet(struct piece a, struct piece b)
{
    return a.arena == b.arena && a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
           b.offset < a.offset + a.bytes;
}

/* May output o of op have the place of input i? */
static bool alias_allowed(const struct tri_program *p, const struct tri_op *op, int o, int i)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    int input = -1;

    return info->alias != NULL && info->alias(p->graph, op, o, &input) != TRI_ALIAS_NO &&
           input == i && p->place[op->in[i]].offset == p->place[op->out[o]].offset;
}

static tri_status refuse_overlap(const struct checker *c, const char *what)
{
    return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" has %s that overlap", reader_name(c),
                    what);
}

/* Outputs and scratch of an instruction are apart from each other, and from inputs save where the
 * op works in place. */
static tri_status check_apart(const struct checker *c, const struct tri_op *op,
                              struct piece scratch)
{
    const struct tri_program *p = c->p;

    for (int o = 0; o < op->nout; o++) {
        struct piece out;

        if (op->out[o] == TRI_NONE)
            continue;
        out = piece_of(p, op->out[o]);
        if (pieces_meet(out, scratch))
            return refuse_overlap(c, "an output and scratch");
        for (int k = 0; k < o; k++)
            if (op->out[k] != TRI_NONE && pieces_meet(out, piece_of(p, op->out[k])))
                return refuse_overlap(c, "two outputs");
        for (int i = 0; i < op->nin; i++)
            if (op->in[i] != TRI_NONE && pieces_meet(out, piece_of(p, op->in[i])) &&
                !alias_allowed(p, op, o, i))
                return refuse_overlap(c, "an input and an output");
    }
    for (int i = 0; i < op->nin; i++)
        if (op->in[i] != TRI_NONE && pieces_meet(scratch, piece_of(p, op->in[i])))
            return refuse_overlap(c, "an input and scratch");
    return TRI_OK;
}

static tri_status check_instr(struct checker *c)
{
    const struct tri_program *p = c->p;
    const struct tri_instr *in = &p->instr[c->instr];
    const struct tri_op *op = &p->graph->op[in->op];
    struct piece scratch = {TRI_ARENA_STEP, in->scratch_offset, 0};

    if (in->kernel != TRI_NONE)
        scratch.bytes = p->kernel[in->kernel]->scratch_bytes;
    else if (p->place[op->in[0]].arena != TRI_ARENA_EXCHANGE)
        return tri_fail(TRI_ERR_INTERNAL,
                        "verify: collective \"%s\" works outside the exchange arena",
                        reader_name(c));
    if (scratch.bytes > 0 && scratch.offset + scratch.bytes > p->arena_bytes[TRI_ARENA_STEP])
        return tri_fail(TRI_ERR_INTERNAL, "verify: scratch of op \"%s\" ends behind the step arena",
                        reader_name(c));
    for (int i = 0; i < op->nin; i++)
        if (op->in[i] != TRI_NONE)
            TRI_TRY(read_bytes(c, op->in[i], 0, value_bytes(p, op->in[i])));
    TRI_TRY(check_apart(c, op, scratch));
    TRI_TRY(write_bytes(c, scratch.arena, scratch.offset, scratch.bytes, TRI_OWNER_SCRATCH));
    for (int o = 0; o < op->nout; o++)
        if (op->out[o] != TRI_NONE)
            TRI_TRY(write_bytes(c, p->place[op->out[o]].arena, p->place[op->out[o]].offset,
                                value_bytes(p, op->out[o]), op->out[o]));
    return TRI_OK;
}

/* What the host or an earlier run wrote: it is there when the step begins. */
static tri_status own_persistent(struct checker *c)
{
    const struct tri_program *p = c->p;

    for (tri_vid v = 0; v < p->graph->nvalue; v++) {
        const struct tri_value *value = &p->graph->value[v];
        struct tri_ranges *ranges = &c->arena[p->place[v].arena];
        int first, last;

        if (value->role == TRI_ROLE_TEMP || value->role == TRI_ROLE_OUTPUT ||
            value->producer >= 0 || value_bytes(p, v) == 0)
            continue;
        TRI_TRY(check_place(p, v));
        TRI_TRY(tri_ranges_cut(ranges, p->place[v].offset, p->place[v].offset + value_bytes(p, v),
                               &first, &last));
        for (int i = first; i < last; i++)
            if (ranges->range[i].owner != TRI_OWNER_NONE)
                return tri_fail(TRI_ERR_INTERNAL,
                                "verify: \"%s\" and \"%s\" overlap while both are live",
                                tri_value_name(p, v), tri_value_name(p, ranges->range[i].owner));
        tri_ranges_own(ranges, first, last, v, TRI_NONE);
    }
    return TRI_OK;
}

tri_status tri_verify_memory(const struct tri_program *p, tri_clock *clock)
{
    struct checker c = {.p = p, .clock = clock};
    tri_status st = check_places(p);

    for (int a = 0; st == TRI_OK && a < TRI_ARENA_COUNT; a++)
        st = tri_ranges_init(&c.arena[a], p->arena_bytes[a]);
    if (st == TRI_OK)
        st = own_persistent(&c);
    for (c.instr = 0; st == TRI_OK && c.instr < p->ninstr; c.instr++)
        TRI_TRY_GOTO(st, check_instr(&c), finish);
    for (tri_vid v = 0; st == TRI_OK && v < p->graph->nvalue; v++)
        if (p->graph->value[v].role == TRI_ROLE_OUTPUT && p->graph->value[v].producer >= 0)
            st = read_bytes(&c, v, 0, value_bytes(p, v));
finish:
    for (int a = 0; a < TRI_ARENA_COUNT; a++)
        tri_ranges_finish(&c.arena[a]);
    return st;
}
