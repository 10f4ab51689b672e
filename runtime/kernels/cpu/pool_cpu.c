/* Pools over NHWC images. The channel loop is innermost and free of branches, so that the compiler
 * vectorises it.
 *
 * Maxima and their gradients are exact but for the order of the f32 sum of overlapping windows
 * (row-major over outputs); averages: 1 + positions/2^24 ulp, summed in f32 over rows, then in
 * order. Threads split samples and rows: same bits for any number of threads. */
#include "runtime/kernels/cpu/cpu_kernels.h"

#include "runtime/core/memory.h"

#include <math.h>
#include <string.h>

#define LANES 32 /* channels of one step of the inner loop */

/* Shapes: large side [b,h,w,c], small side [b,oh,ow,c]. */
struct pool_kernel {
    struct tri_kernel base;
    struct tri_attr_window win;
    int64_t b, h, w, c, oh, ow;
    int nthreads;
};

static tri_status pool_prepare(const struct tri_kernel_desc *d, const struct tri_arg *large,
                               const struct tri_arg *small, const struct tri_kernel_ops *ops,
                               struct tri_kernel **out)
{
    struct pool_kernel *k;

    if (d->in[0].dtype != TRI_F32 || d->attrs.window.kh * d->attrs.window.kw > UINT8_MAX)
        return TRI_ERR_UNSUPPORTED;
    k = tri_calloc(1, sizeof(*k), "kernel");
    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", ops->name);
    k->base.ops = ops;
    k->win = d->attrs.window;
    k->b = large->shape.dim[0];
    k->h = large->shape.dim[1];
    k->w = large->shape.dim[2];
    k->c = large->shape.dim[3];
    k->oh = small->shape.ndim == 4 ? small->shape.dim[1] : 1;
    k->ow = small->shape.ndim == 4 ? small->shape.dim[2] : 1;
    k->nthreads = d->nthreads > 0 ? d->nthreads : 1;
    *out = &k->base;
    return TRI_OK;
}

static void pool_destroy(struct tri_kernel *k)
{
    tri_free(k);
}

/* Offset in pixels of tap t of the window at output (oy, ox) inside its image, or -1 in the
 * padding. */
static int64_t tap_pixel(const struct pool_kernel *p, int64_t oy, int64_t ox, int64_t t)
{
    int64_t iy = oy * p->win.stride - p->win.pad + t / p->win.kw;
    int64_t ix = ox * p->win.stride - p->win.pad + t % p->win.kw;

    return iy < 0 || iy >= p->h || ix < 0 || ix >= p->w ? -1 : iy * p->w + ix;
}

/* Maxima of n <= LANES channels of one window; image and outputs already point at the first
 * channel. */
static void window_max(const struct pool_kernel *p, const float *image, int64_t oy, int64_t ox,
                       int64_t n, float *y, uint8_t *index)
{
    float max[LANES];
    int32_t best[LANES] = {0};

    for (int64_t i = 0; i < LANES; i++)
        max[i] = -INFINITY;
    for (int32_t t = (int32_t)(p->win.kh * p->win.kw) - 1; t >= 0; t--) {
        int64_t pixel = tap_pixel(p, oy, ox, t);

        if (pixel < 0)
            continue;
        /* From the last tap to the first, so that with >= the first of equals stays; NaN is never
         * displaced by a number. */
        for (int64_t i = 0; i < n; i++) {
            float x = image[pixel * p->c + i];
            int keep = !(x >= max[i]) & (x == x);

            max[i] = keep ? max[i] : x;
            best[i] = keep ? best[i] : t;
        }
    }
    memcpy(y, max, (size_t)n * sizeof(*y));
    for (int64_t i = 0; index && i < n; i++)
        index[i] = (uint8_t)best[i];
}

