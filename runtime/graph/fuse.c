/* Fusion of neighbours into one op. Every pattern keeps the values that somebody still reads, so
 * that the pass may run before and after autodiff; a fused op stands where the last of its parts
 * stood, or where its outputs are first needed. */
#include "runtime/graph/passes.h"

#include "runtime/core/memory.h"

struct fusion {
    struct tri_graph *g;
    int32_t *uses;   /* [nvalue] ops that read the value, and one more for each outside reader */
    int32_t *first;  /* [nvalue] first op that reads it, nop if none */
    int32_t *summer; /* [nvalue] fuse_bias_gradients: MATMUL that sums over the value's rows */
    bool *dead;      /* [nop] */
};

static void use(struct fusion *f, tri_vid v)
{
    if (v != TRI_NONE)
        f->uses[v]++;
}

static void count_uses(struct fusion *f)
{
    const struct tri_graph *g = f->g;

    for (tri_vid v = 0; v < g->nvalue; v++) {
        f->uses[v] = g->value[v].role != TRI_ROLE_TEMP;
        f->first[v] = g->nop;
        f->summer[v] = TRI_NONE;
    }
    for (int s = 0; s < g->nsum; s++)
        use(f, g->sum[s].value);
    use(f, g->loss_stats);
    use(f, g->prediction);
    for (int i = g->nop - 1; i >= 0; i--) {
        for (int k = 0; k < g->op[i].nin; k++) {
            if (g->op[i].in[k] == TRI_NONE)
                continue;
            use(f, g->op[i].in[k]);
            f->first[g->op[i].in[k]] = i;
        }
    }
}

/* The op that writes v if it is alive and of that kind, else TRI_NONE. */
static int32_t maker(const struct fusion *f, tri_vid v, enum tri_op_kind kind)
{
    int32_t p = v == TRI_NONE ? TRI_NONE : f->g->value[v].producer;

    return p != TRI_NONE && !f->dead[p] && f->g->op[p].kind == kind ? p : TRI_NONE;
}

/* Whether v is written before op i. */
static bool ready_before(const struct fusion *f, tri_vid v, int32_t i)
{
    return v == TRI_NONE || f->g->value[v].producer < i;
}

/* Puts in[0..n) into place of op i's inputs. */
static tri_status set_inputs(struct fusion *f, int32_t i, const tri_vid *in, int n)
{
    struct tri_op *op = &f->g->op[i];
    tri_vid *copy = tri_pool_alloc(&f->g->pool, (size_t)n * sizeof(*copy));

    if (copy == NULL)
        return tri_fail(TRI_ERR_NOMEM, "fuse: cannot store op \"%s\"", op->name);
    for (int k = 0; k < n; k++)
        copy[k] = in[k];
    op->in = copy;
    op->nin = n;
    return TRI_OK;
}

/* Op i now writes v as its output o. */
static void take_output(struct fusion *f, int32_t i, int o, tri_vid v)
{
    f->g->op[i].out[o] = v;
    if (v != TRI_NONE)
        f->g->value[v].producer = i;
}

/* s = a + b; y = layernorm(s)  ->  y, s = layernorm(a, residual b). The norm must be the first
 * reader of s. */
static tri_status fuse_layernorm(struct fusion *f, int32_t i)
{
    const struct tri_op ln = f->g->op[i];
    tri_vid s = ln.in[0];
    int32_t add = maker(f, s, TRI_OP_ADD);
    const struct tri_op *sum;

    if (add == TRI_NONE || (ln.nin > 3 && ln.in[3] != TRI_NONE) || f->first[s] != i)
        return TRI_OK;
    sum = &f->g->op[add];
    TRI_TRY(set_inputs(f, i, (tri_vid[]){sum->in[0], ln.in[1], ln.in[2], sum->in[1]}, 4));
    take_output(f, i, 3, s);
    f->uses[s]--;
    f->dead[add] = true;
    return TRI_OK;
}

/* g = p + layernorm_grad(..)[0]  ->  g = layernorm_grad(.., dsum p). p must exist before the
 * gradient op. */
