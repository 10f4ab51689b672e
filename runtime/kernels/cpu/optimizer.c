/* SGD and ADAMW: one pass over weight, gradient and moments, all in place; f32, within 4 ulp of the
 * formulas below.
 *
 * g' = g * grad scale, rate = lr * lr factor; nothing is written when the step is skipped (finite =
 * 0). SGD (Sutskever et al., 2013, in PyTorch's form): g' += decay w; m = momentum m + g'; w -=
 * rate (m, or g' + momentum m with Nesterov, or g' without momentum). ADAMW (Loshchilov, Hutter,
 * "Decoupled weight decay regularization", 2019): m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2;
 * w = w (1 - rate decay) - rate / bias1 * m / (sqrt(v) / sqrt(bias2) + eps). */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <math.h>

struct sgd {
    float scale, rate, decay, momentum;
    bool nesterov;
};

struct adamw {
    float scale, keep, rate, b1, b1c, b2, b2c, root, eps;
};

static tri_status prepare_step(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                               struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    k->dim[0] = tri_simd_has_in(d, 2); /* SGD: with momentum */
    *out = &k->base;
    return TRI_OK;
}

static void sgd_plain(const struct sgd *h, float *w, const float *g, int64_t n)
{
    vf scale = vf_set(h->scale), decay = vf_set(h->decay), rate = vf_set(h->rate);

    for (int64_t i = 0; i < n; i += VF) {
        vf x = vf_load_n(w + i, n - i);
        vf d = vf_fma(decay, x, vf_mul(scale, vf_load_n(g + i, n - i)));

        vf_store_n(w + i, vf_fnma(rate, d, x), n - i);
    }
}

static void sgd_momentum(const struct sgd *h, float *w, const float *g, float *m, int64_t n)
{
    vf scale = vf_set(h->scale), decay = vf_set(h->decay), rate = vf_set(h->rate);
    vf mu = vf_set(h->momentum), ahead = vf_set(h->nesterov ? h->momentum : 1.0f);
    vf now = vf_set(h->nesterov ? 1.0f : 0.0f);

    for (int64_t i = 0; i < n; i += VF) {
        vf x = vf_load_n(w + i, n - i);
        vf d = vf_fma(decay, x, vf_mul(scale, vf_load_n(g + i, n - i)));
        vf b = vf_fma(mu, vf_load_n(m + i, n - i), d);

        vf_store_n(m + i, b, n - i);
        vf_store_n(w + i, vf_fnma(rate, vf_fma(now, d, vf_mul(ahead, b)), x), n - i);
    }
}

static tri_status prepare_sgd(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_step(d, &TRI_ISA_NAME(tri_simd_sgd), out);
}

static tri_status run_sgd(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const struct tri_attr_optimizer *o = &k->attrs.optimizer;
    const double *s = args->in[3];
    struct sgd h = {0};
    float *w = args->out[0], *m = k->dim[0] != 0 ? args->out[1] : NULL;
    const float *g = args->in[1];
    int parts = k->nthreads;

    if (!(s[TRI_SCALAR_FINITE] > 0.0))
        return TRI_OK;
    h.scale = (float)s[TRI_SCALAR_GRAD_SCALE];
    h.rate = (float)(o->lr * s[TRI_SCALAR_LR_FACTOR]);
    h.decay = (float)o->weight_decay;
    h.momentum = (float)o->momentum;
    h.nesterov = o->nesterov;
#pragma omp parallel for num_threads(parts) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int t = 0; t < parts; t++) {
        int64_t lo = simd_part(k->count, 64, t, parts);
        int64_t n = simd_part(k->count, 64, t + 1, parts) - lo;

        if (m == NULL)
            sgd_plain(&h, w + lo, g + lo, n);
        else
            sgd_momentum(&h, w + lo, g + lo, m + lo, n);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(sgd);

static void adamw_piece(const struct adamw *h, float *w, const float *g, float *m, float *v,
                        int64_t n)
{
    vf scale = vf_set(h->scale), keep = vf_set(h->keep), rate = vf_set(h->rate);
    vf b1 = vf_set(h->b1), b1c = vf_set(h->b1c), b2 = vf_set(h->b2), b2c = vf_set(h->b2c);
    vf root = vf_set(h->root), eps = vf_set(h->eps);

    for (int64_t i = 0; i < n; i += VF) {
        vf d = vf_mul(scale, vf_load_n(g + i, n - i));
        vf mi = vf_fma(b1c, d, vf_mul(b1, vf_load_n(m + i, n - i)));
        vf vi_ = vf_fma(b2c, vf_mul(d, d), vf_mul(b2, vf_load_n(v + i, n - i)));
        vf step = vf_div(mi, vf_fma(vf_sqrt(vi_), root, eps));

        vf_store_n(m + i, mi, n - i);
        vf_store_n(v + i, vi_, n - i);
        vf_store_n(w + i, vf_fnma(rate, step, vf_mul(keep, vf_load_n(w + i, n - i))), n - i);
    }
}

static tri_status prepare_adamw(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_step(d, &TRI_ISA_NAME(tri_simd_adamw), out);
}

static tri_status run_adamw(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const struct tri_attr_optimizer *o = &k->attrs.optimizer;
    const double *s = args->in[4];
    double rate = o->lr * s[TRI_SCALAR_LR_FACTOR];
    struct adamw h = {0};
    float *w = args->out[0], *m = args->out[1], *v = args->out[2];
    const float *g = args->in[1];
    int parts = k->nthreads;

    if (!(s[TRI_SCALAR_FINITE] > 0.0))
        return TRI_OK;
    h.scale = (float)s[TRI_SCALAR_GRAD_SCALE];
    h.keep = (float)(1.0 - rate * o->weight_decay);
    h.rate = (float)(rate / s[TRI_SCALAR_BIAS1]);
    h.b1 = (float)o->beta1;
    h.b1c = (float)(1.0 - o->beta1);
    h.b2 = (float)o->beta2;
    h.b2c = (float)(1.0 - o->beta2);
    h.root = (float)(1.0 / sqrt(s[TRI_SCALAR_BIAS2]));
    h.eps = (float)o->eps;
#pragma omp parallel for num_threads(parts) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int t = 0; t < parts; t++) {
        int64_t lo = simd_part(k->count, 64, t, parts);
        int64_t n = simd_part(k->count, 64, t + 1, parts) - lo;

        adamw_piece(&h, w + lo, g + lo, m + lo, v + lo, n);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(adamw);
