/* BATCHNORM, BATCHNORM_GRAD, BATCHNORM_INFER (Ioffe, Szegedy, "Batch normalization", 2015) with
 * addition and ReLU in the same pass.
 *
 * x is [R, C], R = B H W rows, of which the first nreal H W count. Rows go in fixed blocks of at
 * most 32 KB: forward takes each block's mean and centred sum of squares while it is in cache, and
 * joins blocks in order in f64 (Chan, Golub, LeVeque, 1979), so that x is read from memory twice in
 * all; backward likewise sums dy and dy (x - mean), then writes dx. Class: 1e-5 relative to the
 * largest term; the same bits for every number of threads. Padding rows give y = 0, dx = 0. */
#include "runtime/core/memory.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <math.h>
#include <string.h>

#define NV 4 /* vectors of columns that a sum keeps in registers */

struct blocks {
    int64_t rows; /* of a full block */
    int64_t real; /* rows that count */
    int64_t all, cols;
    float *part; /* [nblocks][2][cols] */
    double *sum; /* [2][cols] */
    float *coef; /* [3][cols] */
};

static int64_t block_rows(int64_t cols)
{
    return cols < 8192 / 16 ? 8192 / cols : 16;
}

static size_t part_bytes(const struct simd_kernel *k)
{
    return tri_round_up((size_t)(2 * k->nblocks * k->cols) * sizeof(float), 64);
}

static tri_status prepare_norm(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               int residual_in, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    k->dim[5] = tri_simd_has_in(d, residual_in) ? residual_in : -1;
    k->nblocks = (k->rows + block_rows(k->cols) - 1) / block_rows(k->cols);
    k->base.scratch_bytes =
        part_bytes(k) + (size_t)k->cols * (2 * sizeof(double) + 3 * sizeof(float));
    *out = &k->base;
    return TRI_OK;
}

static struct blocks blocks_make(const struct simd_kernel *k, void *scratch, int64_t nreal)
{
    struct blocks b = {0};

    b.rows = block_rows(k->cols);
    b.all = k->rows;
    b.cols = k->cols;
    b.real = k->dim[0] > 0 ? k->rows / k->dim[0] * nreal : 0;
    b.part = scratch;
    b.sum = (double *)(void *)((char *)scratch + part_bytes(k));
    b.coef = (float *)(void *)(b.sum + 2 * k->cols);
    return b;
}

/* Rows of block i that count, 0 at least. */
static int64_t block_count(const struct blocks *b, int64_t i)
{
    int64_t n = b->real - i * b->rows;

    return n < 0 ? 0 : n < b->rows ? n : b->rows;
}

/* Mean and centred sum of squares of nv VF columns (the last vector has `last` lanes)
 * over n rows. */
TRI_INLINE void stats_columns(int nv, const float *x, int64_t cols, int64_t n, int64_t last,
                              float *mean, float *m2)
{
    vf s[NV], q[NV], inv = vf_set(1.0f / (float)n);

    for (int v = 0; v < nv; v++)
        s[v] = q[v] = vf_set(0.0f);
    for (int64_t r = 0; r < n; r++)
        for (int v = 0; v < nv; v++)
            s[v] = vf_add(s[v], vf_load_n(x + r * cols + v * VF, v + 1 < nv ? VF : last));
    for (int v = 0; v < nv; v++)
        s[v] = vf_mul(s[v], inv);
    for (int64_t r = 0; r < n; r++)
        for (int v = 0; v < nv; v++) {
            vf d = vf_sub(vf_load_n(x + r * cols + v * VF, v + 1 < nv ? VF : last), s[v]);

            q[v] = vf_fma(d, d, q[v]);
        }
    for (int v = 0; v < nv; v++) {
        vf_store_n(mean + v * VF, s[v], v + 1 < nv ? VF : last);
        vf_store_n(m2 + v * VF, q[v], v + 1 < nv ? VF : last);
    }
}

