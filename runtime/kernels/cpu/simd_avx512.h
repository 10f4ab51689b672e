/* AVX-512 form of the vector operations; see simd.h for what each one means. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_AVX512_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define VF           16
#define TRI_ISA_TEXT "avx512"

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef struct {
    __m512d lo, hi;
} vd;

static inline __mmask16 vm_first(int64_t n)
{
    return (__mmask16)((1U << n) - 1U);
}

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline vf vf_load_n(const float *p, int64_t n)
{
    return n >= VF ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vm_first(n), p);
}

static inline void vf_store_n(float *p, vf x, int64_t n)
{
    if (n >= VF)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, vm_first(n), x);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

static inline vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf vf_scale2(vf a, vf n)
{
    return _mm512_scalef_ps(a, n);
}

static inline vm vf_gt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

static inline vm vf_first(int64_t n)
{
    return n >= VF ? (vm)0xffff : n <= 0 ? (vm)0 : vm_first(n);
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}

static inline float vf_hmax(vf a)
{
    return _mm512_reduce_max_ps(a);
}

static inline float vf_low(vf a)
{
    return _mm512_cvtss_f32(a);
}

static inline vd vd_zero(void)
{
    return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

static inline vd vd_add_square(vd s, vf x)
{
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));

    return (vd){_mm512_fmadd_pd(lo, lo, s.lo), _mm512_fmadd_pd(hi, hi, s.hi)};
}

static inline double vd_sum(vd s)
{
    return _mm512_reduce_add_pd(_mm512_add_pd(s.lo, s.hi));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), lsb);
    vm nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

    _mm256_storeu_si256((__m256i *)(void *)p, h);
}

static inline vi vi_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

static inline vi vi_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline void vi_store(uint32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

static inline void vi_mul_wide(vi a, vi b, vi *hi, vi *lo)
{
    __m512i even = _mm512_mul_epu32(a, b);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);

    *hi = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *lo = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

static inline void vi_transpose4(vi *a, vi *b, vi *c, vi *d)
{
    __m512i ab0 = _mm512_unpacklo_epi32(*a, *b), ab1 = _mm512_unpackhi_epi32(*a, *b);
    __m512i cd0 = _mm512_unpacklo_epi32(*c, *d), cd1 = _mm512_unpackhi_epi32(*c, *d);

    *a = _mm512_unpacklo_epi64(ab0, cd0);
    *b = _mm512_unpackhi_epi64(ab0, cd0);
    *c = _mm512_unpacklo_epi64(ab1, cd1);
    *d = _mm512_unpackhi_epi64(ab1, cd1);
}

/* a where (word >> 8) >= limit, else 0. */
static inline vf vf_keep(vi word, vi limit, vf a)
{
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(_mm512_srli_epi32(word, 8), limit), a);
}

static inline void vf_store_columns(float *o, ptrdiff_t ld, vf r0, vf r1, vf r2, vf r3)
{
    vi a = _mm512_castps_si512(r0), b = _mm512_castps_si512(r1);
    vi c = _mm512_castps_si512(r2), d = _mm512_castps_si512(r3);

    vi_transpose4(&a, &b, &c, &d);
#define PART(v, q) _mm512_extractf32x4_ps(_mm512_castsi512_ps(v), q)
    _mm_storeu_ps(o + 0 * ld, PART(a, 0));
    _mm_storeu_ps(o + 1 * ld, PART(b, 0));
    _mm_storeu_ps(o + 2 * ld, PART(c, 0));
    _mm_storeu_ps(o + 3 * ld, PART(d, 0));
    _mm_storeu_ps(o + 4 * ld, PART(a, 1));
    _mm_storeu_ps(o + 5 * ld, PART(b, 1));
    _mm_storeu_ps(o + 6 * ld, PART(c, 1));
    _mm_storeu_ps(o + 7 * ld, PART(d, 1));
    _mm_storeu_ps(o + 8 * ld, PART(a, 2));
    _mm_storeu_ps(o + 9 * ld, PART(b, 2));
    _mm_storeu_ps(o + 10 * ld, PART(c, 2));
    _mm_storeu_ps(o + 11 * ld, PART(d, 2));
    _mm_storeu_ps(o + 12 * ld, PART(a, 3));
    _mm_storeu_ps(o + 13 * ld, PART(b, 3));
    _mm_storeu_ps(o + 14 * ld, PART(c, 3));
    _mm_storeu_ps(o + 15 * ld, PART(d, 3));
#undef PART
}

#endif
