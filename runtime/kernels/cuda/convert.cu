/* See convert.h. One thread an element, grid-stride; reads of filters are strided, since filters
 * are small beside what they are multiplied with. */
#include "runtime/kernels/cuda/convert.h"

#include "runtime/kernels/cuda/launch.cuh"

enum { THREADS = 256, MAX_BLOCKS = 4096 };

static dim3 grid_of(int64_t n)
{
    int64_t blocks = (n + THREADS - 1) / THREADS;

    return dim3((unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS));
}

static __device__ inline int64_t first_index()
{
    return static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
}

static __device__ inline int64_t index_step()
{
    return static_cast<int64_t>(gridDim.x) * THREADS;
}

template <class T> static __global__ void round_kernel(const float *from, T *to, int64_t n)
{
    for (int64_t i = first_index(); i < n; i += index_step())
        to[i] = static_cast<T>(from[i]);
}

/* The 8 elements from p on, which is a multiple of 2 bytes, as 4 words; p[-1] and p[8] are in the
 * same memory where p is no multiple of 4. */
static __device__ inline uint4 load_words(const uint16_t *p)
{
    bool odd = (reinterpret_cast<uintptr_t>(p) & 2u) != 0;
    const uint32_t *w = reinterpret_cast<const uint32_t *>(odd ? p - 1 : p);

    if (!odd)
        return make_uint4(w[0], w[1], w[2], w[3]);
    return make_uint4(w[0] >> 16 | w[1] << 16, w[1] >> 16 | w[2] << 16, w[2] >> 16 | w[3] << 16,
                      w[3] >> 16 | w[4] << 16);
}

static __device__ inline void store_words(uint16_t *p, uint4 v)
{
    bool odd = (reinterpret_cast<uintptr_t>(p) & 2u) != 0;
    uint32_t *w = reinterpret_cast<uint32_t *>(odd ? p + 1 : p);

    if (!odd) {
        w[0] = v.x;
        w[1] = v.y;
        w[2] = v.z;
        w[3] = v.w;
        return;
    }
    p[0] = static_cast<uint16_t>(v.x);
    w[0] = v.x >> 16 | v.y << 16;
    w[1] = v.y >> 16 | v.z << 16;
    w[2] = v.z >> 16 | v.w << 16;
    p[7] = static_cast<uint16_t>(v.w >> 16);
}

/* Rows without gaps <-> rows whose length is a multiple of 8. A block has one row at a time, a
 * thread 8 elements of it: 16 bytes on the side with gaps. */
template <bool SPREAD>
static __global__ void repitch_kernel(const uint16_t *from, int64_t from_ld, uint16_t *to,
                                      int64_t to_ld, int64_t rows, int64_t cols)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const uint16_t *src = from + r * from_ld;
        uint16_t *dst = to + r * to_ld;
        int64_t whole = cols / 8 * 8;

        for (int64_t c = 8 * threadIdx.x; c < whole; c += 8 * THREADS) {
            if (SPREAD)
                *reinterpret_cast<uint4 *>(dst + c) = load_words(src + c);
            else
                store_words(dst + c, *reinterpret_cast<const uint4 *>(src + c));
        }
        if (whole + threadIdx.x < cols)
            dst[whole + threadIdx.x] = src[whole + threadIdx.x];
    }
}

template <class T>
static __global__ void add_bias_kernel(const float *bias, T *y, int64_t n, int64_t cols)
{
    for (int64_t i = first_index(); i < n; i += index_step())
        y[i] = static_cast<T>(static_cast<float>(y[i]) + bias[i % cols]);
}

template <class T>
static __global__ void filters_last_kernel(const T *from, T *to, int64_t n, int64_t channels,
                                           int64_t taps)
{
    for (int64_t at = first_index(); at < n; at += index_step()) {
        int64_t i = at % channels, tap = at / channels % taps, o = at / channels / taps;

        to[at] = from[(o * channels + i) * taps + tap];
    }
}