static tri_status fuse_layernorm_grad(struct fusion *f, int32_t i)
{
    const struct tri_op add = f->g->op[i];

    for (int side = 0; side < 2; side++) {
        tri_vid dx = add.in[side], other = add.in[1 - side];
        int32_t back = maker(f, dx, TRI_OP_LAYERNORM_GRAD);
        struct tri_op op;

        if (back == TRI_NONE || f->uses[dx] != 1 || !ready_before(f, other, back))
            continue;
        op = f->g->op[back];
        if (dx != op.out[0] || (op.nin > 5 && op.in[5] != TRI_NONE))
            continue;
        TRI_TRY(set_inputs(
            f, back, (tri_vid[]){op.in[0], op.in[1], op.in[2], op.in[3], op.in[4], other}, 6));
        take_output(f, back, 0, add.out[0]);
        f->g->value[dx].producer = TRI_NONE;
        f->dead[i] = true;
        return TRI_OK;
    }
    return TRI_OK;
}

/* stats, lse = softmax_xent(x, t); d = softmax_xent_grad(x, t, lse)  ->  stats, d =
 * softmax_xent_fused(x, t) */
static tri_status fuse_softmax_xent(struct fusion *f, int32_t i)
{
    const struct tri_op grad = f->g->op[i];
    tri_vid lse = grad.in[2];
    int32_t loss = maker(f, lse, TRI_OP_SOFTMAX_XENT);
    struct tri_op *op;

    if (loss == TRI_NONE || f->uses[lse] != 1)
        return TRI_OK;
    op = &f->g->op[loss];
    if (op->in[0] != grad.in[0] || op->in[1] != grad.in[1])
        return TRI_OK;
    if (grad.nin > 3 && grad.in[3] != TRI_NONE) {
        TRI_TRY(set_inputs(f, loss, (tri_vid[]){grad.in[0], grad.in[1], grad.in[3]}, 3));
        op->attrs = grad.attrs;
    }
    op->kind = TRI_OP_SOFTMAX_XENT_FUSED;
    f->g->value[lse].producer = TRI_NONE;
    take_output(f, loss, 1, grad.out[0]);
    f->dead[i] = true;
    return TRI_OK;
}

/* Whether the side outputs of a batch norm are first read behind op `at`, where it
 * would move to. */
static bool side_outputs_wait(const struct fusion *f, const struct tri_op *norm, int32_t at)
{
    for (int o = 1; o < norm->nout; o++) {
        if (norm->out[o] != TRI_NONE && f->first[norm->out[o]] < at)
            return false;
    }
    return true;
}

/* The batch norm (of either kind) without relu and residual whose only reader reads v; TRI_NONE if
 * there is none. */
static int32_t plain_batchnorm(const struct fusion *f, tri_vid v, int32_t at)
{
    int32_t p = maker(f, v, TRI_OP_BATCHNORM);
    const struct tri_op *op;
    int residual = 4;

    if (p == TRI_NONE) {
        p = maker(f, v, TRI_OP_BATCHNORM_INFER);
        residual = 5;
    }
    if (p == TRI_NONE || f->uses[v] != 1)
        return TRI_NONE;
    op = &f->g->op[p];
    if (v != op->out[0] || op->attrs.norm.relu ||
        (op->nin > residual && op->in[residual] != TRI_NONE) || !side_outputs_wait(f, op, at))
        return TRI_NONE;
    return p;
}

/* Replaces op `at` by batch norm `norm` with relu, that writes y and adds `residual` unless
 * TRI_NONE. */
static tri_status move_batchnorm(struct fusion *f, int32_t norm, int32_t at, tri_vid residual)
{
    struct tri_graph *g = f->g;
    tri_vid y = g->op[at].out[0];
    tri_vid in[6] = {TRI_NONE, TRI_NONE, TRI_NONE, TRI_NONE, TRI_NONE, TRI_NONE};
    int n = g->op[norm].kind == TRI_OP_BATCHNORM ? 5 : 6;

    for (int k = 0; k < n - 1; k++)
        in[k] = g->op[norm].in[k];
    in[n - 1] = residual;
    g->value[g->op[norm].out[0]].producer = TRI_NONE;
    g->op[at] = g->op[norm];
    f->dead[norm] = true;
    for (int o = 1; o < g->op[at].nout; o++)
        take_output(f, at, o, g->op[at].out[o]);
    take_output(f, at, 0, y);
    g->op[at].attrs.norm.relu = true;
    return set_inputs(f, at, in, n);
}

