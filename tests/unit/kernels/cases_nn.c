/* Cases of the kernel suite for norms, attention, embedding and losses. Tolerances as in cases.c.
 *
 * Rows that count nothing (padding samples, ignored targets) hold NaN wherever the op may not read
 * them. */
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kcase.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t matrices[][2] = {{1, 1},   {3, 7},    {5, 16},   {33, 65}, {70, 100},
                                      {2, 768}, {3, 1600}, {3, 2056}, {2, 9000}};
#define NMATRICES 9

/* A normalised row of n terms of size 1 with rstd of size 1: a sum over the row, divided by n, then
 * a few roundings. */
static double tol_norm(int64_t n)
{
    return tol_sum(n) / (double)n + 16 * KCASE_EPS;
}

int cases_layernorm(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NMATRICES; i++) {
        const int64_t *d = matrices[i / 2];
        struct tri_attrs at = {
            .norm = {.eps = 0.01}}; /* bounds rstd by 10 when a row is nearly constant */
        double tol = 10 * tol_norm(d[1]);
        struct kcase c;

        kcase_init(&c, TRI_OP_LAYERNORM, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[1]), 0.5, 1.5);
        kcase_in(&c, TRI_F32, SHAPE(d[1]), -1, 1);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), tol, 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0]), tol, 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0]), 0, tol);
        if (i % 2)
            kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), 0, 0);
        else
            kcase_out_absent(&c);
        ran += kcase_run(&c, ops, "layernorm");
    }
    return ran;
}

int cases_layernorm_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NMATRICES; i++) {
        const int64_t *d = matrices[i / 2];
        struct kcase c;

        kcase_init(&c, TRI_OP_LAYERNORM_GRAD, NULL);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[1]), 0.5, 1.5);
        kcase_in(&c, TRI_F32, SHAPE(d[0]), -0.1, 0.1);
        kcase_in(&c, TRI_F32, SHAPE(d[0]), 0.5, 1.5);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), 4 * tol_norm(d[1]), 0);
        if (i % 2)
            kcase_alias(&c, TRI_ALIAS_MAY, 5);
        kcase_out(&c, TRI_F32, SHAPE(d[1]), 2 * tol_sum(d[0]), 0);
        kcase_out(&c, TRI_F32, SHAPE(d[1]), tol_sum(d[0]), 0);
        ran += kcase_run(&c, ops, "layernorm_grad");
    }
    return ran;
}

/* b, h, w, c, nreal */
static const int64_t batches[][5] = {{4, 3, 3, 5, 4},  {4, 3, 3, 16, 3}, {2, 1, 1, 3, 1},
                                     {3, 2, 2, 17, 0}, {8, 5, 5, 33, 7}, {16, 7, 7, 64, 16}};
#define NBATCHES 6

static void poison(float *x, const int64_t *d)
{
    int64_t sample = d[1] * d[2] * d[3];

    for (int64_t i = d[4] * sample; i < d[0] * sample; i++)
        x[i] = NAN;
}

int cases_batchnorm(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NBATCHES; i++) {
        const int64_t *d = batches[i / 4];
        struct tri_attrs at = {.norm = {.eps = 0.01, .relu = i & 1}};
        struct tri_shape x = SHAPE(d[0], d[1], d[2], d[3]), nc = SHAPE(d[3]);
        double tol = 10 * tol_norm(d[4] * d[1] * d[2] + 1);
        struct kcase c;

        kcase_init(&c, TRI_OP_BATCHNORM, &at);
        poison(kcase_in(&c, TRI_F32, x, -1, 1), d);
        kcase_in(&c, TRI_F32, nc, 0.5, 1.5);
        kcase_in(&c, TRI_F32, nc, -1, 1);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = (int32_t)d[4];
        if (i & 2)
            poison(kcase_in(&c, TRI_F32, x, -1, 1), d);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, x, tol, 0);
        kcase_out(&c, TRI_F32, nc, tol, 0);
        kcase_out(&c, TRI_F32, nc, 0, tol);
        kcase_out(&c, TRI_F32, SHAPE(2 * d[3] + 1), (double)d[0] * tol, 0);
        ran += kcase_run(&c, ops, "batchnorm");
    }
    return ran;
}

