/* Gradients of the op table against central differences, with reference kernels. An op with a
 * gradient but no case here fails.
 *
 * L = sum over differentiable outputs of dout . y (a loss op: its sum of losses). dL/dx by the
 * five-point formula (8 (L(x+h) - L(x-h)) - (L(x+2h) - L(x-2h))) / (12 h),  h = 2^-5: its own error
 * is h^4/30 |L'''''| = 3e-8 |L'''''|; the outputs are rounded to f32, about 30 of them of size 1
 * count, so that L is off by sqrt(30) 2^-25 and the quotient by 1.5/h times that = 8e-6. The limit
 * leaves a factor of 40 for larger values and derivatives. */
#include "tests/unit/kernels/interp.h"
#include "tests/unit/kernels/kcase.h"

#include "runtime/core/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP   0x1p-5
#define LIMIT  3e-4
#define MAX_IN 8

enum fill {
    FILL_UNIFORM,  /* in [-1, 1) */
    FILL_AWAY,     /* at least 0.25 from 0 on either side: no kink of relu within the steps */
    FILL_APART,    /* all elements at least 0.2 from each other: no change of a maximum */
    FILL_POSITIVE, /* in [0.5, 1) */
    FILL_SIGNS,    /* +4 and -4 in turn, plus a little */
    FILL_IDS,      /* whole numbers below `bound` */
    FILL_TARGETS,  /* the same, the second one ignored */
    FILL_VALUE,    /* `bound` */
};

struct input {
    enum tri_dtype dtype;
    struct tri_shape shape;
    enum fill fill;
    int bound;
    bool need, absent;
};

struct gcase {
    enum tri_op_kind kind;
    struct tri_attrs attrs;
    uint32_t want;
    int nin;
    struct input in[MAX_IN];
};

#define F32(fill, ...)                                                                             \
    {                                                                                              \
        TRI_F32, {.ndim = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = {__VA_ARGS__}}, fill, 0,    \
            true, false                                                                            \
    }
#define I32(fill, n, ...)                                                                          \
    {                                                                                              \
        TRI_I32, {.ndim = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = {__VA_ARGS__}}, fill, n,    \
            false, false                                                                           \
    }
#define FIXED(fill, ...)                                                                           \
    {                                                                                              \
        TRI_F32, {.ndim = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = {__VA_ARGS__}}, fill, 0,    \
            false, false                                                                           \
    }
#define COUNTERS                                                                                   \
    {                                                                                              \
        TRI_I64, {.ndim = 1, .dim = {TRI_COUNTER_COUNT}}, FILL_VALUE, 3, false, false              \
    }
#define ABSENT                                                                                     \
    {                                                                                              \
        .absent = true                                                                             \
    }

