/* ADD, RELU, RELU_GRAD, GELU, GELU_GRAD, DROPOUT, CAST: one pass over memory, 16 bytes a thread
 * where all pointers allow it, element by element else and at the end. 16-bit arguments are widened
 * in registers and the result is rounded once. Class: exact or one rounding; GELU and its gradient
 * 8 ulp of the largest term. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"
#include "runtime/kernels/cuda/philox.cuh"

#define THREADS 256

/* What a kernel of two inputs does to one element; relu and gelu do not look at b. */
struct add {
    static __device__ float of(float a, float b)
    {
        return a + b;
    }
};

/* Written so that NaN stays NaN. */
struct relu {
    static __device__ float of(float x, float)
    {
        return x <= 0.0f ? 0.0f : x;
    }
};

struct relu_grad {
    static __device__ float of(float dy, float y)
    {
        return y <= 0.0f ? 0.0f : dy;
    }
};

#define GELU_A 0.79788456080286535588f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

/* 1 / (1 + e^(-2u)) = (1 + tanh u) / 2 with u = a (x + b x^3), the tanh form of Hendrycks and
 * Gimpel, "Gaussian error linear units", 2016. */
static __device__ inline float gelu_gate(float x)
{
    float u = GELU_A * (x + GELU_B * x * x * x);

    return __fdividef(1.0f, 1.0f + __expf(-2.0f * u));
}

/* y = x gate. */
struct gelu {
    static __device__ float of(float x, float)
    {
        return x * gelu_gate(x);
    }
};

/* With s the gate, (1 - tanh^2) / 2 = 2 s (1 - s): dy/dx = s + 2 x s (1 - s) a (1 + 3 b x^2). Where
 * s is 0 or 1 the second term is 0, also for x whose square overflows. */
struct gelu_grad {
    static __device__ float of(float dy, float x)
    {
        float s = gelu_gate(x), bend = s * (1.0f - s);
        float slope = 2.0f * GELU_A * x * (1.0f + 3.0f * GELU_B * x * x);

        return dy * (bend == 0.0f ? s : s + bend * slope);
    }
};

/* y = of(a, b); b may be NULL for ops that do not read it. The first nvec vectors go whole. */
template <class T, class F>
static __global__ void __launch_bounds__(THREADS)
    map(const T *a, const T *b, T *y, int64_t n, int64_t nvec)
{
    const int N = tri_lanes<T>::count;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = first; i < nvec; i += stride) {
        float p[N], q[N] = {};

        tri_load(a + i * N, p);
        if (b != NULL)
            tri_load(b + i * N, q);
        for (int j = 0; j < N; j++)
            p[j] = F::of(p[j], q[j]);
        tri_store(y + i * N, p);
    }
    for (int64_t i = nvec * N + first; i < n; i += stride)
        y[i] = tri_narrow<T>(F::of(tri_widen(a[i]), b == NULL ? 0.0f : tri_widen(b[i])));
}

static __global__ void add_f64(const double *a, const double *b, double *y, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = a[i] + b[i];
}

template <class T, class F>
static tri_status run_map(const struct cuda_kernel *k, const void *a, const void *b, void *y,
                          void *stream)
{
    const int N = tri_lanes<T>::count;
    int64_t nvec = tri_cuda_aligned(a, b, y) ? k->count / N : 0;

    return tri_launch(map<T, F>, tri_cuda_grid(k, nvec + k->count - nvec * N, THREADS), THREADS, 0,
                      stream, (const T *)a, (const T *)b, (T *)y, k->count, nvec);
}

template <class F>
static tri_status run_float(const struct cuda_kernel *k, const void *a, const void *b, void *y,
                            void *stream)
{
    return k->from == TRI_BF16  ? run_map<__nv_bfloat16, F>(k, a, b, y, stream)
           : k->from == TRI_F16 ? run_map<__half, F>(k, a, b, y, stream)
                                : run_map<float, F>(k, a, b, y, stream);
}

static tri_status prepare_add(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_add, out);
}

static tri_status run_add(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    if (k->from == TRI_F64)
        return tri_launch(add_f64, tri_cuda_grid(k, k->count, THREADS), THREADS, 0, args->stream,
                          (const double *)args->in[0], (const double *)args->in[1],
                          (double *)args->out[0], k->count);
    return run_float<add>(k, args->in[0], args->in[1], args->out[0], args->stream);
}

TRI_CUDA_KERNEL(add);

static tri_status prepare_relu(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_relu, out);
}

static tri_status run_relu(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    return run_float<relu>((const struct cuda_kernel *)kernel, args->in[0], NULL, args->out[0],
                           args->stream);
}

TRI_CUDA_KERNEL(relu);

static tri_status prepare_relu_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_relu_grad, out);
}

static tri_status run_relu_grad(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    return run_float<relu_grad>((const struct cuda_kernel *)kernel, args->in[0], args->in[1],
                                args->out[0], args->stream);
}

TRI_CUDA_KERNEL(relu_grad);

static tri_status prepare_gelu(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_gelu, out);
}

static tri_status run_gelu(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    return run_float<gelu>((const struct cuda_kernel *)kernel, args->in[0], NULL, args->out[0],
                           args->stream);
}

TRI_CUDA_KERNEL(gelu);

static tri_status prepare_gelu_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_gelu_grad, out);
}

