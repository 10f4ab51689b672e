/* STEP_BEGIN, SUMSQ, CONTROL, STEP_END, SCALE_END, COMMIT, BATCHNORM_RUNNING, INJECT: what a step
 * decides, all of it on the device.
 *
 * SUMSQ: blocks of TRI_SUM_BLOCK elements by index in f64 (a fixed tree over the threads), then the
 * blocks (thread t of one block every 256th, then a tree): a function of the size alone. The
 * formulas of CONTROL are those of the processor (control_formula.h), in f64. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#include "runtime/core/memory.h"
#include "runtime/kernels/inject.h"

#include <math.h>

#define TRI_FORMULA static __device__ inline
#include "runtime/kernels/control_formula.h"

#define THREADS 256
#define SUMS    128 /* sums of squares whose pointers go into one launch */

static __global__ void step_begin(const int64_t *in, int64_t *out)
{
    int i = (int)threadIdx.x;

    if (i < TRI_COUNTER_COUNT)
        out[i] = in[i] + (i == TRI_COUNTER_STEP);
}

static tri_status prepare_step_begin(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_step_begin, out);
}

static tri_status run_step_begin(const struct tri_kernel *, const struct tri_kernel_args *args)
{
    return tri_launch(step_begin, 1, 32, 0, args->stream, (const int64_t *)args->in[0],
                      (int64_t *)args->out[0]);
}

TRI_CUDA_KERNEL(step_begin);

/* Counts the step as applied or skipped. */
static __global__ void step_end(const int64_t *in, const double *scalars, int64_t *out)
{
    bool finite = scalars[TRI_SCALAR_FINITE] != 0.0;
    int i = (int)threadIdx.x;
    int64_t c;

    if (i >= TRI_COUNTER_COUNT)
        return;
    c = in[i];
    if (i == TRI_COUNTER_UPDATES)
        c += finite;
    if (i == TRI_COUNTER_SKIPPED)
        c += !finite;
    if (i == TRI_COUNTER_SKIP_RUN)
        c = finite ? 0 : c + 1;
    if (i == TRI_COUNTER_GOOD_RUN)
        c = (int64_t)scalars[TRI_SCALAR_GOOD_RUN];
    out[i] = c;
}

static tri_status prepare_step_end(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_step_end, out);
}

static tri_status run_step_end(const struct tri_kernel *, const struct tri_kernel_args *args)
{
    return tri_launch(step_end, 1, 32, 0, args->stream, (const int64_t *)args->in[0],
                      (const double *)args->in[1], (int64_t *)args->out[0]);
}

TRI_CUDA_KERNEL(step_end);

static __global__ void scale_end(const double *scalars, float *scale)
{
    *scale = (float)scalars[TRI_SCALAR_LOSS_SCALE];
}

static tri_status prepare_scale_end(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_scale_end, out);
}

static tri_status run_scale_end(const struct tri_kernel *, const struct tri_kernel_args *args)
{
    return tri_launch(scale_end, 1, 1, 0, args->stream, (const double *)args->in[1],
                      (float *)args->out[0]);
}

TRI_CUDA_KERNEL(scale_end);

static __device__ inline double wide(double x)
{
    return x;
}

template <class T> static __device__ inline double wide(T x)
{
    return (double)tri_widen(x);
}

/* Sum of the squares of the 16 bytes from p on. */
static __device__ inline double squares(const double *p)
{
    double2 v = *reinterpret_cast<const double2 *>(p);

    return v.x * v.x + v.y * v.y;
}

template <class T> static __device__ inline double squares(const T *p)
{
    const int N = tri_lanes<T>::count;
    float x[N];
    double s = 0.0;

    tri_load(p, x);
    for (int j = 0; j < N; j++)
        s += (double)x[j] * (double)x[j];
    return s;
}

/* Sum of squares of elements [first, first + TRI_SUM_BLOCK) of n, in every thread. */
template <class T>
static __device__ inline double sum_block(const T *g, int64_t n, int64_t first, double *shared)
{
    const int N = tri_lanes<T>::count;
    int64_t end = first + TRI_SUM_BLOCK < n ? first + TRI_SUM_BLOCK : n;
    int64_t whole = (uintptr_t)g % 16 == 0 ? end - (end - first) % N : first;
    double s = 0.0;

    for (int64_t i = first + threadIdx.x * N; i < whole; i += THREADS * N)
        s += squares(g + i);
    for (int64_t i = whole + threadIdx.x; i < end; i += THREADS)
        s += wide(g[i]) * wide(g[i]);
    tri_block_sum<1>(&s, shared);
    return s;
}

