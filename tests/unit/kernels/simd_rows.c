/* Elementwise, row-wise and optimizer kernels against the reference. Tolerances: a few f32
 * roundings (6e-8) of the largest element, times the root of the number of terms where many are
 * summed. */
#include "tests/unit/kernels/kcase.h"

#include "runtime/core/rng.h"

#include <criterion/criterion.h>
#include <math.h>

/* Lengths around the widths of vectors and blocks. */
static const int64_t lengths[] = {1, 7, 16, 33, 100, 4097, 70001};
#define NLENGTHS ((int)(sizeof(lengths) / sizeof(lengths[0])))

static void check_map(enum tri_op_kind kind, enum tri_dtype t, int nin, double tol)
{
    for (int i = 0; i < NLENGTHS; i++) {
        struct kcase c;

        kcase_init(&c, kind, NULL);
        for (int j = 0; j < nin; j++)
            kcase_in(&c, t, SHAPE(lengths[i]), -6.0, 6.0);
        kcase_out_near(&c, t, SHAPE(lengths[i]), tol);
        kcase_check(&c);
    }
}

Test(simd_map, add_is_exact)
{
    check_map(TRI_OP_ADD, TRI_F32, 2, 0.0);
    check_map(TRI_OP_ADD, TRI_BF16, 2, 0.0);
    check_map(TRI_OP_ADD, TRI_F16, 2, 0.0);
}

Test(simd_map, relu_is_exact)
{
    check_map(TRI_OP_RELU, TRI_F32, 1, 0.0);
    check_map(TRI_OP_RELU_GRAD, TRI_F32, 2, 0.0);
}

Test(simd_map, gelu_is_close)
{
    check_map(TRI_OP_GELU, TRI_F32, 1, 1e-6);
    check_map(TRI_OP_GELU_GRAD, TRI_F32, 2, 1e-6);
}

Test(simd_map, dropout_has_the_same_mask)
{
    for (int i = 0; i < NLENGTHS; i++) {
        struct kcase c;
        int64_t *counters;

        kcase_init(&c, TRI_OP_DROPOUT, NULL);
        c.d.attrs.dropout.p = 0.3;
        c.d.attrs.dropout.seed = 5;
        c.d.attrs.dropout.stream = tri_hash_name("drop");
        c.grain = 3;
        kcase_in(&c, TRI_F32, SHAPE(lengths[i]), 1.0, 2.0);
        counters = kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 0);
        counters[TRI_COUNTER_STEP] = 42;
        kcase_out_near(&c, TRI_F32, SHAPE(lengths[i]), 2e-7);
        kcase_check(&c);
    }
}

Test(simd_map, dropout_index_passes_32_bits)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_DROPOUT, NULL);
    c.d.attrs.dropout.p = 0.5;
    c.grain = ((int64_t)4 << 32) / 1000; /* blocks of four just below 2^32, then above */
    kcase_in(&c, TRI_F32, SHAPE(1000), 1.0, 2.0);
    kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 0);
    kcase_out_near(&c, TRI_F32, SHAPE(1000), 2e-7);
    kcase_check(&c);
}

Test(simd_map, casts_are_exact)
{
    static const enum tri_dtype types[] = {TRI_F32, TRI_BF16, TRI_F16};

    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int i = 0; i < NLENGTHS; i++) {
                struct kcase c;

                kcase_init(&c, TRI_OP_CAST, NULL);
                c.d.attrs.cast.to = types[to];
                kcase_in(&c, types[from], SHAPE(lengths[i]), -1e5, 1e5);
                kcase_out_near(&c, types[to], SHAPE(lengths[i]), 0.0);
                kcase_check(&c);
            }
}

Test(simd_rows, column_sum)
{
    static const int64_t shape[][2] = {{1, 1}, {5, 3}, {100, 10}, {257, 768}, {3000, 65}};

    for (int i = 0; i < 10; i++) {
        const int64_t *s = shape[i / 2];
        struct kcase c;

        kcase_init(&c, TRI_OP_COLUMN_SUM, NULL);
        kcase_in(&c, TRI_F32, SHAPE(s[0], s[1]), -1.0, 1.0);
        if (i % 2 != 0)
            kcase_in(&c, TRI_F32, SHAPE(s[1]), -1.0, 1.0);
        kcase_out_near(&c, TRI_F32, SHAPE(s[1]), 2e-6);
        kcase_alias(&c, i % 2 != 0 ? TRI_ALIAS_MUST : TRI_ALIAS_NO, 1);
        kcase_check(&c);
    }
}