static void stats_block(const float *x, int64_t cols, int64_t n, float *mean, float *m2)
{
    int64_t c = 0;

    for (; c + NV * VF <= cols; c += NV * VF)
        stats_columns(NV, x + c, cols, n, VF, mean + c, m2 + c);
    for (; c < cols; c += VF)
        stats_columns(1, x + c, cols, n, cols - c, mean + c, m2 + c);
}

/* Joins the blocks: sum[0] = mean, sum[1] = centred sum of squares. */
static void join_blocks(const struct blocks *b, int64_t nblocks)
{
    double *mean = b->sum, *m2 = b->sum + b->cols;

    for (int64_t c = 0; c < b->cols; c++)
        mean[c] = m2[c] = 0.0;
    for (int64_t i = 0; i < nblocks && block_count(b, i) > 0; i++)
        for (int64_t c = 0; c < b->cols; c++)
            mean[c] += (double)block_count(b, i) * (double)b->part[2 * i * b->cols + c];
    for (int64_t c = 0; c < b->cols && b->real > 0; c++)
        mean[c] /= (double)b->real;
    for (int64_t i = 0; i < nblocks && block_count(b, i) > 0; i++)
        for (int64_t c = 0; c < b->cols; c++) {
            double d = (double)b->part[2 * i * b->cols + c] - mean[c];

            m2[c] += (double)b->part[(2 * i + 1) * b->cols + c] + (double)block_count(b, i) * d * d;
        }
}

/* Writes mean, invstd and moments; leaves mean and gamma invstd in coef. */
static void finish_stats(const struct blocks *b, double eps, int64_t nreal, const float *gamma,
                         void *const *out)
{
    float *mean = out[1], *invstd = out[2], *moments = out[3];
    double n = (double)b->real;

    for (int64_t c = 0; c < b->cols; c++) {
        double m2 = b->sum[b->cols + c];
        double inv = b->real > 0 ? 1.0 / sqrt(m2 / n + eps) : 0.0;

        mean[c] = (float)b->sum[c];
        invstd[c] = (float)inv;
        b->coef[c] = mean[c];
        b->coef[b->cols + c] = (float)((double)gamma[c] * inv);
        if (moments != NULL) {
            moments[c] = (float)((double)nreal * b->sum[c]);
            moments[b->cols + c] = (float)((double)nreal * m2 / (n > 1.0 ? n - 1.0 : 1.0));
        }
    }
    if (moments != NULL)
        moments[2 * b->cols] = (float)nreal;
}

/* y = relu?((x - mean) a + beta + residual) for n rows. */
static void apply_rows(const struct blocks *b, const float *x, const float *beta,
                       const float *residual, bool relu, float *y, int64_t n)
{
    const float *mean = b->coef, *a = b->coef + b->cols;

    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < b->cols; c += VF) {
            int64_t left = b->cols - c, at = r * b->cols + c;
            vf v = vf_sub(vf_load_n(x + at, left), vf_load_n(mean + c, left));

            v = vf_fma(v, vf_load_n(a + c, left), vf_load_n(beta + c, left));
            if (residual != NULL)
                v = vf_add(v, vf_load_n(residual + at, left));
            if (relu)
                v = vf_max(vf_set(0.0f), v);
            vf_store_n(y + at, v, left);
        }
}

static void apply_blocks(const struct simd_kernel *k, const struct blocks *b,
                         const struct tri_kernel_args *args)
{
    const float *x = args->in[0], *beta = args->in[2];
    const float *residual = k->dim[5] >= 0 ? args->in[k->dim[5]] : NULL;
    float *y = args->out[0];

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t i = 0; i < k->nblocks; i++) {
        int64_t at = i * b->rows * b->cols, n = block_count(b, i);
        int64_t all = b->all - i * b->rows < b->rows ? b->all - i * b->rows : b->rows;

        apply_rows(b, x + at, beta, residual == NULL ? NULL : residual + at, k->attrs.norm.relu,
                   y + at, n);
        memset(y + at + n * b->cols, 0, (size_t)((all - n) * b->cols) * sizeof(float));
    }
}

