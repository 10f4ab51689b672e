/* SUMSQ: sum of squares in f64 over blocks of TRI_SUM_BLOCK elements, added in order: relative
 * error 1e-13, the same bits for every number of threads. Infinite or NaN elements make it infinite
 * or NaN. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

static tri_status prepare_sumsq(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (d->in[0].dtype != TRI_F32)
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_sumsq), 0, &k));
    k->nblocks = (k->count + TRI_SUM_BLOCK - 1) / TRI_SUM_BLOCK;
    k->base.scratch_bytes = (size_t)k->nblocks * sizeof(double);
    *out = &k->base;
    return TRI_OK;
}

static double block_sum(const float *x, int64_t n)
{
    vd s0 = vd_zero(), s1 = vd_zero();
    int64_t i = 0;

    for (; i + 2 * VF <= n; i += 2 * VF) {
        s0 = vd_add_square(s0, vf_load(x + i));
        s1 = vd_add_square(s1, vf_load(x + i + VF));
    }
    for (; i < n; i += VF)
        s0 = vd_add_square(s0, vf_load_n(x + i, n - i));
    return vd_sum(s0) + vd_sum(s1);
}

static tri_status run_sumsq(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *x = args->in[0];
    double *part = args->scratch, sum = 0.0;

#pragma omp parallel for num_threads(k->nthreads)                                                  \
    schedule(static) if (k->count > 4 * TRI_SIMD_GRAIN)
    for (int64_t b = 0; b < k->nblocks; b++) {
        int64_t at = b * TRI_SUM_BLOCK, n = k->count - at;

        part[b] = block_sum(x + at, n < TRI_SUM_BLOCK ? n : TRI_SUM_BLOCK);
    }
    for (int64_t b = 0; b < k->nblocks; b++)
        sum += part[b];
    *(double *)args->out[0] = sum;
    return TRI_OK;
}

TRI_SIMD_KERNEL(sumsq);
