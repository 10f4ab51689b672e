/* Reference losses. Losses and gradients are sums over targets; a row without target counts
 * nothing, whatever it holds. */
#include "runtime/kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static tri_status check_targets(const int32_t *targets, int64_t n, int64_t classes)
{
    for (int64_t i = 0; i < n; i++)
        if (targets[i] != TRI_IGNORE_TARGET && (targets[i] < 0 || targets[i] >= classes))
            return tri_fail(TRI_ERR_DATA, "cross-entropy: target %d is outside 0 to %lld",
                            (int)targets[i], (long long)(classes - 1));
    return TRI_OK;
}

/* log sum exp of a row, shifted by its maximum; *argmax: first of the largest. */
static double row_lse(const float *z, int64_t n, int64_t *argmax)
{
    double sum = 0;

    *argmax = 0;
    for (int64_t j = 1; j < n; j++)
        if (z[j] > z[*argmax])
            *argmax = j;
    for (int64_t j = 0; j < n; j++)
        sum += exp((double)z[j] - z[*argmax]);
    return z[*argmax] + log(sum);
}

/* Adds one row's loss -log softmax(z)[target] = lse - z[target] to the statistics. */
static double row_stats(const float *z, int64_t n, int32_t target, double *stats)
{
    int64_t argmax;
    double lse = row_lse(z, n, &argmax);

    stats[TRI_STATS_LOSS] += lse - z[target];
    stats[TRI_STATS_TARGETS] += 1;
    stats[TRI_STATS_RIGHT] += argmax == target;
    return lse;
}

/* What a gradient is multiplied with: input i is the loss scale, if it is given. */
static double seed(const struct tri_kernel_desc *d, const struct tri_kernel_args *args, int i)
{
    const float *scale = i < d->nin ? args->in[i] : NULL;

    return scale ? *scale * d->attrs.loss.unit : 1;
}

/* dz = (softmax(z) - onehot(target)) factor; may be in place. */
static void row_grad(const float *z, int64_t n, int32_t target, double lse, double factor,
                     float *dz)
{
    for (int64_t j = 0; j < n; j++)
        dz[j] = (float)((exp(z[j] - lse) - (j == target)) * factor);
}

/* lse of a row without target is 0. */
tri_status tri_ref_softmax_xent(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *logits = args->in[0];
    const int32_t *targets = args->in[1];
    double *stats = args->out[0];
    float *lse = args->out[1];
    int64_t m = tri_shape_rows(&d->in[0].shape), n = tri_shape_cols(&d->in[0].shape);

    TRI_TRY(check_targets(targets, m, n));
    memset(stats, 0, TRI_STATS_COUNT * sizeof(*stats));
    for (int64_t i = 0; i < m; i++) {
        double l = 0;

        if (targets[i] != TRI_IGNORE_TARGET)
            l = row_stats(logits + i * n, n, targets[i], stats);
        if (lse)
            lse[i] = (float)l;
    }
    return TRI_OK;
}

tri_status tri_ref_softmax_xent_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *logits = args->in[0], *lse = args->in[2];
    const int32_t *targets = args->in[1];
    float *dlogits = args->out[0];
    double factor = seed(d, args, 3);
    int64_t m = tri_shape_rows(&d->in[0].shape), n = tri_shape_cols(&d->in[0].shape);

    TRI_TRY(check_targets(targets, m, n));
    for (int64_t i = 0; i < m; i++) {
        if (targets[i] == TRI_IGNORE_TARGET)
            memset(dlogits + i * n, 0, (size_t)n * sizeof(*dlogits));
        else
            row_grad(logits + i * n, n, targets[i], lse[i], factor, dlogits + i * n);
    }
    return TRI_OK;
}

tri_status tri_ref_softmax_xent_fused(const struct tri_kernel *k,
                                      const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *logits = args->in[0];
    const int32_t *targets = args->in[1];
    double *stats = args->out[0];
    float *dlogits = args->out[1];
    double factor = seed(d, args, 2);
    int64_t m = tri_shape_rows(&d->in[0].shape), n = tri_shape_cols(&d->in[0].shape);

    TRI_TRY(check_targets(targets, m, n));
    memset(stats, 0, TRI_STATS_COUNT * sizeof(*stats));
    for (int64_t i = 0; i < m; i++) {
        const float *z = logits + i * n;

        if (targets[i] == TRI_IGNORE_TARGET)
            memset(dlogits + i * n, 0, (size_t)n * sizeof(*dlogits));
        else
            row_grad(z, n, targets[i], row_stats(z, n, targets[i], stats), factor, dlogits + i * n);
    }
    return TRI_OK;
}

/* Loss of a sample: mean over its components of (prediction - target)^2. */
tri_status tri_ref_mse(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *y = args->in[0], *target = args->in[1];
    int32_t nreal = *(const int32_t *)args->in[2];
    double *stats = args->out[0];
    int64_t n = tri_ref_count(&d->in[0]) / d->in[0].shape.dim[0];

    memset(stats, 0, TRI_STATS_COUNT * sizeof(*stats));
    for (int64_t i = 0; i < nreal * n; i++) {
        double e = (double)y[i] - target[i];

        stats[TRI_STATS_LOSS] += e * e / (double)n;
    }
    stats[TRI_STATS_TARGETS] = nreal;
    return TRI_OK;
}

/* dprediction = 2 (prediction - target) / components, times the loss scale; 0 beyond the real
 * samples. */
tri_status tri_ref_mse_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *y = args->in[0], *target = args->in[1];
    int32_t nreal = *(const int32_t *)args->in[2];
    float *dy = args->out[0];
    double factor = 2 * seed(d, args, 3);
    int64_t count = tri_ref_count(&d->in[0]), n = count / d->in[0].shape.dim[0];

    for (int64_t i = 0; i < count; i++)
        dy[i] = i < nreal * n ? (float)(factor * ((double)y[i] - target[i]) / (double)n) : 0;
    return TRI_OK;
}
