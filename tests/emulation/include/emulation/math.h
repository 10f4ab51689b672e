/* Arithmetic of a kernel beyond <math.h>: intrinsics, conversions of bits, loads with hints,
 * atomics. Fast forms (__expf) are the exact ones. */
#ifndef TRI_EMULATION_MATH_H
#define TRI_EMULATION_MATH_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emu
{

template <class To, class From> inline To bits(From v)
{
    To r;

    static_assert(sizeof(To) == sizeof(From), "same size");
    memcpy(static_cast<void *>(&r), &v, sizeof(r));
    return r;
}

} // namespace emu

/* --- bits --- */

inline float __uint_as_float(unsigned v)
{
    return emu::bits<float>(v);
}
inline unsigned __float_as_uint(float v)
{
    return emu::bits<unsigned>(v);
}
inline float __int_as_float(int v)
{
    return emu::bits<float>(v);
}
inline int __float_as_int(float v)
{
    return emu::bits<int>(v);
}
inline double __longlong_as_double(long long v)
{
    return emu::bits<double>(v);
}
inline long long __double_as_longlong(double v)
{
    return emu::bits<long long>(v);
}
inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
inline int __clzll(long long v)
{
    return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
inline unsigned __brev(unsigned v)
{
    unsigned r = 0;

    for (int i = 0; i < 32; i++)
        r |= (v >> i & 1) << (31 - i);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b)
{
    return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;

    return static_cast<unsigned long long>((static_cast<wide>(a) * b) >> 64);
}
/* The 4 bytes that the nibbles of s choose among the 8 of (b, a). */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    uint64_t v = static_cast<uint64_t>(b) << 32 | a;
    unsigned r = 0;

    for (int i = 0; i < 4; i++)
        r |= static_cast<unsigned>(v >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
    return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    uint64_t v = static_cast<uint64_t>(hi) << 32 | lo;

    return static_cast<unsigned>(v << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    uint64_t v = static_cast<uint64_t>(hi) << 32 | lo;

    return static_cast<unsigned>(v >> (n & 31));
}
/* c + the products of the 4 signed bytes. */
inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return c;
}

/* --- rounding and conversion --- */

inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline float __int2float_rn(int v)
{
    return static_cast<float>(v);
}
inline float __uint2float_rn(unsigned v)
{
    return static_cast<float>(v);
}
inline float __ll2float_rn(long long v)
{
    return static_cast<float>(v);
}
inline float __double2float_rn(double v)
{
    return static_cast<float>(v);
}
/* Towards the nearest even integer, clamped as the instruction does; not a number gives 0. */
inline int __float2int_rn(float v)
{
    if (v != v)
        return 0;
    return v >= 2147483648.0f ? INT32_MAX : v <= -2147483648.0f ? INT32_MIN : (int)rintf(v);
}
inline int __float2int_rz(float v)
{
    return __float2int_rn(truncf(v));
}
inline int __float2int_rd(float v)
{
    return __float2int_rn(floorf(v));
}
inline int __float2int_ru(float v)
{
    return __float2int_rn(ceilf(v));
}
inline float __saturatef(float v)
{
    return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f;
}

/* --- functions --- */

inline float rsqrtf(float v)
{
    return 1.0f / sqrtf(v);
}
inline double rsqrt(double v)
{
    return 1.0 / sqrt(v);
}
inline float __frsqrt_rn(float v)
{
    return static_cast<float>(1.0 / sqrt(static_cast<double>(v)));
}
inline float __expf(float v)
{
    return expf(v);
}
inline float __exp10f(float v)
{
    return powf(10.0f, v);
}
inline float __logf(float v)
{
    return logf(v);
}
inline float __log2f(float v)
{
    return log2f(v);
}
inline float __powf(float a, float b)
{
    return powf(a, b);
}
inline float __sinf(float v)
{
    return sinf(v);
}
inline float __cosf(float v)
{
    return cosf(v);
}
inline float __tanhf(float v)
{
    return tanhf(v);
}
inline void __sincosf(float v, float *s, float *c)
{
    *s = sinf(v);
    *c = cosf(v);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float sinpif(float v)
{
    return static_cast<float>(sin(3.14159265358979323846 * static_cast<double>(v)));
}
inline float cospif(float v)
{
    return static_cast<float>(cos(3.14159265358979323846 * static_cast<double>(v)));
}
inline void sincospif(float v, float *s, float *c)
{
    *s = sinpif(v);
    *c = cospif(v);
}
inline float normcdff(float v)
{
    return static_cast<float>(0.5 * erfc(-static_cast<double>(v) * 0.70710678118654752440));
}

#define EMU_MIN_MAX(T)                                                                             \
    inline T min(T a, T b)                                                                         \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    inline T max(T a, T b)                                                                         \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}

/* --- memory --- */

#define EMU_LOAD(name)                                                                             \
    template <class T> inline T name(const T *p)                                                   \
    {                                                                                              \
        return *p;                                                                                 \
    }
#define EMU_STORE(name)                                                                            \
    template <class T> inline void name(T *p, T v)                                                 \
    {                                                                                              \
        *p = v;                                                                                    \
    }
EMU_LOAD(__ldg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldlu)
EMU_LOAD(__ldcv)
EMU_STORE(__stwb)
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwt)
#undef EMU_LOAD
#undef EMU_STORE

namespace emu
{

/* *p = op(*p) as one step; returns the old value. */
template <class T, class Op> inline T update(T *p, Op op)
{
    T before, after;

    __atomic_load(p, &before, __ATOMIC_RELAXED);
    do
        after = op(before);
    while (
        !__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

} // namespace emu

template <class T> inline T atomicAdd(T *p, T v)
{
    return emu::update(p, [v](T o) { return static_cast<T>(o + v); });
}
template <class T> inline T atomicSub(T *p, T v)
{
    return emu::update(p, [v](T o) { return static_cast<T>(o - v); });
}
template <class T> inline T atomicMin(T *p, T v)
{
    return emu::update(p, [v](T o) { return v < o ? v : o; });
}
template <class T> inline T atomicMax(T *p, T v)
{
    return emu::update(p, [v](T o) { return v > o ? v : o; });
}
template <class T> inline T atomicAnd(T *p, T v)
{
    return emu::update(p, [v](T o) { return o & v; });
}
template <class T> inline T atomicOr(T *p, T v)
{
    return emu::update(p, [v](T o) { return o | v; });
}
template <class T> inline T atomicXor(T *p, T v)
{
    return emu::update(p, [v](T o) { return o ^ v; });
}
template <class T> inline T atomicExch(T *p, T v)
{
    return emu::update(p, [v](T) { return v; });
}
/* (o >= v) ? 0 : o + 1 */
inline unsigned atomicInc(unsigned *p, unsigned v)
{
    return emu::update(p, [v](unsigned o) { return o >= v ? 0 : o + 1; });
}
template <class T> inline T atomicCAS(T *p, T compare, T v)
{
    __atomic_compare_exchange(p, &compare, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return compare;
}

#endif
