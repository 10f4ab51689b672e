/* SGD, ADAMW, MULTI_SGD, MULTI_ADAMW: one pass over weight, gradient and moments, all in place;
 * f32, within 4 ulp of the formulas below, the same bits in either form; 16 bytes a thread.
 *
 * g' = g * grad scale, rate = lr * lr factor, read from the scalars; nothing is written when the
 * step is skipped (finite = 0). SGD (Sutskever et al., 2013, in PyTorch's form): g' += decay w;
 * m = momentum m + g'; w -= rate (m, or g' + momentum m with Nesterov, or g' without momentum).
 * ADAMW (Loshchilov, Hutter, "Decoupled weight decay regularization", 2019): m = b1 m + (1 - b1)
 * g'; v = b2 v + (1 - b2) g'^2; w = w (1 - rate decay) - rate / bias1 * m / (sqrt(v) / sqrt(bias2)
 * + eps). */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#define THREADS 256

/* One element of SGD; m: NULL without momentum. */
static __device__ inline void sgd_one(const struct tri_attr_optimizer &o, float scale, float rate,
                                      float *w, float g, float *m)
{
    float d = (float)o.weight_decay * *w + scale * g, v = d;

    if (m != NULL) {
        *m = (float)o.momentum * *m + d;
        v = o.nesterov ? d + (float)o.momentum * *m : *m;
    }
    *w -= rate * v;
}

template <bool MOMENTUM>
static __global__ void __launch_bounds__(THREADS)
    sgd(struct tri_attr_optimizer o, const double *scalars, float *w, const float *g, float *m,
        int64_t n, int64_t nvec)
{
    float scale = (float)scalars[TRI_SCALAR_GRAD_SCALE];
    float rate = (float)(o.lr * scalars[TRI_SCALAR_LR_FACTOR]);
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    if (scalars[TRI_SCALAR_FINITE] == 0.0)
        return;
    for (int64_t i = first; i < nvec; i += stride) {
        float x[4], d[4], b[4] = {};

        tri_load(w + 4 * i, x);
        tri_load(g + 4 * i, d);
        if (MOMENTUM)
            tri_load(m + 4 * i, b);
        for (int j = 0; j < 4; j++)
            sgd_one(o, scale, rate, x + j, d[j], MOMENTUM ? b + j : NULL);
        tri_store(w + 4 * i, x);
        if (MOMENTUM)
            tri_store(m + 4 * i, b);
    }
    for (int64_t i = 4 * nvec + first; i < n; i += stride)
        sgd_one(o, scale, rate, w + i, g[i], MOMENTUM ? m + i : NULL);
}

static tri_status prepare_sgd(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_sgd, 0, &k));
    k->dim[0] = tri_arg_present(d->in, 2, d->nin); /* momentum */
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_sgd(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    float *w = (float *)args->out[0], *m = k->dim[0] != 0 ? (float *)args->out[1] : NULL;
    const float *g = (const float *)args->in[1];
    int64_t nvec = tri_cuda_aligned(w, m, g) ? k->count / 4 : 0;

    return tri_launch(m != NULL ? sgd<true> : sgd<false>,
                      tri_cuda_grid(k, nvec + k->count - 4 * nvec, THREADS), THREADS, 0,
                      args->stream, k->attrs.optimizer, (const double *)args->in[3], w, g, m,
                      k->count, nvec);
}

TRI_CUDA_KERNEL(sgd);

/* What an element needs of the attributes and the scalars. */
struct adamw {
    float scale, keep, rate, b1, b1c, b2, b2c, root, eps;
};

static __device__ inline struct adamw adamw_of(const struct tri_attr_optimizer &o, const double *s)
{
    double rate = o.lr * s[TRI_SCALAR_LR_FACTOR];
    struct adamw h;

    h.scale = (float)s[TRI_SCALAR_GRAD_SCALE];
    h.keep = (float)(1.0 - rate * o.weight_decay);
    h.rate = (float)(rate / s[TRI_SCALAR_BIAS1]);
    h.b1 = (float)o.beta1;
    h.b1c = (float)(1.0 - o.beta1);
    h.b2 = (float)o.beta2;
    h.b2c = (float)(1.0 - o.beta2);
    h.root = (float)(1.0 / sqrt(s[TRI_SCALAR_BIAS2]));
    h.eps = (float)o.eps;
    return h;
}

