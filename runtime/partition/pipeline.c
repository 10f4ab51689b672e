/* One stage: the rank's grains in sequence. Contributions to a sum are added as soon as both
 * addends exist, right behind the op that made the last one, so that the exchange of a sum can
 * begin while the last grain is still at work.
 *
 * A running total costs no addition of its own where the op that makes the contribution can add
 * onto it. The fixed tree needs a stack of at most log2(count) + 1 partial sums: after grain k
 * every subtree that ends with k is closed. */
#include "runtime/graph/passes.h"

#include "runtime/core/memory.h"

#define MAX_DEPTH 64 /* of the tree over grains: counts are 64-bit */

struct layout {
    const struct tri_graph *from;
    struct tri_graph *to;
    const struct tri_grains *grains;
    bool fixed_tree;
    tri_vid *map;        /* [from->nvalue] value of the step graph that stands for it now */
    tri_vid *persistent; /* [from->nvalue] PARAM or STATE that it overwrites, else TRI_NONE */
    int32_t *uses;       /* [from->nvalue] readers: ops and sums */
    int32_t *enters;     /* [from->nop] sum whose total is the op's acc input, else TRI_NONE */
    int32_t *first_done; /* [from->nop] first sum whose contribution op completes, else TRI_NONE */
    int32_t *next_done;  /* [from->nsum] next one of the same op */
    tri_vid *stack;      /* [from->nsum][MAX_DEPTH] partial sums, the last is the newest */
    int depth;           /* of all stacks before the current grain */
};

static tri_status check_node(const struct tri_grains *gr)
{
    int64_t lo = 0, hi = gr->total;

    while (lo < gr->first || hi > gr->first + gr->count) {
        int64_t mid = lo + (hi - lo) / 2;

        if (gr->first >= mid)
            lo = mid;
        else
            hi = mid;
        if (hi - lo < gr->count)
            break;
    }
    if (lo != gr->first || hi != gr->first + gr->count)
        return tri_fail(
            TRI_ERR_INTERNAL, "pipeline: grains %lld to %lld are no node of the tree over %lld",
            (long long)gr->first, (long long)(gr->first + gr->count), (long long)gr->total);
    return TRI_OK;
}

/* Subtrees of the rank's node that grain k closes: right turns at the end of the path
 * to its leaf. */
static int closed_by(const struct tri_grains *gr, int64_t k)
{
    int64_t lo = gr->first, hi = gr->first + gr->count;
    int closed = 0;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (k >= mid) {
            lo = mid;
            closed++;
        } else {
            hi = mid;
            closed = 0;
        }
    }
    return closed;
}

static void count_uses(struct layout *l)
{
    const struct tri_graph *g = l->from;

    for (int i = 0; i < g->nop; i++) {
        for (int k = 0; k < g->op[i].nin; k++) {
            if (g->op[i].in[k] != TRI_NONE)
                l->uses[g->op[i].in[k]]++;
        }
    }
    for (int s = 0; s < g->nsum; s++)
        l->uses[g->sum[s].value]++;
}

/* The op where a running total can enter the making of v: the start of its chain of acc inputs;
 * TRI_NONE if its kind takes none or if a link of the chain has another reader, who must not see
 * the total. */
static int32_t entry_of(const struct layout *l, tri_vid v)
{
    const struct tri_graph *g = l->from;

    for (;;) {
        int32_t p = g->value[v].producer;
        int acc = tri_op_info(g->op[p].kind)->acc_in;

        if (acc == 0 || l->uses[v] != 1)
            return TRI_NONE;
        if (acc >= g->op[p].nin || g->op[p].in[acc] == TRI_NONE)
            return p;
        v = g->op[p].in[acc];
        if (g->value[v].producer == TRI_NONE)
            return TRI_NONE;
    }
}

