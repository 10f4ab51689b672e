#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tri_shape shape1(int64_t a)
{
    return tri_shape_make(1, (int64_t[]){a});
}

static struct tri_shape shape2(int64_t a, int64_t b)
{
    return tri_shape_make(2, (int64_t[]){a, b});
}

static tri_vid product(struct net *n, const char *name, const tri_vid in[4], bool ta, bool tb)
{
    struct tri_attrs attrs = {.matmul = {.ta = ta, .tb = tb}};

    return tri_graph_op1(n->g, TRI_OP_MATMUL, name, in, 4, &attrs);
}

static tri_vid op(struct net *n, enum tri_op_kind kind, const char *name, const tri_vid *in,
                  int nin)
{
    return tri_graph_op1(n->g, kind, name, in, nin, NULL);
}

/* Forward and backward of grain k; totals go on in n->d*. */
static void add_grain(struct net *n, int k)
{
    struct tri_graph *g = n->g;
    char name[32];
    tri_vid h, r, l, dl, dr, dh;
    int32_t loss;

    g->grain = k;
    snprintf(name, sizeof(name), "x.%d", k);
    n->x[k] = tri_graph_input(g, name, TRI_F32, shape2(NET_B, NET_I));
    snprintf(name, sizeof(name), "t.%d", k);
    n->t[k] = tri_graph_input(g, name, TRI_I32, shape1(NET_B));
    g->phase = TRI_PHASE_FORWARD;
    h = product(n, "fc1", (tri_vid[]){n->x[k], n->w1, n->b1, TRI_NONE}, false, false);
    r = op(n, TRI_OP_RELU, "relu", &h, 1);
    l = product(n, "fc2", (tri_vid[]){r, n->w2, TRI_NONE, TRI_NONE}, false, false);
    loss = tri_graph_op(g, TRI_OP_SOFTMAX_XENT, "loss", (tri_vid[]){l, n->t[k]}, 2, NULL, 3);
    n->stats = g->op[loss].out[0];
    g->phase = TRI_PHASE_BACKWARD;
    dl = op(n, TRI_OP_SOFTMAX_XENT_GRAD, "dloss", (tri_vid[]){l, n->t[k], g->op[loss].out[1]}, 3);
    n->dw2 = product(n, "dw2", (tri_vid[]){r, dl, TRI_NONE, n->dw2}, true, false);
    dr = product(n, "dr", (tri_vid[]){dl, n->w2, TRI_NONE, TRI_NONE}, false, true);
    dh = op(n, TRI_OP_RELU_GRAD, "drelu", (tri_vid[]){dr, r}, 2);
    n->db1 = op(n, TRI_OP_COLUMN_SUM, "db1", (tri_vid[]){dh, n->db1}, 2);
    n->dw1 = product(n, "dw1", (tri_vid[]){n->x[k], dh, TRI_NONE, n->dw1}, true, false);
    if (k == 0) {
        n->relu_in = h;
        n->relu_out = r;
    }
}

/* The sum of a flat bucket over all ranks: one op called `name`, or three with endings. */
static tri_vid add_sum(struct net *n, const char *name, tri_vid flat)
{
    struct tri_attrs intra = {.comm = {.level = TRI_LEVEL_INTRA, .slices = n->slices}};
    struct tri_attrs inter = {.comm = {.level = TRI_LEVEL_INTER}};
    char text[64];
    tri_vid x;

    if (n->slices == 0)
        return op(n, TRI_OP_ALLREDUCE, name, &flat, 1);
    snprintf(text, sizeof(text), "%s.scatter", name);
    x = tri_graph_op1(n->g, TRI_OP_REDUCE_SCATTER, text, &flat, 1, &intra);
    tri_comm_slice(tri_shape_count(&n->g->value[flat].shape), n->slices, n->local_rank,
                   &inter.comm.first, &inter.comm.count);
    snprintf(text, sizeof(text), "%s.inter", name);
    if (inter.comm.count > 0)
        x = tri_graph_op1(n->g, TRI_OP_ALLREDUCE, text, &x, 1, &inter);
    snprintf(text, sizeof(text), "%s.gather", name);
    return tri_graph_op1(n->g, TRI_OP_ALLGATHER, text, &x, 1, &intra);
}

