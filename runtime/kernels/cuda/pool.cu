/* Pools over NHWC images. A thread has the channels of 16 bytes of one pixel where rows and
 * pointers allow it, else one channel, so that a warp reads neighbours.
 *
 * Maxima are exact; gradients are gathered, taps in order, summed in f32 and rounded once; averages
 * are summed in f32 by 8 threads, each every 8th position in order, and then over the threads. No
 * atomics: the same bits in every run. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#include <math.h>

enum { THREADS = 256, AVG_LANES = 32, AVG_GROUPS = 8 };

/* Sizes of a pool: large side [b,h,w,c], small side [b,oh,ow,c]; channels in vectors. */
struct pool {
    unsigned h, w, vectors, oh, ow; /* vectors: of a pixel */
    int kh, kw, stride, pad;
    unsigned items; /* vectors in all on the side that threads stand for */
};

/* N elements from p on, N = 1 or a vector of 16 bytes. */
template <class T, int N> static __device__ inline void load(const T *p, float *x)
{
    if (N == 1)
        x[0] = tri_widen(p[0]);
    else
        tri_load(p, x);
}

template <class T, int N> static __device__ inline void store(T *p, const float *x)
{
    if (N == 1)
        p[0] = tri_narrow<T>(x[0]);
    else
        tri_store(p, x);
}

template <class T, int N>
static __global__ void maxpool_kernel(struct pool p, const T *x, T *y, unsigned char *index)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= p.items)
        return;
    unsigned v = i % p.vectors, at = i / p.vectors;
    int ox = (int)(at % p.ow), oy = (int)(at / p.ow % p.oh);
    const T *image = x + (size_t)(at / p.ow / p.oh) * p.h * p.w * p.vectors * N;
    float most[N];
    int best[N];

    for (int l = 0; l < N; l++)
        best[l] = -1;
    for (int t = 0; t < p.kh * p.kw; t++) {
        int iy = oy * p.stride - p.pad + t / p.kw, ix = ox * p.stride - p.pad + t % p.kw;
        float in[N];

        if (iy < 0 || iy >= (int)p.h || ix < 0 || ix >= (int)p.w)
            continue;
        load<T, N>(image + ((size_t)iy * p.w + ix) * p.vectors * N + v * N, in);
        for (int l = 0; l < N; l++) {
            bool more = best[l] < 0 || in[l] > most[l] || in[l] != in[l];

            most[l] = more ? in[l] : most[l];
            best[l] = more ? t : best[l];
        }
    }
    store<T, N>(y + (size_t)i * N, most);
    for (int l = 0; index != nullptr && l < N; l++)
        index[(size_t)i * N + l] = (unsigned char)best[l];
}

template <class T, int N>
static __global__ void maxpool_grad_kernel(struct pool p, const T *dy, const unsigned char *index,
                                           T *dx)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= p.items)
        return;
    unsigned v = i % p.vectors, at = i / p.vectors;
    int x = (int)(at % p.w) + p.pad, y = (int)(at / p.w % p.h) + p.pad;
    size_t image = (size_t)(at / p.w / p.h) * p.oh * p.ow;
    float sum[N];

    for (int l = 0; l < N; l++)
        sum[l] = 0;
    for (int ty = y % p.stride; ty < p.kh && ty <= y; ty += p.stride) {
        for (int tx = x % p.stride; tx < p.kw && tx <= x; tx += p.stride) {
            unsigned oy = (unsigned)((y - ty) / p.stride), ox = (unsigned)((x - tx) / p.stride);
            size_t from = ((image + (size_t)oy * p.ow + ox) * p.vectors + v) * N;
            float in[N];

            if (oy >= p.oh || ox >= p.ow)
                continue;
            load<T, N>(dy + from, in);
            for (int l = 0; l < N; l++)
                sum[l] += index[from + l] == ty * p.kw + tx ? in[l] : 0;
        }
    }
    store<T, N>(dx + (size_t)i * N, sum);
}

/* A block has 32 vectors of one image. */
template <class T, int N> static __global__ void avgpool_kernel(struct pool p, const T *x, T *y)
{
    __shared__ float part[AVG_GROUPS][AVG_LANES][N];
    unsigned positions = p.h * p.w, v = blockIdx.y * AVG_LANES + threadIdx.x;
    const T *image = x + (size_t)blockIdx.x * positions * p.vectors * N;
    float sum[N];

    for (int l = 0; l < N; l++)
        sum[l] = 0;
    for (unsigned i = threadIdx.y; v < p.vectors && i < positions; i += AVG_GROUPS) {
        float in[N];

        load<T, N>(image + ((size_t)i * p.vectors + v) * N, in);
        for (int l = 0; l < N; l++)
            sum[l] += in[l];
    }
    for (int l = 0; l < N; l++)
        part[threadIdx.y][threadIdx.x][l] = sum[l];
    __syncthreads();
    if (threadIdx.y > 0 || v >= p.vectors)
        return;
    for (int l = 0; l < N; l++) {
        for (int g = 1; g < AVG_GROUPS; g++)
            sum[l] += part[g][threadIdx.x][l];
        sum[l] /= (float)positions;
    }
    store<T, N>(y + ((size_t)blockIdx.x * p.vectors + v) * N, sum);
}

template <class T, int N>
static __global__ void avgpool_grad_kernel(struct pool p, const T *dy, T *dx)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;

    if (i >= p.items)
        return;
    unsigned v = i % p.vectors, image = i / p.vectors / (p.h * p.w);
    float x[N];

    load<T, N>(dy + ((size_t)image * p.vectors + v) * N, x);
    for (int l = 0; l < N; l++)
        x[l] /= (float)(p.h * p.w);
    store<T, N>(dx + (size_t)i * N, x);
}