static tri_status link_sums(struct layout *l)
{
    const struct tri_graph *g = l->from;

    for (int i = 0; i < g->nop; i++)
        l->enters[i] = l->first_done[i] = TRI_NONE;
    for (int s = g->nsum - 1; s >= 0; s--) {
        int32_t p = g->value[g->sum[s].value].producer;
        int32_t entry;

        if (p == TRI_NONE)
            return tri_fail(TRI_ERR_INTERNAL, "pipeline: sum %d is written by no op", s);
        l->next_done[s] = l->first_done[p];
        l->first_done[p] = s;
        entry = l->fixed_tree ? TRI_NONE : entry_of(l, g->sum[s].value);
        if (entry != TRI_NONE)
            l->enters[entry] = s;
    }
    return TRI_OK;
}

/* Finds the values that are updates of persistent ones (a cache that attention extends). */
static void find_updates(struct layout *l)
{
    const struct tri_graph *g = l->from;

    for (tri_vid v = 0; v < g->nvalue; v++) {
        enum tri_role role = g->value[v].role;

        l->persistent[v] = role == TRI_ROLE_PARAM || role == TRI_ROLE_STATE ? v : TRI_NONE;
    }
    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];
        const struct tri_op_info *info = tri_op_info(op->kind);
        int in;

        for (int o = 0; o < op->nout && info->alias != NULL && !info->no_kernel; o++) {
            if (op->out[o] != TRI_NONE && info->alias(g, op, o, &in) == TRI_ALIAS_MUST)
                l->persistent[op->out[o]] = l->persistent[op->in[in]];
        }
    }
}

/* Shares parameters and states by name. */
static void copy_persistent(struct layout *l)
{
    for (tri_vid v = 0; v < l->from->nvalue; v++) {
        const struct tri_value *value = &l->from->value[v];
        tri_vid to = TRI_NONE;

        if (value->role == TRI_ROLE_PARAM) {
            to = tri_graph_param(l->to, value->name, value->shape, value->param->init);
            if (to != TRI_NONE)
                *l->to->value[to].param = *value->param;
        } else if (value->role == TRI_ROLE_STATE) {
            to = tri_graph_state(l->to, value->name, value->dtype, value->shape, value->init);
            if (to != TRI_NONE) {
                l->to->value[to].transient = value->transient;
                l->to->value[to].buffer = value->buffer;
            }
        }
        l->map[v] = to;
    }
}

/* A training step begins with its own number, which randomness and injected faults look at. */
static void begin_step(struct layout *l)
{
    const struct tri_graph *from = l->from;
    bool trains = false;
    tri_vid counters = TRI_NONE;

    for (int s = 0; s < from->nsum; s++)
        trains = trains || from->sum[s].kind == TRI_SUM_GRAD;
    if (from->counters != TRI_NONE)
        counters = l->map[from->counters];
    else if (trains)
        counters = tri_graph_state(l->to, "counters", TRI_I64,
                                   tri_shape_make(1, (const int64_t[]){TRI_COUNTER_COUNT}),
                                   (struct tri_init){.kind = TRI_INIT_ZERO});
    if (trains)
        counters = tri_graph_op1(l->to, TRI_OP_STEP_BEGIN, "step_begin", &counters, 1, NULL);
    if (from->counters != TRI_NONE)
        l->map[from->counters] = counters;
    l->to->counters = counters;
}

static const char *grain_name(struct layout *l, const char *name, int64_t k)
{
    const char *text = tri_pool_printf(&l->to->pool, "%s.%lld", name, (long long)k);

    return text == NULL ? name : text;
}

static void copy_inputs(struct layout *l, int64_t k)
{
    for (tri_vid v = 0; v < l->from->nvalue; v++) {
        const struct tri_value *value = &l->from->value[v];

        if (value->role != TRI_ROLE_INPUT)
            continue;
        l->map[v] =
            tri_graph_input(l->to, grain_name(l, value->name, k), value->dtype, value->shape);
        if (l->map[v] != TRI_NONE)
            l->to->value[l->map[v]].grain = (int32_t)k;
    }
}