int cases_batchnorm_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NBATCHES; i++) {
        const int64_t *d = batches[i / 4];
        struct tri_attrs at = {.norm = {.eps = 0.01, .relu = i & 1}};
        struct tri_shape x = SHAPE(d[0], d[1], d[2], d[3]), nc = SHAPE(d[3]);
        int64_t n = d[4] * d[1] * d[2] + 1;
        struct kcase c;

        kcase_init(&c, TRI_OP_BATCHNORM_GRAD, &at);
        poison(kcase_in(&c, TRI_F32, x, -1, 1), d);
        poison(kcase_in(&c, TRI_F32, x, -1, 1), d);
        kcase_in(&c, TRI_F32, nc, 0.5, 1.5);
        kcase_in(&c, TRI_F32, nc, -0.1, 0.1);
        kcase_in(&c, TRI_F32, nc, 0.5, 1.5);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = (int32_t)d[4];
        if (i & 1)
            kcase_in(&c, TRI_F32, x, -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, x, 8 * tol_norm(n), 0);
        kcase_out(&c, TRI_F32, nc, 2 * tol_sum(n), 0);
        kcase_out(&c, TRI_F32, nc, tol_sum(n), 0);
        if (i & 2)
            kcase_out(&c, TRI_F32, x, 0, 0);
        else
            kcase_out_absent(&c);
        ran += kcase_run(&c, ops, "batchnorm_grad");
    }
    return ran;
}

int cases_batchnorm_infer(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NBATCHES; i++) {
        const int64_t *d = batches[i / 4];
        struct tri_attrs at = {.norm = {.eps = 0.01, .relu = i & 1}};
        struct tri_shape x = SHAPE(d[0], d[1], d[2], d[3]), nc = SHAPE(d[3]);
        struct kcase c;

        kcase_init(&c, TRI_OP_BATCHNORM_INFER, &at);
        kcase_in(&c, TRI_F32, x, -1, 1);
        kcase_in(&c, TRI_F32, nc, 0.5, 1.5);
        kcase_in(&c, TRI_F32, nc, -1, 1);
        kcase_in(&c, TRI_F32, nc, -1, 1);
        kcase_in(&c, TRI_F32, nc, 0.5, 2);
        if (i & 2)
            kcase_in(&c, TRI_F32, x, -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, x, 16 * KCASE_EPS, 0); /* terms up to 4, four roundings */
        ran += kcase_run(&c, ops, "batchnorm_infer");
    }
    return ran;
}

/* b, t, heads, width */
static const int64_t heads[][4] = {{1, 1, 1, 4},   {2, 5, 3, 8},    {1, 17, 2, 16},
                                   {2, 70, 2, 64}, {1, 130, 1, 20}, {2, 72, 2, 80},
                                   {1, 68, 1, 30}, {1, 36, 1, 136}};
#define NHEADS 8

/* Scores of up to D/sqrt(D) with a sum over D, then exp (relative = absolute error of the score)
 * and a convex sum over T. */
static double tol_attention(int64_t t, int64_t width)
{
    return 4 * tol_sum(width) / sqrt((double)width) + tol_sum(t) / sqrt((double)t) + 16 * KCASE_EPS;
}

static struct tri_attrs attention_attrs(int64_t nheads, bool causal, double p)
{
    struct tri_attrs at = {.attention = {.heads = nheads, .causal = causal, .p = p}};

    at.attention.stream = 99;
    at.attention.seed = 5;
    return at;
}

int cases_attention(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NHEADS; i++) {
        const int64_t *d = heads[i / 4];
        bool drop = i & 1;
        struct tri_attrs at = attention_attrs(d[2], !(i & 2), drop ? 0.3 : 0);
        double tol = tol_attention(d[1], d[3]);
        struct kcase c;

        kcase_init(&c, TRI_OP_ATTENTION, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1], 3 * d[2] * d[3]), -1, 1);
        if (drop)
            kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 1, 9);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1], d[2] * d[3]), tol, 0);
        kcase_half(&c, 1, 0); /* probabilities that sum to 1 */
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[2], d[1]), tol, 0);
        c.grain = 3;
        ran += kcase_run(&c, ops, "attention");
    }
    return ran;
}

