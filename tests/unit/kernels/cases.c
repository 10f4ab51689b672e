/* Cases of the kernel suite for products, elementwise ops, images and the step; cases_nn.c has the
 * rest.
 *
 * Tolerances. Inputs are of size about 1. A sum of n products in f32 differs from the exact one by
 * at most n EPS/2 sum|a b|, whatever its order; sum|a b| <= n bounds it for |a|, |b| <= 1, and
 * n^1.5 EPS is above any difference seen from random signs while a lost term (size 0.1) is far
 * above it. One rounded operation: EPS/2 relative. */
#include "tests/unit/kernels/kcase.h"
#include "tests/unit/kernels/cases.h"

#include "runtime/core/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double tol_sum(int64_t n)
{
    return pow((double)n, 1.5) * KCASE_EPS;
}

static int product(const struct tri_kernel_ops *ops, const int64_t dim[3], int form)
{
    bool ta = form & 1, tb = form & 2, bias = form & 4, acc = form & 8;
    int64_t m = dim[0], n = dim[1], k = dim[2];
    struct tri_attrs at = {.matmul = {ta, tb}};
    struct kcase c;
    char what[96];

    snprintf(what, sizeof(what), "matmul %dx%dx%d ta %d tb %d bias %d acc %d", (int)m, (int)n,
             (int)k, ta, tb, bias, acc);
    kcase_init(&c, TRI_OP_MATMUL, &at);
    kcase_in(&c, TRI_F32, ta ? SHAPE(k, m) : SHAPE(m, k), -1, 1);
    kcase_in(&c, TRI_F32, tb ? SHAPE(n, k) : SHAPE(k, n), -1, 1);
    if (bias)
        kcase_in(&c, TRI_F32, SHAPE(n), -1, 1);
    else
        kcase_absent(&c);
    if (acc)
        kcase_in(&c, TRI_F32, SHAPE(m, n), -1, 1);
    else
        kcase_absent(&c);
    kcase_out(&c, TRI_F32, SHAPE(m, n), tol_sum(k + 2), 0);
    kcase_half(&c, bias ? 1 : 0, 0); /* cuBLASLt has the bias in the type of y */
    if (acc)
        kcase_alias(&c, TRI_ALIAS_MUST, 3);
    return kcase_run(&c, ops, what);
}

int cases_matmul(const struct tri_kernel_ops *ops)
{
    const int64_t dim[][3] = {{1, 1, 1}, {3, 17, 5}, {64, 33, 40}, {130, 48, 70}, {128, 135, 141}};
    int ran = 0;

    for (size_t i = 0; i < sizeof(dim) / sizeof(dim[0]); i++)
        for (int form = 0; form < 16; form++)
            ran += product(ops, dim[i], form);
    return ran;
}

/* dims of a product, whether the library's rules for the saved input hold (n a multiple of 8) or
 * not. */
static const int64_t gelus[][3] = {{1, 1, 1}, {3, 17, 5}, {64, 32, 40}, {30, 48, 70}};
#define NGELUS 4

int cases_matmul_gelu(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 8 * NGELUS; i++) {
        int64_t m = gelus[i / 8][0], n = gelus[i / 8][1], k = gelus[i / 8][2];
        bool tb = i & 1, bias = i & 2, saved = i & 4;
        struct tri_attrs at = {.matmul = {.tb = tb}};
        struct kcase c;

        kcase_init(&c, TRI_OP_MATMUL_GELU, &at);
        kcase_in(&c, TRI_F32, SHAPE(m, k), -1, 1);
        kcase_in(&c, TRI_F32, tb ? SHAPE(n, k) : SHAPE(k, n), -1, 1);
        if (bias)
            kcase_in(&c, TRI_F32, SHAPE(n), -1, 1);
        else
            kcase_absent(&c);
        /* gelu: slope up to 1.13, a few roundings of a value up to k */
        kcase_out(&c, TRI_F32, SHAPE(m, n), 2 * tol_sum(k + 8), 0);
        kcase_half(&c, bias ? 2 : 0, 2); /* of the rounded x, where the library lacks the form */
        if (saved) {
            kcase_out(&c, TRI_F32, SHAPE(m, n), tol_sum(k + 2), 0);
            kcase_half(&c, bias ? 1 : 0, 0);
        } else {
            kcase_out_absent(&c);
        }
        ran += kcase_run(&c, ops, "matmul_gelu");
    }
    return ran;
}

