/* IEEE half precision. */
#ifndef TRI_EMULATION_CUDA_FP16_H
#define TRI_EMULATION_CUDA_FP16_H

#include "emulation/half.h"

EMU_HALF(__half, emu::f16_to_f32, emu::f32_to_f16)
typedef __half half;
typedef __half2 half2;

inline __half __float2half(float v)
{
    return __half(v);
}
inline __half __float2half_rn(float v)
{
    return __half(v);
}
inline float __half2float(__half v)
{
    return static_cast<float>(v);
}
inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2(__half(a), __half(b));
}
inline __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}
inline __half2 __float2half2_rn(float v)
{
    return __floats2half2_rn(v, v);
}
inline __half2 __halves2half2(__half a, __half b)
{
    return __half2(a, b);
}
inline __half2 __half2half2(__half v)
{
    return __half2(v, v);
}
inline float2 __half22float2(__half2 v)
{
    return {static_cast<float>(v.x), static_cast<float>(v.y)};
}
inline __half __low2half(__half2 v)
{
    return v.x;
}
inline __half __high2half(__half2 v)
{
    return v.y;
}
inline __half __ushort_as_half(unsigned short v)
{
    return __half(__half_raw{v});
}
inline unsigned short __half_as_ushort(__half v)
{
    return v.__x;
}

#endif
