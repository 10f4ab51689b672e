/* Reverse-mode differentiation of a grain's graph (Griewank and Walther, "Evaluating Derivatives",
 * 2008, chapter 3): ops are visited once, last to first, and each appends the ops of its own
 * gradient. */
#include "runtime/graph/passes.h"

#include "runtime/core/memory.h"

#define MAX_ARGS 16 /* inputs and outputs of an op that has a gradient */

struct backward {
    struct tri_graph *g;
    int nop, nvalue;    /* of the forward graph */
    int32_t loss;       /* op that writes the loss statistics */
    bool *needs;        /* [nvalue] a trained parameter lies behind the value */
    tri_vid *grad;      /* [nvalue] sum of the contributions so far, or TRI_NONE */
    bool *owned;        /* [nvalue] grad is nobody else's: it may be added onto in place */
    int32_t *first_use; /* [nvalue] first op that reads the value */
};

static bool is_trained(const struct tri_value *v)
{
    return v->role == TRI_ROLE_PARAM && !v->param->frozen;
}

static bool reads_needed(const struct backward *b, const struct tri_op *op)
{
    for (int i = 0; i < op->nin; i++) {
        if (op->in[i] != TRI_NONE && b->needs[op->in[i]])
            return true;
    }
    return false;
}

/* Fills needs and first_use in one forward sweep. */
static void look_forward(struct backward *b)
{
    const struct tri_graph *g = b->g;

    for (tri_vid v = 0; v < b->nvalue; v++) {
        b->needs[v] = is_trained(&g->value[v]);
        b->grad[v] = TRI_NONE;
        b->first_use[v] = TRI_NONE;
    }
    for (int32_t i = 0; i < b->nop; i++) {
        const struct tri_op *op = &g->op[i];
        const struct tri_op_info *info = tri_op_info(op->kind);
        uint32_t through = info->grad == NULL ? UINT32_MAX : info->diff_out;

        for (int k = 0; k < op->nin; k++) {
            if (op->in[k] != TRI_NONE && b->first_use[op->in[k]] == TRI_NONE)
                b->first_use[op->in[k]] = i;
        }
        if (!reads_needed(b, op))
            continue;
        for (int o = 0; o < op->nout; o++) {
            if (op->out[o] != TRI_NONE && (through >> o & 1) != 0)
                b->needs[op->out[o]] = tri_dtype_is_float(g->value[op->out[o]].dtype);
        }
    }
}

static int occurrences(const tri_vid *list, int n, tri_vid v)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += list[i] == v;
    return found;
}

/* Whether gradient d of an input is memory of its own: made by the op's gradient, or handed through
 * to this input alone. */
static bool is_owned(const struct backward *b, const struct tri_op *op, const tri_vid *dout,
                     const tri_vid *din, tri_vid d)
{
    tri_vid from = d;

    if (occurrences(din, op->nin, d) > 1)
        return false;
    if (op->kind == TRI_OP_RESHAPE)
        from = dout[0];
    for (int o = 0; o < op->nout; o++) {
        if (dout[o] == from)
            return b->owned[op->out[o]];
    }
    return true;
}

/* Gives d the shape of value v, which a product in two dimensions may have lost. */
static tri_vid in_shape_of(struct tri_graph *g, const struct tri_op *op, tri_vid d, tri_vid v)
{
    struct tri_attrs attrs = {.view = {.shape = g->value[v].shape}};

    if (d == TRI_NONE || tri_shape_equal(&g->value[d].shape, &g->value[v].shape))
        return d;
    return tri_graph_op1(g, TRI_OP_RESHAPE, op->name, &d, 1, &attrs);
}

/* Adds what the op's gradient gave to the gradients of its inputs. */
static void collect(struct backward *b, const struct tri_op *op, const tri_vid *dout,
                    const tri_vid *din, uint32_t acc_used)
{
    for (int i = 0; i < op->nin; i++) {
        tri_vid v = op->in[i], d = din[i];
        bool owned;

        if (d == TRI_NONE)
            continue;
        owned = is_owned(b, op, dout, din, d);
        d = in_shape_of(b->g, op, d, v);
        if (b->grad[v] != TRI_NONE && (acc_used >> i & 1) == 0) {
            d = tri_graph_op1(b->g, TRI_OP_ADD, op->name, (tri_vid[]){b->grad[v], d}, 2, NULL);
            owned = true;
        }
        b->grad[v] = d;
        b->owned[v] = owned;
    }
}

