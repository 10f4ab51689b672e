/* Kernels beside the collectives of a compressed exchange. They run on the engine's thread and
 * start no team.
 *
 * Low rank: one round of subspace iteration (Vogels et al., "PowerSGD: practical low-rank gradient
 * compression for distributed optimization", NeurIPS 2019). Residuals are those of each
 * contributor: x - basis basis^T x, so that what is delivered and all residuals add up to what was
 * given. Sums over the short side of a product run in f32, of norms in f64. */
#include "runtime/kernels/ref/ref.h"

#include "runtime/kernels/compress.h"

#include <math.h>
#include <string.h>

tri_status tri_ref_compress(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const int64_t *counters = args->in[2];
    struct tri_compress_job job = {
        .grad = args->in[0],
        .residual = args->in[1],
        .velocity = d->nin > 3 ? args->in[3] : NULL,
        .n = tri_ref_count(&d->in[0]),
        .payload = args->out[0],
        .residual_out = args->out[1],
        .velocity_out = args->out[2],
    };

    tri_compress_encode(&d->attrs.compress, counters[TRI_COUNTER_STEP], &job);
    return TRI_OK;
}

tri_status tri_ref_decompress(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const int64_t *counters = args->in[1];

    float *out = args->out[0];

    if (d->nin > 2 && args->in[2] != NULL)
        out += d->attrs.compress.first;
    tri_compress_decode(&d->attrs.compress, counters[TRI_COUNTER_STEP], args->in[0],
                        tri_shape_count(&d->attrs.compress.shape), out);
    return TRI_OK;
}

/* Sign of element j of a direction that stands in for column c when that one is zero (as after a
 * step without gradient), since iteration would never leave zero. */
static float stand_in(int64_t j, int64_t c)
{
    return tri_mix64((uint64_t)j * 1024 + (uint64_t)c) & 1 ? 1.0f : -1.0f;
}

static bool column_is_zero(const float *a, int64_t n, int64_t r, int64_t c)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i * r + c] != 0)
            return false;
    return true;
}

tri_status tri_ref_lowrank_left(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    int64_t n = d->out[0].shape.dim[0], m = d->out[0].shape.dim[1], r = d->out[1].shape.dim[1];
    const float *g = args->in[0], *residual = args->in[1], *right = args->in[2];
    float *x = args->out[0], *left = args->out[1];
    int64_t before = d->attrs.compress.offset, count = tri_ref_count(&d->in[0]);

    for (int64_t i = 0; i < n * m; i++)
        x[i] = i < before || i >= before + count ? 0 : g[i - before] + residual[i - before];
    memset(left, 0, (size_t)(n * r) * sizeof(*left));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t c = 0; c < r; c++)
                left[i * r + c] += x[i * m + j] * right[j * r + c];
    for (int64_t c = 0; c < r; c++)
        if (column_is_zero(right, m, r, c))
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < m; j++)
                    left[i * r + c] += x[i * m + j] * stand_in(j, c);
    return TRI_OK;
}

static double column_product(const float *a, int64_t n, int64_t r, int64_t c, int64_t e)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i * r + c] * (double)a[i * r + e];
    return sum;
}

/* Modified Gram-Schmidt, twice for each column, so that it stays orthogonal in f32. A column that
 * depends on earlier ones becomes 0: it carries nothing. */
static void orthonormalise(float *a, int64_t n, int64_t r)
{
    for (int64_t c = 0; c < r; c++) {
        double before = sqrt(column_product(a, n, r, c, c)), norm;

        for (int64_t e = 0; e < 2 * c; e++) {
            double along = column_product(a, n, r, c, e % c);

            for (int64_t i = 0; i < n; i++)
                a[i * r + c] -= (float)(along * (double)a[i * r + e % c]);
        }
        norm = sqrt(column_product(a, n, r, c, c));
        for (int64_t i = 0; i < n; i++)
            a[i * r + c] =
                norm > 1e-5 * before ? (float)((double)a[i * r + c] / norm) : 0.0f * (float)norm;
    }
}

/* right = x^T basis; x = x - basis right^T */
static void project(const float *basis, int64_t n, int64_t m, int64_t r, const float *x,
                    float *right, float *rest)
{
    memset(right, 0, (size_t)(m * r) * sizeof(*right));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t c = 0; c < r; c++)
                right[j * r + c] += x[i * m + j] * basis[i * r + c];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            float sum = 0;

            for (int64_t c = 0; c < r; c++)
                sum += basis[i * r + c] * right[j * r + c];
            rest[i * m + j] = x[i * m + j] - sum;
        }
    }
}

tri_status tri_ref_lowrank_right(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    int64_t n = d->in[0].shape.dim[0], m = d->in[0].shape.dim[1], r = d->in[1].shape.dim[1];
    float *basis = args->out[0];

    memcpy(basis, args->in[1], (size_t)(n * r) * sizeof(*basis));
    orthonormalise(basis, n, r);
    project(basis, n, m, r, args->in[0], args->out[1], args->out[2]);
    return TRI_OK;
}

tri_status tri_ref_lowrank_product(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_compress *a = &d->attrs.compress;
    int64_t m = d->in[1].shape.dim[0], r = d->in[0].shape.dim[1];
    int64_t count = tri_shape_count(&a->shape);
    const float *basis = args->in[0], *right = args->in[1];
    float *g = (float *)args->out[0] + a->first;

    for (int64_t i = 0; i < count; i++) {
        const float *row = basis + (a->offset + i) / m * r,
                    *column = right + (a->offset + i) % m * r;
        float sum = 0;

        for (int64_t c = 0; c < r; c++)
            sum += row[c] * column[c];
        g[i] = sum;
    }
    return TRI_OK;
}

tri_status tri_ref_commit(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const double *scalars = args->in[2], change = scalars[TRI_SCALAR_SCALE_CHANGE];
    enum tri_dtype dtype = d->in[0].dtype;
    size_t size = tri_dtype_bytes(dtype);
    int64_t n = tri_ref_count(&d->in[0]);

    if (scalars[TRI_SCALAR_FINITE] != 0)
        memcpy(args->out[0], (const char *)args->in[1] + (size_t)d->attrs.view.offset * size,
               (size_t)n * size);
    for (int64_t i = 0; change != 0 && i < n; i++)
        tri_ref_store(dtype, args->out[0], i, tri_ref_load(dtype, args->out[0], i) * (1 + change));
    return TRI_OK;
}
