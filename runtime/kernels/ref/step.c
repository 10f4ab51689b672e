/* Reference kernels of the step: counters, norms, the joint decision, optimizers, and faults on
 * purpose. */
#include "runtime/kernels/ref/ref.h"

#include "runtime/kernels/control.h"
#include "runtime/kernels/inject.h"

#include <math.h>
#include <string.h>

tri_status tri_ref_step_begin(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    (void)k;
    memmove(args->out[0], args->in[0], TRI_COUNTER_COUNT * sizeof(int64_t));
    ((int64_t *)args->out[0])[TRI_COUNTER_STEP]++;
    return TRI_OK;
}

/* Counts the step as applied or skipped. */
tri_status tri_ref_step_end(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const double *scalars = args->in[1];
    int64_t *c = args->out[0], finite = scalars[TRI_SCALAR_FINITE] != 0;

    (void)k;
    memmove(c, args->in[0], TRI_COUNTER_COUNT * sizeof(int64_t));
    c[TRI_COUNTER_UPDATES] += finite;
    c[TRI_COUNTER_SKIPPED] += !finite;
    c[TRI_COUNTER_SKIP_RUN] = finite ? 0 : c[TRI_COUNTER_SKIP_RUN] + 1;
    c[TRI_COUNTER_GOOD_RUN] = (int64_t)scalars[TRI_SCALAR_GOOD_RUN];
    return TRI_OK;
}

tri_status tri_ref_scale_end(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const double *scalars = args->in[1];

    (void)k;
    *(float *)args->out[0] = (float)scalars[TRI_SCALAR_LOSS_SCALE];
    return TRI_OK;
}

/* Sum of squares: blocks of TRI_SUM_BLOCK elements by index, then the blocks in order, so that any
 * number of threads and a split at block borders give the same bits. */
static double sum_of_squares(const struct tri_arg *g, const void *p)
{
    int64_t n = tri_ref_count(g);
    double total = 0;

    for (int64_t first = 0; first < n; first += TRI_SUM_BLOCK) {
        double block = 0;

        for (int64_t i = first; i < n && i < first + TRI_SUM_BLOCK; i++) {
            double x = tri_ref_load(g->dtype, p, i);

            block += x * x;
        }
        total += block;
    }
    return total;
}

tri_status tri_ref_sumsq(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    *(double *)args->out[0] = sum_of_squares(&tri_ref_desc(k)->in[0], args->in[0]);
    return TRI_OK;
}

tri_status tri_ref_multi_sumsq(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);

    for (int i = 0; i < d->nin; i++)
        ((double *)args->out[0])[i] = sum_of_squares(&d->in[i], args->in[i]);
    return TRI_OK;
}

tri_status tri_ref_control(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    int scaled = d->attrs.control.scaled;

    tri_control_scalars(&d->attrs.control, args->in[0], args->in[1],
                        scaled ? args->in[d->nin - 1] : NULL, args->in + 2, d->nin - 2 - scaled,
                        args->out[0]);
    return TRI_OK;
}

/* Stochastic gradient descent as PyTorch's torch.optim.SGD (dampening 0), g already the clipped
 * mean gradient: g += decay w;  buf = momentum buf + g (a zero buffer at first gives g);  w -= lr
 * (nesterov ? g + momentum buf : buf). In place; buf NULL: without momentum. */
static void step_sgd(const struct tri_attr_optimizer *o, const double *scalars, int64_t n, float *w,
                     const float *grad, float *buf)
{
    double lr = o->lr * scalars[TRI_SCALAR_LR_FACTOR], scale = scalars[TRI_SCALAR_GRAD_SCALE];

    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * scale + o->weight_decay * w[i], v = g;

        if (buf != NULL) {
            v = o->momentum * buf[i] + g;
            buf[i] = (float)v;
            v = o->nesterov ? g + o->momentum * v : v;
        }
        w[i] = (float)(w[i] - lr * v);
    }
}

/* AdamW as PyTorch's torch.optim.AdamW (Loshchilov and Hutter, "Decoupled weight decay
 * regularization", 2019), with c_i = 1 - beta_i ^ update from the scalars: w -= lr decay w;  m = b1
 * m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr (m / c1) / (sqrt(v / c2) + eps). In place. */
static void step_adamw(const struct tri_attr_optimizer *o, const double *scalars, int64_t n,
                       float *w, const float *grad, float *m, float *v)
{
    double lr = o->lr * scalars[TRI_SCALAR_LR_FACTOR], scale = scalars[TRI_SCALAR_GRAD_SCALE];
    double c1 = scalars[TRI_SCALAR_BIAS1], c2 = scalars[TRI_SCALAR_BIAS2];

    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * scale;
        double m1 = o->beta1 * m[i] + (1 - o->beta1) * g;
        double v1 = o->beta2 * v[i] + (1 - o->beta2) * g * g;

        w[i] =
            (float)(w[i] * (1 - lr * o->weight_decay) - lr * (m1 / c1) / (sqrt(v1 / c2) + o->eps));
        m[i] = (float)m1;
        v[i] = (float)v1;
    }
}