/* y = relu(batchnorm(x) + r) or relu(batchnorm(x))  ->  y = batchnorm(x, residual r) with relu,
 * where the relu stood */
static tri_status fuse_batchnorm(struct fusion *f, int32_t i)
{
    tri_vid s = f->g->op[i].in[0];
    int32_t norm = plain_batchnorm(f, s, i);
    int32_t add = maker(f, s, TRI_OP_ADD);

    if (norm != TRI_NONE)
        return move_batchnorm(f, norm, i, TRI_NONE);
    if (add == TRI_NONE || f->uses[s] != 1)
        return TRI_OK;
    for (int side = 0; side < 2; side++) {
        norm = plain_batchnorm(f, f->g->op[add].in[side], i);
        if (norm == TRI_NONE)
            continue;
        f->dead[add] = true;
        f->g->value[s].producer = TRI_NONE;
        return move_batchnorm(f, norm, i, f->g->op[add].in[1 - side]);
    }
    return TRI_OK;
}

static bool is_given(const struct tri_op *op, int i)
{
    return i < op->nin && op->in[i] != TRI_NONE;
}

/* x = matmul(a, b, bias); y = gelu(x)  ->  y, x = matmul_gelu(a, b, bias), where the product
 * stood; x only if somebody else reads it */
static tri_status fuse_gelu(struct fusion *f, int32_t i)
{
    struct tri_graph *g = f->g;
    tri_vid x = g->op[i].in[0], y = g->op[i].out[0];
    int32_t p = maker(f, x, TRI_OP_MATMUL);
    tri_vid *out;

    if (p == TRI_NONE || is_given(&g->op[p], 3) || g->op[p].attrs.matmul.wide)
        return TRI_OK;
    out = tri_pool_alloc(&g->pool, 2 * sizeof(*out));
    if (out == NULL)
        return tri_fail(TRI_ERR_NOMEM, "fuse: cannot store op \"%s\"", g->op[p].name);
    TRI_TRY(set_inputs(f, p,
                       (tri_vid[]){g->op[p].in[0], g->op[p].in[1],
                                   is_given(&g->op[p], 2) ? g->op[p].in[2] : TRI_NONE},
                       3));
    out[1] = f->uses[x] > 1 ? x : TRI_NONE;
    g->op[p].kind = TRI_OP_MATMUL_GELU;
    g->op[p].nout = 2;
    g->op[p].out = out;
    take_output(f, p, 0, y);
    if (out[1] == TRI_NONE)
        g->value[x].producer = TRI_NONE;
    f->dead[i] = true;
    return TRI_OK;
}

/* dy = matmul(a, b); dx = gelu_grad(dy, x)  ->  dx = matmul_gelu_grad(a, b, x), where the product
 * stood */
static tri_status fuse_gelu_grad(struct fusion *f, int32_t i)
{
    struct tri_graph *g = f->g;
    tri_vid dy = g->op[i].in[0], x = g->op[i].in[1];
    int32_t p = maker(f, dy, TRI_OP_MATMUL);

    if (p == TRI_NONE || f->uses[dy] != 1 || is_given(&g->op[p], 2) || is_given(&g->op[p], 3) ||
        g->op[p].attrs.matmul.wide || !ready_before(f, x, p))
        return TRI_OK;
    TRI_TRY(set_inputs(f, p, (tri_vid[]){g->op[p].in[0], g->op[p].in[1], x}, 3));
    g->op[p].kind = TRI_OP_MATMUL_GELU_GRAD;
    take_output(f, p, 0, g->op[i].out[0]);
    g->value[dy].producer = TRI_NONE;
    f->dead[i] = true;
    return TRI_OK;
}

static tri_status fuse_products(struct fusion *f)
{
    for (int32_t i = 0; i < f->g->nop; i++) {
        if (f->g->op[i].kind == TRI_OP_GELU)
            TRI_TRY(fuse_gelu(f, i));
        else if (f->g->op[i].kind == TRI_OP_GELU_GRAD)
            TRI_TRY(fuse_gelu_grad(f, i));
    }
    return TRI_OK;
}

/* y = matmul(a, dy) or matmul(dy^T, a), plus acc; db = column_sum(dy), plus acc  ->  y, db =
 * matmul_bgrad(.., acc, acc), where the product stood. The library's bias gradient has the type of
 * y, which must be f32. */