static __device__ inline void adamw_one(const struct adamw &h, float *w, float g, float *m,
                                        float *v)
{
    float d = h.scale * g;

    *m = h.b1 * *m + h.b1c * d;
    *v = h.b2 * *v + h.b2c * d * d;
    *w = h.keep * *w - h.rate * (*m / (sqrtf(*v) * h.root + h.eps));
}

static __global__ void __launch_bounds__(THREADS)
    adamw(struct tri_attr_optimizer o, const double *scalars, float *w, const float *g, float *m,
          float *v, int64_t n, int64_t nvec)
{
    struct adamw h = adamw_of(o, scalars);
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    if (scalars[TRI_SCALAR_FINITE] == 0.0)
        return;
    for (int64_t i = first; i < nvec; i += stride) {
        float x[4], d[4], a[4], b[4];

        tri_load(w + 4 * i, x);
        tri_load(g + 4 * i, d);
        tri_load(m + 4 * i, a);
        tri_load(v + 4 * i, b);
        for (int j = 0; j < 4; j++)
            adamw_one(h, x + j, d[j], a + j, b + j);
        tri_store(w + 4 * i, x);
        tri_store(m + 4 * i, a);
        tri_store(v + 4 * i, b);
    }
    for (int64_t i = 4 * nvec + first; i < n; i += stride)
        adamw_one(h, w + i, g[i], m + i, v + i);
}

static tri_status prepare_adamw(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_adamw, out);
}

static tri_status run_adamw(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    float *w = (float *)args->out[0], *m = (float *)args->out[1], *v = (float *)args->out[2];
    const float *g = (const float *)args->in[1];
    bool whole = tri_cuda_aligned(w, m, v) && tri_cuda_aligned(g, NULL, NULL);
    int64_t nvec = whole ? k->count / 4 : 0;

    return tri_launch(adamw, tri_cuda_grid(k, nvec + k->count - 4 * nvec, THREADS), THREADS, 0,
                      args->stream, k->attrs.optimizer, (const double *)args->in[4], w, g, m, v,
                      k->count, nvec);
}

TRI_CUDA_KERNEL(adamw);

/* --- several parameters in one launch --- */

#define CHUNK 4096 /* elements of a block */

/* The tensors of a launch: pointers that the kinds of tensors in use have. */
struct multi {
    unsigned first[TRI_MULTI + 1]; /* block of parameter t's first elements; [n]: their number */
    unsigned whole; /* bit t: tensors of parameter t may be moved 16 bytes at a time */
    int64_t count[TRI_MULTI];
    float *w[TRI_MULTI], *m[TRI_MULTI], *v[TRI_MULTI];
    const float *g[TRI_MULTI];
    void *copy[TRI_MULTI]; /* of T; NULL: none */
};

/* 8 bytes: four elements of 16 bits. */
template <class T> static __device__ inline void store_copy(T *p, const float *x)
{
    *reinterpret_cast<uint2 *>(p) = make_uint2(tri_narrow2<T>(x), tri_narrow2<T>(x + 2));
}

template <class T, bool ADAMW, bool MOMENTUM>
static __global__ void __launch_bounds__(THREADS)
    multi_update(struct tri_attr_optimizer o, const double *scalars,
                 const __grid_constant__ struct multi a)
{
    struct adamw h = adamw_of(o, scalars);
    float scale = (float)scalars[TRI_SCALAR_GRAD_SCALE];
    float rate = (float)(o.lr * scalars[TRI_SCALAR_LR_FACTOR]);
    int t = 0;

    if (scalars[TRI_SCALAR_FINITE] == 0.0)
        return;
    while (blockIdx.x >= a.first[t + 1])
        t++;
    int64_t begin = (int64_t)(blockIdx.x - a.first[t]) * CHUNK, count = a.count[t];
    int64_t end = begin + CHUNK < count ? begin + CHUNK : count;
    int64_t whole = (a.whole >> t & 1) != 0 ? end - (end - begin) % 4 : begin;
    float *w = a.w[t], *m = a.m[t], *v = a.v[t];
    const float *g = a.g[t];
    T *copy = (T *)a.copy[t];

    for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < whole; i += 4 * THREADS) {
        float x[4], d[4], b[4] = {}, c[4] = {};

        tri_load(w + i, x);
        tri_load(g + i, d);
        if (ADAMW || MOMENTUM)
            tri_load(m + i, b);
        if (ADAMW)
            tri_load(v + i, c);
        for (int j = 0; j < 4; j++) {
            if (ADAMW)
                adamw_one(h, x + j, d[j], b + j, c + j);
            else
                sgd_one(o, scale, rate, x + j, d[j], MOMENTUM ? b + j : NULL);
        }
        tri_store(w + i, x);
        if (ADAMW || MOMENTUM)
            tri_store(m + i, b);
        if (ADAMW)
            tri_store(v + i, c);
        if (copy != NULL)
            store_copy(copy + i, x);
    }
    for (int64_t i = whole + threadIdx.x; i < end; i += THREADS) {
        if (ADAMW)
            adamw_one(h, w + i, g[i], m + i, v + i);
        else
            sgd_one(o, scale, rate, w + i, g[i], MOMENTUM ? m + i : NULL);
        if (copy != NULL)
            copy[i] = tri_narrow<T>(w[i]);
    }
}