static void check_layernorm(int64_t rows, int64_t n, bool residual)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_LAYERNORM, NULL);
    c.d.attrs.norm.eps = 1e-5;
    kcase_in(&c, TRI_F32, SHAPE(rows, n), 3.0, 5.0);
    kcase_in(&c, TRI_F32, SHAPE(n), 0.5, 1.5);
    kcase_in(&c, TRI_F32, SHAPE(n), -1.0, 1.0);
    if (residual)
        kcase_in(&c, TRI_F32, SHAPE(rows, n), -1.0, 1.0);
    kcase_out_near(&c, TRI_F32, SHAPE(rows, n), 1e-6);
    kcase_out_near(&c, TRI_F32, SHAPE(rows), 1e-6);
    kcase_out_near(&c, TRI_F32, SHAPE(rows), 2e-6);
    if (residual)
        kcase_out_near(&c, TRI_F32, SHAPE(rows, n), 0.0);
    kcase_check(&c);
}

static void check_layernorm_grad(int64_t rows, int64_t n, bool dsum)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_LAYERNORM_GRAD, NULL);
    kcase_in(&c, TRI_F32, SHAPE(rows, n), -1.0, 1.0);
    kcase_in(&c, TRI_F32, SHAPE(rows, n), -2.0, 2.0);
    kcase_in(&c, TRI_F32, SHAPE(n), 0.5, 1.5);
    kcase_in(&c, TRI_F32, SHAPE(rows), -0.1, 0.1);
    kcase_in(&c, TRI_F32, SHAPE(rows), 0.5, 1.5);
    if (dsum)
        kcase_in(&c, TRI_F32, SHAPE(rows, n), -1.0, 1.0);
    kcase_out_near(&c, TRI_F32, SHAPE(rows, n), 2e-6);
    kcase_alias(&c, dsum ? TRI_ALIAS_MUST : TRI_ALIAS_NO, 5);
    kcase_out_near(&c, TRI_F32, SHAPE(n), 2e-6);
    kcase_out_near(&c, TRI_F32, SHAPE(n), 2e-6);
    kcase_check(&c);
}

Test(simd_rows, layernorm)
{
    for (int i = 0; i < 2; i++) {
        check_layernorm(3, 17, i != 0);
        check_layernorm(100, 768, i != 0);
        check_layernorm_grad(3, 17, i != 0);
        check_layernorm_grad(200, 768, i != 0);
    }
}

Test(simd_rows, embedding)
{
    for (int i = 0; i < 3; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_EMBEDDING, NULL);
        kcase_in(&c, TRI_I32, SHAPE(3, 20), 0, 50);
        kcase_in(&c, TRI_F32, SHAPE(50, 37), -1.0, 1.0);
        if (i > 0)
            kcase_in(&c, TRI_F32, SHAPE(32, 37), -1.0, 1.0);
        if (i > 1)
            *(int32_t *)kcase_in(&c, TRI_I32, SHAPE(1), 0, 1) = 12;
        kcase_out_near(&c, TRI_F32, SHAPE(3, 20, 37), 0.0);
        kcase_check(&c);
    }
}

Test(simd_rows, embedding_grad)
{
    for (int i = 0; i < 2; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_EMBEDDING_GRAD, NULL);
        c.d.attrs.rows = 50;
        kcase_in(&c, TRI_I32, SHAPE(4, 100), 0, 50);
        kcase_in(&c, TRI_F32, SHAPE(4, 100, 70), -1.0, 1.0);
        if (i > 0)
            kcase_in(&c, TRI_F32, SHAPE(50, 70), -1.0, 1.0);
        kcase_out_near(&c, TRI_F32, SHAPE(50, 70), 1e-6);
        kcase_alias(&c, i > 0 ? TRI_ALIAS_MUST : TRI_ALIAS_NO, 2);
        kcase_check(&c);
    }
}

Test(simd_rows, position_grad)
{
    struct kcase c;

    kcase_init(&c, TRI_OP_POSITION_GRAD, NULL);
    c.d.attrs.rows = 64;
    kcase_in(&c, TRI_F32, SHAPE(4, 50, 400), -1.0, 1.0);
    kcase_out_near(&c, TRI_F32, SHAPE(64, 400), 1e-6);
    kcase_check(&c);
}