static const struct gcase cases[] = {
    {TRI_OP_MATMUL,
     {.matmul = {false, false}},
     1,
     3,
     {F32(FILL_UNIFORM, 2, 3, 4), F32(FILL_UNIFORM, 4, 5), F32(FILL_UNIFORM, 5)}},
    {TRI_OP_MATMUL,
     {.matmul = {true, false}},
     1,
     2,
     {F32(FILL_UNIFORM, 4, 3), F32(FILL_UNIFORM, 4, 5)}},
    {TRI_OP_MATMUL,
     {.matmul = {false, true}},
     1,
     2,
     {F32(FILL_UNIFORM, 3, 4), F32(FILL_UNIFORM, 5, 4)}},
    {TRI_OP_MATMUL,
     {.matmul = {true, true}},
     1,
     4,
     {F32(FILL_UNIFORM, 4, 3), F32(FILL_UNIFORM, 5, 4), ABSENT, F32(FILL_UNIFORM, 3, 5)}},
    {TRI_OP_ADD, {.rows = 0}, 1, 2, {F32(FILL_UNIFORM, 3, 4), F32(FILL_UNIFORM, 3, 4)}},
    {TRI_OP_RELU, {.rows = 0}, 1, 1, {F32(FILL_AWAY, 3, 7)}},
    {TRI_OP_GELU, {.rows = 0}, 1, 1, {F32(FILL_APART, 3, 6)}},
    {TRI_OP_DROPOUT,
     {.dropout = {.p = 0.4, .stream = 9, .seed = 1}},
     1,
     2,
     {F32(FILL_UNIFORM, 3, 7), COUNTERS}},
    {TRI_OP_CAST, {.cast = {TRI_F64}}, 1, 1, {F32(FILL_UNIFORM, 3, 7)}},
    {TRI_OP_RESHAPE,
     {.view = {.shape = {.ndim = 2, .dim = {6, 2}}}},
     1,
     1,
     {F32(FILL_UNIFORM, 3, 4)}},
    {TRI_OP_LAYERNORM,
     {.norm = {.eps = 0.1}},
     7,
     3,
     {F32(FILL_UNIFORM, 2, 2, 6), F32(FILL_UNIFORM, 6), F32(FILL_UNIFORM, 6)}},
    {TRI_OP_LAYERNORM,
     {.norm = {.eps = 0.1}},
     15,
     4,
     {F32(FILL_UNIFORM, 3, 6), F32(FILL_UNIFORM, 6), F32(FILL_UNIFORM, 6),
      F32(FILL_UNIFORM, 3, 6)}},
    {TRI_OP_BATCHNORM,
     {.norm = {.eps = 0.1}},
     15,
     4,
     {F32(FILL_UNIFORM, 3, 2, 2, 2), F32(FILL_UNIFORM, 2), F32(FILL_UNIFORM, 2),
      I32(FILL_VALUE, 2, 1)}},
    {TRI_OP_BATCHNORM,
     {.norm = {.eps = 0.1}},
     15,
     5,
     {F32(FILL_UNIFORM, 5, 2), F32(FILL_UNIFORM, 2), F32(FILL_UNIFORM, 2), I32(FILL_VALUE, 5, 1),
      F32(FILL_UNIFORM, 5, 2)}},
    {TRI_OP_BATCHNORM,
     {.norm = {.eps = 0.1, .relu = true}},
     15,
     5,
     {F32(FILL_UNIFORM, 3, 2, 2, 2), F32(FILL_POSITIVE, 2), F32(FILL_UNIFORM, 2),
      I32(FILL_VALUE, 2, 1), F32(FILL_SIGNS, 3, 2, 2, 2)}},
    {TRI_OP_ATTENTION,
     {.attention = {.heads = 2, .causal = true}},
     3,
     1,
     {F32(FILL_UNIFORM, 2, 3, 12)}},
    {TRI_OP_ATTENTION,
     {.attention = {.heads = 1, .causal = true, .p = 0.3, .stream = 4, .seed = 2}},
     3,
     2,
     {F32(FILL_UNIFORM, 1, 5, 6), COUNTERS}},
    {TRI_OP_EMBEDDING,
     {.rows = 0},
     1,
     3,
     {I32(FILL_IDS, 5, 2, 3), F32(FILL_UNIFORM, 5, 4), F32(FILL_UNIFORM, 6, 4)}},
    {TRI_OP_EMBEDDING, {.rows = 0}, 1, 2, {I32(FILL_IDS, 5, 2, 3), F32(FILL_UNIFORM, 5, 4)}},
    {TRI_OP_SOFTMAX_XENT, {.rows = 0}, 3, 2, {F32(FILL_UNIFORM, 4, 5), I32(FILL_TARGETS, 5, 4)}},
    {TRI_OP_MSE,
     {.rows = 0},
     1,
     3,
     {F32(FILL_UNIFORM, 4, 3), FIXED(FILL_UNIFORM, 4, 3), I32(FILL_VALUE, 3, 1)}},
    {TRI_OP_CONV2D,
     {.window = {.kh = 3, .kw = 3, .stride = 1, .pad = 1}},
     1,
     3,
     {F32(FILL_UNIFORM, 2, 4, 3, 2), F32(FILL_UNIFORM, 2, 2, 3, 3), F32(FILL_UNIFORM, 2)}},
    {TRI_OP_CONV2D,
     {.window = {.kh = 3, .kw = 3, .stride = 2, .pad = 1}},
     1,
     2,
     {F32(FILL_UNIFORM, 1, 6, 5, 2), F32(FILL_UNIFORM, 3, 2, 3, 3)}},
    {TRI_OP_MAXPOOL,
     {.window = {.kh = 3, .kw = 3, .stride = 2, .pad = 1}},
     3,
     1,
     {F32(FILL_APART, 1, 5, 4, 2)}},
    {TRI_OP_AVGPOOL, {.rows = 0}, 1, 1, {F32(FILL_UNIFORM, 2, 3, 2, 4)}},
};
#define NCASES ((int)(sizeof(cases) / sizeof(cases[0])))

