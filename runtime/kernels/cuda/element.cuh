/* Elements of f32, bf16 and f16 inside CUDA kernels: computed in f32, stored with one rounding to
 * nearest even, moved 16 bytes at a time. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_ELEMENT_CUH
#define TRI_RUNTIME_KERNELS_CUDA_ELEMENT_CUH

#include "runtime/kernels/cuda/launch.cuh"

/* fn<T>(...) for the type T of a float dtype. */
#define TRI_CALL_FLOAT(dtype, fn, ...)                                                             \
    ((dtype) == TRI_BF16  ? fn<__nv_bfloat16>(__VA_ARGS__)                                         \
     : (dtype) == TRI_F16 ? fn<__half>(__VA_ARGS__)                                                \
                          : fn<float>(__VA_ARGS__))

/* Elements of T in 16 bytes. */
template <class T> struct tri_lanes {
    static constexpr int count = 16 / (int)sizeof(T);
};

static __device__ inline float tri_widen(float x)
{
    return x;
}

static __device__ inline float tri_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ inline float tri_widen(__half x)
{
    return __half2float(x);
}

template <class T> static __device__ inline T tri_narrow(float x);

template <> __device__ inline float tri_narrow<float>(float x)
{
    return x;
}

template <> __device__ inline __nv_bfloat16 tri_narrow<__nv_bfloat16>(float x)
{
    return __float2bfloat16(x);
}

template <> __device__ inline __half tri_narrow<__half>(float x)
{
    return __float2half(x);
}

/* The 32 bits `w` of two 16-bit elements, the first in the low half. */
template <class T> static __device__ inline void tri_widen2(unsigned w, float *x);

template <> __device__ inline void tri_widen2<__nv_bfloat16>(unsigned w, float *x)
{
    x[0] = __uint_as_float(w << 16);
    x[1] = __uint_as_float(w & 0xffff0000u);
}

template <> __device__ inline void tri_widen2<__half>(unsigned w, float *x)
{
    x[0] = __half2float(__ushort_as_half((unsigned short)(w & 0xffffu)));
    x[1] = __half2float(__ushort_as_half((unsigned short)(w >> 16)));
}

template <class T> static __device__ inline unsigned tri_narrow2(const float *x);

template <> __device__ inline unsigned tri_narrow2<__nv_bfloat16>(const float *x)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(x[0], x[1]);

    return (unsigned)__bfloat16_as_ushort(h.x) | (unsigned)__bfloat16_as_ushort(h.y) << 16;
}

template <> __device__ inline unsigned tri_narrow2<__half>(const float *x)
{
    __half2 h = __floats2half2_rn(x[0], x[1]);

    return (unsigned)__half_as_ushort(__low2half(h)) | (unsigned)__half_as_ushort(__high2half(h))
                                                           << 16;
}

/* The 16 bytes of one vector: tri_lanes<T>::count elements. */
template <class T> static __device__ inline void tri_unpack(uint4 v, float *x)
{
    tri_widen2<T>(v.x, x);
    tri_widen2<T>(v.y, x + 2);
    tri_widen2<T>(v.z, x + 4);
    tri_widen2<T>(v.w, x + 6);
}

template <> __device__ inline void tri_unpack<float>(uint4 v, float *x)
{
    x[0] = __uint_as_float(v.x);
    x[1] = __uint_as_float(v.y);
    x[2] = __uint_as_float(v.z);
    x[3] = __uint_as_float(v.w);
}

template <class T> static __device__ inline uint4 tri_pack(const float *x)
{
    return make_uint4(tri_narrow2<T>(x), tri_narrow2<T>(x + 2), tri_narrow2<T>(x + 4),
                      tri_narrow2<T>(x + 6));
}

template <> __device__ inline uint4 tri_pack<float>(const float *x)
{
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                      __float_as_uint(x[3]));
}

/* tri_lanes<T>::count elements from p on, which is a multiple of 16 bytes. */
template <class T> static __device__ inline void tri_load(const T *p, float *x)
{
    tri_unpack<T>(*reinterpret_cast<const uint4 *>(p), x);
}

template <class T> static __device__ inline void tri_store(T *p, const float *x)
{
    *reinterpret_cast<uint4 *>(p) = tri_pack<T>(x);
}

/* N f32 from p on, a multiple of 16 bytes; N is a multiple of 4. */
template <int N> static __device__ inline void tri_load_f32(const float *p, float *x)
{
    for (int i = 0; i < N; i += 4)
        tri_load<float>(p + i, x + i);
}

#endif
