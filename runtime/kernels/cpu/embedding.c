/* EMBEDDING and EMBEDDING_GRAD.
 *
 * EMBEDDING is exact (one addition, rounded once to the table's type). The gradient adds the rows
 * of dy in the order of the tokens; threads share the columns, so that no two write one element and
 * the sums do not depend on their number. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <string.h>

#define PIECE 1024 /* elements of a 16-bit row that are widened at once */

static tri_status prepare_embedding(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_embedding), 0, &k));
    k->dim[2] = tri_simd_has_in(d, 2) ? d->in[2].shape.dim[0] : 0; /* P, 0 without positions */
    k->dim[3] = tri_simd_has_in(d, 3);
    k->dim[4] = d->in[1].shape.dim[0]; /* V */
    k->dim[5] = d->in[1].shape.dim[1]; /* C */
    *out = &k->base;
    return TRI_OK;
}

static tri_status check_ids(const int32_t *ids, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= rows)
            return tri_fail(TRI_ERR_DATA, "embedding: token %d is outside [0, %lld)", ids[i],
                            (long long)rows);
    return TRI_OK;
}

static void add_row(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(y + i, vf_add(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i)), n - i);
}

/* y = a + b for rows of a 16-bit type; b may be NULL. */
static void add_half_row(enum tri_dtype t, const uint16_t *a, const uint16_t *b, uint16_t *y,
                         int64_t n)
{
    float sum[PIECE], other[PIECE];

    if (b == NULL) {
        memcpy(y, a, (size_t)n * sizeof(*y));
        return;
    }
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;

        TRI_ISA_NAME(tri_simd_widen)(t, a + at, sum, m);
        TRI_ISA_NAME(tri_simd_widen)(t, b + at, other, m);
        add_row(sum, other, sum, m);
        TRI_ISA_NAME(tri_simd_narrow)(t, sum, y + at, m);
    }
}

/* Row i of y: a row of the table, and of the positions unless that is NULL. */
static void look_up(const struct simd_kernel *k, const struct tri_kernel_args *args, int64_t i,
                    int64_t id, int64_t position)
{
    int64_t C = k->dim[5];
    const float *table = args->in[1], *pos = k->dim[2] > 0 ? args->in[2] : NULL;
    float *y = args->out[0];

    if (tri_dtype_is_half(k->to))
        add_half_row(k->to, (const uint16_t *)args->in[1] + id * C,
                     pos == NULL ? NULL : (const uint16_t *)args->in[2] + position * C,
                     (uint16_t *)args->out[0] + i * C, C);
    else if (pos == NULL)
        memcpy(y + i * C, table + id * C, (size_t)C * sizeof(float));
    else
        add_row(table + id * C, pos + position * C, y + i * C, C);
}

static tri_status run_embedding(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const int32_t *ids = args->in[0];
    int64_t offset = k->dim[3] != 0 ? *(const int32_t *)args->in[3] : 0;
    int64_t T = k->cols, P = k->dim[2], C = k->dim[5];

    TRI_TRY(check_ids(ids, k->count, k->dim[4]));
    if (P > 0 && (offset < 0 || offset + T > P))
        return tri_fail(TRI_ERR_DATA, "embedding: positions %lld to %lld are outside [0, %lld)",
                        (long long)offset, (long long)(offset + T - 1), (long long)P);
#pragma omp parallel for num_threads(k->nthreads)                                                  \
    schedule(static) if (k->count * C > TRI_SIMD_GRAIN)
    for (int64_t i = 0; i < k->count; i++)
        look_up(k, args, i, ids[i], offset + i % T);
    return TRI_OK;
}

TRI_SIMD_KERNEL(embedding);

static tri_status prepare_embedding_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_embedding_grad), 0, &k));
    k->dim[2] = tri_simd_has_in(d, 2); /* adds to what is there */
    k->dim[5] = tri_shape_cols(&d->in[1].shape);
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_embedding_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const int32_t *ids = args->in[0];
    const float *dy = args->in[1];
    float *dt = args->out[0];
    int64_t V = k->attrs.rows, C = k->dim[5];
    int parts = k->nthreads;

    TRI_TRY(check_ids(ids, k->count, V));
#pragma omp parallel num_threads(parts) if (k->count * C > TRI_SIMD_GRAIN)
    {
        if (k->dim[2] == 0)
#pragma omp for schedule(static)
            for (int t = 0; t < parts; t++) {
                int64_t lo = simd_part(V * C, 1024, t, parts);
                int64_t hi = simd_part(V * C, 1024, t + 1, parts);

                memset(dt + lo, 0, (size_t)(hi - lo) * sizeof(float));
            }
#pragma omp for schedule(static)
        for (int t = 0; t < parts; t++) {
            int64_t lo = simd_part(C, 16, t, parts), n = simd_part(C, 16, t + 1, parts) - lo;

            for (int64_t i = 0; i < k->count; i++) {
                float *row = dt + ids[i] * C + lo;

                add_row(row, dy + i * C + lo, row, n);
            }
        }
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(embedding_grad);