/* Notes the copies of op's outputs; OUTPUT values become outputs of their grain. */
static void map_outputs(struct layout *l, const struct tri_op *op, int32_t copy, int64_t k)
{
    for (int o = 0; o < op->nout; o++) {
        tri_vid v = op->out[o], to;

        if (v == TRI_NONE)
            continue;
        to = l->to->op[copy].out[o];
        l->map[v] = to;
        if (l->from->value[v].role == TRI_ROLE_OUTPUT) {
            tri_graph_output(l->to, to, grain_name(l, l->from->value[v].name, k));
            l->to->value[to].grain = (int32_t)k;
        }
    }
}

/* Copies op i for grain k; a running total enters through the acc input if the op is the entry of a
 * sum. */
static tri_status copy_op(struct layout *l, int32_t i, int64_t k, tri_vid *in)
{
    const struct tri_op *op = &l->from->op[i];
    int32_t s = l->enters[i];
    int nin = op->nin;
    uint32_t want = 0;
    int32_t copy;

    for (int a = 0; a < op->nin; a++)
        in[a] = op->in[a] == TRI_NONE ? TRI_NONE : l->map[op->in[a]];
    if (s != TRI_NONE && k > l->grains->first) {
        int acc = tri_op_info(op->kind)->acc_in;

        while (nin <= acc)
            in[nin++] = TRI_NONE;
        in[acc] = l->stack[(int64_t)s * MAX_DEPTH];
    }
    for (int o = 0; o < op->nout; o++)
        want |= op->out[o] == TRI_NONE ? 0 : 1u << o;
    l->to->phase = op->phase;
    copy = tri_graph_op(l->to, op->kind, op->name, in, nin, &op->attrs, want);
    if (copy == TRI_NONE)
        return tri_graph_status(l->to);
    map_outputs(l, op, copy, k);
    return TRI_OK;
}

static tri_vid add(struct layout *l, const char *name, tri_vid a, tri_vid b)
{
    return tri_graph_op1(l->to, TRI_OP_ADD, name, (tri_vid[]){a, b}, 2, NULL);
}

/* Brings the contribution of the current grain, made by op i, into the stacks of its sums. */
static void add_contributions(struct layout *l, int32_t i, int64_t k, int closed)
{
    const char *name = l->from->op[i].name;

    for (int32_t s = l->first_done[i]; s != TRI_NONE; s = l->next_done[s]) {
        tri_vid *stack = l->stack + (int64_t)s * MAX_DEPTH;
        tri_vid v = l->map[l->from->sum[s].value];
        bool entered = !l->fixed_tree && entry_of(l, l->from->sum[s].value) != TRI_NONE;

        if (l->fixed_tree) {
            for (int c = 0; c < closed; c++)
                v = add(l, name, stack[l->depth - 1 - c], v);
            stack[l->depth - closed] = v;
        } else {
            stack[0] = k == l->grains->first || entered ? v : add(l, name, stack[0], v);
        }
    }
}

static tri_status lay_grain(struct layout *l, int64_t k, tri_vid *in)
{
    int closed = l->fixed_tree ? closed_by(l->grains, k) : 0;

    l->to->grain = (int32_t)k;
    copy_inputs(l, k);
    for (int32_t i = 0; i < l->from->nop; i++) {
        TRI_TRY(copy_op(l, i, k, in));
        add_contributions(l, i, k, closed);
    }
    l->depth += 1 - closed;
    for (tri_vid v = 0; v < l->from->nvalue; v++) { /* the next grain reads what this one updated */
        if (l->persistent[v] != TRI_NONE && l->persistent[v] != v)
            l->map[l->persistent[v]] = l->map[v];
    }
    if (l->from->prediction != TRI_NONE && k == l->grains->first)
        l->to->prediction = l->map[l->from->prediction];
    return tri_graph_status(l->to);
}

