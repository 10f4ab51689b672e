/* Reference normalisations. Two passes for the variance, sums in double in index order. */
#include "runtime/kernels/ref/ref.h"

#include <math.h>

/* y = (s - mean) rstd gamma + beta over the last dimension, s = x + residual, rstd = 1 / sqrt(var +
 * eps), var biased (Ba, Kiros and Hinton, "Layer normalization", 2016). */
tri_status tri_ref_layernorm(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *x = args->in[0], *gamma = args->in[1], *beta = args->in[2];
    const float *residual = d->nin > 3 ? args->in[3] : NULL;
    float *y = args->out[0], *mean = args->out[1], *rstd = args->out[2];
    float *sum = d->nout > 3 ? args->out[3] : NULL;
    int64_t m = tri_shape_rows(&d->in[0].shape), n = tri_shape_cols(&d->in[0].shape);

    for (int64_t i = 0; i < m; i++) {
        double mu = 0, var = 0, inv;

        for (int64_t j = i * n; j < (i + 1) * n; j++)
            mu += residual ? x[j] + residual[j] : x[j];
        mu /= (double)n;
        for (int64_t j = i * n; j < (i + 1) * n; j++) {
            double c = (residual ? x[j] + residual[j] : x[j]) - mu;

            var += c * c;
        }
        inv = 1 / sqrt(var / (double)n + d->attrs.norm.eps);
        for (int64_t j = 0; j < n; j++) {
            float s = residual ? x[i * n + j] + residual[i * n + j] : x[i * n + j];

            if (sum)
                sum[i * n + j] = s;
            y[i * n + j] = (float)((s - mu) * inv * gamma[j] + beta[j]);
        }
        mean[i] = (float)mu;
        rstd[i] = (float)inv;
    }
    return TRI_OK;
}

/* dgamma[j] = sum_i dy xhat, dbeta[j] = sum_i dy. */
static void layernorm_param_grad(int64_t m, int64_t n, const struct tri_kernel_args *args)
{
    const float *dy = args->in[0], *x = args->in[1], *mean = args->in[3], *rstd = args->in[4];
    float *dgamma = args->out[1], *dbeta = args->out[2];

    for (int64_t j = 0; j < n; j++) {
        double sg = 0, sb = 0;

        for (int64_t i = 0; i < m; i++) {
            sg += (double)dy[i * n + j] * ((double)x[i * n + j] - mean[i]) * rstd[i];
            sb += dy[i * n + j];
        }
        if (dgamma)
            dgamma[j] = (float)sg;
        if (dbeta)
            dbeta[j] = (float)sb;
    }
}

/* With g = dy gamma and xhat = (x - mean) rstd: dx = rstd (g - avg(g) - xhat avg(g
 * xhat)) + dsum. */
tri_status tri_ref_layernorm_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *dy = args->in[0], *x = args->in[1], *gamma = args->in[2];
    const float *mean = args->in[3], *rstd = args->in[4];
    const float *dsum = d->nin > 5 ? args->in[5] : NULL;
    float *dx = args->out[0];
    int64_t m = tri_shape_rows(&d->in[1].shape), n = tri_shape_cols(&d->in[1].shape);

    layernorm_param_grad(m, n, args);
    for (int64_t i = 0; dx && i < m; i++) {
        double ag = 0, agx = 0;

        for (int64_t j = 0; j < n; j++) {
            double g = (double)dy[i * n + j] * gamma[j];

            ag += g / (double)n;
            agx += g * ((double)x[i * n + j] - mean[i]) * rstd[i] / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            double g = (double)dy[i * n + j] * gamma[j];
            double xhat = ((double)x[i * n + j] - mean[i]) * rstd[i];
            double v = rstd[i] * (g - ag - xhat * agx);

            dx[i * n + j] = (float)(dsum ? v + dsum[i * n + j] : v);
        }
    }
    return TRI_OK;
}

/* Rows of the matrix view [B*H*W, C] that belong to real samples. */
static int64_t real_rows(const struct tri_arg *x, int32_t nreal)
{
    return tri_shape_rows(&x->shape) / x->shape.dim[0] * nreal;
}

/* Mean and biased variance of column c over the first n rows; both 0 when there is none. */
static void column_moments(const float *x, int64_t n, int64_t nc, int64_t c, double *mean,
                           double *var)
{
    *mean = *var = 0;
    for (int64_t i = 0; i < n; i++)
        *mean += x[i * nc + c] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double e = x[i * nc + c] - *mean;

        *var += e * e / (double)n;
    }
}

/* y = relu?((x - mean) invstd gamma + beta + residual) per channel over real samples and positions
 * (Ioffe and Szegedy, "Batch normalization", 2015); 0 in padding. The moments carry the unbiased
 * variance n/(n-1) var, 0 when n = 1. */