int cases_attention_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NHEADS; i++) {
        const int64_t *d = heads[i / 4];
        int64_t t = d[1], nc = d[2] * d[3];
        bool drop = i & 1;
        struct tri_attrs at = attention_attrs(d[2], !(i & 2), drop ? 0.3 : 0);
        struct kcase c;

        kcase_init(&c, TRI_OP_ATTENTION_GRAD, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], t, nc), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[0], t, 3 * nc), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[0], t, nc), -0.3, 0.3);
        /* about log t: the probabilities of a row then sum to about 1 */
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[2], t), log((double)t), log((double)t) + 0.5);
        if (drop)
            kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 1, 9);
        else
            kcase_absent(&c);
        /* dout . v is a sum over D of size sqrt(D); dq, dk sum over T terms p ds k */
        kcase_out(&c, TRI_F32, SHAPE(d[0], t, 3 * nc),
                  4 * sqrt((double)d[3]) * tol_attention(t, d[3]), 0);
        kcase_half(&c, 0, 4); /* probabilities and score gradients, in sums over T */
        c.grain = 3;
        ran += kcase_run(&c, ops, "attention_grad");
    }
    return ran;
}

int cases_attention_cached(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NHEADS; i++) {
        const int64_t *d = heads[i / 2];
        int64_t capacity = d[1] + 9, nc = d[2] * d[3];
        struct tri_attrs at = attention_attrs(d[2], true, 0);
        struct kcase c;

        kcase_init(&c, TRI_OP_ATTENTION_CACHED, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1], 3 * nc), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[0], capacity, nc), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[0], capacity, nc), -1, 1);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = i % 2 ? 7 : 0;
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1], nc), tol_attention(capacity, d[3]), 0);
        for (int o = 1; o < 3; o++) {
            kcase_out(&c, TRI_F32, SHAPE(d[0], capacity, nc), 0, 0);
            kcase_alias(&c, TRI_ALIAS_MUST, o);
        }
        ran += kcase_run(&c, ops, "attention_cached");
    }
    return ran;
}

/* b, t, v, c, p */
static const int64_t texts[][5] = {{1, 1, 2, 1, 1},
                                   {2, 5, 7, 17, 9},
                                   {3, 16, 40, 64, 16},
                                   {1, 200, 30, 33, 256},
                                   {2, 1300, 3, 8, 1300}};
#define NTEXTS 5

int cases_embedding(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 3 * NTEXTS; i++) {
        const int64_t *d = texts[i / 3];
        struct kcase c;

        kcase_init(&c, TRI_OP_EMBEDDING, NULL);
        kcase_in(&c, TRI_I32, SHAPE(d[0], d[1]), 0, (double)d[2]);
        kcase_in(&c, TRI_F32, SHAPE(d[2], d[3]), -1, 1);
        if (i % 3)
            kcase_in(&c, TRI_F32, SHAPE(d[4], d[3]), -1, 1);
        else
            kcase_absent(&c);
        if (i % 3 == 2)
            *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = (int32_t)(d[4] - d[1]);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1], d[3]), 0, 0);
        ran += kcase_run(&c, ops, "embedding");
    }
    return ran;
}

int cases_embedding_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NTEXTS; i++) {
        const int64_t *d = texts[i / 2];
        struct tri_attrs at = {.rows = d[2]};
        struct kcase c;

        kcase_init(&c, TRI_OP_EMBEDDING_GRAD, &at);
        kcase_in(&c, TRI_I32, SHAPE(d[0], d[1]), 0, (double)d[2]);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1], d[3]), -1, 1);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(d[2], d[3]), -1, 1);
        else
            kcase_absent(&c);
        kcase_out(&c, TRI_F32, SHAPE(d[2], d[3]), tol_sum(d[0] * d[1]), 0);
        if (i % 2)
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        ran += kcase_run(&c, ops, "embedding_grad");
    }
    return ran;
}

int cases_position_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NTEXTS; i++) {
        const int64_t *d = texts[i];
        struct tri_attrs at = {.rows = d[4]};
        struct kcase c;

        kcase_init(&c, TRI_OP_POSITION_GRAD, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1], d[3]), -1, 1);
        kcase_out(&c, TRI_F32, SHAPE(d[4], d[3]), tol_sum(d[0]), 0);
        ran += kcase_run(&c, ops, "position_grad");
    }
    return ran;
}

