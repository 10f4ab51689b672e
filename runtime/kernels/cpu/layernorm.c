/* LAYERNORM and LAYERNORM_GRAD (Ba, Kiros, Hinton, "Layer normalization", 2016).
 *
 * Rows are independent: mean, then centred variance with a correction of the mean, f32 over lanes,
 * the row being in cache. Class: 8 ulp of the largest term. dgamma and dbeta: partial sums of fixed
 * row blocks, added in order: the same bits for every number of threads. With xhat = (x - mean)
 * rstd and g = dy gamma: dx = rstd (g - avg g - xhat avg(g xhat)) + dsum. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <math.h>
#include <string.h>

static tri_status prepare_layernorm(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_layernorm), 0, &k));
    k->dim[0] = tri_simd_has_in(d, 3);  /* residual */
    k->dim[1] = tri_simd_has_out(d, 3); /* sum */
    *out = &k->base;
    return TRI_OK;
}

/* sum[c] = x[c] + r[c], and the sum of these. */
static float add_row(const float *x, const float *r, float *sum, int64_t n)
{
    vf s = vf_set(0.0f);

    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_add(vf_load_n(x + i, n - i), vf_load_n(r + i, n - i));

        vf_store_n(sum + i, v, n - i);
        s = vf_add(s, v);
    }
    return vf_sum(s);
}

static float sum_row(const float *x, int64_t n)
{
    vf s = vf_set(0.0f);

    for (int64_t i = 0; i < n; i += VF)
        s = vf_add(s, vf_load_n(x + i, n - i));
    return vf_sum(s);
}

/* Variance about the true mean; *mean, which carries the error of a long sum, is set right on the
 * way. */
static float variance_row(const float *x, float *mean, int64_t n)
{
    vf s = vf_set(0.0f), e = vf_set(0.0f), m = vf_set(*mean);
    float off;

    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_select(vf_first(n - i), vf_sub(vf_load_n(x + i, n - i), m), vf_set(0.0f));

        s = vf_fma(v, v, s);
        e = vf_add(e, v);
    }
    off = vf_sum(e) / (float)n;
    *mean += off;
    return vf_sum(s) / (float)n - off * off;
}

static void norm_row(const float *x, const float *gamma, const float *beta, float mean, float rstd,
                     float *y, int64_t n)
{
    vf m = vf_set(mean), r = vf_set(rstd);

    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_mul(vf_sub(vf_load_n(x + i, n - i), m), r);

        vf_store_n(y + i, vf_fma(v, vf_load_n(gamma + i, n - i), vf_load_n(beta + i, n - i)),
                   n - i);
    }
}

static tri_status run_layernorm(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *x = args->in[0], *gamma = args->in[1], *beta = args->in[2];
    const float *residual = k->dim[0] != 0 ? args->in[3] : NULL;
    float *y = args->out[0], *mean = args->out[1], *rstd = args->out[2];
    float *sum = k->dim[1] != 0 ? args->out[3] : NULL;
    int64_t C = k->cols;

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t r = 0; r < k->rows; r++) {
        const float *row = x + r * C;
        float total, m, s;

        if (residual != NULL) {
            float *to = sum != NULL ? sum + r * C : y + r * C;

            total = add_row(row, residual + r * C, to, C);
            row = to;
        } else {
            total = sum_row(row, C);
            if (sum != NULL)
                memcpy(sum + r * C, row, (size_t)C * sizeof(float));
        }
        m = total / (float)C;
        s = 1.0f / sqrtf(variance_row(row, &m, C) + (float)k->attrs.norm.eps);
        norm_row(row, gamma, beta, m, s, y + r * C, C);
        mean[r] = m;
        rstd[r] = s;
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(layernorm);

static tri_status prepare_layernorm_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_layernorm_grad), 0, &k));
    k->dim[0] = tri_simd_has_in(d, 5); /* dsum */
    k->nblocks = tri_simd_row_blocks(k->rows, 2 * k->cols);
    k->base.scratch_bytes = (size_t)(2 * k->nblocks * k->cols) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}

/* One row: adds to dgamma, dbeta and writes dx; dsum may be NULL or dx. */
static void grad_row(const float *dy, const float *x, const float *gamma, float mean, float rstd,
                     const float *dsum, float *dx, float *dgamma, float *dbeta, int64_t n)
{
    vf m = vf_set(mean), r = vf_set(rstd), s1 = vf_set(0.0f), s2 = vf_set(0.0f), a1, a2;

    for (int64_t i = 0; i < n; i += VF) {
        int64_t left = n - i;
        vf d = vf_load_n(dy + i, left), g = vf_mul(d, vf_load_n(gamma + i, left));
        vf h = vf_mul(vf_sub(vf_load_n(x + i, left), m), r);

        s1 = vf_add(s1, g);
        s2 = vf_fma(g, h, s2);
        vf_store_n(dgamma + i, vf_fma(d, h, vf_load_n(dgamma + i, left)), left);
        vf_store_n(dbeta + i, vf_add(d, vf_load_n(dbeta + i, left)), left);
    }
    a1 = vf_set(vf_sum(s1) / (float)n);
    a2 = vf_set(vf_sum(s2) / (float)n);
    for (int64_t i = 0; i < n; i += VF) {
        int64_t left = n - i;
        vf g = vf_mul(vf_load_n(dy + i, left), vf_load_n(gamma + i, left));
        vf h = vf_mul(vf_sub(vf_load_n(x + i, left), m), r);
        vf t = vf_mul(r, vf_fnma(h, a2, vf_sub(g, a1)));

        if (dsum != NULL)
            t = vf_add(t, vf_load_n(dsum + i, left));
        vf_store_n(dx + i, t, left);
    }
}

static tri_status run_layernorm_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *dy = args->in[0], *x = args->in[1], *gamma = args->in[2], *mean = args->in[3];
    const float *rstd = args->in[4], *dsum = k->dim[0] != 0 ? args->in[5] : NULL;
    float *dx = args->out[0], *part = args->scratch;
    float *dgamma = args->out[1], *dbeta = args->out[2];
    int64_t C = k->cols, nb = k->nblocks;

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t b = 0; b < nb; b++) {
        float *pg = part + 2 * b * C, *pb = pg + C;

        memset(pg, 0, (size_t)(2 * C) * sizeof(float));
        for (int64_t r = k->rows * b / nb; r < k->rows * (b + 1) / nb; r++)
            grad_row(dy + r * C, x + r * C, gamma, mean[r], rstd[r],
                     dsum == NULL ? NULL : dsum + r * C, dx + r * C, pg, pb, C);
    }
    for (int64_t b = 1; b < nb; b++)
        (void)add_row(part, part + 2 * b * C, part, 2 * C);
    memcpy(dgamma, part, (size_t)C * sizeof(float));
    memcpy(dbeta, part + C, (size_t)C * sizeof(float));
    return TRI_OK;
}

TRI_SIMD_KERNEL(layernorm_grad);