tri_status tri_ref_batchnorm(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *x = args->in[0], *gamma = args->in[1], *beta = args->in[2];
    int32_t nreal = *(const int32_t *)args->in[3];
    const float *residual = d->nin > 4 ? args->in[4] : NULL;
    float *y = args->out[0], *mean = args->out[1], *invstd = args->out[2], *moments = args->out[3];
    int64_t rows = tri_shape_rows(&d->in[0].shape), nc = tri_shape_cols(&d->in[0].shape);
    int64_t n = real_rows(&d->in[0], nreal);

    for (int64_t c = 0; c < nc; c++) {
        double mu, var, inv, unbiased;

        column_moments(x, n, nc, c, &mu, &var);
        inv = n > 0 ? 1 / sqrt(var + d->attrs.norm.eps) : 0;
        unbiased = n > 1 ? var * (double)n / (double)(n - 1) : 0;
        for (int64_t i = 0; i < rows; i++) {
            double v = 0;

            if (i < n) {
                v = (x[i * nc + c] - mu) * inv * gamma[c] + beta[c];
                v += residual ? residual[i * nc + c] : 0;
            }
            y[i * nc + c] = d->attrs.norm.relu && v <= 0 ? 0 : (float)v;
        }
        mean[c] = (float)mu;
        invstd[c] = (float)inv;
        if (moments) {
            moments[c] = (float)(nreal * mu);
            moments[nc + c] = (float)(nreal * unbiased);
            moments[2 * nc] = (float)nreal;
        }
    }
    return TRI_OK;
}

/* With g = dy (where y > 0 under relu), n rows and xhat = (x - mean) invstd:
 * dbeta = sum g, dgamma = sum g xhat, dx = gamma invstd (g - dbeta/n - xhat dgamma/n), dresidual =
 * g; 0 in padding. */
tri_status tri_ref_batchnorm_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *dy = args->in[0], *x = args->in[1], *gamma = args->in[2];
    const float *mean = args->in[3], *invstd = args->in[4], *y = d->nin > 6 ? args->in[6] : NULL;
    float *dx = args->out[0], *dgamma = args->out[1], *dbeta = args->out[2];
    float *dresidual = d->nout > 3 ? args->out[3] : NULL;
    int64_t rows = tri_shape_rows(&d->in[1].shape), nc = tri_shape_cols(&d->in[1].shape);
    int64_t n = real_rows(&d->in[1], *(const int32_t *)args->in[5]);

    for (int64_t c = 0; c < nc; c++) {
        double sg = 0, sb = 0;

        for (int64_t i = c; i < n * nc; i += nc) {
            double g = y && y[i] <= 0 ? 0 : dy[i];

            sb += g;
            sg += g * ((double)x[i] - mean[c]) * invstd[c];
        }
        for (int64_t i = c; i < rows * nc; i += nc) {
            double g = i >= n * nc || (y && y[i] <= 0) ? 0 : dy[i], v = 0;

            if (i < n * nc) {
                double xhat = ((double)x[i] - mean[c]) * invstd[c];

                v = gamma[c] * invstd[c] * (g - sb / (double)n - xhat * sg / (double)n);
            }
            if (dx)
                dx[i] = (float)v;
            if (dresidual)
                dresidual[i] = (float)g;
        }
        if (dgamma)
            dgamma[c] = (float)sg;
        if (dbeta)
            dbeta[c] = (float)sb;
    }
    return TRI_OK;
}

/* y = relu?((x - mean) / sqrt(var + eps) gamma + beta + residual) with running statistics. */
tri_status tri_ref_batchnorm_infer(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *x = args->in[0], *gamma = args->in[1], *beta = args->in[2];
    const float *mean = args->in[3], *var = args->in[4];
    const float *residual = d->nin > 5 ? args->in[5] : NULL;
    float *y = args->out[0];
    int64_t count = tri_ref_count(&d->in[0]), nc = tri_shape_cols(&d->in[0].shape);

    for (int64_t i = 0; i < count; i++) {
        int64_t c = i % nc;
        double inv = 1 / sqrt(var[c] + d->attrs.norm.eps);
        double v = ((double)x[i] - mean[c]) * inv * gamma[c] + beta[c];

        v += residual ? residual[i] : 0;
        y[i] = d->attrs.norm.relu && v <= 0 ? 0 : (float)v;
    }
    return TRI_OK;
}

/* running = (1 - momentum) running + momentum * sample-weighted mean over the grains of the step.
 * Nothing moves when the step is skipped or had no sample. */
tri_status tri_ref_batchnorm_running(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *mean = args->in[0], *var = args->in[1], *moments = args->in[2];
    const double *scalars = args->in[3];
    float *mean_out = args->out[0], *var_out = args->out[1];
    int64_t nc = tri_ref_count(&d->in[0]);
    double n = moments[2 * nc], rate = d->attrs.norm.momentum;

    if (scalars[TRI_SCALAR_FINITE] == 0 || n == 0)
        return TRI_OK;
    for (int64_t c = 0; c < nc; c++) {
        mean_out[c] = (float)((1 - rate) * mean[c] + rate * moments[c] / n);
        var_out[c] = (float)((1 - rate) * var[c] + rate * moments[nc + c] / n);
    }
    return TRI_OK;
}