static void check_xent(enum tri_op_kind kind, int64_t rows, int64_t n)
{
    struct kcase c;
    int32_t *target;
    float *lse;

    kcase_init(&c, kind, NULL);
    kcase_in(&c, TRI_F32, SHAPE(rows, n), -8.0, 8.0);
    target = kcase_in(&c, TRI_I32, SHAPE(rows), 0, (int32_t)n);
    for (int64_t r = 0; r < rows; r += 3)
        target[r] = TRI_IGNORE_TARGET;
    for (int64_t r = 1; r < rows; r += 3) { /* some are right */
        const float *x = (const float *)c.data[0] + r * n;

        for (int32_t i = 0; i < n; i++)
            target[r] = x[i] > x[target[r]] ? i : target[r];
    }
    if (kind == TRI_OP_SOFTMAX_XENT_GRAD) {
        lse = kcase_in(&c, TRI_F32, SHAPE(rows), 8.0, 9.0);
        lse[0] = 0.0f;
        kcase_out_near(&c, TRI_F32, SHAPE(rows, n), 2e-6);
    } else {
        kcase_out_near(&c, TRI_F64, SHAPE(TRI_STATS_COUNT), 1e-6);
        if (kind == TRI_OP_SOFTMAX_XENT_FUSED) {
            kcase_out_near(&c, TRI_F32, SHAPE(rows, n), 1e-6);
            kcase_alias(&c, TRI_ALIAS_MUST, 0);
        } else {
            kcase_out_near(&c, TRI_F32, SHAPE(rows), 1e-6);
        }
    }
    kcase_check(&c);
}

Test(simd_rows, cross_entropy)
{
    static const enum tri_op_kind kinds[] = {TRI_OP_SOFTMAX_XENT, TRI_OP_SOFTMAX_XENT_GRAD,
                                             TRI_OP_SOFTMAX_XENT_FUSED};

    for (int i = 0; i < 3; i++) {
        check_xent(kinds[i], 5, 3);
        check_xent(kinds[i], 40, 10);
        check_xent(kinds[i], 11, 5003);
    }
}

Test(simd_rows, sum_of_squares)
{
    for (int i = 0; i < NLENGTHS; i++) {
        struct kcase c;

        kcase_init(&c, TRI_OP_SUMSQ, NULL);
        kcase_in(&c, TRI_F32, SHAPE(lengths[i]), -3.0, 3.0);
        kcase_out_near(&c, TRI_F64, SHAPE(1), 1e-12);
        kcase_check(&c);
    }
}

static void check_step(enum tri_op_kind kind, int64_t n, double finite, bool momentum,
                       bool nesterov)
{
    struct kcase c;
    double *s;

    kcase_init(&c, kind, NULL);
    c.d.attrs.optimizer.lr = 0.1;
    c.d.attrs.optimizer.weight_decay = 0.1;
    c.d.attrs.optimizer.momentum = momentum ? 0.9 : 0.0;
    c.d.attrs.optimizer.nesterov = nesterov;
    c.d.attrs.optimizer.beta1 = 0.9;
    c.d.attrs.optimizer.beta2 = 0.95;
    c.d.attrs.optimizer.eps = 1e-8;
    kcase_in(&c, TRI_F32, SHAPE(n), -1.0, 1.0);
    kcase_in(&c, TRI_F32, SHAPE(n), -1.0, 1.0);
    if (kind == TRI_OP_ADAMW || momentum)
        kcase_in(&c, TRI_F32, SHAPE(n), -1.0, 1.0);
    else
        kcase_absent(&c);
    if (kind == TRI_OP_ADAMW)
        kcase_in(&c, TRI_F32, SHAPE(n), 0.0, 1.0);
    s = kcase_in(&c, TRI_F64, SHAPE(TRI_SCALAR_COUNT), 0, 0);
    s[TRI_SCALAR_FINITE] = finite;
    s[TRI_SCALAR_GRAD_SCALE] = 0.01;
    s[TRI_SCALAR_LR_FACTOR] = 0.5;
    s[TRI_SCALAR_BIAS1] = 0.1;
    s[TRI_SCALAR_BIAS2] = 0.05;
    kcase_out_near(&c, TRI_F32, SHAPE(n), 1e-6);
    kcase_alias(&c, TRI_ALIAS_MUST, 0);
    if (kind == TRI_OP_ADAMW || momentum) {
        kcase_out_near(&c, TRI_F32, SHAPE(n), 1e-6);
        kcase_alias(&c, TRI_ALIAS_MUST, 2);
    } else {
        kcase_out_absent(&c);
    }
    if (kind == TRI_OP_ADAMW) {
        kcase_out_near(&c, TRI_F32, SHAPE(n), 1e-6);
        kcase_alias(&c, TRI_ALIAS_MUST, 3);
    }
    kcase_check(&c);
}

Test(simd_rows, optimizers)
{
    for (int i = 0; i < NLENGTHS; i++) {
        check_step(TRI_OP_SGD, lengths[i], 1.0, false, false);
        check_step(TRI_OP_SGD, lengths[i], 1.0, true, false);
        check_step(TRI_OP_SGD, lengths[i], 1.0, true, true);
        check_step(TRI_OP_ADAMW, lengths[i], 1.0, false, false);
    }
    check_step(TRI_OP_SGD, 100, 0.0, true, false);
    check_step(TRI_OP_ADAMW, 100, 0.0, false, false);
}
