/* Reference attention. qkv [B,T,3C] holds q, k and v side by side, each with its heads side by side
 * (GPT-2).
 *
 *   s_ij = q_i . k_j / sqrt(D),  p_ij = exp(s_ij - lse_i),  out_i = sum_j p_ij m_ij v_j
 *
 * (Vaswani et al., 2017). j runs over j <= i when causal, else over all positions; m_ij is 1/(1-p)
 * or 0 from dropout, whose element index is (((grain B + b) heads + h) T + i) T + j. */
#include "runtime/kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* One head of one sample: how to find its rows, and its dropout. */
struct head {
    const float *q, *k, *v; /* row t starts at t * stride */
    int64_t stride, t, width, heads, b, h;
    bool causal;
    double scale, p;
    struct tri_rng_key key;
    uint64_t first; /* dropout index of (i, j) = (0, 0) */
};

static double dot(const float *a, const float *b, int64_t n)
{
    double s = 0;

    for (int64_t i = 0; i < n; i++)
        s += (double)a[i] * b[i];
    return s;
}

static struct head head_make(const struct tri_kernel_desc *d, const struct tri_arg *qkv_arg,
                             const float *qkv, const int64_t *counters, int64_t grain, int64_t bh)
{
    const struct tri_attr_attention *at = &d->attrs.attention;
    int64_t batch = qkv_arg->shape.dim[0], t = qkv_arg->shape.dim[1], c = qkv_arg->shape.dim[2] / 3;
    struct head e = {.stride = 3 * c, .t = t, .width = c / at->heads, .heads = at->heads};

    e.b = bh / at->heads;
    e.h = bh % at->heads;
    e.q = qkv + e.b * t * 3 * c + e.h * e.width;
    e.k = e.q + c;
    e.v = e.k + c;
    e.causal = at->causal;
    e.scale = 1 / sqrt((double)e.width);
    e.p = counters ? at->p : 0;
    e.first = (uint64_t)(((grain * batch + e.b) * at->heads + e.h) * t * t);
    if (counters)
        e.key = tri_rng_key_make(at->seed, at->stream, (uint64_t)counters[TRI_COUNTER_STEP]);
    return e;
}

static double score(const struct head *e, int64_t i, int64_t j)
{
    return e->scale * dot(e->q + i * e->stride, e->k + j * e->stride, e->width);
}

static double mask(const struct head *e, int64_t i, int64_t j)
{
    if (e->p <= 0)
        return 1;
    return tri_ref_dropout_scale(&e->key, e->first + (uint64_t)(i * e->t + j), e->p);
}

static int64_t visible(const struct head *e, int64_t i)
{
    return e->causal ? i + 1 : e->t;
}

/* s[j] -> exp(s[j] - max); returns the sum and the max. */
static double exponentials(double *s, int64_t n, double *max)
{
    double sum = 0;

    *max = s[0];
    for (int64_t j = 1; j < n; j++)
        *max = s[j] > *max ? s[j] : *max;
    for (int64_t j = 0; j < n; j++) {
        s[j] = exp(s[j] - *max);
        sum += s[j];
    }
    return sum;
}

/* Scratch: s [T]. */
tri_status tri_ref_attention(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    float *out = args->out[0], *lse = args->out[1];
    double *s = args->scratch;
    int64_t nbh = d->in[0].shape.dim[0] * d->attrs.attention.heads;

    for (int64_t bh = 0; bh < nbh; bh++) {
        struct head e =
            head_make(d, &d->in[0], args->in[0], d->nin > 1 ? args->in[1] : NULL, args->grain, bh);

        for (int64_t i = 0; i < e.t; i++) {
            int64_t n = visible(&e, i);
            double max, sum;

            for (int64_t j = 0; j < n; j++)
                s[j] = score(&e, i, j);
            sum = exponentials(s, n, &max);
            if (lse)
                lse[bh * e.t + i] = (float)(max + log(sum));
            for (int64_t j = 0; j < n; j++)
                s[j] *= mask(&e, i, j) / sum;
            for (int64_t c = 0; c < e.width; c++) {
                double o = 0;

                for (int64_t j = 0; j < n; j++)
                    o += s[j] * e.v[j * e.stride + c];
                out[((e.b * e.t + i) * e.heads + e.h) * e.width + c] = (float)o;
            }
        }
    }
    return TRI_OK;
}

/* Adds the contributions of query i to acc = dq, dk, dv [3][T][D].
 * dv_j += p m dout_i;  dp = m dout_i . v_j;  ds = p (dp - dout_i . out_i);  dq_i += ds k_j /
 * sqrt(D);  dk_j += ds q_i / sqrt(D) */
