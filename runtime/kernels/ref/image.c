/* Reference convolutions and pools. Activations NHWC, filters [O,I,KH,KW]; one sum in double per
 * output element.
 *
 * Output position (oy, ox) looks at input (oy stride - pad + ky, ox stride - pad + kx); outside the
 * image counts nothing. */
#include "runtime/kernels/ref/ref.h"

#include <math.h>

struct conv {
    const struct tri_attr_window *win;
    int64_t b, h, w, c; /* input side */
    int64_t oh, ow, oc; /* output side */
};

static struct conv conv_make(const struct tri_kernel_desc *d, const struct tri_arg *x,
                             const struct tri_arg *y)
{
    const int64_t *xd = x->shape.dim, *yd = y->shape.dim;
    struct conv g = {&d->attrs.window, xd[0], xd[1], xd[2], xd[3], yd[1], yd[2], yd[3]};

    return g;
}

/* Index of x[b][iy][ix][c] seen by output (oy, ox) through tap (ky, kx), or -1 in the padding. */
static int64_t tap(const struct conv *g, int64_t b, int64_t oy, int64_t ox, int64_t ky, int64_t kx,
                   int64_t c)
{
    int64_t iy = oy * g->win->stride - g->win->pad + ky;
    int64_t ix = ox * g->win->stride - g->win->pad + kx;

    if (iy < 0 || iy >= g->h || ix < 0 || ix >= g->w)
        return -1;
    return ((b * g->h + iy) * g->w + ix) * g->c + c;
}

/* Output coordinate whose tap `at` is input coordinate `i`, or -1. */
static int64_t untap(const struct conv *g, int64_t i, int64_t at, int64_t n)
{
    int64_t num = i + g->win->pad - at;

    if (num < 0 || num % g->win->stride != 0 || num / g->win->stride >= n)
        return -1;
    return num / g->win->stride;
}

static double conv_at(const struct conv *g, const float *x, const float *w, int64_t b, int64_t oy,
                      int64_t ox, int64_t o)
{
    double s = 0;

    for (int64_t c = 0; c < g->c; c++) {
        for (int64_t ky = 0; ky < g->win->kh; ky++) {
            for (int64_t kx = 0; kx < g->win->kw; kx++) {
                int64_t i = tap(g, b, oy, ox, ky, kx, c);

                if (i >= 0)
                    s += (double)x[i] * w[((o * g->c + c) * g->win->kh + ky) * g->win->kw + kx];
            }
        }
    }
    return s;
}

/* y[b][oy][ox][o] = bias[o] + sum over c, ky, kx of x w: cross-correlation, as in every
 * deep-learning library. */
tri_status tri_ref_conv2d(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    struct conv g = conv_make(d, &d->in[0], &d->out[0]);
    const float *x = args->in[0], *w = args->in[1], *bias = d->nin > 2 ? args->in[2] : NULL;
    float *y = args->out[0];

    for (int64_t i = 0; i < g.b * g.oh * g.ow * g.oc; i++) {
        int64_t o = i % g.oc, ox = i / g.oc % g.ow, oy = i / g.oc / g.ow % g.oh;
        double s = conv_at(&g, x, w, i / g.oc / g.ow / g.oh, oy, ox, o);

        y[i] = (float)(bias ? s + bias[o] : s);
    }
    return TRI_OK;
}

static double conv_dx_at(const struct conv *g, const float *dy, const float *w, int64_t b,
                         int64_t iy, int64_t ix, int64_t c)
{
    double s = 0;

    for (int64_t ky = 0; ky < g->win->kh; ky++) {
        for (int64_t kx = 0; kx < g->win->kw; kx++) {
            int64_t oy = untap(g, iy, ky, g->oh), ox = untap(g, ix, kx, g->ow);

            for (int64_t o = 0; oy >= 0 && ox >= 0 && o < g->oc; o++)
                s += (double)dy[((b * g->oh + oy) * g->ow + ox) * g->oc + o] *
                     w[((o * g->c + c) * g->win->kh + ky) * g->win->kw + kx];
        }
    }
    return s;
}

/* dx[b][iy][ix][c] = sum over the outputs and taps that looked at it. */
tri_status tri_ref_conv2d_dx(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    struct conv g = conv_make(d, &d->out[0], &d->in[0]);
    const float *dy = args->in[0], *w = args->in[1];
    float *dx = args->out[0];

    for (int64_t i = 0; i < g.b * g.h * g.w * g.c; i++) {
        int64_t c = i % g.c, ix = i / g.c % g.w, iy = i / g.c / g.w % g.h;

        dx[i] = (float)conv_dx_at(&g, dy, w, i / g.c / g.w / g.h, iy, ix, c);
    }
    return TRI_OK;
}

