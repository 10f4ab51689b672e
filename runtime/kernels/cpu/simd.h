/* Vectors of the instruction set that a file is compiled for.
 *
 * Every kernel of this folder that includes this header is compiled once for each of scalar, AVX2
 * and AVX-512 (see meson.build); runtime dispatch happens in simd_dispatch.c, at prepare. The
 * operations, on VF lanes of f32:
 *
 *   vf_set, vf_load, vf_store      broadcast; unaligned load and store
 *   vf_load_n, vf_store_n          the first min(n, VF) lanes, n >= 1; missing lanes read as 0 and
 * are not written vf_add .. vf_sqrt, vf_round    as named; vf_fma(a,b,c) = a b + c, vf_fnma = c - a
 * b; rounding is to even vf_max, vf_min                 b when either is NaN: put the value that
 * may be NaN second to keep it vf_scale2(a, n)                a 2^n for integral n in [-252, 254]
 *   vf_gt, vf_first(n), vf_select  masks: a > b; lanes below n; m ? a : b
 *   vf_sum, vf_hmax, vf_low        horizontal reductions; lane 0
 *   vd_zero, vd_add_square, vd_sum sums in f64, one lane each
 *   vf_store_columns(o, ld, r0..r3) the VF columns of four rows: column i to o[i ld .. i ld + 3]
 *   vf_load_bf16 ..                conversions of VF elements, to nearest even
 *   vi_*                           VF lanes of 32-bit unsigned (not in the scalar form): for Philox
 *
 * With -std=c11 nothing is contracted: products and sums are fused only where vf_fma says so. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_H

#if defined(__AVX512F__)
#include "runtime/kernels/cpu/simd_avx512.h"
#elif defined(__AVX2__)
#include "runtime/kernels/cpu/simd_avx2.h"
#else
#include "runtime/kernels/cpu/simd_scalar.h"
#endif

#include <math.h>

#define TRI_INLINE static inline __attribute__((always_inline))

/* e^x within 2 ulp where the result is normal; 0 below -104, infinite above 88.73, NaN for NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; coefficients of Cephes' expf (S. Moshier) for e^r. */
TRI_INLINE vf vf_exp(vf x)
{
    vf n, r, p;

    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x));
    n = vf_round(vf_mul(x, vf_set(1.44269504088896341f)));
    r = vf_fnma(n, vf_set(0.693359375f), x);
    r = vf_fnma(n, vf_set(-2.12194440e-4f), r);
    p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, vf_mul(r, r), vf_add(r, vf_set(1.0f)));
    return vf_scale2(p, n);
}

/* 1 / (1 + e^-x). */
TRI_INLINE vf vf_sigmoid(vf x)
{
    return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_set(0.0f), x))));
}

#endif