static void fill(const struct input *in, void *p, uint64_t stream)
{
    struct tri_rng_key key = tri_rng_key_make(3, stream, 0);
    int64_t n = tri_shape_count(&in->shape);

    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        float u;

        tri_philox4x32(&key, (uint64_t)i, w);
        u = 2 * tri_rng_uniform(w[0]) - 1;
        switch (in->fill) {
        case FILL_UNIFORM:
            ((float *)p)[i] = u;
            break;
        case FILL_AWAY:
            ((float *)p)[i] = u < 0 ? u - 0.25f : u + 0.25f;
            break;
        case FILL_APART: /* 7 is prime to n: a permutation */
            ((float *)p)[i] = 0.2f * (float)(7 * i % n);
            break;
        case FILL_POSITIVE:
            ((float *)p)[i] = 0.75f + u / 4;
            break;
        case FILL_SIGNS:
            ((float *)p)[i] = u / 4 + (i % 3 == 0 ? 4 : -4);
            break;
        case FILL_IDS:
        case FILL_TARGETS:
            ((int32_t *)p)[i] = (int32_t)(w[1] % (uint32_t)in->bound);
            if (in->fill == FILL_TARGETS && i == 1)
                ((int32_t *)p)[i] = TRI_IGNORE_TARGET;
            break;
        case FILL_VALUE:
            if (in->dtype == TRI_I64)
                ((int64_t *)p)[i] = in->bound;
            else
                ((int32_t *)p)[i] = in->bound;
            break;
        }
    }
}

/* A case as a graph: the op, then what its grad appended. */
struct check {
    const struct gcase *c;
    struct tri_graph *g;
    tri_vid in[MAX_IN], dout[MAX_IN], acc[MAX_IN], din[MAX_IN];
    uint32_t acc_used;
    int32_t op;
    int forward; /* ops of the forward part */
    struct interp x;
};

static void build(struct check *k, bool with_acc)
{
    const struct gcase *c = k->c;
    const struct tri_op_info *info = tri_op_info(c->kind);
    bool need[MAX_IN];
    char name[32];

    cr_assert_eq(tri_graph_create(&k->g), TRI_OK);
    for (int i = 0; i < c->nin; i++) {
        snprintf(name, sizeof(name), "in.%d", i);
        need[i] = c->in[i].need;
        k->din[i] = k->acc[i] = k->dout[i] = TRI_NONE;
        k->in[i] = c->in[i].absent ? TRI_NONE
                                   : tri_graph_input(k->g, name, c->in[i].dtype, c->in[i].shape);
        snprintf(name, sizeof(name), "acc.%d", i);
        if (need[i] && with_acc)
            k->acc[i] = tri_graph_input(k->g, name, TRI_F32, c->in[i].shape);
    }
    k->op = tri_graph_op(k->g, c->kind, "case", k->in, c->nin, &c->attrs, c->want);
    cr_assert_neq(k->op, TRI_NONE, "%s: %s", info->name, tri_error_text());
    k->forward = k->g->nop;
    for (int o = 0; o < info->nout; o++) {
        tri_vid y = k->g->op[k->op].out[o];

        snprintf(name, sizeof(name), "dout.%d", o);
        k->dout[o] = TRI_NONE;
        if (y != TRI_NONE && (info->diff_out >> o & 1))
            k->dout[o] = tri_graph_input(k->g, name, k->g->value[y].dtype, k->g->value[y].shape);
    }
    cr_assert_eq(info->grad(k->g, k->op, k->dout, need, k->acc, k->din, &k->acc_used), TRI_OK,
                 "%s: %s", info->name, tri_error_text());
    cr_assert_eq(tri_graph_status(k->g), TRI_OK, "%s: %s", info->name, tri_error_text());
}

static double element(const struct check *k, tri_vid v, int64_t i)
{
    return k->g->value[v].dtype == TRI_F64 ? ((double *)k->x.buf[v])[i] : ((float *)k->x.buf[v])[i];
}