tri_status tri_ref_sgd(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const double *scalars = args->in[3];

    if (scalars[TRI_SCALAR_FINITE] != 0)
        step_sgd(&d->attrs.optimizer, scalars, tri_ref_count(&d->in[0]), args->out[0], args->in[1],
                 args->in[2] != NULL ? args->out[1] : NULL);
    return TRI_OK;
}

tri_status tri_ref_adamw(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const double *scalars = args->in[4];

    if (scalars[TRI_SCALAR_FINITE] != 0)
        step_adamw(&d->attrs.optimizer, scalars, tri_ref_count(&d->in[0]), args->out[0],
                   args->in[1], args->out[1], args->out[2]);
    return TRI_OK;
}

/* The parameters' 16-bit copies, behind the other kinds of tensors. */
static void round_copies(const struct tri_kernel_desc *d, const struct tri_kernel_args *args)
{
    int n = d->attrs.optimizer.tensors, kinds = (d->nin - 1) / n;

    for (int t = 0; t < n; t++) {
        const struct tri_arg *copy = &d->in[1 + (kinds - 1) * n + t];
        const float *w = args->out[t];

        for (int64_t i = 0; i < tri_ref_count(copy); i++)
            tri_ref_store(copy->dtype, args->out[(kinds - 2) * n + t], i, (double)w[i]);
    }
}

tri_status tri_ref_multi_sgd(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_optimizer *o = &d->attrs.optimizer;
    const double *scalars = args->in[0];
    int n = o->tensors, kinds = (d->nin - 1) / n - o->copies;

    if (scalars[TRI_SCALAR_FINITE] == 0)
        return TRI_OK;
    for (int t = 0; t < n; t++)
        step_sgd(o, scalars, tri_ref_count(&d->in[1 + t]), args->out[t], args->in[1 + n + t],
                 kinds > 2 ? args->out[n + t] : NULL);
    if (o->copies)
        round_copies(d, args);
    return TRI_OK;
}

tri_status tri_ref_multi_adamw(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_optimizer *o = &d->attrs.optimizer;
    const double *scalars = args->in[0];
    int n = o->tensors;

    if (scalars[TRI_SCALAR_FINITE] == 0)
        return TRI_OK;
    for (int t = 0; t < n; t++)
        step_adamw(o, scalars, tri_ref_count(&d->in[1 + t]), args->out[t], args->in[1 + n + t],
                   args->out[n + t], args->out[2 * n + t]);
    if (o->copies)
        round_copies(d, args);
    return TRI_OK;
}

static void flip_bit(void *p, size_t bytes, int64_t index, int bit)
{
    unsigned char *element = (unsigned char *)p + (size_t)index * bytes;

    element[bit / 8] = (unsigned char)(element[bit / 8] ^ (1u << (bit % 8)));
}

static tri_status spoil(const struct tri_attr_inject *f, const struct tri_arg *x, void *p)
{
    size_t bytes = tri_dtype_bytes(x->dtype);

    if (f->index < 0 || f->index >= tri_ref_count(x))
        return tri_fail(TRI_ERR_USAGE, "inject: index %lld is outside 0 to %lld",
                        (long long)f->index, (long long)(tri_ref_count(x) - 1));
    if (f->what == TRI_INJECT_FLIP && (f->bit < 0 || f->bit >= (int)bytes * 8))
        return tri_fail(TRI_ERR_USAGE, "inject: bit %d is outside 0 to %d", f->bit,
                        (int)bytes * 8 - 1);
    if (f->what == TRI_INJECT_FLIP)
        flip_bit(p, bytes, f->index, f->bit);
    else
        tri_ref_store(x->dtype, p, f->index, f->what == TRI_INJECT_INF ? INFINITY : NAN);
    return TRI_OK;
}

/* Does the fault when the step is the chosen one; x passes through. */
tri_status tri_ref_inject(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_inject *f = &d->attrs.inject;
    const int64_t *counters = args->in[1];
    size_t bytes = (size_t)tri_ref_count(&d->in[0]) * tri_dtype_bytes(d->in[0].dtype);

    if (args->out[0] != args->in[0])
        memcpy(args->out[0], args->in[0], bytes);
    if (counters[TRI_COUNTER_STEP] != f->step)
        return TRI_OK;
    if (f->what <= TRI_INJECT_FLIP)
        return spoil(f, &d->in[0], args->out[0]);
    tri_inject_process(f->what, f->ms, f->code);
    return TRI_OK;
}
