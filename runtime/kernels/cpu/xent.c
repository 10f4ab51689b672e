/* SOFTMAX_XENT, SOFTMAX_XENT_GRAD, SOFTMAX_XENT_FUSED: cross-entropy over the last dim, rows with
 * target -100 left out.
 *
 * A row (201 KB for 50257 classes) stays in the second-level cache, so memory sees one read, and
 * one write where there is a gradient. The sum of e^(x - max) goes over lanes in f32 inside pieces
 * of 2048, over pieces in f64. Losses are f64, kept per row and added in row order: the same bits
 * for every number of threads. Class: loss 1e-6 relative, gradient 1e-6 absolute. A row is "right"
 * when its target is the first of the largest logits. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PIECE 2048

/* What a row leaves for the statistics. */
struct row_stats {
    double loss;
    double right; /* 1 or 0; -1: the row does not count */
};

static float max_row(const float *x, int64_t n)
{
    vf m0 = vf_set(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
    int64_t i = 0;

    for (; i + 4 * VF <= n; i += 4 * VF) {
        m0 = vf_max(m0, vf_load(x + i));
        m1 = vf_max(m1, vf_load(x + i + VF));
        m2 = vf_max(m2, vf_load(x + i + 2 * VF));
        m3 = vf_max(m3, vf_load(x + i + 3 * VF));
    }
    for (; i < n; i += VF)
        m0 = vf_max(m0, vf_select(vf_first(n - i), vf_load_n(x + i, n - i), m0));
    return vf_hmax(vf_max(vf_max(m0, m1), vf_max(m2, m3)));
}

/* Sum of e^(x - max); the powers themselves go to `e` unless it is NULL. */
TRI_INLINE double exp_row(const float *x, float *e, float max, int64_t n)
{
    vf m = vf_set(max);
    double sum = 0.0;

    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t end = at + PIECE < n ? at + PIECE : n, i = at;
        vf s0 = vf_set(0.0f), s1 = s0;

        for (; i + 2 * VF <= end; i += 2 * VF) {
            vf a = vf_exp(vf_sub(vf_load(x + i), m)), b = vf_exp(vf_sub(vf_load(x + i + VF), m));

            s0 = vf_add(s0, a);
            s1 = vf_add(s1, b);
            if (e != NULL) {
                vf_store(e + i, a);
                vf_store(e + i + VF, b);
            }
        }
        for (; i < end; i += VF) {
            vf a = vf_exp(vf_sub(vf_load_n(x + i, end - i), m));

            s0 = vf_add(s0, vf_select(vf_first(end - i), a, vf_set(0.0f)));
            if (e != NULL)
                vf_store_n(e + i, a, end - i);
        }
        sum += (double)vf_sum(vf_add(s0, s1));
    }
    return sum;
}

static bool is_first_max(const float *x, int64_t target, float max)
{
    if (!(x[target] == max))
        return false;
    for (int64_t i = 0; i < target; i++)
        if (x[i] == max)
            return false;
    return true;
}

static void add_stats(const struct row_stats *row, int64_t rows, double *stats)
{
    double loss = 0.0, count = 0.0, right = 0.0;

    for (int64_t r = 0; r < rows; r++)
        if (row[r].right >= 0.0) {
            loss += row[r].loss;
            right += row[r].right;
            count += 1.0;
        }
    stats[TRI_STATS_LOSS] = loss;
    stats[TRI_STATS_TARGETS] = count;
    stats[TRI_STATS_RIGHT] = right;
    stats[TRI_STATS_UNUSED] = 0.0;
}

static tri_status check_targets(const struct simd_kernel *k, const int32_t *target)
{
    for (int64_t r = 0; r < k->rows; r++)
        if (target[r] != TRI_IGNORE_TARGET && (target[r] < 0 || target[r] >= k->cols))
            return tri_fail(TRI_ERR_DATA, "cross-entropy: target %d is outside [0, %lld)",
                            target[r], (long long)k->cols);
    return TRI_OK;
}

static tri_status prepare_xent(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    k->base.scratch_bytes = (size_t)k->rows * sizeof(struct row_stats);
    *out = &k->base;
    return TRI_OK;
}

static tri_status prepare_softmax_xent(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent), out);
}

static tri_status run_softmax_xent(const struct tri_kernel *kernel,
                                   const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *logits = args->in[0];
    const int32_t *target = args->in[1];
    struct row_stats *rows = args->scratch;
    float *lse = args->out[1];

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = logits + r * k->cols;
        float max;
        double l;

        rows[r] = (struct row_stats){0.0, -1.0};
        lse[r] = 0.0f;
        if (target[r] == TRI_IGNORE_TARGET)
            continue;
        max = max_row(x, k->cols);
        l = (double)max + log(exp_row(x, NULL, max, k->cols));
        lse[r] = (float)l;
        rows[r].loss = l - (double)x[target[r]];
        rows[r].right = is_first_max(x, target[r], max) ? 1.0 : 0.0;
    }
    add_stats(rows, k->rows, args->out[0]);
    return TRI_OK;
}

TRI_SIMD_KERNEL(softmax_xent);

static tri_status prepare_softmax_xent_grad(const struct tri_kernel_desc *d,
                                            struct tri_kernel **out)
{
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent_grad), out);
}

static tri_status run_softmax_xent_grad(const struct tri_kernel *kernel,
                                        const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *logits = args->in[0], *lse = args->in[2];
    const int32_t *target = args->in[1];
    float *dlogits = args->out[0];
    int64_t V = k->cols;

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = logits + r * V;
        float *d = dlogits + r * V;

        if (target[r] == TRI_IGNORE_TARGET) {
            memset(d, 0, (size_t)V * sizeof(float));
            continue;
        }
        for (int64_t i = 0; i < V; i += VF)
            vf_store_n(d + i, vf_exp(vf_sub(vf_load_n(x + i, V - i), vf_set(lse[r]))), V - i);
        d[target[r]] -= 1.0f;
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(softmax_xent_grad);

static tri_status prepare_softmax_xent_fused(const struct tri_kernel_desc *d,
                                             struct tri_kernel **out)
{
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent_fused), out);
}

/* Loss and gradient of one row; d may be x. */
static void fused_row(const float *x, float *d, int32_t target, int64_t n, struct row_stats *row)
{
    float max = max_row(x, n), at = x[target];
    bool right = is_first_max(x, target, max);
    double sum = exp_row(x, d, max, n);
    vf scale = vf_set((float)(1.0 / sum));

    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(d + i, vf_mul(vf_load_n(d + i, n - i), scale), n - i);
    d[target] -= 1.0f;
    row->loss = log(sum) + ((double)max - (double)at);
    row->right = right ? 1.0 : 0.0;
}

static tri_status run_softmax_xent_fused(const struct tri_kernel *kernel,
                                         const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *logits = args->in[0];
    const int32_t *target = args->in[1];
    struct row_stats *rows = args->scratch;
    float *dlogits = args->out[1];

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        float *d = dlogits + r * k->cols;

        if (target[r] == TRI_IGNORE_TARGET) {
            rows[r] = (struct row_stats){0.0, -1.0};
            memset(d, 0, (size_t)k->cols * sizeof(float));
        } else {
            fused_row(logits + r * k->cols, d, target[r], k->cols, &rows[r]);
        }
    }
    add_stats(rows, k->rows, args->out[0]);
    return TRI_OK;
}

TRI_SIMD_KERNEL(softmax_xent_fused);
