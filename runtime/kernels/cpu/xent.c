/* SOFTMAX_XENT, SOFTMAX_XENT_GRAD, SOFTMAX_XENT_FUSED: cross-entropy over the last dim, rows with
 * target -100 left out.
 *
 * 16-bit logits are widened a row at a time, and the row's gradient is rounded once. A row (201 KB
 * for 50257 classes) stays in the second-level cache, so memory sees one read, and
 * one write where there is a gradient. The sum of e^(x - max) goes over lanes in f32 inside pieces
 * of 2048, over pieces in f64. Losses are f64, kept per row and added in row order: the same bits
 * for every number of threads. Class: loss 1e-6 relative, gradient 1e-6 absolute. A row is "right"
 * when its target is the first of the largest logits. */
#include "runtime/core/memory.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <float.h>
#include <math.h>
#include <omp.h>
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
                               int scale_in, struct tri_kernel **out)
{
    struct simd_kernel *k;

    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    k->base.scratch_bytes = tri_round_up((size_t)k->rows * sizeof(struct row_stats), 64);
    k->dim[5] = (int64_t)k->base.scratch_bytes; /* where the rows of the threads begin */
    k->dim[4] = scale_in < d->nin && d->in[scale_in].shape.ndim >= 0 ? scale_in : -1;
    if (tri_dtype_is_half(k->from)) {
        k->thread_bytes = tri_round_up((size_t)k->cols * sizeof(float), 64);
        k->base.scratch_bytes += (size_t)k->nthreads * k->thread_bytes;
    }
    *out = &k->base;
    return TRI_OK;
}

/* What the gradient is multiplied with. */
static float seed(const struct simd_kernel *k, const struct tri_kernel_args *args)
{
    return k->dim[4] < 0 ? 1.0f : (float)(*(const float *)args->in[k->dim[4]] * k->attrs.loss.unit);
}

/* The calling thread's row of f32. */
static float *own_row(const struct simd_kernel *k, const struct tri_kernel_args *args)
{
    char *rows = (char *)args->scratch + k->dim[5];

    return (float *)(void *)(rows + (size_t)omp_get_thread_num() * k->thread_bytes);
}

/* Row r of the logits as f32: where it lies, or widened into the thread's row. */
static const float *load_row(const struct simd_kernel *k, const struct tri_kernel_args *args,
                             int64_t r)
{
    float *row;

    if (!tri_dtype_is_half(k->from))
        return (const float *)args->in[0] + r * k->cols;
    row = own_row(k, args);
    TRI_ISA_NAME(tri_simd_widen)
    (k->from, (const uint16_t *)args->in[0] + r * k->cols, row, k->cols);
    return row;
}

/* Where row r of output `out` is computed, in f32; store_row rounds it into place. */
static float *gradient_row(const struct simd_kernel *k, const struct tri_kernel_args *args,
                           void *out, int64_t r)
{
    return tri_dtype_is_half(k->from) ? own_row(k, args) : (float *)out + r * k->cols;
}

static void store_row(const struct simd_kernel *k, const float *row, void *out, int64_t r)
{
    if (tri_dtype_is_half(k->from))
        TRI_ISA_NAME(tri_simd_narrow)(k->from, row, (uint16_t *)out + r * k->cols, k->cols);
}

static tri_status prepare_softmax_xent(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent), 2, out);
}

static tri_status run_softmax_xent(const struct tri_kernel *kernel,
                                   const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const int32_t *target = args->in[1];
    struct row_stats *rows = args->scratch;
    float *lse = args->out[1];

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x;
        float max;
        double l;

        rows[r] = (struct row_stats){0.0, -1.0};
        lse[r] = 0.0f;
        if (target[r] == TRI_IGNORE_TARGET)
            continue;
        x = load_row(k, args, r);
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
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent_grad), 3, out);
}

static tri_status run_softmax_xent_grad(const struct tri_kernel *kernel,
                                        const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *lse = args->in[2];
    const int32_t *target = args->in[1];
    float factor = seed(k, args);
    int64_t V = k->cols;

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        float *d = gradient_row(k, args, args->out[0], r);

        if (target[r] == TRI_IGNORE_TARGET) {
            memset(d, 0, (size_t)V * sizeof(float));
        } else {
            const float *x = load_row(k, args, r);

            for (int64_t i = 0; i < V; i += VF) {
                vf e = vf_exp(vf_sub(vf_load_n(x + i, V - i), vf_set(lse[r])));

                vf_store_n(d + i, vf_mul(e, vf_set(factor)), V - i);
            }
            d[target[r]] -= factor;
        }
        store_row(k, d, args->out[0], r);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(softmax_xent_grad);

static tri_status prepare_softmax_xent_fused(const struct tri_kernel_desc *d,
                                             struct tri_kernel **out)
{
    return prepare_xent(d, &TRI_ISA_NAME(tri_simd_softmax_xent_fused), 2, out);
}

/* Loss, and gradient times `factor`, of one row; d may be x. */
static void fused_row(const float *x, float *d, int32_t target, int64_t n, float factor,
                      struct row_stats *row)
{
    float max = max_row(x, n), at = x[target];
    bool right = is_first_max(x, target, max);
    double sum = exp_row(x, d, max, n);
    vf scale = vf_set((float)((double)factor / sum));

    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(d + i, vf_mul(vf_load_n(d + i, n - i), scale), n - i);
    d[target] -= factor;
    row->loss = log(sum) + ((double)max - (double)at);
    row->right = right ? 1.0 : 0.0;
}

static tri_status run_softmax_xent_fused(const struct tri_kernel *kernel,
                                         const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const int32_t *target = args->in[1];
    struct row_stats *rows = args->scratch;
    float factor = seed(k, args);

    TRI_TRY(check_targets(k, target));
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        float *d = gradient_row(k, args, args->out[1], r);

        if (target[r] == TRI_IGNORE_TARGET) {
            rows[r] = (struct row_stats){0.0, -1.0};
            memset(d, 0, (size_t)k->cols * sizeof(float));
        } else {
            fused_row(load_row(k, args, r), d, target[r], k->cols, factor, &rows[r]);
        }
        store_row(k, d, args->out[1], r);
    }
    add_stats(rows, k->rows, args->out[0]);
    return TRI_OK;
}

TRI_SIMD_KERNEL(softmax_xent_fused);
