/* schedule: from an ordered graph to streams of instructions with the fewest waits.
 *
 * Ops that move no data (RESHAPE, PACK, VIEW) give no instruction; the values they connect are one
 * group of memory, and dependences between streams are those between the instructions that touch a
 * group. A collective is put right after the last instruction that touched its group, so it starts
 * as soon as its input is ready, and the list is a pure function of the graph. With overlap off the
 * list is the same and the compute stream waits for each collective at once.
 *
 * Collectives between nodes have a stream of their own. An all-gather that comes behind one would
 * hold up the reduce-scatters of later buckets, so it stands behind the next collective of its
 * stream, if nobody needs it before: the phases of neighbouring buckets overlap.
 *
 * Waits are minimal: each stream carries a vector clock (Fidge 1988, Mattern 1989) of what it knows
 * to be complete. */
#include "runtime/plan/program.h"

#include "runtime/core/memory.h"
#include "runtime/plan/signature.h"

#include <string.h>

struct scheduler {
    struct tri_program *p;
    int32_t *group; /* by value: union-find parent through ops without kernels */
    int32_t *order; /* ops in the order of the instructions */
    int norder;
    int32_t *comm_key; /* by op of an engine: it follows this compute instruction (0.., -1: none) */
    uint32_t (*touch)[TRI_STREAM_COUNT]; /* by group: last of each stream that touched it */
    uint32_t (*clock)[TRI_STREAM_COUNT]; /* by instruction: complete once it is complete */
    int32_t *at[TRI_STREAM_COUNT];       /* instruction of a stream's number (from 1) */
};

static bool on_engine(const struct tri_op_info *info)
{
    return info->comm || info->beside_comm;
}

static int32_t find_group(int32_t *group, int32_t v)
{
    while (group[v] != v) {
        group[v] = group[group[v]];
        v = group[v];
    }
    return v;
}

static void group_values(struct scheduler *s)
{
    const struct tri_graph *g = s->p->graph;

    for (int v = 0; v < g->nvalue; v++)
        s->group[v] = v;
    for (int o = 0; o < g->nop; o++) {
        const struct tri_op *op = &g->op[o];

        if (!tri_op_info(op->kind)->no_kernel)
            continue;
        for (int i = 0; i < op->nin; i++)
            s->group[find_group(s->group, op->in[i])] = find_group(s->group, op->out[0]);
    }
}

/* Latest key over the values of one side of an op; `last` is indexed by group. */
static int32_t latest(struct scheduler *s, const int32_t *last, const tri_vid *v, int n)
{
    int32_t most = -1;

    for (int i = 0; i < n; i++)
        if (v[i] != TRI_NONE && last[find_group(s->group, v[i])] > most)
            most = last[find_group(s->group, v[i])];
    return most;
}

static void mark(struct scheduler *s, int32_t *last, const tri_vid *v, int n, int32_t key)
{
    for (int i = 0; i < n; i++)
        if (v[i] != TRI_NONE && last[find_group(s->group, v[i])] < key)
            last[find_group(s->group, v[i])] = key;
}

static enum tri_stream stream_of(const struct tri_op *op)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    enum tri_level level = info->comm ? op->attrs.comm.level : op->attrs.compress.level;

    if (!on_engine(info))
        return TRI_STREAM_COMPUTE;
    return level == TRI_LEVEL_INTER ? TRI_STREAM_INTER : TRI_STREAM_INTRA;
}

/* Where each op goes: compute ops are numbered, a collective follows the compute op of its key.
 * `last` has an entry of -1 a value. */
static void find_keys(struct scheduler *s, int32_t *last)
{
    const struct tri_graph *g = s->p->graph;
    int32_t ncompute = 0;

    for (int o = 0; o < g->nop; o++) {
        const struct tri_op *op = &g->op[o];
        const struct tri_op_info *info = tri_op_info(op->kind);

        if (info->no_kernel)
            continue;
        s->comm_key[o] = on_engine(info) ? latest(s, last, op->in, op->nin) : ncompute++;
        mark(s, last, op->in, op->nin, s->comm_key[o]);
        mark(s, last, op->out, op->nout, s->comm_key[o]);
    }
}

static bool touches(struct scheduler *s, const struct tri_op *op, int32_t group)
{
    for (int k = 0; k < op->nin + op->nout; k++) {
        tri_vid v = k < op->nin ? op->in[k] : op->out[k - op->nin];

        if (v != TRI_NONE && find_group(s->group, v) == group)
            return true;
    }
    return false;
}

