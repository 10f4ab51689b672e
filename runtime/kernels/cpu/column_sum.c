/* COLUMN_SUM and POSITION_GRAD: sums over rows.
 *
 * COLUMN_SUM: partial sums of fixed row blocks (tri_simd_row_blocks), each row after row, then over
 * the blocks in order; f32. Relative error about (rows per block + blocks) eps / 2 at worst.
 * POSITION_GRAD: over the batch in order. No sum depends on the number of threads. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <string.h>

/* s[c] += x[r][c] over rows [lo, hi): four rows at a time, so that s is touched a
 * quarter as often. */
static void add_rows(const float *x, int64_t cols, int64_t lo, int64_t hi, float *s)
{
    int64_t r = lo;

    for (; r + 4 <= hi; r += 4) {
        const float *p = x + r * cols;

        for (int64_t c = 0; c < cols; c += VF) {
            int64_t n = cols - c;
            vf a = vf_add(vf_load_n(p + c, n), vf_load_n(p + cols + c, n));
            vf b = vf_add(vf_load_n(p + 2 * cols + c, n), vf_load_n(p + 3 * cols + c, n));

            vf_store_n(s + c, vf_add(vf_load_n(s + c, n), vf_add(a, b)), n);
        }
    }
    for (; r < hi; r++)
        for (int64_t c = 0; c < cols; c += VF)
            vf_store_n(s + c,
                       vf_add(vf_load_n(s + c, cols - c), vf_load_n(x + r * cols + c, cols - c)),
                       cols - c);
}

static tri_status prepare_column_sum(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_column_sum), 0, &k));
    k->nblocks = tri_simd_row_blocks(k->rows, k->cols);
    k->base.scratch_bytes = (size_t)(k->nblocks * k->cols) * sizeof(float);
    k->dim[0] = tri_simd_has_in(d, 1); /* adds to what is there */
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_column_sum(const struct tri_kernel *kernel,
                                 const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *dy = args->in[0], *acc = k->dim[0] != 0 ? args->in[1] : NULL;
    float *part = args->scratch, *db = args->out[0];
    int64_t nb = k->nblocks, cols = k->cols;

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t b = 0; b < nb; b++) {
        memset(part + b * cols, 0, (size_t)cols * sizeof(float));
        add_rows(dy, cols, k->rows * b / nb, k->rows * (b + 1) / nb, part + b * cols);
    }
    if (nb > 1)
        add_rows(part, cols, 1, nb, part);
    for (int64_t c = 0; c < cols; c++)
        db[c] = acc == NULL ? part[c] : acc[c] + part[c];
    return TRI_OK;
}

TRI_SIMD_KERNEL(column_sum);

static tri_status prepare_position_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_position_grad), 0, &k));
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_position_grad(const struct tri_kernel *kernel,
                                    const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *dy = args->in[0];
    float *dp = args->out[0];
    int64_t B = k->dim[0], T = k->dim[1], C = k->dim[2], P = k->attrs.rows;

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (P * C > TRI_SIMD_GRAIN)
    for (int64_t t = 0; t < P; t++) {
        float *row = dp + t * C;

        memset(row, 0, (size_t)C * sizeof(float));
        for (int64_t b = 0; t < T && b < B; b++)
            add_rows(dy + (b * T + t) * C, C, 0, 1, row);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(position_grad);
