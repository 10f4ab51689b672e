/* COMPRESS and DECOMPRESS, and the dense compressors: fp16, bf16, int8, onebit.
 *
 * Bits are those of optim/compressors/ (compress.cuh). Order: accumulate, which finds values that
 * are not finite; encode; restore, which works only after such values. */
#include "runtime/kernels/cuda/compress.cuh"

#include "runtime/kernels/compress.h"

#include <math.h>
#include <string.h>

#define THREADS TRI_COMPRESS_THREADS
#define PIECE   256 /* elements that share a scale in int8, a mean in onebit */
#define FLAG    256 /* bytes of scratch in front of what topk needs */

enum codec { FP16, BF16, INT8, ONEBIT, TOPK, RANDK, CODECS };

static const char *const codec_names[CODECS] = {"fp16", "bf16", "int8", "onebit", "topk", "randk"};

/* --- before and after --- */

struct accumulate {
    const float *g, *residual, *velocity; /* velocity: NULL without momentum correction */
    float *x, *v;
    int *bad;
    int64_t n;
    float momentum, ahead, now;
};

static __device__ inline bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

static __global__ void __launch_bounds__(THREADS) accumulate(struct accumulate a)
{
    bool bad = false;

    for (int64_t i = tri_thread_index(); i < a.n; i += tri_thread_count()) {
        float x = a.g[i];

        if (a.velocity != NULL) {
            float v = __fadd_rn(__fmul_rn(a.momentum, a.velocity[i]), x);

            a.v[i] = v;
            x = __fadd_rn(__fmul_rn(a.ahead, v), __fmul_rn(a.now, x));
        }
        x = __fadd_rn(a.residual[i], x);
        a.x[i] = x;
        bad = bad || !is_finite(x);
    }
    if (bad)
        atomicExch(a.bad, 1);
}

struct restore {
    const float *residual, *velocity;
    float *x, *v;
    unsigned char *payload;
    const int *bad;
    int64_t n, bytes, at; /* payload: zeros, and `size` bytes of `mark` at byte `at` */
    unsigned mark, size;
};

/* After values that are not finite: states as before, a payload that decodes to NaN. */
static __global__ void __launch_bounds__(THREADS) restore(struct restore a)
{
    if (*a.bad == 0)
        return;
    for (int64_t i = tri_thread_index(); i < a.n; i += tri_thread_count()) {
        a.x[i] = a.residual[i];
        if (a.v != NULL)
            a.v[i] = a.velocity[i];
    }
    for (int64_t i = tri_thread_index(); i < a.bytes; i += tri_thread_count()) {
        bool inside = i >= a.at && i < a.at + a.size;

        a.payload[i] = (unsigned char)(inside ? a.mark >> (8 * (unsigned)(i - a.at)) : 0u);
    }
}

/* --- 16 bits --- */

