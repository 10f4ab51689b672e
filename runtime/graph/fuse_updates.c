/* Joins the ops of the update that differ only in their parameter. A device launches a kernel for
 * each op, and most parameters are too small to fill it. */
#include "runtime/graph/passes.h"

#include "runtime/core/memory.h"
#include "runtime/graph/ops_check.h"

#include <string.h>

/* An optimizer's op, and the CAST of what it updates into the 16-bit copy, if any. */
struct update {
    int32_t op, cast; /* cast: TRI_NONE without */
};

struct joining {
    struct tri_graph *g;
    int32_t *cast; /* by value: its CAST onto an existing copy, or TRI_NONE */
    bool *dead;    /* by op */
};

static bool is_optimizer(const struct tri_op *op)
{
    return op->phase == TRI_PHASE_UPDATE && (op->kind == TRI_OP_SGD || op->kind == TRI_OP_ADAMW);
}

/* Where the scalars stand among the inputs: behind the tensors. */
static int tensors_in(const struct tri_op *op)
{
    return op->kind == TRI_OP_ADAMW ? 4 : 3;
}

static struct update update_at(const struct joining *f, int32_t i)
{
    return (struct update){i, f->cast[f->g->op[i].out[0]]};
}

static bool alike(const struct joining *f, struct update a, struct update b)
{
    const struct tri_op *x = &f->g->op[a.op], *y = &f->g->op[b.op];

    return x->kind == y->kind && memcmp(&x->attrs, &y->attrs, sizeof(x->attrs)) == 0 &&
           tri_op_has(x, 2) == tri_op_has(y, 2) && x->in[tensors_in(x)] == y->in[tensors_in(y)] &&
           (a.cast == TRI_NONE) == (b.cast == TRI_NONE) &&
           (a.cast == TRI_NONE || f->g->op[a.cast].attrs.cast.to == f->g->op[b.cast].attrs.cast.to);
}

/* Sets the inputs (scalars, then each kind of tensor in turn) and outputs of the joined op. */
static void join_values(const struct joining *f, const struct update *u, int n, bool copies,
                        tri_vid *in, tri_vid *out)
{
    const struct tri_op *first = &f->g->op[u[0].op];
    int nin = 0, nout = 0;

    in[nin++] = first->in[tensors_in(first)];
    for (int t = 0; t < tensors_in(first); t++)
        for (int i = 0; i < n && tri_op_has(first, t); i++)
            in[nin++] = f->g->op[u[i].op].in[t];
    for (int o = 0; o < first->nout; o++)
        for (int i = 0; i < n && first->out[o] != TRI_NONE; i++)
            out[nout++] = f->g->op[u[i].op].out[o];
    for (int i = 0; i < n && copies; i++) {
        in[nin++] = f->g->op[u[i].cast].in[1];
        out[nout++] = f->g->op[u[i].cast].out[0];
    }
    while (nout < TRI_MULTI_OUTPUTS)
        out[nout++] = TRI_NONE;
}

/* The first of u[0..n) becomes the op of all. */
static tri_status join(struct joining *f, const struct update *u, int n)
{
    struct tri_graph *g = f->g;
    struct tri_op *op = &g->op[u[0].op];
    bool copies = u[0].cast != TRI_NONE;
    int kinds = tensors_in(op) - !tri_op_has(op, 2) + copies;
    tri_vid *in = tri_pool_alloc(&g->pool, (size_t)(1 + kinds * n) * sizeof(*in));
    tri_vid *out = tri_pool_alloc(&g->pool, TRI_MULTI_OUTPUTS * sizeof(*out));

    if (in == NULL || out == NULL)
        return tri_fail(TRI_ERR_NOMEM, "fuse: cannot store op \"%s\"", op->name);
    join_values(f, u, n, copies, in, out);
    for (int i = 0; i < n; i++) {
        f->dead[u[i].op] = i > 0;
        if (copies)
            f->dead[u[i].cast] = true;
    }
    op->kind = op->kind == TRI_OP_ADAMW ? TRI_OP_MULTI_ADAMW : TRI_OP_MULTI_SGD;
    op->attrs.optimizer.tensors = n;
    op->attrs.optimizer.copies = copies;
    op->nin = 1 + kinds * n;
    op->nout = TRI_MULTI_OUTPUTS;
    op->in = in;
    op->out = out;
    for (int o = 0; o < op->nout; o++)
        if (out[o] != TRI_NONE)
            g->value[out[o]].producer = u[0].op;
    return TRI_OK;
}

/* All that an update reads is there before the first of them. */
static tri_status join_updates(struct joining *f)
{
    struct tri_graph *g = f->g;

    for (int32_t i = 0; i < g->nop; i++) {
        struct update u[TRI_MULTI];
        int n = 0;

        if (f->dead[i] || !is_optimizer(&g->op[i]))
            continue;
        u[n++] = update_at(f, i);
        for (int32_t k = i + 1; k < g->nop && n < TRI_MULTI; k++)
            if (!f->dead[k] && is_optimizer(&g->op[k]) && alike(f, u[0], update_at(f, k)))
                u[n++] = update_at(f, k);
        TRI_TRY(join(f, u, n));
    }
    return TRI_OK;
}

/* The sums of op[at .. at + n) become views of one op's. */
static tri_status join_sums(struct tri_graph *g, int32_t at, int n)
{
    tri_vid in[TRI_MULTI_SUMS], all;

    for (int i = 0; i < n; i++)
        in[i] = g->op[at + i].in[0];
    if (tri_graph_op_before(g, at, TRI_OP_MULTI_SUMSQ, g->op[at].name, in, n, NULL, UINT32_MAX) ==
        TRI_NONE)
        return tri_graph_status(g);
    all = g->op[at].out[0];
    for (int i = 0; i < n; i++) {
        struct tri_op *op = &g->op[at + 1 + i];

        op->kind = TRI_OP_VIEW;
        op->in[0] = all;
        op->attrs = (struct tri_attrs){.view = {.offset = i, .shape = tri_shape_1(1)}};
    }
    return TRI_OK;
}

static tri_status join_all_sums(struct tri_graph *g)
{
    for (int32_t i = 0; i < g->nop; i++) {
        int n = 0;

        while (i + n < g->nop && n < TRI_MULTI_SUMS && g->op[i + n].kind == TRI_OP_SUMSQ &&
               g->op[i + n].phase == TRI_PHASE_UPDATE)
            n++;
        if (n > 1)
            TRI_TRY(join_sums(g, i, n));
    }
    return TRI_OK;
}

tri_status tri_pass_fuse_updates(struct tri_graph *g)
{
    struct joining f = {.g = g};
    tri_status st = TRI_OK;

    TRI_TRY(join_all_sums(g));
    f.cast = tri_calloc((size_t)g->nvalue + 1, sizeof(*f.cast), "casts of values");
    f.dead = tri_calloc((size_t)g->nop + 1, sizeof(*f.dead), "dead ops");
    if (f.cast == NULL || f.dead == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "fuse: cannot look at %d ops", g->nop);
        goto free_tables;
    }
    for (tri_vid v = 0; v < g->nvalue; v++)
        f.cast[v] = TRI_NONE;
    for (int32_t i = 0; i < g->nop; i++)
        if (g->op[i].kind == TRI_OP_CAST && g->op[i].phase == TRI_PHASE_UPDATE &&
            tri_op_has(&g->op[i], 1))
            f.cast[g->op[i].in[0]] = i;
    TRI_TRY_GOTO(st, join_updates(&f), free_tables);
    tri_graph_drop(g, f.dead);

free_tables:
    tri_free(f.cast);
    tri_free(f.dead);
    return st;
}