static void fill_inputs(struct check *k)
{
    struct input weight = {.fill = FILL_UNIFORM};

    for (int i = 0; i < k->c->nin; i++) {
        if (k->in[i] != TRI_NONE)
            fill(&k->c->in[i], k->x.buf[k->in[i]], (uint64_t)i + 1);
        if (k->acc[i] != TRI_NONE) {
            weight.shape = k->c->in[i].shape;
            fill(&weight, k->x.buf[k->acc[i]], (uint64_t)i + 50);
        }
    }
    for (int o = 0; o < k->g->op[k->op].nout; o++) {
        tri_vid v = k->dout[o];

        if (v == TRI_NONE)
            continue;
        weight.shape = k->g->value[v].shape;
        if (k->g->value[v].dtype == TRI_F64)
            for (int64_t i = 0; i < tri_shape_count(&weight.shape); i++)
                ((double *)k->x.buf[v])[i] = 0.25 * (double)(i % 5) - 0.4;
        else
            fill(&weight, k->x.buf[v], (uint64_t)o + 100);
    }
}

/* L with element e of input i moved by `by`. */
static double loss_at(struct check *k, int i, int64_t e, double by)
{
    const struct tri_op *op = &k->g->op[k->op];
    float *x = (float *)k->x.buf[k->in[i]] + e, before = *x;
    double loss = 0;
    bool seeded = false;

    *x = (float)(before + by);
    interp_run(&k->x, 0, k->forward);
    *x = before;
    for (int o = 0; o < op->nout; o++) {
        int64_t n = k->dout[o] == TRI_NONE ? 0 : tri_shape_count(&k->g->value[op->out[o]].shape);

        for (int64_t j = 0; j < n; j++)
            loss += element(k, k->dout[o], j) * element(k, op->out[o], j);
        seeded = seeded || n > 0;
    }
    return seeded ? loss : ((double *)k->x.buf[op->out[0]])[TRI_STATS_LOSS];
}

static void compare_input(struct check *k, int i, const char *name)
{
    int64_t n = tri_shape_count(&k->c->in[i].shape);

    cr_assert(tri_shape_equal(&k->g->value[k->din[i]].shape, &k->c->in[i].shape),
              "%s: the gradient of input %d has another shape", name, i);
    for (int64_t e = 0; e < n; e++) {
        double got = element(k, k->din[i], e);
        double near = loss_at(k, i, e, STEP) - loss_at(k, i, e, -STEP);
        double far = loss_at(k, i, e, 2 * STEP) - loss_at(k, i, e, -2 * STEP);
        double want = (8 * near - far) / (12 * STEP);

        if (k->acc_used >> i & 1)
            want += element(k, k->acc[i], e);
        cr_assert(fabs(got - want) <= LIMIT * (1 + fabs(want)), "%s: input %d [%d]: %.7g, not %.7g",
                  name, i, (int)e, got, want);
    }
}

static void check_case(const struct gcase *c, bool with_acc)
{
    struct check k = {.c = c};

    build(&k, with_acc);
    interp_init(&k.x, k.g);
    fill_inputs(&k);
    interp_run(&k.x, 0, k.g->nop);
    for (int i = 0; i < c->nin; i++) {
        if (!c->in[i].need)
            continue;
        cr_assert_neq(k.din[i], TRI_NONE, "%s: no gradient of input %d", tri_op_name(c->kind), i);
        compare_input(&k, i, tri_op_name(c->kind));
    }
    interp_finish(&k.x);
    tri_graph_destroy(k.g);
}

static void check_kind(enum tri_op_kind kind)
{
    int ran = 0;

    for (int i = 0; i < NCASES; i++) {
        if (cases[i].kind != kind)
            continue;
        check_case(&cases[i], false);
        check_case(&cases[i], true);
        ran++;
    }
    cr_assert_eq(ran > 0, tri_op_info(kind)->grad != NULL, "%s: cases and gradient do not agree",
                 tri_op_name(kind));
}

#define X(kind, text)                                                                              \
    Test(gradient, kind)                                                                           \
    {                                                                                              \
        check_kind(TRI_OP_##kind);                                                                 \
    }
TRI_OP_LIST(X)
#undef X