/* dw[o][c][ky][kx] = acc + sum over samples and output positions of dy x. */
tri_status tri_ref_conv2d_dw(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    struct conv g = conv_make(d, &d->in[0], &d->in[1]);
    const float *x = args->in[0], *dy = args->in[1], *acc = d->nin > 2 ? args->in[2] : NULL;
    float *dw = args->out[0];
    int64_t kh = g.win->kh, kw = g.win->kw;

    for (int64_t i = 0; i < g.oc * g.c * kh * kw; i++) {
        int64_t kx = i % kw, ky = i / kw % kh, c = i / kw / kh % g.c, o = i / kw / kh / g.c;
        double s = acc ? acc[i] : 0;

        for (int64_t p = 0; p < g.b * g.oh * g.ow; p++) {
            int64_t at = tap(&g, p / g.ow / g.oh, p / g.ow % g.oh, p % g.ow, ky, kx, c);

            if (at >= 0)
                s += (double)dy[p * g.oc + o] * x[at];
        }
        dw[i] = (float)s;
    }
    return TRI_OK;
}

/* Largest element of each window; the first one wins, and NaN beats all. index = ky KW + kx. */
tri_status tri_ref_maxpool(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    struct conv g = conv_make(d, &d->in[0], &d->out[0]);
    const float *x = args->in[0];
    float *y = args->out[0];
    uint8_t *index = args->out[1];

    for (int64_t i = 0; i < g.b * g.oh * g.ow * g.c; i++) {
        int64_t c = i % g.c, ox = i / g.c % g.ow, oy = i / g.c / g.ow % g.oh, best = -1;
        float max = -INFINITY;

        for (int64_t t = 0; t < g.win->kh * g.win->kw; t++) {
            int64_t at = tap(&g, i / g.c / g.ow / g.oh, oy, ox, t / g.win->kw, t % g.win->kw, c);

            if (at >= 0 && (best < 0 || x[at] > max || isnan(x[at]))) {
                best = t;
                max = x[at];
            }
        }
        y[i] = max;
        if (index)
            index[i] = (uint8_t)best;
    }
    return TRI_OK;
}

/* dx = sum of dy over the windows whose maximum it was. */
tri_status tri_ref_maxpool_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    struct conv g = conv_make(d, &d->out[0], &d->in[0]);
    const float *dy = args->in[0];
    const uint8_t *index = args->in[1];
    float *dx = args->out[0];

    for (int64_t i = 0; i < g.b * g.h * g.w * g.c; i++) {
        int64_t c = i % g.c, ix = i / g.c % g.w, iy = i / g.c / g.w % g.h, b = i / g.c / g.w / g.h;
        double s = 0;

        for (int64_t t = 0; t < g.win->kh * g.win->kw; t++) {
            int64_t oy = untap(&g, iy, t / g.win->kw, g.oh),
                    ox = untap(&g, ix, t % g.win->kw, g.ow);
            int64_t at = ((b * g.oh + oy) * g.ow + ox) * g.c + c;

            if (oy >= 0 && ox >= 0 && index[at] == t)
                s += dy[at];
        }
        dx[i] = (float)s;
    }
    return TRI_OK;
}

/* y[b][c] = mean over positions. */
tri_status tri_ref_avgpool(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const int64_t *dim = tri_ref_desc(k)->in[0].shape.dim;
    const float *x = args->in[0];
    float *y = args->out[0];
    int64_t n = dim[1] * dim[2], nc = dim[3];

    for (int64_t i = 0; i < dim[0] * nc; i++) {
        double s = 0;

        for (int64_t p = 0; p < n; p++)
            s += x[(i / nc * n + p) * nc + i % nc];
        y[i] = (float)(s / (double)n);
    }
    return TRI_OK;
}

/* dx[b][p][c] = dy[b][c] / positions. */
tri_status tri_ref_avgpool_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const int64_t *dim = tri_ref_desc(k)->out[0].shape.dim;
    const float *dy = args->in[0];
    float *dx = args->out[0];
    int64_t n = dim[1] * dim[2], nc = dim[3];

    for (int64_t i = 0; i < dim[0] * n * nc; i++)
        dx[i] = (float)(dy[i / nc / n * nc + i % nc] / (double)n);
    return TRI_OK;
}
