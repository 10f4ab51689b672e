/* Plain C form of the vector operations, one lane wide; see simd.h for what each one means. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_SCALAR_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_SCALAR_H

#include "runtime/core/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VF           1
#define TRI_ISA_TEXT "scalar"

typedef float vf;
typedef bool vm;
typedef double vd;

static inline vf vf_set(float x)
{
    return x;
}

static inline vf vf_load(const float *p)
{
    return *p;
}

static inline void vf_store(float *p, vf x)
{
    *p = x;
}

static inline vf vf_load_n(const float *p, int64_t n)
{
    (void)n;
    return *p;
}

static inline void vf_store_n(float *p, vf x, int64_t n)
{
    (void)n;
    *p = x;
}

static inline vf vf_add(vf a, vf b)
{
    return a + b;
}

static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}

static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}

static inline vf vf_div(vf a, vf b)
{
    return a / b;
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return c - a * b;
}

static inline vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}

static inline vf vf_min(vf a, vf b)
{
    return a < b ? a : b;
}

static inline vf vf_sqrt(vf a)
{
    return sqrtf(a);
}

static inline vf vf_round(vf a)
{
    return rintf(a);
}

static inline vf vf_pow2(int n)
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* In two factors, so that results below 2^-126 and infinity come out too. */
static inline vf vf_scale2(vf a, vf n)
{
    int k = isnan(n) ? 0 : (int)n;

    return a * vf_pow2(k / 2) * vf_pow2(k - k / 2);
}

static inline vm vf_gt(vf a, vf b)
{
    return a > b;
}

static inline vm vf_first(int64_t n)
{
    return n > 0;
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return m ? a : b;
}

static inline float vf_sum(vf a)
{
    return a;
}

static inline float vf_hmax(vf a)
{
    return a;
}

static inline float vf_low(vf a)
{
    return a;
}

static inline vd vd_zero(void)
{
    return 0.0;
}

static inline vd vd_add_square(vd s, vf x)
{
    return s + (double)x * (double)x;
}

static inline double vd_sum(vd s)
{
    return s;
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return tri_bf16_to_f32(*p);
}

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    *p = tri_bf16_from_f32(x);
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return tri_f16_to_f32(*p);
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    *p = tri_f16_from_f32(x);
}

static inline void vf_store_columns(float *o, ptrdiff_t ld, vf r0, vf r1, vf r2, vf r3)
{
    (void)ld;
    o[0] = r0;
    o[1] = r1;
    o[2] = r2;
    o[3] = r3;
}

#endif