static tri_status prepare_batchnorm(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_norm(d, &TRI_ISA_NAME(tri_simd_batchnorm), 4, out);
}

static tri_status run_batchnorm(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *x = args->in[0];
    int64_t nreal = *(const int32_t *)args->in[3];
    struct blocks b = blocks_make(k, args->scratch, nreal);

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t i = 0; i < k->nblocks; i++)
        if (block_count(&b, i) > 0)
            stats_block(x + i * b.rows * b.cols, b.cols, block_count(&b, i),
                        b.part + 2 * i * b.cols, b.part + (2 * i + 1) * b.cols);
    join_blocks(&b, k->nblocks);
    finish_stats(&b, k->attrs.norm.eps, nreal, args->in[1], args->out);
    apply_blocks(k, &b, args);
    return TRI_OK;
}

TRI_SIMD_KERNEL(batchnorm);

static tri_status prepare_batchnorm_infer(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_norm(d, &TRI_ISA_NAME(tri_simd_batchnorm_infer), 5, out);
}

static tri_status run_batchnorm_infer(const struct tri_kernel *kernel,
                                      const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *gamma = args->in[1], *mean = args->in[3], *var = args->in[4];
    struct blocks b = blocks_make(k, args->scratch, k->dim[0]);

    for (int64_t c = 0; c < b.cols; c++) {
        b.coef[c] = mean[c];
        b.coef[b.cols + c] = (float)((double)gamma[c] / sqrt((double)var[c] + k->attrs.norm.eps));
    }
    apply_blocks(k, &b, args);
    return TRI_OK;
}

TRI_SIMD_KERNEL(batchnorm_infer);

/* dy, or 0 where y is not positive. */
TRI_INLINE vf masked(const float *dy, const float *y, int64_t n)
{
    vf d = vf_load_n(dy, n);

    return y == NULL ? d : vf_select(vf_gt(vf_load_n(y, n), vf_set(0.0f)), d, vf_set(0.0f));
}

TRI_INLINE void grad_columns(int nv, const float *dy, const float *x, const float *y,
                             const float *mean, int64_t cols, int64_t n, int64_t last, float *sum,
                             float *dot)
{
    vf s[NV], q[NV], m[NV];

    for (int v = 0; v < nv; v++) {
        s[v] = q[v] = vf_set(0.0f);
        m[v] = vf_load_n(mean + v * VF, v + 1 < nv ? VF : last);
    }
    for (int64_t r = 0; r < n; r++)
        for (int v = 0; v < nv; v++) {
            int64_t at = r * cols + v * VF, left = v + 1 < nv ? VF : last;
            vf d = masked(dy + at, y == NULL ? NULL : y + at, left);

            s[v] = vf_add(s[v], d);
            q[v] = vf_fma(d, vf_sub(vf_load_n(x + at, left), m[v]), q[v]);
        }
    for (int v = 0; v < nv; v++) {
        vf_store_n(sum + v * VF, s[v], v + 1 < nv ? VF : last);
        vf_store_n(dot + v * VF, q[v], v + 1 < nv ? VF : last);
    }
}

static void grad_stats(const float *dy, const float *x, const float *y, const float *mean,
                       int64_t cols, int64_t n, float *sum, float *dot)
{
    int64_t c = 0;

    for (; c + NV * VF <= cols; c += NV * VF)
        grad_columns(NV, dy + c, x + c, y == NULL ? NULL : y + c, mean + c, cols, n, VF, sum + c,
                     dot + c);
    for (; c < cols; c += VF)
        grad_columns(1, dy + c, x + c, y == NULL ? NULL : y + c, mean + c, cols, n, cols - c,
                     sum + c, dot + c);
}

