/* Low rank (Vogels, Karimireddy, Jaggi: "PowerSGD", NeurIPS 2019): a round of subspace iteration on
 * each matrix, whose two factors are summed over the contributors instead of the matrix.
 *
 * Between nodes of several ranks the rows of a matrix that reach into a rank's slice are a matrix
 * of their own, 0 outside of the slice, with factors of its own. */
#include "optim/compress_internal.h"

#include "runtime/core/memory.h"
#include "runtime/graph/ops_check.h"

/* Packs part[0..n), sums them over the contributors, and replaces each by its view. */
static void sum_parts(struct tri_graph *g, tri_vid *part, int n, const char *name,
                      const struct tri_compress_spec *spec)
{
    struct tri_attrs comm = {.comm = {.axis = TRI_AXIS_DATA, .level = spec->level}};
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

/* A matrix on its way: each rank's own x = gradient + residual, then factors of the sum of all. */
struct matrix {
    const char *parameter;
    tri_vid value, residual, right; /* what LOWRANK_LEFT reads */
    tri_vid x, basis;
    struct tri_shape rows; /* of x where value is only its elements from `before` on; else zeroed */
    int64_t before, place; /* place: of value in the flat bucket */
};

/* The factors of the sum of w[0..n) over the contributors: w[i].basis, and right[i]. */
static tri_status append_factors(struct tri_graph *g, struct matrix *w, tri_vid *right, int n,
                                 const char *name, const struct tri_compress_spec *spec)
{
    for (int i = 0; i < n; i++) {
        struct tri_attrs a = {.compress = {.shape = w[i].rows, .offset = w[i].before}};
        int32_t op =
            tri_graph_op(g, TRI_OP_LOWRANK_LEFT, w[i].parameter,
                         (tri_vid[]){w[i].value, w[i].residual, w[i].right}, 3, &a, UINT32_MAX);

        if (op == TRI_NONE)
            return tri_graph_status(g);
        w[i].x = g->op[op].out[0];
        right[i] = g->op[op].out[1];
    }
    sum_parts(g, right, n, tri_pool_printf(&g->pool, "%s.left", name), spec);
    for (int i = 0; i < n; i++) {
        int32_t op = tri_graph_op(g, TRI_OP_LOWRANK_RIGHT, w[i].parameter,
                                  (tri_vid[]){w[i].x, right[i]}, 2, NULL, UINT32_MAX);

        if (op == TRI_NONE)
            return tri_graph_status(g);
        w[i].basis = g->op[op].out[0];
        right[i] = g->op[op].out[1];
    }
    sum_parts(g, right, n, tri_pool_printf(&g->pool, "%s.right", name), spec);
    return tri_graph_status(g);
}

/* Room for n matrices and their right factors; false: the graph has failed. */
static bool list_matrices(struct tri_graph *g, int n, struct matrix **w, tri_vid **right)
{
    *w = tri_pool_alloc(&g->pool, (size_t)n * sizeof(**w));
    *right = tri_pool_alloc(&g->pool, (size_t)n * sizeof(**right));
    if (*w != NULL && *right != NULL)
        return true;
    tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "exchange: cannot list %d factors", n));
    return false;
}

void tri_low_rank_bucket(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                         const struct tri_compress_spec *spec)
{
    struct matrix *w;
    tri_vid *right;

    if (!list_matrices(g, n, &w, &right))
        return;
    for (int i = 0; i < n; i++) {
        const struct tri_sum *s = &g->sum[sum[i]];
        struct tri_shape shape = {.ndim = 2};
        struct tri_piece all = tri_piece_whole(&g->value[s->value].shape);

        tri_low_rank_matrix(&g->value[s->value], &shape.dim[1], &shape.dim[0]);
        shape.dim[1] = spec->low_rank;
        w[i] = (struct matrix){.parameter = g->value[s->target].name, .value = s->value};
        w[i].residual =
            tri_compress_own_state(g, w[i].parameter, "residual", &all, TRI_INIT_ZERO, spec);
        w[i].right = tri_compress_state(g, w[i].parameter, "right", shape, TRI_INIT_NORMAL);
    }
    if (append_factors(g, w, right, n, name, spec) != TRI_OK)
        return;
    for (int i = 0; i < n; i++) {
        struct tri_sum *s = &g->sum[sum[i]];
        struct tri_attrs a = {.compress = {.shape = g->value[s->value].shape}};

        s->value = tri_graph_op1(g, TRI_OP_LOWRANK_PRODUCT, w[i].parameter,
                                 (tri_vid[]){w[i].basis, right[i]}, 2, &a);
    }
}