/* Puts back the op that was held, if there is one. */
static void release(struct scheduler *s, int32_t *held)
{
    if (*held != TRI_NONE)
        s->order[s->norder++] = *held;
    *held = TRI_NONE;
}

/* Appends an op to the order. *held: an all-gather that waits for its place. */
static void append_op(struct scheduler *s, int32_t o, int32_t *held)
{
    const struct tri_graph *g = s->p->graph;
    const struct tri_op *op = &g->op[o];

    if (op->kind == TRI_OP_ALLGATHER && op->attrs.comm.level == TRI_LEVEL_INTRA) {
        release(s, held);
        *held = o;
        return;
    }
    if (*held != TRI_NONE && touches(s, op, find_group(s->group, g->op[*held].out[0])))
        release(s, held);
    s->order[s->norder++] = o;
    if (stream_of(op) == TRI_STREAM_INTRA)
        release(s, held);
}

/* Fills s->order with all ops that become instructions. Collectives with equal keys keep graph
 * order. */
static tri_status order_ops(struct scheduler *s)
{
    const struct tri_graph *g = s->p->graph;
    int32_t *last = tri_calloc((size_t)g->nvalue + 1, sizeof(*last), "schedule");
    /* Lists of the engines' ops behind each key: head by key + 1, next by op; op + 1, 0 ends. */
    int32_t *head = tri_calloc((size_t)g->nop + 1, sizeof(*head), "schedule");
    int32_t *next = tri_calloc((size_t)g->nop + 1, sizeof(*next), "schedule");
    int32_t held = TRI_NONE;
    tri_status st = TRI_OK;

    if (last == NULL || head == NULL || next == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate tables for %d ops", g->nop);
        goto free_tables;
    }
    memset(last, 0xff, (size_t)g->nvalue * sizeof(*last));
    find_keys(s, last);
    for (int o = g->nop - 1; o >= 0; o--) { /* backwards, so that lists are in graph order */
        if (on_engine(tri_op_info(g->op[o].kind))) {
            next[o] = head[s->comm_key[o] + 1];
            head[s->comm_key[o] + 1] = o + 1;
        }
    }
    for (int c = head[0]; c != 0; c = next[c - 1])
        append_op(s, c - 1, &held);
    for (int o = 0; o < g->nop; o++) {
        const struct tri_op_info *info = tri_op_info(g->op[o].kind);

        if (info->no_kernel || on_engine(info))
            continue;
        append_op(s, o, &held);
        for (int c = head[s->comm_key[o] + 1]; c != 0; c = next[c - 1])
            append_op(s, c - 1, &held);
    }
    release(s, &held);
free_tables:
    tri_free(last);
    tri_free(head);
    tri_free(next);
    return st;
}

static void join_clock(uint32_t into[TRI_STREAM_COUNT], const uint32_t other[TRI_STREAM_COUNT])
{
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        into[t] = other[t] > into[t] ? other[t] : into[t];
}

/* Numbers instruction i, and makes it wait for what `need` asks and its stream does
 * not know yet. */
static void link_instr(struct scheduler *s, int i, uint32_t need[TRI_STREAM_COUNT])
{
    struct tri_program *p = s->p;
    struct tri_instr *in = &p->instr[i];
    uint32_t *clock = s->clock[i];

    in->seq = ++p->stream_count[in->stream];
    s->at[in->stream][in->seq] = i;
    if (in->seq > 1)
        memcpy(clock, s->clock[s->at[in->stream][in->seq - 1]], sizeof(s->clock[0]));
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        if (t == (int)in->stream || need[t] <= clock[t])
            continue;
        in->wait[t] = need[t];
        p->instr[s->at[t][need[t]]].signal = true;
        join_clock(clock, s->clock[s->at[t][need[t]]]);
    }
    clock[in->stream] = in->seq;
}

static void gather_needs(struct scheduler *s, const tri_vid *v, int n,
                         uint32_t need[TRI_STREAM_COUNT])
{
    for (int i = 0; i < n; i++)
        if (v[i] != TRI_NONE)
            join_clock(need, s->touch[find_group(s->group, v[i])]);
}