enum { DIM_COUNT, DIM_MOMENTUM = DIM_COUNT + TRI_MULTI };

static tri_status prepare_multi(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                struct tri_kernel **out)
{
    const struct tri_attr_optimizer *o = &d->attrs.optimizer;
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    for (int t = 0; t < o->tensors; t++)
        k->dim[DIM_COUNT + t] = tri_shape_count(&d->in[1 + t].shape);
    k->dim[DIM_MOMENTUM] = (d->nin - 1) / o->tensors - o->copies > 2;
    k->to = d->in[d->nin - 1].dtype; /* of the copies, if any */
    *out = &k->base;
    return TRI_OK;
}

static tri_status prepare_multi_sgd(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_multi(d, &tri_cuda_multi_sgd, out);
}

static tri_status prepare_multi_adamw(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_multi(d, &tri_cuda_multi_adamw, out);
}

/* The launch of all parameters: moments is how many tensors of moments each has. */
static struct multi multi_of(const struct cuda_kernel *k, const struct tri_kernel_args *args,
                             int moments)
{
    int n = k->attrs.optimizer.tensors;
    struct multi a = {};

    for (int t = 0; t < n; t++) {
        int64_t count = k->dim[DIM_COUNT + t];

        a.w[t] = (float *)args->out[t];
        a.g[t] = (const float *)args->in[1 + n + t];
        a.m[t] = moments > 0 ? (float *)args->out[n + t] : NULL;
        a.v[t] = moments > 1 ? (float *)args->out[2 * n + t] : NULL;
        a.copy[t] = k->attrs.optimizer.copies ? args->out[(1 + moments) * n + t] : NULL;
        a.count[t] = count;
        a.first[t + 1] = a.first[t] + (unsigned)((count + CHUNK - 1) / CHUNK);
        a.whole |= (unsigned)(tri_cuda_aligned(a.w[t], a.m[t], a.v[t]) &&
                              tri_cuda_aligned(a.g[t], a.copy[t], NULL))
                   << t;
    }
    return a;
}

template <class T>
static tri_status run_multi_of(const struct cuda_kernel *k, const struct tri_kernel_args *args,
                               bool adamw)
{
    struct multi a = multi_of(k, args, adamw ? 2 : (int)k->dim[DIM_MOMENTUM]);

    return tri_launch(adamw                       ? multi_update<T, true, false>
                      : k->dim[DIM_MOMENTUM] != 0 ? multi_update<T, false, true>
                                                  : multi_update<T, false, false>,
                      a.first[k->attrs.optimizer.tensors], THREADS, 0, args->stream,
                      k->attrs.optimizer, (const double *)args->in[0], a);
}

static tri_status run_multi_sgd(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return k->to == TRI_F16 ? run_multi_of<__half>(k, args, false)
                            : run_multi_of<__nv_bfloat16>(k, args, false);
}

TRI_CUDA_KERNEL(multi_sgd);

static tri_status run_multi_adamw(const struct tri_kernel *kernel,
                                  const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return k->to == TRI_F16 ? run_multi_of<__half>(k, args, true)
                            : run_multi_of<__nv_bfloat16>(k, args, true);
}

TRI_CUDA_KERNEL(multi_adamw);