/* The states of a piece of a gradient with m columns. Each slice has factors of its own, so that
 * their name says how many there are: with other slices they start afresh. All nodes have the same,
 * and only their directions count, so that a sum that is spread over another number of nodes does
 * as well. */
static void make_piece_states(struct tri_graph *g, struct matrix *w, const struct tri_piece *p,
                              int64_t m, const struct tri_compress_spec *spec)
{
    int64_t r = spec->low_rank;
    struct tri_piece right = {.whole = tri_shape_3(spec->slices, m, r), .shape = tri_shape_2(m, r)};
    const char *name = tri_pool_printf(&g->pool, "right.%d", spec->slices);

    if (spec->slice < spec->slices) {
        right.first = spec->slice * m * r;
        right.count = m * r;
    }
    w->residual = tri_compress_own_state(g, w->parameter, "residual", p, TRI_INIT_ZERO, spec);
    w->right = tri_compress_own_state(g, w->parameter, name, &right, TRI_INIT_NORMAL, spec);
}

/* The matrix of piece p, which lies at `place` of the flat x. */
static void cut_rows(struct tri_graph *g, struct matrix *w, const struct tri_piece *p, int64_t m,
                     tri_vid x, int64_t place)
{
    int64_t row = p->first / m, end = (p->first + p->count + m - 1) / m;
    struct tri_attrs view = {.view = {.offset = place, .shape = p->shape}};

    w->place = place;
    w->before = p->first - row * m;
    w->rows = tri_shape_2(end - row, m);
    w->value = tri_graph_op1(g, TRI_OP_VIEW, w->parameter, &x, 1, &view);
}

tri_vid tri_low_rank_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                           tri_vid x, int64_t first, int64_t count,
                           const struct tri_compress_spec *spec)
{
    struct matrix *w;
    tri_vid *right;
    int64_t at = 0;
    int used = 0;

    if (!list_matrices(g, n, &w, &right))
        return TRI_NONE;
    for (int i = 0; i < n; i++) {
        const struct tri_sum *s = &g->sum[sum[i]];
        struct tri_shape whole = g->value[s->value].shape;
        struct tri_piece piece;
        int64_t rows, m;

        tri_low_rank_matrix(&g->value[s->value], &rows, &m);
        at = tri_pack_next(at, TRI_F32);
        piece = tri_piece_cut(&whole, at, first, first + count);
        w[used] = (struct matrix){.parameter = g->value[s->target].name};
        make_piece_states(g, &w[used], &piece, m, spec);
        if (piece.count > 0)
            cut_rows(g, &w[used++], &piece, m, x, at + piece.first);
        at += rows * m;
    }
    if (used == 0 || append_factors(g, w, right, used, name, spec) != TRI_OK)
        return x;
    for (int i = 0; i < used; i++) {
        struct tri_attrs a = {.compress = {.shape = g->value[w[i].value].shape,
                                           .offset = w[i].before,
                                           .first = w[i].place}};

        x = tri_graph_op1(g, TRI_OP_LOWRANK_PRODUCT, w[i].parameter,
                          (tri_vid[]){w[i].basis, right[i], x}, 3, &a);
    }
    return x;
}

static void commit(struct tri_graph *g, const char *name, tri_vid state, tri_vid next,
                   tri_vid scalars, int64_t before)
{
    struct tri_attrs a = {.view = {.offset = before}};

    tri_graph_op1(g, TRI_OP_COMMIT, name, (tri_vid[]){state, next, scalars}, 3, &a);
}

static const struct tri_op *maker(const struct tri_graph *g, tri_vid v)
{
    return &g->op[g->value[v].producer];
}

void tri_low_rank_commit(struct tri_graph *g, const struct tri_op *op, tri_vid scalars)
{
    const struct tri_op
        *left; /* it made x for LOWRANK_RIGHT, which made the basis of the product */

    if (op->kind == TRI_OP_LOWRANK_RIGHT) {
        left = maker(g, op->in[0]);
        commit(g, op->name, left->in[1], op->out[2], scalars, left->attrs.compress.offset);
    }
    if (op->kind == TRI_OP_LOWRANK_PRODUCT) {
        left = maker(g, maker(g, op->in[0])->in[0]);
        commit(g, op->name, left->in[2], op->in[1], scalars, 0);
    }
}