/* What prepare puts in cuda_kernel.dim. */
enum { BATCH, H, W, C, OH, OW };

static tri_status prepare_pool(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               const struct tri_arg *large, const struct tri_arg *small,
                               struct tri_kernel **out)
{
    struct cuda_kernel *k;

    if (tri_shape_count(&large->shape) > INT32_MAX)
        return tri_fail(TRI_ERR_UNSUPPORTED, "%s: more than 2^31 elements", ops->name);
    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    for (int i = 0; i < 4; i++)
        k->dim[i] = large->shape.dim[i];
    k->dim[OH] = small->shape.ndim == 4 ? small->shape.dim[1] : 1;
    k->dim[OW] = small->shape.ndim == 4 ? small->shape.dim[2] : 1;
    *out = &k->base;
    return TRI_OK;
}

/* Sizes in vectors of `lanes` elements; `pixels` of an image on the side of the threads. */
static struct pool pool_of(const struct cuda_kernel *k, int lanes, int64_t pixels)
{
    const struct tri_attr_window *win = &k->attrs.window;
    struct pool p = {};

    p.h = (unsigned)k->dim[H];
    p.w = (unsigned)k->dim[W];
    p.oh = (unsigned)k->dim[OH];
    p.ow = (unsigned)k->dim[OW];
    p.vectors = (unsigned)(k->dim[C] / lanes);
    p.kh = (int)win->kh;
    p.kw = (int)win->kw;
    p.stride = (int)win->stride;
    p.pad = (int)win->pad;
    p.items = (unsigned)(k->dim[BATCH] * pixels) * p.vectors;
    return p;
}

static dim3 blocks_of(const struct pool *p)
{
    return dim3((p->items + THREADS - 1) / THREADS);
}

/* Whether pixels are whole vectors at multiples of 16 bytes. */
template <class T>
static bool in_vectors(const struct cuda_kernel *k, const void *from, const void *to)
{
    return k->dim[C] % tri_lanes<T>::count == 0 && tri_cuda_aligned(from, to, nullptr);
}

template <class T, int N>
static tri_status maxpool(const struct cuda_kernel *k, const struct tri_kernel_args *a)
{
    struct pool p = pool_of(k, N, k->dim[OH] * k->dim[OW]);

    return tri_launch(maxpool_kernel<T, N>, blocks_of(&p), THREADS, 0, a->stream, p,
                      static_cast<const T *>(a->in[0]), static_cast<T *>(a->out[0]),
                      static_cast<unsigned char *>(a->out[1]));
}

template <class T, int N>
static tri_status maxpool_grad(const struct cuda_kernel *k, const struct tri_kernel_args *a)
{
    struct pool p = pool_of(k, N, k->dim[H] * k->dim[W]);

    return tri_launch(maxpool_grad_kernel<T, N>, blocks_of(&p), THREADS, 0, a->stream, p,
                      static_cast<const T *>(a->in[0]),
                      static_cast<const unsigned char *>(a->in[1]), static_cast<T *>(a->out[0]));
}

template <class T, int N>
static tri_status avgpool(const struct cuda_kernel *k, const struct tri_kernel_args *a)
{
    struct pool p = pool_of(k, N, 1);
    dim3 grid((unsigned)k->dim[BATCH], (p.vectors + AVG_LANES - 1) / AVG_LANES);

    return tri_launch(avgpool_kernel<T, N>, grid, dim3(AVG_LANES, AVG_GROUPS), 0, a->stream, p,
                      static_cast<const T *>(a->in[0]), static_cast<T *>(a->out[0]));
}

template <class T, int N>
static tri_status avgpool_grad(const struct cuda_kernel *k, const struct tri_kernel_args *a)
{
    struct pool p = pool_of(k, N, k->dim[H] * k->dim[W]);

    return tri_launch(avgpool_grad_kernel<T, N>, blocks_of(&p), THREADS, 0, a->stream, p,
                      static_cast<const T *>(a->in[0]), static_cast<T *>(a->out[0]));
}

/* Table entry of a pool; large and small: which arguments are the two sides. */
#define POOL(op, large, small)                                                                     \
    template <class T>                                                                             \
    static tri_status choose_##op(const struct cuda_kernel *k, const struct tri_kernel_args *a)    \
    {                                                                                              \
        return in_vectors<T>(k, a->in[0], a->out[0]) ? op<T, tri_lanes<T>::count>(k, a)            \
                                                     : op<T, 1>(k, a);                             \
    }                                                                                              \
    static tri_status run_##op(const struct tri_kernel *kernel, const struct tri_kernel_args *a)   \
    {                                                                                              \
        const struct cuda_kernel *k = reinterpret_cast<const struct cuda_kernel *>(kernel);        \
        return TRI_CALL_FLOAT(k->from, choose_##op, k, a);                                         \
    }                                                                                              \
    static tri_status prepare_##op(const struct tri_kernel_desc *d, struct tri_kernel **out)       \
    {                                                                                              \
        return prepare_pool(d, &tri_cuda_##op, &d->large[0], &d->small[0], out);                   \
    }                                                                                              \
    TRI_CUDA_KERNEL(op)

POOL(maxpool, in, out);
POOL(maxpool_grad, out, in);
POOL(avgpool, in, out);
POOL(avgpool_grad, out, in);