int cases_matmul_gelu_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NGELUS; i++) {
        int64_t m = gelus[i / 2][0], n = gelus[i / 2][1], k = gelus[i / 2][2];
        struct tri_attrs at = {.matmul = {.tb = i & 1}};
        struct kcase c;

        kcase_init(&c, TRI_OP_MATMUL_GELU_GRAD, &at);
        kcase_in(&c, TRI_F32, SHAPE(m, k), -1, 1);
        kcase_in(&c, TRI_F32, i & 1 ? SHAPE(n, k) : SHAPE(k, n), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(m, n), -3, 3);
        kcase_out(&c, TRI_F32, SHAPE(m, n), 2 * tol_sum(k + 8), 0);
        kcase_half(&c, 0, 2);
        ran += kcase_run(&c, ops, "matmul_gelu_grad");
    }
    return ran;
}

int cases_matmul_bgrad(const struct tri_kernel_ops *ops)
{
    const int64_t dim[][3] = {{1, 1, 1}, {3, 17, 5}, {64, 33, 300}, {128, 135, 141}};
    int ran = 0;

    for (int i = 0; i < 4 * 16; i++) {
        int64_t m = dim[i / 16][0], n = dim[i / 16][1], k = dim[i / 16][2];
        bool of_a = i & 1, other = i & 2, acc = i & 4, bias_acc = i & 8;
        struct tri_attrs at = {
            .matmul = {.ta = of_a || other, .tb = of_a && other, .bgrad_a = of_a}};
        struct kcase c;

        kcase_init(&c, TRI_OP_MATMUL_BGRAD, &at);
        kcase_in(&c, TRI_F32, at.matmul.ta ? SHAPE(k, m) : SHAPE(m, k), -1, 1);
        kcase_in(&c, TRI_F32, at.matmul.tb ? SHAPE(n, k) : SHAPE(k, n), -1, 1);
        if (acc)
            kcase_in(&c, TRI_F32, SHAPE(m, n), -1, 1);
        else
            kcase_absent(&c);
        if (bias_acc)
            kcase_in(&c, TRI_F32, SHAPE(of_a ? m : n), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(m, n), tol_sum(k + 2), 0);
        if (acc)
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        kcase_out(&c, TRI_F32, SHAPE(of_a ? m : n), tol_sum(k + 2), 0);
        if (bias_acc)
            kcase_alias(&c, TRI_ALIAS_MUST, 3);
        ran += kcase_run(&c, ops, "matmul_bgrad");
    }
    return ran;
}

int cases_column_sum(const struct tri_kernel_ops *ops)
{
    const int64_t dim[][2] = {{1, 1}, {5, 7}, {130, 33}, {1000, 64}};
    int ran = 0;

    for (size_t i = 0; i < 8; i++) {
        const int64_t *d = dim[i / 2];
        struct kcase c;

        kcase_init(&c, TRI_OP_COLUMN_SUM, NULL);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(d[1]), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[1]), tol_sum(d[0]), 0);
        if (i % 2)
            kcase_alias(&c, TRI_ALIAS_MUST, 1);
        ran += kcase_run(&c, ops, "column_sum");
    }
    return ran;
}

static const int64_t counts[] = {1, 3, 15, 16, 17, 63, 1000, 40001};
#define NCOUNTS 8

int cases_add(const struct tri_kernel_ops *ops)
{
    /* one rounding in the stored type: 2^-8 for bf16, 2^-11 for f16 */
    const enum tri_dtype type[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16};
    const double rel[] = {KCASE_EPS, 1e-15, 0x1p-8, 0x1p-11};
    int ran = 0;

    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < NCOUNTS; i++) {
            struct kcase c;

            kcase_init(&c, TRI_OP_ADD, NULL);
            kcase_in(&c, type[t], SHAPE(counts[i]), -1, 1);
            kcase_in(&c, type[t], SHAPE(counts[i]), -1, 1);
            kcase_out(&c, type[t], SHAPE(counts[i]), 0, rel[t]);
            kcase_alias(&c, TRI_ALIAS_MAY, 0);
            ran += kcase_run(&c, ops, "add");
        }
    }
    return ran;
}

/* Ops of nin equal inputs in [-range, range) and one output that may share the first. */
static int elementwise(enum tri_op_kind kind, int nin, bool in_place, double range, double abs,
                       double rel, const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NCOUNTS; i++) {
        struct kcase c;

        kcase_init(&c, kind, NULL);
        for (int j = 0; j < nin; j++)
            kcase_in(&c, TRI_F32, SHAPE(counts[i]), -range, range);
        kcase_out(&c, TRI_F32, SHAPE(counts[i]), abs, rel);
        if (in_place)
            kcase_alias(&c, TRI_ALIAS_MAY, 0);
        ran += kcase_run(&c, ops, ops->name);
    }
    return ran;
}

int cases_relu(const struct tri_kernel_ops *ops)
{
    return elementwise(TRI_OP_RELU, 1, true, 3, 0, 0, ops);
}