static void list_totals(struct layout *l)
{
    for (int s = 0; s < l->from->nsum; s++) {
        const struct tri_sum *sum = &l->from->sum[s];
        tri_vid total = l->stack[(int64_t)s * MAX_DEPTH];

        tri_graph_add_sum(l->to, sum->kind, total,
                          sum->target == TRI_NONE ? TRI_NONE : l->map[sum->target],
                          sum->target2 == TRI_NONE ? TRI_NONE : l->map[sum->target2]);
        if (sum->value == l->from->loss_stats)
            l->to->loss_stats = total;
    }
}

static tri_status run(struct layout *l)
{
    const struct tri_grains *gr = l->grains;
    tri_vid *in;
    int most = 8; /* at least the inputs of any kind with an acc input */
    tri_status st = TRI_OK;

    for (int i = 0; i < l->from->nop; i++)
        most = l->from->op[i].nin > most ? l->from->op[i].nin : most;
    in = tri_calloc((size_t)most, sizeof(*in), "inputs of an op");
    if (in == NULL)
        return tri_fail(TRI_ERR_NOMEM, "pipeline: cannot hold %d inputs", most);
    count_uses(l);
    find_updates(l);
    TRI_TRY_GOTO(st, link_sums(l), free_in);
    copy_persistent(l);
    begin_step(l);
    TRI_TRY_GOTO(st, tri_graph_status(l->to), free_in);
    for (int64_t k = gr->first; k < gr->first + gr->count; k++)
        TRI_TRY_GOTO(st, lay_grain(l, k, in), free_in);
    l->to->grain = TRI_NONE;
    l->to->phase = TRI_PHASE_FORWARD;
    list_totals(l);
    st = tri_graph_status(l->to);

free_in:
    tri_free(in);
    return st;
}

static tri_status allocate(struct layout *l)
{
    size_t nvalue = (size_t)l->from->nvalue + 1, nop = (size_t)l->from->nop + 1;
    size_t nsum = (size_t)l->from->nsum + 1;

    l->map = tri_calloc(nvalue, sizeof(*l->map), "value map");
    l->persistent = tri_calloc(nvalue, sizeof(*l->persistent), "updates");
    l->uses = tri_calloc(nvalue, sizeof(*l->uses), "uses");
    l->enters = tri_calloc(nop, sizeof(*l->enters), "entries of sums");
    l->first_done = tri_calloc(nop, sizeof(*l->first_done), "sums by op");
    l->next_done = tri_calloc(nsum, sizeof(*l->next_done), "sums by op");
    l->stack = tri_calloc(nsum * MAX_DEPTH, sizeof(*l->stack), "partial sums");
    if (l->map == NULL || l->persistent == NULL || l->uses == NULL || l->enters == NULL ||
        l->first_done == NULL || l->next_done == NULL || l->stack == NULL)
        return tri_fail(TRI_ERR_NOMEM, "pipeline: cannot lay out %d ops", l->from->nop);
    return tri_graph_create(&l->to);
}

tri_status tri_pass_pipeline(const struct tri_graph *grain, const struct tri_grains *grains,
                             bool fixed_tree, struct tri_graph **out)
{
    struct layout l = {.from = grain, .grains = grains, .fixed_tree = fixed_tree};
    tri_status st = TRI_OK;

    TRI_TRY(tri_graph_status(grain));
    if (grains->count < 1 || grains->first < 0 || grains->first + grains->count > grains->total)
        return tri_fail(TRI_ERR_INTERNAL, "pipeline: grains %lld to %lld of %lld",
                        (long long)grains->first, (long long)(grains->first + grains->count),
                        (long long)grains->total);
    if (fixed_tree)
        TRI_TRY(check_node(grains));
    TRI_TRY_GOTO(st, allocate(&l), free_all);
    TRI_TRY_GOTO(st, run(&l), free_all);
    *out = l.to;
    l.to = NULL;

free_all:
    tri_graph_destroy(l.to);
    tri_free(l.map);
    tri_free(l.persistent);
    tri_free(l.uses);
    tri_free(l.enters);
    tri_free(l.first_done);
    tri_free(l.next_done);
    tri_free(l.stack);
    return st;
}