/* part[0..n) added, in every thread. */
static __device__ inline double add_parts(const double *part, int64_t n, double *shared)
{
    double s = 0.0;

    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        s += part[i];
    tri_block_sum<1>(&s, shared);
    return s;
}

/* part[b]: sum of squares of block b. */
template <class T>
static __global__ void __launch_bounds__(THREADS) sumsq(const T *g, int64_t n, double *part)
{
    __shared__ double shared[32];
    double s = sum_block(g, n, (int64_t)blockIdx.x * TRI_SUM_BLOCK, shared);

    if (threadIdx.x == 0)
        part[blockIdx.x] = s;
}

static __global__ void __launch_bounds__(THREADS)
    add_blocks(const double *part, int64_t n, double *total)
{
    __shared__ double shared[32];
    double s = add_parts(part, n, shared);

    if (threadIdx.x == 0)
        *total = s;
}

static tri_status prepare_sumsq(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_sumsq, 0, &k));
    k->dim[0] = (k->count + TRI_SUM_BLOCK - 1) / TRI_SUM_BLOCK;
    k->base.scratch_bytes = (size_t)k->dim[0] * sizeof(double);
    *out = &k->base;
    return TRI_OK;
}

template <class T>
static tri_status run_sumsq_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    double *total = (double *)args->out[0], *part = k->dim[0] > 1 ? (double *)args->scratch : total;

    TRI_TRY(tri_launch(sumsq<T>, (unsigned)k->dim[0], THREADS, 0, args->stream,
                       (const T *)args->in[0], k->count, part));
    if (k->dim[0] == 1)
        return TRI_OK;
    return tri_launch(add_blocks, 1, THREADS, 0, args->stream, (const double *)part, k->dim[0],
                      total);
}

static tri_status run_sumsq(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    if (k->from == TRI_F64)
        return run_sumsq_of<double>(k, args);
    return TRI_CALL_FLOAT(k->from, run_sumsq_of, k, args);
}

TRI_CUDA_KERNEL(sumsq);

/* Gradients of a MULTI_SUMSQ. */
struct gradients {
    const float *g[TRI_MULTI_SUMS];
    int64_t count[TRI_MULTI_SUMS];
    unsigned first[TRI_MULTI_SUMS + 1]; /* block of a gradient's first elements */
};

/* part[b]: sum of squares of block b, as sumsq computes it. */
static __global__ void __launch_bounds__(THREADS)
    multi_sumsq(const __grid_constant__ struct gradients a, double *part)
{
    __shared__ double shared[32];
    int t = 0;
    double s;

    while (blockIdx.x >= a.first[t + 1])
        t++;
    s = sum_block(a.g[t], a.count[t], (int64_t)(blockIdx.x - a.first[t]) * TRI_SUM_BLOCK, shared);
    if (threadIdx.x == 0)
        part[blockIdx.x] = s;
}

/* Block t: the sum of gradient t, as add_blocks computes it. */
static __global__ void __launch_bounds__(THREADS)
    add_multi_blocks(const __grid_constant__ struct gradients a, const double *part, double *total)
{
    __shared__ double shared[32];
    unsigned first = a.first[blockIdx.x];
    double s = add_parts(part + first, a.first[blockIdx.x + 1] - first, shared);

    if (threadIdx.x == 0)
        total[blockIdx.x] = s;
}

struct multi_sumsq_kernel {
    struct tri_kernel base;
    struct gradients plan; /* without pointers */
    int n;
};

static void destroy_multi_sumsq(struct tri_kernel *k)
{
    tri_free(k);
}

static tri_status prepare_multi_sumsq(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct multi_sumsq_kernel *k = (struct multi_sumsq_kernel *)tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"multi_sumsq\": out of memory");
    k->base.ops = &tri_cuda_multi_sumsq;
    k->n = d->nin;
    for (int t = 0; t < d->nin; t++) {
        int64_t count = tri_shape_count(&d->in[t].shape);

        k->plan.count[t] = count;
        k->plan.first[t + 1] =
            k->plan.first[t] + (unsigned)((count + TRI_SUM_BLOCK - 1) / TRI_SUM_BLOCK);
    }
    k->base.scratch_bytes = k->plan.first[d->nin] * sizeof(double);
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_multi_sumsq(const struct tri_kernel *kernel,
                                  const struct tri_kernel_args *args)
{
    const struct multi_sumsq_kernel *k = (const struct multi_sumsq_kernel *)kernel;
    struct gradients a = k->plan;
    double *part = (double *)args->scratch;

    for (int t = 0; t < k->n; t++)
        a.g[t] = (const float *)args->in[t];
    TRI_TRY(tri_launch(multi_sumsq, a.first[k->n], THREADS, 0, args->stream, a, part));
    return tri_launch(add_multi_blocks, (unsigned)k->n, THREADS, 0, args->stream, a,
                      (const double *)part, (double *)args->out[0]);
}