static tri_status fuse_bias_gradient(struct fusion *f, int32_t i)
{
    struct tri_graph *g = f->g;
    tri_vid dy = g->op[i].in[0], db = g->op[i].out[0];
    tri_vid acc = is_given(&g->op[i], 1) ? g->op[i].in[1] : TRI_NONE;
    int32_t p = f->summer[dy];
    struct tri_op *op;
    tri_vid *out;

    if (p == TRI_NONE || f->first[db] < p || !ready_before(f, acc, p) ||
        (acc != TRI_NONE && f->uses[acc] != 1))
        return TRI_OK;
    op = &g->op[p];
    if (op->kind != TRI_OP_MATMUL || g->value[op->out[0]].dtype != TRI_F32)
        return TRI_OK;
    out = tri_pool_alloc(&g->pool, 2 * sizeof(*out));
    if (out == NULL)
        return tri_fail(TRI_ERR_NOMEM, "fuse: cannot store op \"%s\"", op->name);
    out[0] = op->out[0];
    op->attrs.matmul.bgrad_a = op->in[0] == dy && op->attrs.matmul.ta;
    TRI_TRY(set_inputs(
        f, p, (tri_vid[]){op->in[0], op->in[1], is_given(op, 3) ? op->in[3] : TRI_NONE, acc}, 4));
    op->kind = TRI_OP_MATMUL_BGRAD;
    op->nout = 2;
    op->out = out;
    take_output(f, p, 1, db);
    f->dead[i] = true;
    return TRI_OK;
}

static tri_status fuse_bias_gradients(struct fusion *f)
{
    const struct tri_graph *g = f->g;

    for (int32_t i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        if (op->kind != TRI_OP_MATMUL || is_given(op, 2))
            continue;
        if (!op->attrs.matmul.tb)
            f->summer[op->in[1]] = i;
        if (op->attrs.matmul.ta)
            f->summer[op->in[0]] = i;
    }
    for (int32_t i = 0; i < g->nop; i++)
        if (g->op[i].kind == TRI_OP_COLUMN_SUM)
            TRI_TRY(fuse_bias_gradient(f, i));
    return TRI_OK;
}

static tri_status fuse_all(struct fusion *f)
{
    for (int32_t i = 0; i < f->g->nop; i++) {
        if (f->dead[i])
            continue;
        switch (f->g->op[i].kind) {
        case TRI_OP_LAYERNORM:
            TRI_TRY(fuse_layernorm(f, i));
            break;
        case TRI_OP_ADD:
            TRI_TRY(fuse_layernorm_grad(f, i));
            break;
        case TRI_OP_SOFTMAX_XENT_GRAD:
            TRI_TRY(fuse_softmax_xent(f, i));
            break;
        case TRI_OP_RELU:
            TRI_TRY(fuse_batchnorm(f, i));
            break;
        default:
            break;
        }
    }
    return TRI_OK;
}

static tri_status run_fusion(struct tri_graph *g, tri_status (*patterns)(struct fusion *f))
{
    struct fusion f = {.g = g};
    size_t nvalue = (size_t)g->nvalue + 1;
    tri_status st = TRI_OK;

    TRI_TRY(tri_graph_status(g));
    f.uses = tri_calloc(nvalue, sizeof(*f.uses), "uses");
    f.first = tri_calloc(nvalue, sizeof(*f.first), "first uses");
    f.summer = tri_calloc(nvalue, sizeof(*f.summer), "sums over rows");
    f.dead = tri_calloc((size_t)g->nop + 1, sizeof(*f.dead), "dead ops");
    if (f.uses == NULL || f.first == NULL || f.summer == NULL || f.dead == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "fuse: cannot look at %d ops", g->nop);
    } else {
        count_uses(&f);
        st = patterns(&f);
        tri_graph_drop(g, f.dead);
    }
    tri_free(f.uses);
    tri_free(f.first);
    tri_free(f.summer);
    tri_free(f.dead);
    return st;
}

tri_status tri_pass_fuse(struct tri_graph *g)
{
    return run_fusion(g, fuse_all);
}

tri_status tri_pass_fuse_products(struct tri_graph *g)
{
    return run_fusion(g, fuse_products);
}

tri_status tri_pass_fuse_bias_gradients(struct tri_graph *g)
{
    return run_fusion(g, fuse_bias_gradients);
}