/* m, v */
/* Long rows come before short ones: what a kernel sets up for one must serve the other. */
static const int64_t logits[][2] = {{1, 60001}, {3, 5003}, {1, 2},   {5, 3},
                                    {9, 17},    {33, 100}, {4, 1000}};
#define NLOGITS 7

/* Every fourth row, from row 2, is ignored and NaN. Row 1 has equal largest logits, so that the
 * first one must win. */
static void xent_inputs(struct kcase *c, const int64_t *d)
{
    float *z = kcase_in(c, TRI_F32, SHAPE(d[0], d[1]), -4, 4);
    int32_t *target = kcase_in(c, TRI_I32, SHAPE(d[0]), 0, (double)d[1]);

    for (int64_t i = 0; i < d[0]; i++) {
        for (int64_t j = 0; i % 4 == 2 && j < d[1]; j++)
            z[i * d[1] + j] = NAN;
        if (i % 4 == 2)
            target[i] = TRI_IGNORE_TARGET;
    }
    for (int64_t j = 0; d[0] > 1 && j < d[1]; j++)
        z[d[1] + j] = 0.5f;
    if (d[0] > 1)
        target[1] = 0;
}

/* The loss of a row: log of a sum of d[1] positive terms (relative error n EPS/2), a difference of
 * terms up to 12. */
static double tol_loss(const int64_t *d)
{
    return (double)d[0] * ((double)d[1] / 2 + 16) * KCASE_EPS;
}

int cases_softmax_xent(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NLOGITS; i++) {
        const int64_t *d = logits[i];
        struct kcase c;

        kcase_init(&c, TRI_OP_SOFTMAX_XENT, NULL);
        xent_inputs(&c, d);
        kcase_out(&c, TRI_F64, SHAPE(TRI_STATS_COUNT), tol_loss(d), 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0]), tol_loss(d), 0);
        ran += kcase_run(&c, ops, "softmax_xent");
    }
    return ran;
}

int cases_softmax_xent_grad(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NLOGITS; i++) {
        const int64_t *d = logits[i / 2];
        struct tri_attrs at = {.loss = {.unit = 0.5}};
        double scale = i % 2 ? 4 : 1; /* at most 8 times 1/2 */
        struct kcase c;

        kcase_init(&c, TRI_OP_SOFTMAX_XENT_GRAD, &at);
        xent_inputs(&c, d);
        kcase_in(&c, TRI_F32, SHAPE(d[0]), 5, 6);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(1), 2, 8);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), 4 * scale * KCASE_EPS, 16 * KCASE_EPS);
        kcase_alias(&c, TRI_ALIAS_MAY, 0);
        ran += kcase_run(&c, ops, "softmax_xent_grad");
    }
    return ran;
}

int cases_softmax_xent_fused(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NLOGITS; i++) {
        const int64_t *d = logits[i / 2];
        struct tri_attrs at = {.loss = {.unit = 0.5}};
        double scale = i % 2 ? 4 : 1; /* at most 8 times 1/2 */
        struct kcase c;

        kcase_init(&c, TRI_OP_SOFTMAX_XENT_FUSED, &at);
        xent_inputs(&c, d);
        if (i % 2)
            kcase_in(&c, TRI_F32, SHAPE(1), 2, 8);
        kcase_out(&c, TRI_F64, SHAPE(TRI_STATS_COUNT), tol_loss(d), 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), 4 * scale * KCASE_EPS,
                  ((double)d[1] / 2 + 16) * KCASE_EPS);
        kcase_alias(&c, TRI_ALIAS_MAY, 0);
        ran += kcase_run(&c, ops, "softmax_xent_fused");
    }
    return ran;
}

int kcases_of(enum tri_op_kind kind, const struct tri_kernel_ops *ops)
{
    switch (kind) {
#define X(kind, name)                                                                              \
    case TRI_OP_##kind:                                                                            \
        return cases_##name(ops);
        TRI_CASES(X)
#undef X
    default:
        return -1;
    }
}