const struct tri_kernel_ops tri_cuda_multi_sumsq = {.name = "multi_sumsq_cuda",
                                                    .prepare = prepare_multi_sumsq,
                                                    .run = run_multi_sumsq,
                                                    .destroy = destroy_multi_sumsq};

struct sums {
    const double *value[SUMS];
    int n;
};

/* *total = (fresh: 0, else *total) + the sums in order. One block: all loads at once, then one
 * thread adds. */
static __global__ void __launch_bounds__(SUMS) add_sums(struct sums s, bool fresh, double *total)
{
    __shared__ double value[SUMS];
    int t = (int)threadIdx.x;

    if (t < s.n)
        value[t] = *s.value[t];
    __syncthreads();
    if (t == 0) {
        double sum = fresh ? 0.0 : *total;

        for (int i = 0; i < s.n; i++)
            sum += value[i];
        *total = sum;
    }
}

static __global__ void control(struct tri_control c, const double *stats, const int64_t *counters,
                               const float *loss_scale, const double *total, double *scalars)
{
    tri_formula_control(&c, stats, counters, loss_scale, *total, scalars);
}

static tri_status prepare_control(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_control, sizeof(double), &k));
    k->dim[0] = d->nin;
    *out = &k->base;
    return TRI_OK;
}

/* stats, counters', sumsq..., [loss scale] */
static tri_status run_control(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;
    bool scaled = k->attrs.control.scaled;
    int end = (int)k->dim[0] - scaled, at = 2;
    double *total = (double *)args->scratch;

    do {
        bool fresh = at == 2;
        struct sums s = {};

        while (at < end && s.n < SUMS)
            s.value[s.n++] = (const double *)args->in[at++];
        TRI_TRY(tri_launch(add_sums, 1, SUMS, 0, args->stream, s, fresh, total));
    } while (at < end);
    return tri_launch(control, 1, 1, 0, args->stream, k->attrs.control, (const double *)args->in[0],
                      (const int64_t *)args->in[1],
                      scaled ? (const float *)args->in[end] : (const float *)NULL,
                      (const double *)total, (double *)args->out[0]);
}

TRI_CUDA_KERNEL(control);

/* state' = (applied ? fresh : state) (1 + change of the loss scale) */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    commit(const T *state, const T *fresh, const double *scalars, T *out, int64_t n)
{
    const T *from = scalars[TRI_SCALAR_FINITE] != 0.0 ? fresh : state;
    double change = scalars[TRI_SCALAR_SCALE_CHANGE];
    int64_t stride = (int64_t)gridDim.x * blockDim.x;

    if (from == out && change == 0.0)
        return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        out[i] = change == 0.0 ? from[i] : tri_narrow<T>((float)(wide(from[i]) * (1.0 + change)));
}

static tri_status prepare_commit(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_commit, out);
}

template <class T>
static tri_status run_commit_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    return tri_launch(commit<T>, tri_cuda_grid(k, k->count, THREADS), THREADS, 0, args->stream,
                      (const T *)args->in[0], (const T *)args->in[1] + k->attrs.view.offset,
                      (const double *)args->in[2], (T *)args->out[0], k->count);
}

static tri_status run_commit(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_commit_of, k, args);
}

TRI_CUDA_KERNEL(commit);

/* running = (1 - momentum) running + momentum * sample-weighted mean over the grains of the step.
 * Nothing moves when the step is skipped or had no sample. */
static __global__ void __launch_bounds__(THREADS)
    batchnorm_running(float *mean, float *var, const float *moments, const double *scalars,
                      double rate, int nc)
{
    double n = (double)moments[2 * nc];
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (c >= nc || n == 0.0 || scalars[TRI_SCALAR_FINITE] == 0.0)
        return;
    mean[c] = (float)((1.0 - rate) * (double)mean[c] + rate * (double)moments[c] / n);
    var[c] = (float)((1.0 - rate) * (double)var[c] + rate * (double)moments[nc + c] / n);
}

static tri_status prepare_batchnorm_running(const struct tri_kernel_desc *d,
                                            struct tri_kernel **out)
{
    return tri_cuda_prepare_plain(d, &tri_cuda_batchnorm_running, out);
}

static tri_status run_batchnorm_running(const struct tri_kernel *kernel,
                                        const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return tri_launch(batchnorm_running, (unsigned)((k->count + THREADS - 1) / THREADS), THREADS, 0,
                      args->stream, (float *)args->out[0], (float *)args->out[1],
                      (const float *)args->in[2], (const double *)args->in[3],
                      k->attrs.norm.momentum, (int)k->count);
}