static void note_touch(struct scheduler *s, const tri_vid *v, int n, const struct tri_instr *in)
{
    for (int i = 0; i < n; i++)
        if (v[i] != TRI_NONE)
            s->touch[find_group(s->group, v[i])][in->stream] = in->seq;
}

static tri_status emit(struct scheduler *s, struct tri_signatures *kernels, bool overlap)
{
    struct tri_program *p = s->p;
    uint32_t issued[TRI_STREAM_COUNT] = {0}; /* what compute waits for when overlap is off */

    for (int i = 0; i < s->norder; i++) {
        const struct tri_op *op = &p->graph->op[s->order[i]];
        bool comm = tri_op_info(op->kind)->comm, engine = on_engine(tri_op_info(op->kind));
        struct tri_instr *in = &p->instr[i];
        uint32_t need[TRI_STREAM_COUNT] = {0};

        in->op = s->order[i];
        in->kernel = TRI_NONE;
        in->stream = stream_of(op);
        if (!comm)
            TRI_TRY(tri_signatures_kernel(kernels, op, &in->kernel));
        if (!engine)
            join_clock(need, issued);
        gather_needs(s, op->in, op->nin, need);
        gather_needs(s, op->out, op->nout, need);
        link_instr(s, i, need);
        note_touch(s, op->in, op->nin, in);
        note_touch(s, op->out, op->nout, in);
        if (engine && !overlap)
            issued[in->stream] = in->seq;
        p->ninstr = i + 1;
    }
    return TRI_OK;
}

static tri_status init_scheduler(struct scheduler *s, struct tri_program *p)
{
    size_t nvalue = (size_t)p->graph->nvalue + 1, nop = (size_t)p->graph->nop + 1;
    bool ok;

    s->p = p;
    s->group = tri_calloc(nvalue, sizeof(*s->group), "schedule");
    s->order = tri_calloc(nop, sizeof(*s->order), "schedule");
    s->comm_key = tri_calloc(nop, sizeof(*s->comm_key), "schedule");
    s->touch = tri_calloc(nvalue, sizeof(*s->touch), "schedule");
    s->clock = tri_calloc(nop, sizeof(*s->clock), "schedule");
    p->instr = tri_calloc(nop, sizeof(*p->instr), "program");
    ok = s->group != NULL && s->order != NULL && s->comm_key != NULL && s->touch != NULL &&
         s->clock != NULL && p->instr != NULL;
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        s->at[t] = tri_calloc(nop + 1, sizeof(*s->at[t]), "schedule");
        ok = ok && s->at[t] != NULL;
    }
    if (!ok)
        return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate tables for %d ops",
                        p->graph->nop);
    return TRI_OK;
}

static void finish_scheduler(struct scheduler *s)
{
    tri_free(s->group);
    tri_free(s->order);
    tri_free(s->comm_key);
    tri_free(s->touch);
    tri_free(s->clock);
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        tri_free(s->at[t]);
}

tri_status tri_plan_schedule(struct tri_graph *graph, const struct tri_kernel_ops *const *table,
                             struct tri_device *device, int nthreads, bool overlap,
                             struct tri_program **out)
{
    tri_status st = TRI_OK;
    struct scheduler s = {0};
    struct tri_signatures kernels = {0};
    struct tri_program *p = tri_calloc(1, sizeof(*p), "program");

    if (p == NULL) {
        tri_graph_destroy(graph);
        return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate a program");
    }
    p->graph = graph;
    p->device = device != NULL ? device : tri_device_cpu();
    TRI_TRY_GOTO(st, init_scheduler(&s, p), finish);
    TRI_TRY_GOTO(st, tri_signatures_init(&kernels, p, table, device, nthreads), finish);
    group_values(&s);
    TRI_TRY_GOTO(st, order_ops(&s), finish);
    st = emit(&s, &kernels, overlap);
finish:
    tri_signatures_finish(&kernels);
    finish_scheduler(&s);
    if (st != TRI_OK) {
        tri_program_destroy(p);
        return st;
    }
    *out = p;
    return TRI_OK;
}

void tri_program_destroy(struct tri_program *p)
{
    if (p == NULL)
        return;
    for (int k = 0; k < p->nkernel; k++)
        p->kernel[k]->ops->destroy(p->kernel[k]);
    tri_free(p->kernel);
    tri_free(p->instr);
    tri_free(p->place);
    tri_graph_destroy(p->graph);
    tri_free(p);
}