static tri_status run_maxpool(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    const struct pool_kernel *p = (const struct pool_kernel *)k;
    const float *x = a->in[0];
    float *y = a->out[0];
    uint8_t *index = a->out[1];

#pragma omp parallel for num_threads(p->nthreads) schedule(static)
    for (int64_t row = 0; row < p->b * p->oh; row++) {
        const float *image = x + row / p->oh * p->h * p->w * p->c;

        for (int64_t ox = 0; ox < p->ow; ox++) {
            int64_t at = (row * p->ow + ox) * p->c;

            for (int64_t c = 0; c < p->c; c += LANES)
                window_max(p, image + c, row % p->oh, ox, p->c - c < LANES ? p->c - c : LANES,
                           y + at + c, index ? index + at + c : NULL);
        }
    }
    return TRI_OK;
}

static tri_status run_maxpool_grad(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    const struct pool_kernel *p = (const struct pool_kernel *)k;
    const float *dy = a->in[0];
    const uint8_t *index = a->in[1];
    float *dx = a->out[0];
    int64_t image = p->h * p->w * p->c, outputs = p->oh * p->ow;
    int64_t offset[UINT8_MAX + 1] = {0}; /* of each tap from the window's corner, in elements */

    for (int64_t t = 0; t < p->win.kh * p->win.kw; t++)
        offset[t] = (t / p->win.kw * p->w + t % p->win.kw) * p->c;
#pragma omp parallel for num_threads(p->nthreads) schedule(static)
    for (int64_t b = 0; b < p->b; b++) {
        float *to = dx + b * image;

        memset(to, 0, (size_t)image * sizeof(*to));
        for (int64_t o = 0; o < outputs; o++) {
            int64_t at = (b * outputs + o) * p->c;
            int64_t oy = o / p->ow * p->win.stride - p->win.pad;
            int64_t ox = o % p->ow * p->win.stride - p->win.pad;
            int64_t corner = (oy * p->w + ox) * p->c; /* below 0 when it lies in the padding */

            for (int64_t c = 0; c < p->c; c++)
                to[corner + offset[index[at + c]] + c] += dy[at + c];
        }
    }
    return TRI_OK;
}

static tri_status run_avgpool(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    const struct pool_kernel *p = (const struct pool_kernel *)k;
    const float *x = a->in[0];
    float *y = a->out[0];
    int64_t n = p->h * p->w;

#pragma omp parallel for num_threads(p->nthreads) schedule(static)
    for (int64_t b = 0; b < p->b; b++) {
        float *to = y + b * p->c;

        memset(to, 0, (size_t)p->c * sizeof(*to));
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < p->c; c++)
                to[c] += x[(b * n + i) * p->c + c];
        for (int64_t c = 0; c < p->c; c++)
            to[c] /= (float)n;
    }
    return TRI_OK;
}

static tri_status run_avgpool_grad(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    const struct pool_kernel *p = (const struct pool_kernel *)k;
    const float *dy = a->in[0];
    float *dx = a->out[0];
    int64_t n = p->h * p->w;

#pragma omp parallel for num_threads(p->nthreads) schedule(static)
    for (int64_t i = 0; i < p->b * n; i++)
        for (int64_t c = 0; c < p->c; c++)
            dx[i * p->c + c] = dy[i / n * p->c + c] / (float)n;
    return TRI_OK;
}

/* Table entry of a pool; large and small: which arguments are the two sides. */
#define POOL(op, large, small)                                                                     \
    static tri_status prepare_##op(const struct tri_kernel_desc *d, struct tri_kernel **out)       \
    {                                                                                              \
        return pool_prepare(d, &d->large[0], &d->small[0], &tri_kernel_##op##_cpu, out);           \
    }                                                                                              \
    const struct tri_kernel_ops tri_kernel_##op##_cpu = {                                          \
        .name = #op "_cpu", .prepare = prepare_##op, .run = run_##op, .destroy = pool_destroy}

POOL(maxpool, in, out);
POOL(maxpool_grad, out, in);
POOL(avgpool, in, out);
POOL(avgpool_grad, out, in);