template <class T>
static __global__ void filters_first_kernel(const T *from, const float *acc, float *to, int64_t n,
                                            int64_t channels, int64_t taps)
{
    for (int64_t at = first_index(); at < n; at += index_step()) {
        int64_t tap = at % taps, i = at / taps % channels, o = at / taps / channels;
        float x = static_cast<float>(from[(o * taps + tap) * channels + i]);

        to[at] = acc != nullptr ? acc[at] + x : x;
    }
}

tri_status tri_cuda_round(enum tri_dtype type, const float *from, void *to, int64_t n, void *stream)
{
    if (type == TRI_BF16)
        return tri_launch(round_kernel<__nv_bfloat16>, grid_of(n), THREADS, 0, stream, from,
                          static_cast<__nv_bfloat16 *>(to), n);
    return tri_launch(round_kernel<__half>, grid_of(n), THREADS, 0, stream, from,
                      static_cast<__half *>(to), n);
}

tri_status tri_cuda_repitch(const void *from, int64_t from_ld, void *to, int64_t to_ld,
                            int64_t rows, int64_t cols, void *stream)
{
    return tri_launch(to_ld % 8 == 0 ? repitch_kernel<true> : repitch_kernel<false>,
                      dim3(static_cast<unsigned>(rows < 65536 ? rows : 65536)), THREADS, 0, stream,
                      static_cast<const uint16_t *>(from), from_ld, static_cast<uint16_t *>(to),
                      to_ld, rows, cols);
}

template <class T>
static tri_status add_bias(const float *bias, void *y, int64_t rows, int64_t cols, void *stream)
{
    return tri_launch(add_bias_kernel<T>, grid_of(rows * cols), THREADS, 0, stream, bias,
                      static_cast<T *>(y), rows * cols, cols);
}

tri_status tri_cuda_add_bias(enum tri_dtype type, const float *bias, void *y, int64_t rows,
                             int64_t cols, void *stream)
{
    switch (type) {
    case TRI_BF16:
        return add_bias<__nv_bfloat16>(bias, y, rows, cols, stream);
    case TRI_F16:
        return add_bias<__half>(bias, y, rows, cols, stream);
    default:
        return add_bias<float>(bias, y, rows, cols, stream);
    }
}

template <class T>
static tri_status filters_last(const void *from, void *to, int64_t o, int64_t i, int64_t taps,
                               void *stream)
{
    return tri_launch(filters_last_kernel<T>, grid_of(o * i * taps), THREADS, 0, stream,
                      static_cast<const T *>(from), static_cast<T *>(to), o * i * taps, i, taps);
}

tri_status tri_cuda_filters_last(enum tri_dtype type, const void *from, void *to, int64_t o,
                                 int64_t i, int64_t taps, void *stream)
{
    if (tri_dtype_is_half(type))
        return filters_last<uint16_t>(from, to, o, i, taps, stream);
    return filters_last<float>(from, to, o, i, taps, stream);
}

template <class T>
static tri_status filters_first(const void *from, const float *acc, float *to, int64_t o, int64_t i,
                                int64_t taps, void *stream)
{
    return tri_launch(filters_first_kernel<T>, grid_of(o * i * taps), THREADS, 0, stream,
                      static_cast<const T *>(from), acc, to, o * i * taps, i, taps);
}

tri_status tri_cuda_filters_first(enum tri_dtype type, const void *from, const float *acc,
                                  float *to, int64_t o, int64_t i, int64_t taps, void *stream)
{
    switch (type) {
    case TRI_BF16:
        return filters_first<__nv_bfloat16>(from, acc, to, o, i, taps, stream);
    case TRI_F16:
        return filters_first<__half>(from, acc, to, o, i, taps, stream);
    default:
        return filters_first<float>(from, acc, to, o, i, taps, stream);
    }
}
