/* AVX2, FMA and F16C form of the vector operations; see simd.h for what each one means. */
#ifndef TRI_RUNTIME_KERNELS_CPU_SIMD_AVX2_H
#define TRI_RUNTIME_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define VF           8
#define TRI_ISA_TEXT "avx2"

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;
typedef struct {
    __m256d lo, hi;
} vd;

static inline __m256i vm_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

static inline vf vf_load_n(const float *p, int64_t n)
{
    return n >= VF ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vm_first(n));
}

static inline void vf_store_n(float *p, vf x, int64_t n)
{
    if (n >= VF)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, vm_first(n), x);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

static inline vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf vf_pow2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* In two factors, so that results below 2^-126 and infinity come out too. */
static inline vf vf_scale2(vf a, vf n)
{
    __m256i k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1);

    return _mm256_mul_ps(_mm256_mul_ps(a, vf_pow2(half)), vf_pow2(_mm256_sub_epi32(k, half)));
}

static inline vm vf_gt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

static inline vm vf_first(int64_t n)
{
    return _mm256_castsi256_ps(vm_first(n > VF ? VF : n < 0 ? 0 : n));
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}

static inline float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_low(vf a)
{
    return _mm256_cvtss_f32(a);
}

static inline vd vd_zero(void)
{
    return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

static inline vd vd_add_square(vd s, vf x)
{
    __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));

    return (vd){_mm256_fmadd_pd(lo, lo, s.lo), _mm256_fmadd_pd(hi, hi, s.hi)};
}

static inline double vd_sum(vd s)
{
    __m256d t = _mm256_add_pd(s.lo, s.hi);
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(t), _mm256_extractf128_pd(t, 1));

    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);

    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), lsb);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    r = _mm256_srli_epi32(r, 16);
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline vi vi_set(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

static inline vi vi_load(const uint32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline void vi_store(uint32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static inline vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}

static inline void vi_mul_wide(vi a, vi b, vi *hi, vi *lo)
{
    __m256i even = _mm256_mul_epu32(a, b);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);

    *hi = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *lo = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

static inline void vi_transpose4(vi *a, vi *b, vi *c, vi *d)
{
    __m256i ab0 = _mm256_unpacklo_epi32(*a, *b), ab1 = _mm256_unpackhi_epi32(*a, *b);
    __m256i cd0 = _mm256_unpacklo_epi32(*c, *d), cd1 = _mm256_unpackhi_epi32(*c, *d);

    *a = _mm256_unpacklo_epi64(ab0, cd0);
    *b = _mm256_unpackhi_epi64(ab0, cd0);
    *c = _mm256_unpacklo_epi64(ab1, cd1);
    *d = _mm256_unpackhi_epi64(ab1, cd1);
}

/* Both sides are at most 2^24, so that the signed comparison is right. */
static inline vf vf_keep(vi word, vi limit, vf a)
{
    __m256i drop = _mm256_cmpgt_epi32(limit, _mm256_srli_epi32(word, 8));

    return _mm256_andnot_ps(_mm256_castsi256_ps(drop), a);
}

static inline void vf_store_columns(float *o, ptrdiff_t ld, vf r0, vf r1, vf r2, vf r3)
{
    vi a = _mm256_castps_si256(r0), b = _mm256_castps_si256(r1);
    vi c = _mm256_castps_si256(r2), d = _mm256_castps_si256(r3);

    vi_transpose4(&a, &b, &c, &d);
#define PART(v, q) _mm256_extractf128_ps(_mm256_castsi256_ps(v), q)
    _mm_storeu_ps(o + 0 * ld, PART(a, 0));
    _mm_storeu_ps(o + 1 * ld, PART(b, 0));
    _mm_storeu_ps(o + 2 * ld, PART(c, 0));
    _mm_storeu_ps(o + 3 * ld, PART(d, 0));
    _mm_storeu_ps(o + 4 * ld, PART(a, 1));
    _mm_storeu_ps(o + 5 * ld, PART(b, 1));
    _mm_storeu_ps(o + 6 * ld, PART(c, 1));
    _mm_storeu_ps(o + 7 * ld, PART(d, 1));
#undef PART
}

#endif
