/* Cases of the kernel suite for the update: sums of squares and optimizers, of one parameter and of
 * several. */
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kcase.h"

#include <string.h>

static const int64_t counts[] = {1, 3, 15, 16, 17, 63, 1000, 40001};
#define NCOUNTS 8

int cases_sumsq(const struct tri_kernel_ops *ops)
{
    const int64_t n[] = {1, 17, 4095, 4096, 4097, 30001};
    int ran = 0;

    for (int i = 0; i < 6; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_SUMSQ, NULL);
        kcase_in(&c, TRI_F32, SHAPE(n[i]), -1, 1);
        kcase_out(&c, TRI_F64, SHAPE(1), 0,
                  1e-12); /* doubles: only the order inside a block differs */
        ran += kcase_run(&c, ops, "sumsq");
    }
    return ran;
}

static void fill_scalars(double *s, int i)
{
    memset(s, 0, TRI_SCALAR_COUNT * sizeof(*s));
    s[TRI_SCALAR_FINITE] = i % 4 != 3; /* every fourth step is skipped */
    s[TRI_SCALAR_GRAD_SCALE] = 0.01;
    s[TRI_SCALAR_LR_FACTOR] = 0.5;
    s[TRI_SCALAR_BIAS1] = 0.19;
    s[TRI_SCALAR_BIAS2] = 0.002;
}

/* A few roundings of terms of size about 1: 4 EPS. */
int cases_sgd(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NCOUNTS; i++) {
        struct tri_attrs at = {
            .optimizer = {.lr = 0.1, .weight_decay = i % 3 ? 0.01 : 0, .momentum = 0.9}};
        struct tri_shape n = SHAPE(counts[i / 4]);
        bool buf = i % 4 > 0;
        struct kcase c;

        at.optimizer.nesterov = i % 4 == 2;
        kcase_init(&c, TRI_OP_SGD, &at);
        kcase_in(&c, TRI_F32, n, -1, 1);
        kcase_in(&c, TRI_F32, n, -100, 100);
        if (buf)
            kcase_in(&c, TRI_F32, n, -1, 1);
        else
            kcase_absent(&c);
        fill_scalars(kcase_in(&c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 1), i);
        kcase_out(&c, TRI_F32, n, 4 * KCASE_EPS, 0);
        kcase_alias(&c, TRI_ALIAS_MUST, 0);
        if (buf) {
            kcase_out(&c, TRI_F32, n, 4 * KCASE_EPS, 0);
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        } else {
            kcase_out_absent(&c);
        }
        ran += kcase_run(&c, ops, "sgd");
    }
    return ran;
}

/* m / sqrt(v) amplifies the relative error of v by 1/2 where v is not small: v starts at 0.01 or
 * more. */
int cases_adamw(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NCOUNTS; i++) {
        struct tri_attrs at = {.optimizer = {0.1, i % 3 ? 0.01 : 0, 0, 0.9, 0.999, 1e-8, false}};
        struct tri_shape n = SHAPE(counts[i / 4]);
        struct kcase c;

        kcase_init(&c, TRI_OP_ADAMW, &at);
        kcase_in(&c, TRI_F32, n, -1, 1);
        kcase_in(&c, TRI_F32, n, -100, 100);
        kcase_in(&c, TRI_F32, n, -1, 1);
        kcase_in(&c, TRI_F32, n, 0.01, 1);
        fill_scalars(kcase_in(&c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 1), i);
        for (int o = 0; o < 3; o++) {
            kcase_out(&c, TRI_F32, n, 8 * KCASE_EPS, 0);
            kcase_alias(&c, TRI_ALIAS_MUST, o == 0 ? 0 : o + 1);
        }
        ran += kcase_run(&c, ops, "adamw");
    }
    return ran;
}

/* Parameters of a joined op: sizes on both sides of a block and of a vector, one of one element. */
static const int64_t several[TRI_MULTI] = {1, 4097, 17, 30001, 4096, 3, 64, 9999};

int cases_multi_sumsq(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int n = 1; n <= TRI_MULTI_SUMS; n += 31) {
        struct kcase c;

        kcase_init(&c, TRI_OP_MULTI_SUMSQ, NULL);
        for (int i = 0; i < n; i++)
            kcase_in(&c, TRI_F32, SHAPE(several[i % TRI_MULTI]), -1, 1);
        kcase_out(&c, TRI_F64, SHAPE(n), 0, 1e-12); /* as SUMSQ */
        ran += kcase_run(&c, ops, "multi_sumsq");
    }
    return ran;
}

/* One kind of tensor of each parameter. */
static void tensors_in(struct kcase *c, enum tri_dtype t, int n, double lo, double hi)
{
    for (int i = 0; i < n; i++)
        kcase_in(c, t, SHAPE(several[i]), lo, hi);
}

/* A copy may round to the neighbour where the parameter differs. */
static void tensors_out(struct kcase *c, enum tri_dtype t, int n, int kind)
{
    double ulp = t == TRI_BF16 ? 0x1p-7 : t == TRI_F16 ? 0x1p-10 : 0;

    for (int i = 0; i < n; i++) {
        kcase_out(c, t, SHAPE(several[i]), 8 * KCASE_EPS, ulp);
        kcase_alias(c, TRI_ALIAS_MUST, 1 + kind * n + i);
    }
}

/* Without, with bf16 and with f16 copies. */
static int run_multi(enum tri_op_kind kind, const struct tri_kernel_ops *ops, int moments, int i)
{
    const enum tri_dtype copy[] = {TRI_F32, TRI_BF16, TRI_F16};
    struct tri_attrs at = {.optimizer = {0.1, i % 2 ? 0.01 : 0, 0.9, 0.9, 0.999, 1e-8}};
    int n = i % 5 ? TRI_MULTI : 1, kinds = 2 + moments;
    struct kcase c;

    at.optimizer.nesterov = i % 4 == 2;
    at.optimizer.tensors = n;
    at.optimizer.copies = i % 3 > 0;
    kcase_init(&c, kind, &at);
    fill_scalars(kcase_in(&c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 1), i);
    tensors_in(&c, TRI_F32, n, -1, 1);
    tensors_in(&c, TRI_F32, n, -100, 100);
    if (moments > 0)
        tensors_in(&c, TRI_F32, n, -1, 1);
    if (moments > 1)
        tensors_in(&c, TRI_F32, n, 0.01, 1);
    if (at.optimizer.copies)
        tensors_in(&c, copy[i % 3], n, -1, 1);
    tensors_out(&c, TRI_F32, n, 0);
    for (int k = 2; k < kinds; k++)
        tensors_out(&c, TRI_F32, n, k);
    if (at.optimizer.copies)
        tensors_out(&c, copy[i % 3], n, kinds);
    while (c.d.nout < TRI_MULTI_OUTPUTS)
        kcase_out_absent(&c);
    return kcase_run(&c, ops, tri_op_name(kind));
}

int cases_multi_sgd(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 24; i++)
        ran += run_multi(TRI_OP_MULTI_SGD, ops, i / 12, i);
    return ran;
}

int cases_multi_adamw(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 12; i++)
        ran += run_multi(TRI_OP_MULTI_ADAMW, ops, 2, i);
    return ran;
}