static void grad_row(const struct head *e, const float *dout, const float *out, double lse,
                     int64_t i, double *acc)
{
    double *dq = acc + i * e->width, *dk = acc + e->t * e->width, *dv = dk + e->t * e->width;
    const float *q = e->q + i * e->stride;
    double delta = dot(dout, out, e->width);

    for (int64_t j = 0, n = visible(e, i); j < n; j++) {
        const float *kj = e->k + j * e->stride, *vj = e->v + j * e->stride;
        double p = exp(score(e, i, j) - lse), m = mask(e, i, j);
        double ds = e->scale * p * (m * dot(dout, vj, e->width) - delta);

        for (int64_t c = 0; c < e->width; c++) {
            dq[c] += ds * kj[c];
            dk[j * e->width + c] += ds * q[c];
            dv[j * e->width + c] += p * m * dout[c];
        }
    }
}

/* Scratch: gradients of q, k and v of one head, [3][T][D]. */
tri_status tri_ref_attention_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *dout = args->in[0], *out = args->in[2], *lse = args->in[3];
    float *dqkv = args->out[0];
    double *acc = args->scratch;
    int64_t nbh = d->in[0].shape.dim[0] * d->attrs.attention.heads;

    for (int64_t bh = 0; bh < nbh; bh++) {
        struct head e =
            head_make(d, &d->in[1], args->in[1], d->nin > 4 ? args->in[4] : NULL, args->grain, bh);

        memset(acc, 0, (size_t)(3 * e.t * e.width) * sizeof(*acc));
        for (int64_t i = 0; i < e.t; i++) {
            int64_t row = ((e.b * e.t + i) * e.heads + e.h) * e.width;

            grad_row(&e, dout + row, out + row, lse[bh * e.t + i], i, acc);
        }
        for (int64_t part = 0; part < 3; part++)
            for (int64_t i = 0; i < e.t; i++)
                for (int64_t c = 0; c < e.width; c++)
                    dqkv[(((e.b * e.t + i) * 3 + part) * e.heads + e.h) * e.width + c] =
                        (float)acc[(part * e.t + i) * e.width + c];
    }
    return TRI_OK;
}

/* One head of one sample over the cache: query i attends to positions 0 .. offset + i. */
static void cached_head(const struct head *e, const float *kc, const float *vc, int64_t offset,
                        float *out, double *s)
{
    int64_t c = e->heads * e->width;

    for (int64_t i = 0; i < e->t; i++) {
        int64_t n = offset + i + 1;
        double max, sum;

        for (int64_t j = 0; j < n; j++)
            s[j] = e->scale * dot(e->q + i * e->stride, kc + j * c, e->width);
        sum = exponentials(s, n, &max);
        for (int64_t l = 0; l < e->width; l++) {
            double o = 0;

            for (int64_t j = 0; j < n; j++)
                o += s[j] * vc[j * c + l];
            out[i * c + l] = (float)(o / sum);
        }
    }
}

/* Scratch: s [P]. */
tri_status tri_ref_attention_cached(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *qkv = args->in[0];
    float *out = args->out[0], *kcache = args->out[1], *vcache = args->out[2];
    int64_t offset = *(const int32_t *)args->in[3];
    int64_t batch = d->in[0].shape.dim[0], t = d->in[0].shape.dim[1], c = d->in[0].shape.dim[2] / 3;
    int64_t capacity = d->in[1].shape.dim[1], heads = d->attrs.attention.heads;

    if (offset < 0 || offset + t > capacity)
        return tri_fail(TRI_ERR_USAGE, "attention: positions %lld to %lld exceed the cache of %lld",
                        (long long)offset, (long long)(offset + t - 1), (long long)capacity);
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t i = 0; i < t; i++) {
            const float *row = qkv + (b * t + i) * 3 * c;
            int64_t at = (b * capacity + offset + i) * c;

            memcpy(kcache + at, row + c, (size_t)c * sizeof(float));
            memcpy(vcache + at, row + 2 * c, (size_t)c * sizeof(float));
        }
    }
    for (int64_t bh = 0; bh < batch * heads; bh++) {
        struct head e = head_make(d, &d->in[0], qkv, NULL, args->grain, bh);
        int64_t lane = e.h * e.width;

        cached_head(&e, kcache + e.b * capacity * c + lane, vcache + e.b * capacity * c + lane,
                    offset, out + e.b * t * c + lane, args->scratch);
    }
    return TRI_OK;
}
