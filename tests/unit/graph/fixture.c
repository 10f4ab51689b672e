#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tri_graph *new_graph(void)
{
    struct tri_graph *g = NULL;

    cr_assert_eq(tri_graph_create(&g), TRI_OK);
    return g;
}

struct tri_shape shape_of(const char *text)
{
    struct tri_shape s = {0};

    while (*text != '\0') {
        char *end;

        s.dim[s.ndim++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return s;
}

tri_vid input(struct tri_graph *g, const char *name, const char *shape)
{
    return tri_graph_input(g, name, TRI_F32, shape_of(shape));
}

tri_vid param(struct tri_graph *g, const char *name, const char *shape)
{
    return tri_graph_param(g, name, shape_of(shape), (struct tri_init){.kind = TRI_INIT_ONE});
}

tri_vid unary(struct tri_graph *g, enum tri_op_kind kind, const char *name, tri_vid x)
{
    return tri_graph_op1(g, kind, name, &x, 1, NULL);
}

tri_vid binary(struct tri_graph *g, enum tri_op_kind kind, const char *name, tri_vid a, tri_vid b)
{
    return tri_graph_op1(g, kind, name, (tri_vid[]){a, b}, 2, NULL);
}

static void list_loss(struct tri_graph *g, tri_vid stats)
{
    g->loss_stats = stats;
    tri_graph_add_sum(g, TRI_SUM_STATS, stats, TRI_NONE, TRI_NONE);
}

void add_mse(struct tri_graph *g, tri_vid y)
{
    tri_vid target = tri_graph_input(g, "target", TRI_F32, g->value[y].shape);
    tri_vid nreal = tri_graph_input(g, "nreal", TRI_I32, shape_of("1"));

    list_loss(g, tri_graph_op1(g, TRI_OP_MSE, "loss", (tri_vid[]){y, target, nreal}, 3, NULL));
}

void add_xent(struct tri_graph *g, tri_vid logits)
{
    int64_t rows = tri_shape_rows(&g->value[logits].shape);
    tri_vid targets = tri_graph_input(g, "targets", TRI_I32, tri_shape_make(1, &rows));

    list_loss(g, binary(g, TRI_OP_SOFTMAX_XENT, "loss", logits, targets));
}

static tri_vid linear(struct tri_graph *g, const char *name, tri_vid x, tri_vid w, tri_vid b)
{
    return tri_graph_op1(g, TRI_OP_MATMUL, name, (tri_vid[]){x, w, b}, 3, NULL);
}

struct tri_graph *mlp(void)
{
    struct tri_graph *g = new_graph();
    tri_vid x = input(g, "x", "4,3");
    tri_vid w1 = param(g, "w1", "3,5"), b1 = param(g, "b1", "5");
    tri_vid w2 = param(g, "w2", "5,2"), b2 = param(g, "b2", "2");
    tri_vid h = unary(g, TRI_OP_RELU, "relu", linear(g, "fc1", x, w1, b1));

    add_mse(g, linear(g, "fc2", h, w2, b2));
    cr_assert_eq(tri_graph_status(g), TRI_OK, "%s", tri_error_text());
    return g;
}

static tri_vid norm(struct tri_graph *g, const char *name, tri_vid x)
{
    char gamma[32], beta[32];

    snprintf(gamma, sizeof(gamma), "%s.weight", name);
    snprintf(beta, sizeof(beta), "%s.bias", name);
    return tri_graph_op1(g, TRI_OP_LAYERNORM, name,
                         (tri_vid[]){x, param(g, gamma, "8"), param(g, beta, "8")}, 3, NULL);
}

struct tri_graph *gpt(void)
{
    struct tri_graph *g = new_graph();
    struct tri_attrs heads = {.attention = {.heads = 2, .causal = true}};
    struct tri_attrs head = {.matmul = {.tb = true}};
    tri_vid ids = tri_graph_input(g, "ids", TRI_I32, shape_of("2,4"));
    tri_vid wte = param(g, "wte", "16,8"), wpe = param(g, "wpe", "6,8");
    tri_vid x = tri_graph_op1(g, TRI_OP_EMBEDDING, "embed", (tri_vid[]){ids, wte, wpe}, 3, NULL);
    tri_vid h =
        linear(g, "qkv", norm(g, "ln_1", x), param(g, "qkv.w", "8,24"), param(g, "qkv.b", "24"));

    h = tri_graph_op1(g, TRI_OP_ATTENTION, "attn", &h, 1, &heads);
    h = linear(g, "proj", h, param(g, "proj.w", "8,8"), param(g, "proj.b", "8"));
    x = binary(g, TRI_OP_ADD, "add_1", x, h);
    h = linear(g, "fc", norm(g, "ln_2", x), param(g, "fc.w", "8,32"), param(g, "fc.b", "32"));
    h = linear(g, "out", unary(g, TRI_OP_GELU, "gelu", h), param(g, "out.w", "32,8"),
               param(g, "out.b", "8"));
    x = norm(g, "ln_f", binary(g, TRI_OP_ADD, "add_2", x, h));
    x = tri_graph_op1(g, TRI_OP_MATMUL, "head", (tri_vid[]){x, wte}, 2, &head);
    add_xent(g, x);
    cr_assert_eq(tri_graph_status(g), TRI_OK, "%s", tri_error_text());
    return g;
}

int count_kind(const struct tri_graph *g, enum tri_op_kind kind)
{
    int n = 0;

    for (int i = 0; i < g->nop; i++)
        n += g->op[i].kind == kind;
    return n;
}

const struct tri_op *nth(const struct tri_graph *g, enum tri_op_kind kind, int n)
{
    for (int i = 0; i < g->nop; i++) {
        if (g->op[i].kind == kind && n-- == 0)
            return &g->op[i];
    }
    cr_assert_fail("the graph has too few ops \"%s\"", tri_op_name(kind));
    return NULL;
}

static void check_op(const struct tri_graph *g, int i, bool *written)
{
    const struct tri_op *op = &g->op[i];
    enum tri_dtype dtype[8];
    struct tri_shape shape[8];

    for (int k = 0; k < op->nin; k++)
        cr_assert(op->in[k] == TRI_NONE || written[op->in[k]], "%s \"%s\" reads input %d too early",
                  tri_op_name(op->kind), op->name, k);
    cr_assert_eq(tri_op_info(op->kind)->infer(g, op, dtype, shape), TRI_OK, "%s", tri_error_text());
    for (int o = 0; o < op->nout; o++) {
        tri_vid v = op->out[o];

        if (v == TRI_NONE)
            continue;
        cr_assert_not(written[v], "value %d is written twice", v);
        written[v] = true;
        cr_assert_eq(g->value[v].producer, i);
        cr_assert_eq(g->value[v].dtype, dtype[o]);
        cr_assert(tri_shape_equal(&g->value[v].shape, &shape[o]));
    }
}

void check_graph(const struct tri_graph *g)
{
    bool *written = calloc((size_t)g->nvalue + 1, sizeof(*written));

    cr_assert_not_null(written);
    cr_assert_eq(tri_graph_status(g), TRI_OK, "%s", tri_error_text());
    for (tri_vid v = 0; v < g->nvalue; v++) {
        enum tri_role role = g->value[v].role;

        written[v] = role == TRI_ROLE_INPUT || role == TRI_ROLE_PARAM || role == TRI_ROLE_STATE;
    }
    for (int i = 0; i < g->nop; i++)
        check_op(g, i, written);
    for (int s = 0; s < g->nsum; s++)
        cr_assert(written[g->sum[s].value]);
    free(written);
}

const struct tri_sum *sum_of(const struct tri_graph *g, enum tri_sum_kind kind, const char *target)
{
    for (int s = 0; s < g->nsum; s++) {
        const struct tri_sum *sum = &g->sum[s];

        if (sum->kind == kind &&
            (kind == TRI_SUM_STATS || strcmp(g->value[sum->target].name, target) == 0))
            return sum;
    }
    return NULL;
}