/* Appends the gradient of op i, if a gradient arrives at it. */
static tri_status step_back(struct backward *b, int32_t i)
{
    const struct tri_op op = b->g->op[i];
    const struct tri_op_info *info = tri_op_info(op.kind);
    tri_vid dout[MAX_ARGS], din[MAX_ARGS], acc[MAX_ARGS];
    bool need[MAX_ARGS];
    bool arrives = i == b->loss;
    uint32_t acc_used = 0;

    for (int o = 0; o < op.nout && o < MAX_ARGS; o++) {
        dout[o] = op.out[o] == TRI_NONE ? TRI_NONE : b->grad[op.out[o]];
        arrives = arrives || dout[o] != TRI_NONE;
    }
    if (!arrives || !reads_needed(b, &op))
        return TRI_OK;
    if (info->grad == NULL)
        return tri_fail(TRI_ERR_UNSUPPORTED, "%s \"%s\" has no gradient", info->name, op.name);
    TRI_ASSERT(op.nin <= MAX_ARGS && op.nout <= MAX_ARGS);
    for (int k = 0; k < op.nin; k++) {
        tri_vid v = op.in[k];

        need[k] = v != TRI_NONE && b->needs[v];
        din[k] = acc[k] = TRI_NONE;
        if (need[k] && b->owned[v] && occurrences(op.in, op.nin, v) == 1)
            acc[k] = b->grad[v];
    }
    TRI_TRY(info->grad(b->g, i, dout, need, acc, din, &acc_used));
    collect(b, &op, dout, din, acc_used);
    return tri_graph_status(b->g);
}

/* Lists the parameters whose last contribution came from op i. */
static void list_ready(struct backward *b, int32_t i)
{
    const struct tri_op op = b->g->op[i];

    for (int k = 0; k < op.nin; k++) {
        tri_vid v = op.in[k];

        if (v == TRI_NONE || b->first_use[v] != i || !is_trained(&b->g->value[v]) ||
            b->grad[v] == TRI_NONE)
            continue;
        b->first_use[v] = TRI_NONE;
        if (!b->owned[v]) { /* a sum must not share memory with another gradient: copy */
            struct tri_attrs copy = {0};

            copy.cast.to = b->g->value[b->grad[v]].dtype;
            b->grad[v] = tri_graph_op1(b->g, TRI_OP_CAST, op.name, &b->grad[v], 1, &copy);
        }
        tri_graph_add_sum(b->g, TRI_SUM_GRAD, b->grad[v], v, TRI_NONE);
    }
}

static tri_status check_all_reached(const struct backward *b)
{
    for (tri_vid v = 0; v < b->nvalue; v++) {
        if (is_trained(&b->g->value[v]) && b->grad[v] == TRI_NONE)
            return tri_fail(TRI_ERR_USAGE, "the loss does not depend on parameter \"%s\"",
                            b->g->value[v].name);
    }
    return tri_graph_status(b->g);
}

static tri_status run(struct backward *b)
{
    enum tri_phase phase = b->g->phase;
    tri_status st = TRI_OK;

    look_forward(b);
    b->g->phase = TRI_PHASE_BACKWARD;
    for (int32_t i = b->nop - 1; i >= 0 && st == TRI_OK; i--) {
        st = step_back(b, i);
        if (st == TRI_OK)
            list_ready(b, i);
    }
    b->g->phase = phase;
    return st == TRI_OK ? check_all_reached(b) : st;
}

tri_status tri_pass_autodiff(struct tri_graph *g)
{
    size_t n = (size_t)g->nvalue + 1;
    struct backward b = {.g = g, .nop = g->nop, .nvalue = g->nvalue};
    tri_status st;

    TRI_TRY(tri_graph_status(g));
    if (g->loss_stats == TRI_NONE || g->value[g->loss_stats].producer == TRI_NONE)
        return tri_fail(TRI_ERR_INTERNAL, "autodiff: the graph has no loss");
    b.loss = g->value[g->loss_stats].producer;
    b.needs = tri_calloc(n, sizeof(*b.needs), "values with a gradient");
    b.grad = tri_calloc(n, sizeof(*b.grad), "gradients");
    b.owned = tri_calloc(n, sizeof(*b.owned), "owned gradients");
    b.first_use = tri_calloc(n, sizeof(*b.first_use), "first uses");
    if (b.needs == NULL || b.grad == NULL || b.owned == NULL || b.first_use == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "autodiff: cannot hold %zu gradients", n);
    else
        st = run(&b);
    tri_free(b.needs);
    tri_free(b.grad);
    tri_free(b.owned);
    tri_free(b.first_use);
    return st;
}
