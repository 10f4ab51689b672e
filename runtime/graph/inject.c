/* Faults on purpose: an op in the path of a value, so that a test of failure needs no special
 * build. */
#include "runtime/graph/passes.h"

#include "runtime/core/memory.h"

#include <string.h>

/* All readers from op `from` on, sums and graph results read `to` instead of v. */
static void redirect(struct tri_graph *g, int32_t from, tri_vid v, tri_vid to)
{
    for (int32_t i = from; i < g->nop; i++) {
        for (int k = 0; k < g->op[i].nin; k++) {
            if (g->op[i].in[k] == v)
                g->op[i].in[k] = to;
        }
    }
    for (int s = 0; s < g->nsum; s++) {
        if (g->sum[s].value == v)
            g->sum[s].value = to;
    }
    if (g->loss_stats == v)
        g->loss_stats = to;
    if (g->prediction == v)
        g->prediction = to;
}

/* The version of the counters that is valid before op `at`. */
static tri_vid counters_at(const struct tri_graph *g, int32_t at)
{
    tri_vid counters = TRI_NONE;

    for (int32_t i = 0; i < at; i++) {
        if (g->op[i].kind == TRI_OP_STEP_BEGIN || g->op[i].kind == TRI_OP_STEP_END)
            counters = g->op[i].out[0];
    }
    return counters == TRI_NONE ? g->counters : counters;
}

/* Puts the fault into the path of v before op `at`. An OUTPUT hands its name on to the value that
 * now stands for it. */
static tri_status put(struct tri_graph *g, const struct tri_injection *fault, tri_vid v, int32_t at)
{
    struct tri_attrs attrs = {.inject = {.what = fault->what,
                                         .step = fault->step,
                                         .index = fault->index,
                                         .bit = fault->bit,
                                         .ms = fault->ms,
                                         .code = fault->code}};
    tri_vid in[2] = {v, counters_at(g, at)};
    int32_t producer = g->value[v].producer, op;
    int bits = (int)tri_dtype_bytes(g->value[v].dtype) * 8;

    if (fault->index < 0 || fault->index >= tri_shape_count(&g->value[v].shape))
        return tri_fail(TRI_ERR_USAGE, "debug.inject: \"%s\" has no element %lld", g->value[v].name,
                        (long long)fault->index);
    if (fault->what == TRI_INJECT_FLIP && (fault->bit < 0 || fault->bit >= bits))
        return tri_fail(TRI_ERR_USAGE, "debug.inject: an element of \"%s\" has no bit %d",
                        g->value[v].name, fault->bit);
    if (in[1] == TRI_NONE)
        return tri_fail(TRI_ERR_INTERNAL, "inject: the graph counts no steps");
    g->phase = fault->where;
    g->grain = producer == TRI_NONE ? TRI_NONE : g->op[producer].grain;
    op = tri_graph_op_before(g, at, TRI_OP_INJECT, g->value[v].name, in, 2, &attrs, UINT32_MAX);
    g->grain = TRI_NONE;
    TRI_TRY(tri_graph_status(g));
    redirect(g, op + 1, v, g->op[op].out[0]);
    return TRI_OK;
}

static bool is_loss(enum tri_op_kind kind)
{
    return kind == TRI_OP_SOFTMAX_XENT || kind == TRI_OP_SOFTMAX_XENT_FUSED || kind == TRI_OP_MSE;
}

/* Loss op of the rank's n-th grain (the first where n < 0), or TRI_NONE. Grains lie in ascending
 * order. */
static int32_t find_loss(const struct tri_graph *g, int64_t n)
{
    for (int32_t i = 0; i < g->nop; i++) {
        if (is_loss(g->op[i].kind) && n-- <= 0)
            return i;
    }
    return TRI_NONE;
}

/* Global number of the rank's n-th grain: that of its loss op. */
static tri_status grain_number(const struct tri_graph *g, int64_t n, int32_t *out)
{
    int32_t loss = find_loss(g, n);

    if (loss == TRI_NONE)
        return tri_fail(TRI_ERR_USAGE, "debug.inject: this rank has no grain %lld", (long long)n);
    *out = g->op[loss].grain;
    return TRI_OK;
}

/* Sum of the gradient of the fault's parameter; the first in the order of parameters if it names
 * none. */