static tri_status run_gelu_grad(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    return run_float<gelu_grad>((const struct cuda_kernel *)kernel, args->in[0], args->in[1],
                                args->out[0], args->stream);
}

TRI_CUDA_KERNEL(gelu_grad);

/* Inverted dropout. Element i of the grain has index base + i of the stream. base is a multiple of
 * 4 where nvec > 0, so that a vector is whole blocks of four words. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    dropout(struct tri_cuda_dropout d, const T *x, const int64_t *counters, T *y, uint64_t base,
            int64_t n, int64_t nvec)
{
    const int N = tri_lanes<T>::count;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    uint64_t step = (uint64_t)counters[TRI_COUNTER_STEP];

    for (int64_t i = first; i < nvec; i += stride) {
        float v[N], f[4];

        tri_load(x + i * N, v);
        for (int j = 0; j < N; j++) {
            if (j % 4 == 0)
                tri_dropout4(&d, step, (base + (uint64_t)(i * N + j)) >> 2, f);
            v[j] = f[j % 4] > 0.0f ? v[j] * f[j % 4] : 0.0f; /* exactly 0, also for NaN */
        }
        tri_store(y + i * N, v);
    }
    for (int64_t i = nvec * N + first; i < n; i += stride) {
        float f = tri_dropout1(&d, step, base + (uint64_t)i);

        y[i] = tri_narrow<T>(f > 0.0f ? tri_widen(x[i]) * f : 0.0f);
    }
}

static tri_status prepare_dropout(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_dropout, out);
}

template <class T>
static tri_status run_dropout_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_attr_dropout *at = &k->attrs.dropout;
    struct tri_cuda_dropout d = tri_cuda_dropout_make(at->p, at->seed, at->stream);
    uint64_t base = (uint64_t)(args->grain * k->count);
    const int N = tri_lanes<T>::count;
    bool whole = tri_cuda_aligned(args->in[0], args->out[0], NULL) && base % 4 == 0;
    int64_t nvec = whole ? k->count / N : 0;

    return tri_launch(dropout<T>, tri_cuda_grid(k, nvec + k->count - nvec * N, THREADS), THREADS, 0,
                      args->stream, d, (const T *)args->in[0], (const int64_t *)args->in[1],
                      (T *)args->out[0], base, k->count, nvec);
}

static tri_status run_dropout(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_dropout_of, k, args);
}

TRI_CUDA_KERNEL(dropout);

/* Eight elements: 16 or 32 bytes. */
template <class T> static __device__ inline void load8(const T *p, float *x)
{
    for (int j = 0; j < 8; j += tri_lanes<T>::count)
        tri_load(p + j, x + j);
}

template <class T> static __device__ inline void store8(T *p, const float *x)
{
    for (int j = 0; j < 8; j += tri_lanes<T>::count)
        tri_store(p + j, x + j);
}

template <class A, class B>
static __global__ void __launch_bounds__(THREADS) cast(const A *x, B *y, int64_t n, int64_t neight)
{
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = first; i < neight; i += stride) {
        float v[8];

        load8(x + 8 * i, v);
        store8(y + 8 * i, v);
    }
    for (int64_t i = 8 * neight + first; i < n; i += stride)
        y[i] = tri_narrow<B>(tri_widen(x[i]));
}

template <class B> static __global__ void cast_from_f64(const double *x, B *y, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = tri_narrow<B>((float)x[i]);
}

template <class A> static __global__ void cast_to_f64(const A *x, double *y, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = (double)tri_widen(x[i]);
}

static tri_status prepare_cast(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    bool wide = d->in[0].dtype == TRI_F64 && d->out[0].dtype == TRI_F64;

    if (!tri_dtype_is_float(d->in[0].dtype) || !tri_dtype_is_float(d->out[0].dtype) || wide)
        return TRI_ERR_UNSUPPORTED;
    return tri_cuda_prepare_plain(d, &tri_cuda_cast, out);
}

template <class A, class B>
static tri_status launch_cast(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const void *x = args->in[0];
    void *y = args->out[0];
    int64_t neight = tri_cuda_aligned(x, y, NULL) ? k->count / 8 : 0;

    return tri_launch(cast<A, B>, tri_cuda_grid(k, neight + k->count - neight * 8, THREADS),
                      THREADS, 0, args->stream, (const A *)x, (B *)y, k->count, neight);
}

template <class A>
static tri_status run_cast_from(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    if (k->to == TRI_F64)
        return tri_launch(cast_to_f64<A>, tri_cuda_grid(k, k->count, THREADS), THREADS, 0,
                          args->stream, (const A *)args->in[0], (double *)args->out[0], k->count);
    return k->to == TRI_BF16  ? launch_cast<A, __nv_bfloat16>(k, args)
           : k->to == TRI_F16 ? launch_cast<A, __half>(k, args)
                              : launch_cast<A, float>(k, args);
}

template <class B>
static tri_status run_cast_from_f64(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    return tri_launch(cast_from_f64<B>, tri_cuda_grid(k, k->count, THREADS), THREADS, 0,
                      args->stream, (const double *)args->in[0], (B *)args->out[0], k->count);
}

static tri_status run_cast(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    if (k->from == TRI_F64)
        return TRI_CALL_FLOAT(k->to, run_cast_from_f64, k, args);
    return TRI_CALL_FLOAT(k->from, run_cast_from, k, args);
}

TRI_CUDA_KERNEL(cast);