TRI_CUDA_KERNEL(batchnorm_running);

/* A prepared INJECT: faults of values are done by a kernel, those of the process by the stream's
 * host thread, which looks at a copy of the step counter. */
struct inject {
    struct cuda_kernel k;
    struct tri_device *device;
    int64_t *step; /* the copy, in memory of the process */
};

template <class T> static __device__ void flip(T *x, int bit)
{
    unsigned char *p = reinterpret_cast<unsigned char *>(x) + bit / 8;

    *p = (unsigned char)(*p ^ (1u << (bit % 8)));
}

template <class T>
static __global__ void spoil(struct tri_attr_inject f, const int64_t *counters, T *x)
{
    if (counters[TRI_COUNTER_STEP] != f.step)
        return;
    if (f.what == TRI_INJECT_FLIP)
        flip(x + f.index, f.bit);
    else
        x[f.index] = tri_narrow<T>(f.what == TRI_INJECT_INF ? INFINITY : NAN);
}

static void CUDART_CB do_fault(void *data)
{
    const struct inject *in = (const struct inject *)data;
    const struct tri_attr_inject *f = &in->k.attrs.inject;

    if (*in->step == f->step)
        tri_inject_process(f->what, f->ms, f->code);
}

static tri_status check_spoil(const struct tri_attr_inject *f, const struct tri_arg *x)
{
    int bits = (int)tri_dtype_bytes(x->dtype) * 8;

    if (f->index < 0 || f->index >= tri_shape_count(&x->shape))
        return tri_fail(TRI_ERR_USAGE, "inject: index %lld is outside 0 to %lld",
                        (long long)f->index, (long long)(tri_shape_count(&x->shape) - 1));
    if (f->what == TRI_INJECT_FLIP && (f->bit < 0 || f->bit >= bits))
        return tri_fail(TRI_ERR_USAGE, "inject: bit %d is outside 0 to %d", f->bit, bits - 1);
    return TRI_OK;
}

static void destroy_inject(struct tri_kernel *k)
{
    struct inject *in = (struct inject *)k;

    if (in != NULL && in->step != NULL)
        in->device->ops->free_host(in->device, in->step);
    tri_free(in);
}

static tri_status prepare_inject(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    const struct tri_attr_inject *f = &d->attrs.inject;
    struct inject *in;
    void *step;

    if (d->in[0].dtype != TRI_F32 && !tri_dtype_is_half(d->in[0].dtype))
        return TRI_ERR_UNSUPPORTED;
    if (f->what <= TRI_INJECT_FLIP)
        TRI_TRY(check_spoil(f, &d->in[0]));
    in = (struct inject *)tri_calloc(1, sizeof(*in), "kernel");
    if (in == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"inject\": out of memory");
    in->k.base.ops = &tri_cuda_inject;
    in->k.attrs = d->attrs;
    in->k.from = d->in[0].dtype;
    in->k.count = tri_shape_count(&d->in[0].shape);
    in->device = d->device;
    if (f->what > TRI_INJECT_FLIP) {
        tri_status st = d->device->ops->alloc_host(d->device, sizeof(*in->step), &step);

        if (st != TRI_OK) {
            tri_free(in);
            return st;
        }
        in->step = (int64_t *)step;
    }
    *out = &in->k.base;
    return TRI_OK;
}

template <class T>
static tri_status run_spoil(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    return tri_launch(spoil<T>, 1, 1, 0, args->stream, k->attrs.inject,
                      (const int64_t *)args->in[1], (T *)args->out[0]);
}

static tri_status run_inject(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    struct inject *in = (struct inject *)(void *)const_cast<struct tri_kernel *>(kernel);
    cudaStream_t stream = (cudaStream_t)args->stream;
    size_t bytes = (size_t)in->k.count * tri_dtype_bytes(in->k.from);

    if (args->out[0] != args->in[0])
        TRI_CUDA(
            cudaMemcpyAsync(args->out[0], args->in[0], bytes, cudaMemcpyDeviceToDevice, stream));
    if (in->k.attrs.inject.what <= TRI_INJECT_FLIP)
        return TRI_CALL_FLOAT(in->k.from, run_spoil, &in->k, args);
    TRI_CUDA(cudaMemcpyAsync(in->step, (const int64_t *)args->in[1] + TRI_COUNTER_STEP,
                             sizeof(*in->step), cudaMemcpyDeviceToHost, stream));
    TRI_CUDA(cudaLaunchHostFunc(stream, do_fault, in));
    return TRI_OK;
}

const struct tri_kernel_ops tri_cuda_inject = {
    .name = "inject_cuda",
    .prepare = prepare_inject,
    .run = run_inject,
    .destroy = destroy_inject,
};