static tri_status find_gradient(const struct tri_graph *g, const struct tri_injection *fault,
                                int *out)
{
    int found = -1;

    for (int s = 0; s < g->nsum; s++) {
        tri_vid target = g->sum[s].target;

        if (g->sum[s].kind != TRI_SUM_GRAD)
            continue;
        if (fault->parameter == NULL) {
            if (found < 0 || target < g->sum[found].target)
                found = s;
        } else if (strcmp(g->value[target].name, fault->parameter) == 0) {
            found = s;
        }
    }
    if (found < 0)
        return tri_fail(TRI_ERR_USAGE, "debug.inject: no trained parameter \"%s\"",
                        fault->parameter == NULL ? "" : fault->parameter);
    *out = found;
    return TRI_OK;
}

/* First value in the making of total `v` that an op of that grain wrote: walks back through
 * additions and acc inputs. */
static tri_status find_contribution(const struct tri_graph *g, tri_vid v, int32_t grain,
                                    tri_vid *out)
{
    tri_vid *stack = tri_calloc((size_t)g->nvalue + 1, sizeof(*stack), "partial sums");
    bool *seen = tri_calloc((size_t)g->nvalue + 1, sizeof(*seen), "partial sums");
    tri_vid best = TRI_NONE;
    int n = 0;

    if (stack == NULL || seen == NULL) {
        tri_free(stack);
        tri_free(seen);
        return tri_fail(TRI_ERR_NOMEM, "inject: cannot walk over %d values", g->nvalue);
    }
    stack[n++] = v;
    seen[v] = true;
    while (n > 0) {
        tri_vid at = stack[--n];
        int32_t p = g->value[at].producer;
        const struct tri_op *op = p == TRI_NONE ? NULL : &g->op[p];
        int first = 0, last = -1;

        if (op == NULL)
            continue;
        if (op->grain == grain && (best == TRI_NONE || p < g->value[best].producer))
            best = at;
        if (op->kind == TRI_OP_ADD)
            last = 1;
        else if (tri_op_info(op->kind)->acc_in > 0 || op->kind == TRI_OP_INJECT)
            first = last = tri_op_info(op->kind)->acc_in;
        for (int k = first; k <= last && k < op->nin; k++) {
            if (op->in[k] != TRI_NONE && !seen[op->in[k]]) {
                seen[op->in[k]] = true;
                stack[n++] = op->in[k];
            }
        }
    }
    tri_free(stack);
    tri_free(seen);
    if (best == TRI_NONE)
        return tri_fail(TRI_ERR_INTERNAL, "inject: grain %d adds nothing to \"%s\"", (int)grain,
                        g->value[v].name);
    *out = best;
    return TRI_OK;
}

static tri_status inject_forward(struct tri_graph *g, const struct tri_injection *fault)
{
    int32_t loss = find_loss(g, fault->grain);

    if (loss == TRI_NONE)
        return tri_fail(TRI_ERR_USAGE, "debug.inject: this rank has no grain %lld",
                        (long long)fault->grain);
    return put(g, fault, g->op[loss].in[0], loss);
}

static tri_status inject_gradient(struct tri_graph *g, const struct tri_injection *fault)
{
    int32_t grain = TRI_NONE;
    tri_vid v;
    int s;

    TRI_TRY(find_gradient(g, fault, &s));
    v = g->sum[s].value;
    if (fault->where == TRI_PHASE_BACKWARD && fault->grain >= 0) {
        TRI_TRY(grain_number(g, fault->grain, &grain));
        TRI_TRY(find_contribution(g, v, grain, &v));
    }
    return put(g, fault, v, g->value[v].producer + 1);
}

/* The updated parameter is the first output of its optimizer op. */
static tri_status inject_update(struct tri_graph *g, const struct tri_injection *fault)
{
    tri_vid target;
    int s;

    TRI_TRY(find_gradient(g, fault, &s));
    target = g->sum[s].target;
    for (int32_t i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        if ((op->kind == TRI_OP_SGD || op->kind == TRI_OP_ADAMW) && op->in[0] == target)
            return put(g, fault, op->out[0], i + 1);
    }
    return tri_fail(TRI_ERR_INTERNAL, "inject: no op updates \"%s\"", g->value[target].name);
}

tri_status tri_pass_inject(struct tri_graph *g, const struct tri_injection *faults, int n, int rank,
                           enum tri_phase where)
{
    enum tri_phase phase = g->phase;

    for (int i = 0; i < n; i++) {
        const struct tri_injection *fault = &faults[i];

        if (fault->rank != rank || fault->where != where)
            continue;
        switch (where) {
        case TRI_PHASE_FORWARD:
            TRI_TRY(inject_forward(g, fault));
            break;
        case TRI_PHASE_BACKWARD:
        case TRI_PHASE_EXCHANGE:
            TRI_TRY(inject_gradient(g, fault));
            break;
        default:
            TRI_TRY(inject_update(g, fault));
            break;
        }
    }
    g->phase = phase;
    return TRI_OK;
}
