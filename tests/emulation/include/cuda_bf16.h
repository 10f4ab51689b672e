/* bfloat16. */
#ifndef TRI_EMULATION_CUDA_BF16_H
#define TRI_EMULATION_CUDA_BF16_H

#include "emulation/half.h"

EMU_HALF(__nv_bfloat16, emu::bf16_to_f32, emu::f32_to_bf16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float v)
{
    return __nv_bfloat16(v);
}
inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return __nv_bfloat16(v);
}
inline float __bfloat162float(__nv_bfloat16 v)
{
    return static_cast<float>(v);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}
inline __nv_bfloat162 __float2bfloat162_rn(float v)
{
    return __floats2bfloat162_rn(v, v);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162(a, b);
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v)
{
    return __nv_bfloat162(v, v);
}
inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {static_cast<float>(v.x), static_cast<float>(v.y)};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v)
{
    return __nv_bfloat16(__nv_bfloat16_raw{v});
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.__x;
}

#endif
