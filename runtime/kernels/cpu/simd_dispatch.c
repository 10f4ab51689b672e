#include "runtime/kernels/cpu/simd_dispatch.h"

#include "runtime/core/status.h"

static const struct tri_kernel_ops *const *const tables[TRI_ISA_COUNT] = {
    [TRI_ISA_SCALAR] = tri_simd_kernels_scalar,
    [TRI_ISA_AVX2] = tri_simd_kernels_avx2,
    [TRI_ISA_AVX512] = tri_simd_kernels_avx512,
};

#define CONVERT(isa)                                                                               \
    void tri_simd_widen_##isa(enum tri_dtype t, const void *src, float *dst, int64_t n);           \
    void tri_simd_narrow_##isa(enum tri_dtype t, const float *src, void *dst, int64_t n);          \
    static const struct tri_simd_convert convert_##isa = {tri_simd_widen_##isa,                    \
                                                          tri_simd_narrow_##isa}
CONVERT(scalar);
CONVERT(avx2);
CONVERT(avx512);

const struct tri_simd_convert *tri_simd_convert(void)
{
    static const struct tri_simd_convert *const all[TRI_ISA_COUNT] = {
        [TRI_ISA_SCALAR] = &convert_scalar,
        [TRI_ISA_AVX2] = &convert_avx2,
        [TRI_ISA_AVX512] = &convert_avx512,
    };

    return all[tri_cpu_isa()];
}

static tri_status prepare_simd(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    const struct tri_kernel_ops *ops = tables[tri_cpu_isa()][d->kind];

    return ops == NULL ? TRI_ERR_UNSUPPORTED : ops->prepare(d, out);
}

static tri_status run_simd(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    return k->ops->run(k, a);
}

static void destroy_simd(struct tri_kernel *k)
{
    if (k != NULL)
        k->ops->destroy(k);
}

const struct tri_kernel_ops tri_kernel_simd = {
    .name = "simd",
    .prepare = prepare_simd,
    .run = run_simd,
    .destroy = destroy_simd,
};
