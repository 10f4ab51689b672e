/* Batch norm and attention against the reference. Tolerances as in simd_rows.c. */
#include "tests/unit/kernels/kcase.h"

#include "runtime/core/rng.h"

#include <criterion/criterion.h>

struct norm_case {
    int64_t B, H, W, C;
    int32_t nreal;
    bool relu, residual;
};

static const struct norm_case norms[] = {
    {5, 1, 1, 3, 5, false, false}, {4, 6, 6, 64, 4, true, false},   {4, 6, 6, 64, 3, true, true},
    {3, 5, 7, 20, 2, false, true}, {2, 20, 20, 128, 1, true, true}, {3, 2, 2, 700, 0, false, false},
    {1, 1, 1, 9, 1, true, false},
};
#define NNORMS ((int)(sizeof(norms) / sizeof(norms[0])))

static void norm_init(struct kcase *c, const struct norm_case *n, enum tri_op_kind kind)
{
    kcase_init(c, kind, NULL);
    c->d.attrs.norm.eps = 1e-5;
    c->d.attrs.norm.relu = n->relu;
}

Test(simd_batchnorm, forward)
{
    for (int i = 0; i < NNORMS; i++) {
        const struct norm_case *n = &norms[i];
        struct kcase c;

        norm_init(&c, n, TRI_OP_BATCHNORM);
        kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 1.0, 5.0);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 0.5, 1.5);
        kcase_in(&c, TRI_F32, SHAPE(n->C), -1.0, 1.0);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = n->nreal;
        if (n->residual)
            kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), -1.0, 1.0);
        kcase_out_near(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(n->C), 1e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(n->C), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(2 * n->C + 1), 2e-6);
        kcase_check(&c);
    }
}

Test(simd_batchnorm, gradient)
{
    for (int i = 0; i < NNORMS; i++) {
        const struct norm_case *n = &norms[i];
        struct kcase c;

        norm_init(&c, n, TRI_OP_BATCHNORM_GRAD);
        kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), -2.0, 2.0);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 0.5, 1.5);
        kcase_in(&c, TRI_F32, SHAPE(n->C), -0.1, 0.1);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 0.5, 1.5);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = n->nreal;
        if (n->relu)
            kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), -1.0, 1.0);
        kcase_out_near(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(n->C), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(n->C), 2e-6);
        if (n->residual)
            kcase_out_near(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 0.0);
        kcase_check(&c);
    }
}

Test(simd_batchnorm, infer)
{
    for (int i = 0; i < NNORMS; i++) {
        const struct norm_case *n = &norms[i];
        struct kcase c;

        norm_init(&c, n, TRI_OP_BATCHNORM_INFER);
        kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 1.0, 5.0);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 0.5, 1.5);
        kcase_in(&c, TRI_F32, SHAPE(n->C), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 1.0, 3.0);
        kcase_in(&c, TRI_F32, SHAPE(n->C), 0.5, 2.0);
        if (n->residual)
            kcase_in(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), -1.0, 1.0);
        kcase_out_near(&c, TRI_F32, SHAPE(n->B, n->H, n->W, n->C), 1e-6);
        kcase_check(&c);
    }
}

struct attention_case {
    int64_t B, T, heads, D;
    bool causal;
    double p;
};

static const struct attention_case attentions[] = {
    {1, 1, 1, 1, true, 0.0},    {2, 5, 2, 3, true, 0.0},     {1, 64, 2, 64, true, 0.0},
    {1, 130, 1, 64, true, 0.2}, {2, 77, 2, 32, false, 0.0},  {1, 100, 1, 80, true, 0.5},
    {1, 67, 1, 96, false, 0.1}, {1, 200, 1, 128, true, 0.0}, {1, 49, 3, 37, true, 0.1},
};
#define NATTENTIONS ((int)(sizeof(attentions) / sizeof(attentions[0])))

static void attention_init(struct kcase *c, const struct attention_case *a, enum tri_op_kind kind)
{
    kcase_init(c, kind, NULL);
    c->d.attrs.attention.heads = a->heads;
    c->d.attrs.attention.causal = a->causal;
    c->d.attrs.attention.p = a->p;
    c->d.attrs.attention.seed = 9;
    c->d.attrs.attention.stream = tri_hash_name("attention");
    c->grain = 2;
}

static void attention_counters(struct kcase *c, const struct attention_case *a)
{
    if (a->p > 0.0)
        ((int64_t *)kcase_in(c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 0))[TRI_COUNTER_STEP] = 17;
}

Test(simd_attention, forward)
{
    for (int i = 0; i < NATTENTIONS; i++) {
        const struct attention_case *a = &attentions[i];
        struct kcase c;

        attention_init(&c, a, TRI_OP_ATTENTION);
        kcase_in(&c, TRI_F32, SHAPE(a->B, a->T, 3 * a->heads * a->D), -2.0, 2.0);
        attention_counters(&c, a);
        kcase_out_near(&c, TRI_F32, SHAPE(a->B, a->T, a->heads * a->D), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(a->B, a->heads, a->T), 1e-6);
        kcase_check(&c);
    }
}

/* out and lse need not fit q, k, v: both kernels take them as given. lse keeps the probabilities
 * near one over T. */
Test(simd_attention, gradient)
{
    for (int i = 0; i < NATTENTIONS; i++) {
        const struct attention_case *a = &attentions[i];
        struct kcase c;

        attention_init(&c, a, TRI_OP_ATTENTION_GRAD);
        kcase_in(&c, TRI_F32, SHAPE(a->B, a->T, a->heads * a->D), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(a->B, a->T, 3 * a->heads * a->D), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(a->B, a->T, a->heads * a->D), -0.2, 0.2);
        kcase_in(&c, TRI_F32, SHAPE(a->B, a->heads, a->T), 3.0, 4.0);
        attention_counters(&c, a);
        kcase_out_near(&c, TRI_F32, SHAPE(a->B, a->T, 3 * a->heads * a->D), 5e-6);
        kcase_check(&c);
    }
}

Test(simd_attention, cached)
{
    static const int64_t steps[][2] = {{0, 1}, {0, 70}, {31, 1}, {60, 9}}; /* offset, T */

    for (int i = 0; i < 4; i++) {
        int64_t T = steps[i][1], P = 80, C = 3 * 40;
        struct kcase c;

        kcase_init(&c, TRI_OP_ATTENTION_CACHED, NULL);
        c.d.attrs.attention.heads = 3;
        c.d.attrs.attention.causal = true;
        kcase_in(&c, TRI_F32, SHAPE(2, T, 3 * C), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(2, P, C), -1.0, 1.0);
        kcase_in(&c, TRI_F32, SHAPE(2, P, C), -1.0, 1.0);
        *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = (int32_t)steps[i][0];
        kcase_out_near(&c, TRI_F32, SHAPE(2, T, C), 2e-6);
        kcase_out_near(&c, TRI_F32, SHAPE(2, P, C), 0.0);
        kcase_alias(&c, TRI_ALIAS_MUST, 1);
        kcase_out_near(&c, TRI_F32, SHAPE(2, P, C), 0.0);
        kcase_alias(&c, TRI_ALIAS_MUST, 2);
        kcase_check(&c);
    }
}
