/* The 16-bit floating types: what __nv_bfloat16 and __half have in common.
 *
 * Arithmetic is in f32 and rounded once, to nearest even: a sum, difference, product or quotient of
 * two such numbers is then rounded as the hardware does. */
#ifndef TRI_EMULATION_HALF_H
#define TRI_EMULATION_HALF_H

#include "emulation/math.h"
#include "vector_types.h"

namespace emu
{

inline float bf16_to_f32(unsigned short b)
{
    return bits<float>(static_cast<unsigned>(b) << 16);
}

/* Not a number becomes 0x7fff, as on the device. */
inline unsigned short f32_to_bf16(float f)
{
    unsigned u = bits<unsigned>(f);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return static_cast<unsigned short>((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

inline float f16_to_f32(unsigned short h)
{
    unsigned sign = static_cast<unsigned>(h & 0x8000) << 16;
    unsigned rest = h & 0x7fffu;

    if (rest >= 0x7c00)
        return bits<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest < 0x400) /* 0 or denormal: a multiple of 2^-24 */
        return bits<float>(sign | bits<unsigned>(static_cast<float>(rest) * 0x1p-24f));
    return bits<float>(sign | ((rest << 13) + 0x38000000u));
}

inline unsigned short f32_to_f16(float f)
{
    unsigned u = bits<unsigned>(f), sign = u >> 16 & 0x8000, rest = u & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return 0x7fff;
    if (rest >= 0x477ff000u) /* 65520 and more rounds to infinity */
        return static_cast<unsigned short>(sign | 0x7c00);
    if (rest < 0x38800000u) /* below 2^-14: a multiple of 2^-24, rounded by the addition of 1/2 */
        return static_cast<unsigned short>(
            sign | (bits<unsigned>(bits<float>(rest) + 0.5f) - 0x3f000000u));
    return static_cast<unsigned short>(sign |
                                       ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13));
}

} // namespace emu

#define EMU_OPERATOR(H, op)                                                                        \
    inline H operator op(H a, H b)                                                                 \
    {                                                                                              \
        return H(static_cast<float>(a) op static_cast<float>(b));                                  \
    }                                                                                              \
    inline H &operator op##=(H &a, H b)                                                            \
    {                                                                                              \
        return a = a op b;                                                                         \
    }
#define EMU_COMPARE(H, op)                                                                         \
    inline bool operator op(H a, H b)                                                              \
    {                                                                                              \
        return static_cast<float>(a) op static_cast<float>(b);                                     \
    }

/* Defines type H, its pair H##2, and their operators; to and from convert bits and f32. */
#define EMU_HALF(H, to, from)                                                                      \
    struct __attribute__((aligned(2))) H##_raw {                                                   \
        unsigned short x;                                                                          \
    };                                                                                             \
    struct __attribute__((aligned(2))) H {                                                         \
        unsigned short __x;                                                                        \
        H() = default;                                                                             \
        H(H##_raw r) : __x(r.x)                                                                    \
        {                                                                                          \
        }                                                                                          \
        H(float v) : __x(from(v))                                                                  \
        {                                                                                          \
        }                                                                                          \
        H(double v) : __x(from(static_cast<float>(v)))                                             \
        {                                                                                          \
        }                                                                                          \
        H(int v) : __x(from(static_cast<float>(v)))                                                \
        {                                                                                          \
        }                                                                                          \
        operator float() const                                                                     \
        {                                                                                          \
            return to(__x);                                                                        \
        }                                                                                          \
        operator H##_raw() const                                                                   \
        {                                                                                          \
            return {__x};                                                                          \
        }                                                                                          \
    };                                                                                             \
    struct __attribute__((aligned(4))) H##2                                                        \
    {                                                                                              \
        H x, y;                                                                                    \
        H##2() = default;                                                                          \
        H##2(H a, H b) : x(a), y(b)                                                                \
        {                                                                                          \
        }                                                                                          \
    };                                                                                             \
    EMU_OPERATOR(H, +)                                                                             \
    EMU_OPERATOR(H, -)                                                                             \
    EMU_OPERATOR(H, *)                                                                             \
    EMU_OPERATOR(H, /)                                                                             \
    EMU_COMPARE(H, ==)                                                                             \
    EMU_COMPARE(H, !=)                                                                             \
    EMU_COMPARE(H, <)                                                                              \
    EMU_COMPARE(H, >)                                                                              \
    EMU_COMPARE(H, <=)                                                                             \
    EMU_COMPARE(H, >=)                                                                             \
    inline H operator-(H a)                                                                        \
    {                                                                                              \
        return H(H##_raw{static_cast<unsigned short>(a.__x ^ 0x8000)});                            \
    }                                                                                              \
    inline H##2 operator+(H##2 a, H##2 b)                                                          \
    {                                                                                              \
        return H##2(a.x + b.x, a.y + b.y);                                                         \
    }                                                                                              \
    inline H##2 operator-(H##2 a, H##2 b)                                                          \
    {                                                                                              \
        return H##2(a.x - b.x, a.y - b.y);                                                         \
    }                                                                                              \
    inline H##2 operator*(H##2 a, H##2 b)                                                          \
    {                                                                                              \
        return H##2(a.x * b.x, a.y * b.y);                                                         \
    }                                                                                              \
    inline float __low2float(H##2 v)                                                               \
    {                                                                                              \
        return static_cast<float>(v.x);                                                            \
    }                                                                                              \
    inline float __high2float(H##2 v)                                                              \
    {                                                                                              \
        return static_cast<float>(v.y);                                                            \
    }                                                                                              \
    inline bool __hisnan(H v)                                                                      \
    {                                                                                              \
        return isnan(static_cast<float>(v));                                                       \
    }                                                                                              \
    inline bool __hisinf(H v)                                                                      \
    {                                                                                              \
        return isinf(static_cast<float>(v));                                                       \
    }                                                                                              \
    inline H __hadd(H a, H b)                                                                      \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    inline H __hmul(H a, H b)                                                                      \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    inline H __hmax(H a, H b)                                                                      \
    {                                                                                              \
        return H(fmaxf(static_cast<float>(a), static_cast<float>(b)));                             \
    }                                                                                              \
    inline H __hmin(H a, H b)                                                                      \
    {                                                                                              \
        return H(fminf(static_cast<float>(a), static_cast<float>(b)));                             \
    }                                                                                              \
    inline H __habs(H a)                                                                           \
    {                                                                                              \
        return H(H##_raw{static_cast<unsigned short>(a.__x & 0x7fff)});                            \
    }

#endif