static __device__ inline uint16_t f16_from(float x)
{
    uint32_t sign = __float_as_uint(x) >> 16 & 0x8000u;
    float a = fminf(fabsf(x), 65504.0f);
    uint32_t b = __float_as_uint(a);
    uint32_t normal = (b + 0xfffu + (b >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t tiny = __float_as_uint(__fadd_rn(a, 0.5f)) - 0x3f000000u;

    return (uint16_t)(sign | (b < 113u << 23 ? tiny : normal));
}

static __device__ inline float f16_to(uint16_t h)
{
    uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    float x = __fmul_rn(__uint_as_float((uint32_t)(h & 0x7fffu) << 13), 0x1p112f);

    return __uint_as_float(__float_as_uint(x) | special | (uint32_t)(h & 0x8000u) << 16);
}

static __device__ inline uint16_t bf16_from(float x)
{
    uint32_t b = __float_as_uint(x), h = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;

    return (uint16_t)(h - ((h & 0x7fffu) == 0x7f80u));
}

static __device__ inline float bf16_to(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

template <bool F16>
static __global__ void __launch_bounds__(THREADS) encode_16(struct tri_encoding c)
{
    uint16_t *to = (uint16_t *)c.payload;

    if (*c.bad != 0)
        return;
    for (int64_t i = tri_thread_index(); i < c.n; i += tri_thread_count()) {
        float x = c.x[i];
        uint16_t h = F16 ? f16_from(x) : bf16_from(x);

        to[i] = h;
        c.x[i] = __fsub_rn(x, F16 ? f16_to(h) : bf16_to(h));
    }
}

template <bool F16>
static __global__ void __launch_bounds__(THREADS) decode_16(struct tri_decoding d)
{
    for (int64_t i = tri_thread_index(); i < d.n; i += tri_thread_count()) {
        float sum = 0.0f;

        for (int r = 0; r < d.ranks; r++) {
            uint16_t h = ((const uint16_t *)(d.payload + r * d.stride))[i];

            sum = __fadd_rn(sum, F16 ? f16_to(h) : bf16_to(h));
        }
        d.out[i] = sum;
    }
}

/* --- int8 --- */

static __device__ inline int64_t pieces(int64_t n)
{
    return (n + PIECE - 1) / PIECE;
}

static __device__ inline float int8_scale(float most)
{
    if (most < 1e-30f)
        return 0.0f;
    return __fdiv_rn(most < 0x1.fffffcp127f ? most : 0x1.fffffcp127f, 127.0f);
}

/* x -> floor(x / scale + u), clamped; u from 24 bits of the word. */
static __device__ inline int int8_of(float x, float scale, float inverse, uint32_t word)
{
    float u = (float)(int)(word >> 8) * 0x1p-24f;
    float y = __fadd_rn(__fadd_rn(__fmul_rn(x, inverse), u), 128.0f);
    int v = (int)(y < 255.0f ? y : 255.0f) - 128;

    v = v < -127 ? -127 : v;
    return scale > 0.0f ? v : 0;
}

/* A warp a piece: lane l has elements 4 l .. 4 l + 3 and those 128 further, a block of words each.
 */
static __global__ void __launch_bounds__(THREADS) encode_int8(struct tri_encoding c)
{
    float *scales = (float *)c.payload;
    int8_t *q = (int8_t *)(scales + pieces(c.n));
    int64_t warps = tri_thread_count() / 32;
    int lane = (int)threadIdx.x % 32;

    if (*c.bad != 0)
        return;
    for (int64_t b = tri_thread_index() / 32; b < pieces(c.n); b += warps) {
        int64_t at = b * PIECE + 4 * lane;
        float x[8], most = 0.0f, scale, inverse;

#pragma unroll
        for (int e = 0; e < 8; e++) {
            int64_t i = at + e / 4 * 128 + e % 4;

            x[e] = i < c.n ? c.x[i] : 0.0f;
            most = fmaxf(most, fabsf(x[e]));
        }
        scale = int8_scale(tri_warp_max(most));
        inverse = scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
        if (lane == 0)
            scales[b] = scale;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 w = tri_philox(c.own, tri_step_of(c.counters), (uint64_t)(at + h * 128) >> 2);
            uint32_t word[4] = {w.x, w.y, w.z, w.w};

#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t i = at + h * 128 + e;
                int v = int8_of(x[4 * h + e], scale, inverse, word[e]);

                if (i < (c.n + 3) / 4 * 4)
                    q[i] = (int8_t)(i < c.n ? v : 0);
                if (i >= c.n)
                    continue;
                c.x[i] = __fsub_rn(x[4 * h + e], __fmul_rn(scale, (float)v));
            }
        }
    }
}

static __global__ void __launch_bounds__(THREADS) decode_int8(struct tri_decoding d)
{
    for (int64_t i = tri_thread_index(); i < d.n; i += tri_thread_count()) {
        float sum = 0.0f;

        for (int r = 0; r < d.ranks; r++) {
            const float *scales = (const float *)(d.payload + r * d.stride);
            const int8_t *q = (const int8_t *)(scales + pieces(d.n));

            sum = __fadd_rn(sum, __fmul_rn(scales[i / PIECE], (float)q[i]));
        }
        d.out[i] = sum;
    }
}

/* --- onebit --- */

/* Eight lanes a piece: lane l sums elements l, l + 8, ... in f64 and stores signs 32 l to
 * 32 l + 31. */
static __global__ void __launch_bounds__(THREADS) encode_onebit(struct tri_encoding c)
{
    float *means = (float *)c.payload;
    uint32_t *words = (uint32_t *)(means + pieces(c.n));
    int lane = (int)threadIdx.x % 8, group = (int)threadIdx.x % 32 / 8;
    int64_t stride = tri_thread_count() / 8, last = (pieces(c.n) + 3) / 4 * 4;

    if (*c.bad != 0)
        return;
    for (int64_t b = tri_thread_index() / 8; b < last; b += stride) {
        int64_t at = b * PIECE, count = c.n - at < PIECE ? c.n - at : PIECE;
        uint32_t word = 0;
        double sum = 0.0;
        float mean;

        for (int j = 0; j < PIECE / 8; j++) {
            float x = j * 8 + lane < count ? c.x[at + j * 8 + lane] : 0.0f;
            unsigned signs = __ballot_sync(0xffffffffu, __float_as_uint(x) >> 31 != 0);

            sum += (double)fabsf(x);
            word |= j / 4 == lane ? (signs >> (8 * group) & 0xffu) << (8 * (j % 4)) : 0u;
        }
        for (int e = 1; e < 8; e *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, e);
        mean = (float)(sum / (double)count);
        if (count <= 0)
            continue;
        if (lane == 0)
            means[b] = mean;
        words[b * (PIECE / 32) + lane] = word;
        for (int64_t i = at + lane; i < at + count; i += 8)
            c.x[i] = __fsub_rn(c.x[i], copysignf(mean, c.x[i]));
    }
}

static __global__ void __launch_bounds__(THREADS) decode_onebit(struct tri_decoding d)
{
    for (int64_t i = tri_thread_index(); i < d.n; i += tri_thread_count()) {
        float sum = 0.0f;

        for (int r = 0; r < d.ranks; r++) {
            const float *means = (const float *)(d.payload + r * d.stride);
            const uint32_t *words = (const uint32_t *)(means + pieces(d.n));
            uint32_t sign = words[i / 32] >> (i % 32) << 31;

            sum = __fadd_rn(sum, __uint_as_float(__float_as_uint(means[i / PIECE]) ^ sign));
        }
        d.out[i] = sum;
    }
}

/* --- the ops --- */

enum { DIM_CODEC, DIM_BYTES, DIM_VELOCITY, DIM_FLAT, DIM_N, DIM_SENT };

static int codec_of(const struct tri_compressor *method)
{
    int c = 0;

    while (c < CODECS && strcmp(method->name, codec_names[c]) != 0)
        c++;
    return c;
}

/* n: elements of the tensor. */
static tri_status prepare_codec(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                int64_t n, struct cuda_kernel **out)
{
    const struct tri_attr_compress *at = &d->attrs.compress;
    int codec = codec_of(at->method);
    struct cuda_kernel *k;

    if (codec == CODECS)
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    k->dim[DIM_CODEC] = codec;
    k->dim[DIM_BYTES] = n > 0 ? at->method->bytes(at, n) : 0;
    k->dim[DIM_N] = n;
    k->dim[DIM_SENT] = k->dim[DIM_BYTES] / (codec == TOPK ? 8 : 4); /* of a sparse one */
    *out = k;
    return TRI_OK;
}

static tri_status prepare_compress(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(prepare_codec(d, &tri_cuda_compress, tri_shape_count(&d->in[0].shape), &k));
    k->dim[DIM_VELOCITY] = tri_arg_present(d->in, 3, d->nin);
    k->base.scratch_bytes =
        FLAG + (k->dim[DIM_CODEC] == TOPK ? tri_cuda_topk_scratch(k->count) : 0);
    *out = &k->base;
    return TRI_OK;
}

static tri_status encode(const struct cuda_kernel *k, const struct tri_encoding *c, void *scratch,
                         void *stream)
{
    unsigned each = tri_cuda_grid(k, c->n, THREADS), eighth = tri_cuda_grid(k, c->n / 8, THREADS);

    switch (k->dim[DIM_CODEC]) {
    case FP16:
        return tri_launch(encode_16<true>, each, THREADS, 0, stream, *c);
    case BF16:
        return tri_launch(encode_16<false>, each, THREADS, 0, stream, *c);
    case INT8:
        return tri_launch(encode_int8, eighth, THREADS, 0, stream, *c);
    case ONEBIT:
        return tri_launch(encode_onebit, eighth, THREADS, 0, stream, *c);
    case TOPK:
        return tri_cuda_topk_encode(k, c, scratch, stream);
    default:
        return tri_cuda_randk_encode(k, c, stream);
    }
}

/* Key of the parameter, and of this contributor (compress.c: make_keys). */
static void make_keys(const struct tri_attr_compress *a, uint32_t *own, uint32_t *shared)
{
    uint64_t stream = tri_mix64(a->stream + (uint64_t)a->rank + 1);
    struct tri_rng_key o = tri_rng_key_make(a->seed, stream, 0);
    struct tri_rng_key s = tri_rng_key_make(a->seed, a->stream, 0);

    memcpy(own, o.k, sizeof(o.k));
    memcpy(shared, s.k, sizeof(s.k));
}

/* Where a payload that decodes to NaN has it. */
static void mark_payload(const struct cuda_kernel *k, struct restore *r)
{
    int64_t codec = k->dim[DIM_CODEC];

    r->at = codec == TOPK ? 4 * k->dim[DIM_SENT] : 0;
    r->mark = codec == FP16 ? 0x7e00u : codec == BF16 ? 0x7fc0u : 0x7fc00000u;
    r->size = codec == FP16 || codec == BF16 ? 2 : 4;
}

static tri_status run_compress(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    const struct tri_attr_compress *at = &k->attrs.compress;
    bool moving = k->dim[DIM_VELOCITY] != 0;
    struct accumulate a = {};
    struct tri_encoding c = {};
    struct restore r = {};

    if (k->count == 0)
        return TRI_OK;
    a.g = (const float *)args->in[0];
    a.residual = r.residual = (const float *)args->in[1];
    a.velocity = r.velocity = moving ? (const float *)args->in[3] : NULL;
    a.x = c.x = r.x = (float *)args->out[1];
    a.v = c.v = r.v = moving ? (float *)args->out[2] : NULL;
    a.n = c.n = r.n = k->count;
    a.bad = (int *)args->scratch;
    c.bad = r.bad = a.bad;
    a.momentum = (float)at->momentum;
    a.ahead = at->nesterov ? a.momentum : 1.0f;
    a.now = at->nesterov ? 1.0f : 0.0f;
    c.payload = args->out[0];
    c.counters = (const int64_t *)args->in[2];
    c.k = k->dim[DIM_SENT];
    make_keys(at, c.own, c.shared);
    r.payload = (unsigned char *)args->out[0];
    r.bytes = k->dim[DIM_BYTES];
    mark_payload(k, &r);
    TRI_CUDA(cudaMemsetAsync(args->scratch, 0, k->base.scratch_bytes, (cudaStream_t)args->stream));
    TRI_TRY(tri_launch(accumulate, tri_cuda_grid(k, a.n, THREADS), THREADS, 0, args->stream, a));
    TRI_TRY(encode(k, &c, (unsigned char *)args->scratch + FLAG, args->stream));
    return tri_launch(restore, tri_cuda_grid(k, a.n, THREADS), THREADS, 0, args->stream, r);
}

TRI_CUDA_KERNEL(compress);

static tri_status prepare_decompress(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(prepare_codec(d, &tri_cuda_decompress, tri_shape_count(&d->attrs.compress.shape), &k));
    k->dim[DIM_FLAT] = tri_arg_present(d->in, 2, d->nin);
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_decompress(const struct tri_kernel *kernel,
                                 const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    const struct tri_attr_compress *at = &k->attrs.compress;
    unsigned grid = tri_cuda_grid(k, k->dim[DIM_N], THREADS);
    struct tri_decoding d = {};
    uint32_t own[2];

    if (k->dim[DIM_N] == 0)
        return TRI_OK;
    d.payload = (const unsigned char *)args->in[0] + at->offset;
    d.stride = at->stride;
    d.ranks = at->ranks;
    d.out = (float *)args->out[0] + (k->dim[DIM_FLAT] != 0 ? at->first : 0);
    d.counters = (const int64_t *)args->in[1];
    d.n = k->dim[DIM_N];
    d.k = k->dim[DIM_SENT];
    make_keys(at, own, d.shared);
    switch (k->dim[DIM_CODEC]) {
    case FP16:
        return tri_launch(decode_16<true>, grid, THREADS, 0, args->stream, d);
    case BF16:
        return tri_launch(decode_16<false>, grid, THREADS, 0, args->stream, d);
    case INT8:
        return tri_launch(decode_int8, grid, THREADS, 0, args->stream, d);
    case ONEBIT:
        return tri_launch(decode_onebit, grid, THREADS, 0, args->stream, d);
    case TOPK:
        return tri_cuda_topk_decode(k, &d, args->stream);
    default:
        return tri_cuda_randk_decode(k, &d, args->stream);
    }
}

TRI_CUDA_KERNEL(decompress);