/* Packs and sums parts; out[i] is the view of part i. Returns the flat value. */
static tri_vid add_exchange(struct net *n, const char *name, const tri_vid *parts, int nparts,
                            tri_vid *out)
{
    struct tri_graph *g = n->g;
    tri_vid flat = op(n, TRI_OP_PACK, name, parts, nparts);
    tri_vid sum = add_sum(n, name, flat);
    int64_t at = 0;

    for (int i = 0; i < nparts; i++) {
        int64_t align = TRI_PACK_BYTES / (int64_t)tri_dtype_bytes(g->value[parts[i]].dtype);
        struct tri_attrs attrs = {.view = {.shape = g->value[parts[i]].shape}};

        attrs.view.offset = at = (at + align - 1) / align * align;
        out[i] = tri_graph_op1(g, TRI_OP_VIEW, "part", &sum, 1, &attrs);
        at += tri_shape_count(&g->value[parts[i]].shape);
    }
    return flat;
}

static void add_update(struct net *n, const char *name, tri_vid w, tri_vid grad)
{
    struct tri_attrs attrs = {.optimizer = {.lr = 0.1}};

    tri_graph_op(n->g, TRI_OP_SGD, name, (tri_vid[]){w, grad, TRI_NONE, n->scalars}, 4, &attrs, 1);
}

struct net net_create(int ngrains)
{
    return net_create_levels(ngrains, 0, 0);
}

struct net net_create_levels(int ngrains, int slices, int local_rank)
{
    struct net n = {.ngrains = ngrains,
                    .slices = slices,
                    .local_rank = local_rank,
                    .db1 = TRI_NONE,
                    .dw1 = TRI_NONE,
                    .dw2 = TRI_NONE};
    struct tri_init init = {.kind = TRI_INIT_NORMAL, .a = 0.1f};
    tri_vid g2, g1[2], stats;

    cr_assert_eq(tri_graph_create(&n.g), TRI_OK);
    n.w1 = tri_graph_param(n.g, "w1", shape2(NET_I, NET_H), init);
    n.b1 = tri_graph_param(n.g, "b1", shape1(NET_H), init);
    n.w2 = tri_graph_param(n.g, "w2", shape2(NET_H, NET_V), init);
    n.scalars = tri_graph_input(n.g, "scalars", TRI_F64, shape1(TRI_SCALAR_COUNT));
    for (int k = 0; k < ngrains; k++)
        add_grain(&n, k);
    n.g->grain = TRI_NONE;
    n.g->phase = TRI_PHASE_EXCHANGE; /* in the order of readiness, but behind all of backward */
    n.flat2 = add_exchange(&n, "bucket2", &n.dw2, 1, &g2);
    n.flat1 = add_exchange(&n, "bucket1", (tri_vid[]){n.db1, n.dw1}, 2, g1);
    add_exchange(&n, "stats", &n.stats, 1, &stats);
    n.g->value[stats].role = TRI_ROLE_TEMP;
    n.g->phase = TRI_PHASE_UPDATE;
    add_update(&n, "sgd.w2", n.w2, g2);
    add_update(&n, "sgd.b1", n.b1, g1[0]);
    add_update(&n, "sgd.w1", n.w1, g1[1]);
    n.stats = op(&n, TRI_OP_ADD, "stats.out", (tri_vid[]){stats, stats}, 2);
    n.g->value[n.stats].role = TRI_ROLE_OUTPUT;
    cr_assert_eq(tri_graph_status(n.g), TRI_OK, "%s", tri_error_text());
    return n;
}

struct tri_program *net_program(struct net *net, int ngrains, bool overlap,
                                struct tri_layout *layout)
{
    return net_program_levels(net, ngrains, 0, 0, overlap, layout);
}

struct tri_program *net_program_levels(struct net *net, int ngrains, int slices, int local_rank,
                                       bool overlap, struct tri_layout *layout)
{
    struct tri_program *p = NULL;

    *net = net_create_levels(ngrains, slices, local_rank);
    cr_assert_eq(tri_plan_schedule(net->g, tri_kernels_ref, NULL, 1, overlap, &p), TRI_OK, "%s",
                 tri_error_text());
    if (layout != NULL)
        cr_assert_eq(tri_plan_memory(p, layout), TRI_OK, "%s", tri_error_text());
    return p;
}

int32_t net_instr(const struct tri_program *p, const char *name)
{
    for (int32_t i = 0; i < p->ninstr; i++)
        if (strcmp(p->graph->op[p->instr[i].op].name, name) == 0)
            return i;
    cr_assert_fail("no instruction \"%s\"", name);
    return TRI_NONE;
}