int cases_relu_grad(const struct tri_kernel_ops *ops)
{
    return elementwise(TRI_OP_RELU_GRAD, 2, true, 3, 0, 0, ops);
}

/* tanh of a rounded argument: the argument (up to 15) carries its own half ulp into a slope of at
 * most 1, times |x| <= 6. */
int cases_gelu(const struct tri_kernel_ops *ops)
{
    return elementwise(TRI_OP_GELU, 1, false, 6, 8 * KCASE_EPS, 8 * KCASE_EPS, ops);
}

int cases_gelu_grad(const struct tri_kernel_ops *ops)
{
    return elementwise(TRI_OP_GELU_GRAD, 2, true, 6, 64 * KCASE_EPS, 8 * KCASE_EPS, ops);
}

int cases_cast(const struct tri_kernel_ops *ops)
{
    const enum tri_dtype type[][2] = {{TRI_F32, TRI_BF16}, {TRI_F32, TRI_F16}, {TRI_BF16, TRI_F32},
                                      {TRI_F16, TRI_F32},  {TRI_F32, TRI_F64}, {TRI_F64, TRI_F32}};
    int ran = 0;

    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < NCOUNTS; i++) {
            struct tri_attrs at = {.cast = {type[t][1]}};
            struct kcase c;

            kcase_init(&c, TRI_OP_CAST, &at);
            kcase_in(&c, type[t][0], SHAPE(counts[i]), -100, 100);
            kcase_out(&c, type[t][1], SHAPE(counts[i]), 0, 0);
            ran += kcase_run(&c, ops, "cast");
        }
    }
    return ran;
}

int cases_dropout(const struct tri_kernel_ops *ops)
{
    const double p[] = {0, 0.1, 0.5};
    int ran = 0;

    for (int i = 0; i < 3 * NCOUNTS; i++) {
        struct tri_attrs at = {
            .dropout = {.p = p[i % 3], .stream = 0x123456789abcdefu, .seed = 42}};
        struct kcase c;

        kcase_init(&c, TRI_OP_DROPOUT, &at);
        kcase_in(&c, TRI_F32, SHAPE(counts[i / 3]), -1, 1);
        kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 1, 9);
        kcase_out(&c, TRI_F32, SHAPE(counts[i / 3]), 0,
                  2 * KCASE_EPS); /* x * (1/(1-p)) rounds twice */
        kcase_alias(&c, TRI_ALIAS_MAY, 0);
        c.grain = i % 2 ? 3 : 0; /* odd counts: blocks of four words begin inside the grain */
        ran += kcase_run(&c, ops, "dropout");
    }
    return ran;
}

/* b, h, w, c, oc, k, stride, pad */
static const int64_t images[][8] = {
    {2, 9, 7, 3, 5, 3, 1, 1},     {1, 8, 8, 16, 32, 3, 2, 1},  {2, 7, 7, 17, 16, 1, 1, 0},
    {3, 8, 6, 16, 24, 1, 2, 0},   {1, 15, 14, 3, 16, 7, 2, 3}, {2, 5, 5, 1, 3, 5, 1, 0},
    {2, 11, 10, 32, 48, 3, 1, 1}, {1, 9, 8, 64, 32, 3, 2, 1},  {2, 6, 7, 48, 32, 1, 1, 0}};
#define NIMAGES 9

struct image {
    struct tri_attrs at;
    struct tri_shape x, y, w;
    int64_t taps;
};

static struct image image_of(int i)
{
    const int64_t *d = images[i];
    int64_t oh = (d[1] + 2 * d[7] - d[5]) / d[6] + 1, ow = (d[2] + 2 * d[7] - d[5]) / d[6] + 1;
    struct image g = {.x = SHAPE(d[0], d[1], d[2], d[3]), .y = SHAPE(d[0], oh, ow, d[4])};

    g.w = SHAPE(d[4], d[3], d[5], d[5]);
    g.taps = d[5] * d[5];
    g.at.window = (struct tri_attr_window){
        .kh = d[5], .kw = d[5], .stride = d[6], .pad = d[7], .h = d[1], .w = d[2]};
    return g;
}

int cases_conv2d(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NIMAGES; i++) {
        struct image g = image_of(i / 2);
        struct kcase c;

        kcase_init(&c, TRI_OP_CONV2D, &g.at);
        kcase_in(&c, TRI_F32, g.x, -1, 1);
        kcase_in(&c, TRI_F32, g.w, -1, 1);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(g.w.dim[0]), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, g.y, tol_sum(g.taps * g.x.dim[3] + 1), 0);
        if (i % 2)
            kcase_half(&c, 1, 1); /* rounded before the bias is added */
        ran += kcase_run(&c, ops, "conv2d");
    }
    return ran;
}

