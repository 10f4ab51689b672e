/* CAST between f32, bf16 and f16: exact or rounded to nearest even. One pass over memory. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <string.h>

/* Elements that are converted through a buffer of f32. */
#define CHUNK 1024

void TRI_ISA_NAME(tri_simd_widen)(enum tri_dtype t, const void *src, float *dst, int64_t n)
{
    const uint16_t *h = src;
    int64_t i = 0;

    if (t == TRI_F32) {
        memcpy(dst, src, (size_t)n * sizeof(*dst));
        return;
    }
    for (; t == TRI_BF16 && i + VF <= n; i += VF)
        vf_store(dst + i, vf_load_bf16(h + i));
    for (; t == TRI_F16 && i + VF <= n; i += VF)
        vf_store(dst + i, vf_load_f16(h + i));
    for (; i < n; i++)
        dst[i] = t == TRI_BF16 ? tri_bf16_to_f32(h[i]) : tri_f16_to_f32(h[i]);
}

void TRI_ISA_NAME(tri_simd_narrow)(enum tri_dtype t, const float *src, void *dst, int64_t n)
{
    uint16_t *h = dst;
    int64_t i = 0;

    if (t == TRI_F32) {
        memcpy(dst, src, (size_t)n * sizeof(*src));
        return;
    }
    for (; t == TRI_BF16 && i + VF <= n; i += VF)
        vf_store_bf16(h + i, vf_load(src + i));
    for (; t == TRI_F16 && i + VF <= n; i += VF)
        vf_store_f16(h + i, vf_load(src + i));
    for (; i < n; i++)
        h[i] = t == TRI_BF16 ? tri_bf16_from_f32(src[i]) : tri_f16_from_f32(src[i]);
}

static bool known(enum tri_dtype t)
{
    return t == TRI_F32 || t == TRI_BF16 || t == TRI_F16;
}

static tri_status prepare_cast(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!known(d->in[0].dtype) || !known(d->out[0].dtype))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_cast), 0, &k));
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_cast(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const char *src = args->in[0];
    char *dst = args->out[0];
    int64_t from = (int64_t)tri_dtype_bytes(k->from), to = (int64_t)tri_dtype_bytes(k->to);
    int64_t chunks = (k->count + CHUNK - 1) / CHUNK;

#pragma omp parallel for num_threads(k->nthreads) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int64_t c = 0; c < chunks; c++) {
        float buffer[CHUNK];
        int64_t at = c * CHUNK, n = k->count - at < CHUNK ? k->count - at : CHUNK;

        if (k->from == TRI_F32) {
            TRI_ISA_NAME(tri_simd_narrow)(k->to, (const float *)args->in[0] + at, dst + at * to, n);
        } else if (k->to == TRI_F32) {
            TRI_ISA_NAME(tri_simd_widen)(k->from, src + at * from, (float *)args->out[0] + at, n);
        } else {
            TRI_ISA_NAME(tri_simd_widen)(k->from, src + at * from, buffer, n);
            TRI_ISA_NAME(tri_simd_narrow)(k->to, buffer, dst + at * to, n);
        }
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(cast);