/* Joins the blocks into dgamma and dbeta; coef = gamma invstd, dbeta / n, dgamma invstd / n. */
static void finish_grad(const struct blocks *b, int64_t nblocks, const float *gamma,
                        const float *invstd, float *dgamma, float *dbeta)
{
    double *sum = b->sum, *dot = b->sum + b->cols, n = b->real > 0 ? (double)b->real : 1.0;

    for (int64_t c = 0; c < b->cols; c++)
        sum[c] = dot[c] = 0.0;
    for (int64_t i = 0; i < nblocks && block_count(b, i) > 0; i++)
        for (int64_t c = 0; c < b->cols; c++) {
            sum[c] += (double)b->part[2 * i * b->cols + c];
            dot[c] += (double)b->part[(2 * i + 1) * b->cols + c];
        }
    for (int64_t c = 0; c < b->cols; c++) {
        double g = dot[c] * (double)invstd[c];

        dgamma[c] = (float)g;
        dbeta[c] = (float)sum[c];
        b->coef[c] = gamma[c] * invstd[c];
        b->coef[b->cols + c] = (float)(sum[c] / n);
        b->coef[2 * b->cols + c] = (float)(g * (double)invstd[c] / n);
    }
}

static void grad_rows(const struct blocks *b, const float *mean, const float *dy, const float *x,
                      const float *y, float *dx, float *dresidual, int64_t n)
{
    const float *a = b->coef, *k1 = b->coef + b->cols, *k2 = b->coef + 2 * b->cols;

    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < b->cols; c += VF) {
            int64_t left = b->cols - c, at = r * b->cols + c;
            vf d = masked(dy + at, y == NULL ? NULL : y + at, left);
            vf h = vf_sub(vf_load_n(x + at, left), vf_load_n(mean + c, left));
            vf t = vf_fnma(h, vf_load_n(k2 + c, left), vf_sub(d, vf_load_n(k1 + c, left)));

            vf_store_n(dx + at, vf_mul(t, vf_load_n(a + c, left)), left);
            if (dresidual != NULL)
                vf_store_n(dresidual + at, d, left);
        }
}

static tri_status prepare_batchnorm_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    TRI_TRY(prepare_norm(d, &TRI_ISA_NAME(tri_simd_batchnorm_grad), 6, out));
    k = (struct simd_kernel *)*out;
    k->dim[4] = tri_simd_has_out(d, 3); /* dresidual */
    return TRI_OK;
}

static tri_status run_batchnorm_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *dy = args->in[0], *x = args->in[1], *mean = args->in[3];
    const float *y = k->attrs.norm.relu && k->dim[5] >= 0 ? args->in[6] : NULL;
    float *dx = args->out[0], *dres = k->dim[4] != 0 ? args->out[3] : NULL;
    struct blocks b = blocks_make(k, args->scratch, *(const int32_t *)args->in[5]);

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t i = 0; i < k->nblocks; i++) {
        int64_t at = i * b.rows * b.cols;

        if (block_count(&b, i) > 0)
            grad_stats(dy + at, x + at, y == NULL ? NULL : y + at, mean, b.cols, block_count(&b, i),
                       b.part + 2 * i * b.cols, b.part + (2 * i + 1) * b.cols);
    }
    finish_grad(&b, k->nblocks, args->in[2], args->in[4], args->out[1], args->out[2]);
#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t i = 0; i < k->nblocks; i++) {
        int64_t at = i * b.rows * b.cols, n = block_count(&b, i);
        int64_t all = b.all - i * b.rows < b.rows ? b.all - i * b.rows : b.rows;
        size_t pad = (size_t)((all - n) * b.cols) * sizeof(float);

        grad_rows(&b, mean, dy + at, x + at, y == NULL ? NULL : y + at, dx + at,
                  dres == NULL ? NULL : dres + at, n);
        memset(dx + at + n * b.cols, 0, pad);
        if (dres != NULL)
            memset(dres + at + n * b.cols, 0, pad);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(batchnorm_grad);