int cases_conv2d_dx(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NIMAGES; i++) {
        struct image g = image_of(i);
        struct kcase c;

        kcase_init(&c, TRI_OP_CONV2D_DX, &g.at);
        kcase_in(&c, TRI_F32, g.y, -1, 1);
        kcase_in(&c, TRI_F32, g.w, -1, 1);
        kcase_out(&c, TRI_F32, g.x, tol_sum(g.taps * g.y.dim[3]), 0);
        ran += kcase_run(&c, ops, "conv2d_dx");
    }
    return ran;
}

int cases_conv2d_dw(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NIMAGES; i++) {
        struct image g = image_of(i / 2);
        struct kcase c;

        kcase_init(&c, TRI_OP_CONV2D_DW, &g.at);
        kcase_in(&c, TRI_F32, g.x, -1, 1);
        kcase_in(&c, TRI_F32, g.y, -1, 1);
        if (i % 2)
            kcase_in(&c, TRI_F32, g.w, -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, g.w, tol_sum(g.y.dim[0] * g.y.dim[1] * g.y.dim[2] + 1), 0);
        kcase_half(&c, 1, 1); /* rounded before it is added to acc */
        if (i % 2)
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        ran += kcase_run(&c, ops, "conv2d_dw");
    }
    return ran;
}

static struct tri_shape pooled(const struct image *g)
{
    return SHAPE(g->y.dim[0], g->y.dim[1], g->y.dim[2], g->x.dim[3]);
}

int cases_maxpool(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NIMAGES; i++) {
        struct image g = image_of(i / 2);
        float *x;
        struct kcase c;

        kcase_init(&c, TRI_OP_MAXPOOL, &g.at);
        x = kcase_in(&c, TRI_F32, g.x, -2, 2);
        for (int64_t j = 0; i % 2 && j < tri_shape_count(&g.x); j++)
            x[j] = roundf(x[j]); /* many equal maxima: the first must win */
        kcase_out(&c, TRI_F32, pooled(&g), 0, 0);
        kcase_out(&c, TRI_U8, pooled(&g), 0, 0);
        ran += kcase_run(&c, ops, "maxpool");
    }
    return ran;
}

/* Any tap of a window is a valid index, so the taps are made from an image by the reference. */
static void fill_index(const struct image *g, uint8_t *index)
{
    struct kcase c;
    struct tri_kernel *k;
    float *y = calloc((size_t)(g->x.dim[3] * g->y.dim[0] * g->y.dim[1] * g->y.dim[2]), sizeof(*y));
    struct tri_kernel_args args = {.in = c.data, .out = (void *[]){y, index}};

    kcase_init(&c, TRI_OP_MAXPOOL, &g->at);
    kcase_in(&c, TRI_F32, g->x, -1, 1);
    kcase_out(&c, TRI_F32, pooled(g), 0, 0);
    kcase_out(&c, TRI_U8, pooled(g), 0, 0);
    KCASE_CHECK(tri_kernels_ref[TRI_OP_MAXPOOL]->prepare(&c.d, &k) == TRI_OK, "%s",
                tri_error_text());
    KCASE_CHECK(k->ops->run(k, &args) == TRI_OK, "%s", tri_error_text());
    k->ops->destroy(k);
    free(y);
    tri_free(c.data[0]);
}

int cases_maxpool_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NIMAGES; i++) {
        struct image g = image_of(i);
        struct kcase c;

        kcase_init(&c, TRI_OP_MAXPOOL_GRAD, &g.at);
        kcase_in(&c, TRI_F32, pooled(&g), -1, 1);
        fill_index(&g, kcase_in(&c, TRI_U8, pooled(&g), 0, 1));
        kcase_out(&c, TRI_F32, g.x, tol_sum(g.taps), 0);
        ran += kcase_run(&c, ops, "maxpool_grad");
    }
    return ran;
}

static int average(enum tri_op_kind kind, const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NIMAGES; i++) {
        struct image g = image_of(i);
        struct tri_shape y = SHAPE(g.x.dim[0], g.x.dim[3]);
        bool back = kind == TRI_OP_AVGPOOL_GRAD;
        struct kcase c;

        kcase_init(&c, kind, &g.at);
        kcase_in(&c, TRI_F32, back ? y : g.x, -1, 1);
        kcase_out(&c, TRI_F32, back ? g.x : y, back ? 0 : tol_sum(g.x.dim[1] * g.x.dim[2]),
                  KCASE_EPS);
        ran += kcase_run(&c, ops, ops->name);
    }
    return ran;
}

int cases_avgpool(const struct tri_kernel_ops *ops)
{
    return average(TRI_OP_AVGPOOL, ops);
}

int cases_avgpool_grad(const struct tri_kernel_ops *ops)
{
    return average(TRI_OP_AVGPOOL_GRAD, ops);
}
