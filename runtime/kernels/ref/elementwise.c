/* Reference kernels of the elementwise family. Each element is computed in double and rounded once;
 * all work in place. */
#include "runtime/kernels/ref/ref.h"

#include <math.h>

double tri_ref_load(enum tri_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TRI_F32:
        return ((const float *)p)[i];
    case TRI_F64:
        return ((const double *)p)[i];
    case TRI_BF16:
        return tri_bf16_to_f32(((const uint16_t *)p)[i]);
    case TRI_F16:
        return tri_f16_to_f32(((const uint16_t *)p)[i]);
    case TRI_I32:
        return ((const int32_t *)p)[i];
    case TRI_I64:
        return (double)((const int64_t *)p)[i];
    case TRI_U8:
        return ((const uint8_t *)p)[i];
    case TRI_DTYPE_COUNT:
        break;
    }
    return NAN;
}

void tri_ref_store(enum tri_dtype dtype, void *p, int64_t i, double x)
{
    switch (dtype) {
    case TRI_F32:
        ((float *)p)[i] = (float)x;
        break;
    case TRI_F64:
        ((double *)p)[i] = x;
        break;
    case TRI_BF16:
        ((uint16_t *)p)[i] = tri_bf16_from_f32((float)x);
        break;
    case TRI_F16:
        ((uint16_t *)p)[i] = tri_f16_from_f32((float)x);
        break;
    case TRI_I32:
        ((int32_t *)p)[i] = (int32_t)x;
        break;
    case TRI_I64:
        ((int64_t *)p)[i] = (int64_t)x;
        break;
    case TRI_U8:
        ((uint8_t *)p)[i] = (uint8_t)x;
        break;
    case TRI_DTYPE_COUNT:
        break;
    }
}

tri_status tri_ref_add(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    enum tri_dtype t = d->in[0].dtype;

    for (int64_t i = 0, n = tri_ref_count(&d->in[0]); i < n; i++)
        tri_ref_store(t, args->out[0], i,
                      tri_ref_load(t, args->in[0], i) + tri_ref_load(t, args->in[1], i));
    return TRI_OK;
}

tri_status tri_ref_cast(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);

    for (int64_t i = 0, n = tri_ref_count(&d->in[0]); i < n; i++)
        tri_ref_store(d->out[0].dtype, args->out[0], i,
                      tri_ref_load(d->in[0].dtype, args->in[0], i));
    return TRI_OK;
}

/* y = max(x, 0), written so that NaN stays NaN. */
tri_status tri_ref_relu(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const float *x = args->in[0];
    float *y = args->out[0];

    for (int64_t i = 0, n = tri_ref_count(&tri_ref_desc(k)->in[0]); i < n; i++)
        y[i] = x[i] <= 0 ? 0 : x[i];
    return TRI_OK;
}

/* dx = dy where y > 0, else 0. */
tri_status tri_ref_relu_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const float *dy = args->in[0], *y = args->in[1];
    float *dx = args->out[0];

    for (int64_t i = 0, n = tri_ref_count(&tri_ref_desc(k)->in[0]); i < n; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
    return TRI_OK;
}

static const double gelu_a = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double gelu_b = 0.044715;

/* y = x/2 (1 + tanh(a (x + b x^3))): the tanh form of Hendrycks and Gimpel, "Gaussian error linear
 * units", 2016. */
double tri_ref_gelu_of(double x)
{
    return x / 2 * (1 + tanh(gelu_a * (x + gelu_b * x * x * x)));
}

/* With t = tanh(a (x + b x^3)): dy/dx = (1 + t)/2 + x/2 (1 - t^2) a (1 + 3 b x^2). */
double tri_ref_gelu_slope(double x)
{
    double t = tanh(gelu_a * (x + gelu_b * x * x * x));

    return (1 + t) / 2 + x / 2 * (1 - t * t) * gelu_a * (1 + 3 * gelu_b * x * x);
}

tri_status tri_ref_gelu(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const float *x = args->in[0];
    float *y = args->out[0];

    for (int64_t i = 0, n = tri_ref_count(&tri_ref_desc(k)->in[0]); i < n; i++)
        y[i] = (float)tri_ref_gelu_of(x[i]);
    return TRI_OK;
}

tri_status tri_ref_gelu_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const float *dy = args->in[0], *x = args->in[1];
    float *dx = args->out[0];

    for (int64_t i = 0, n = tri_ref_count(&tri_ref_desc(k)->in[0]); i < n; i++)
        dx[i] = (float)(dy[i] * tri_ref_gelu_slope(x[i]));
    return TRI_OK;
}

double tri_ref_dropout_scale(const struct tri_rng_key *key, uint64_t index, double p)
{
    uint32_t word[4];

    tri_philox4x32(key, index >> 2, word);
    return tri_rng_uniform(word[index & 3]) >= p ? 1 / (1 - p) : 0;
}

/* Inverted dropout (Srivastava et al., 2014): element i of the grain is kept when the uniform
 * number of its global index is at least p, and then divided by 1 - p. A dropped element is exactly
 * 0. */
tri_status tri_ref_dropout(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_dropout *at = &d->attrs.dropout;
    const float *x = args->in[0];
    const int64_t *counters = args->in[1];
    float *y = args->out[0];
    int64_t n = tri_ref_count(&d->in[0]);
    struct tri_rng_key key =
        tri_rng_key_make(at->seed, at->stream, (uint64_t)counters[TRI_COUNTER_STEP]);

    for (int64_t i = 0; i < n; i++) {
        double scale = tri_ref_dropout_scale(&key, (uint64_t)(args->grain * n + i), at->p);

        y[i] = scale > 0 ? (float)(x[i] * scale) : 0;
    }
    return TRI_OK;
}
