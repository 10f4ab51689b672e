/* ADD, RELU, GELU, DROPOUT and gradients, one pass over memory each.
 *
 * ADD and RELU are exact. GELU is the tanh form (Hendrycks, Gimpel, "Gaussian error linear units",
 * 2016), written as x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), since (1 + tanh u) / 2
 * = sigmoid(2 u): absolute error 1e-7 max(1, |x|); its gradient 5e-7 |dy|. DROPOUT is 1 ulp.
 * Nothing is summed. */
#include "runtime/kernels/cpu/philox.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <stdbool.h>

#define GELU_A 0.79788456080286536f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

/* What is done to elements [first, first + n); absent inputs are NULL. */
typedef void (*map_fn)(const float *a, const float *b, float *y, int64_t n);

static void map(const struct tri_kernel *kernel, const struct tri_kernel_args *args, map_fn fn)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const float *a = args->in[0], *b = k->rows < 0 ? NULL : args->in[1];
    float *y = args->out[0];
    int parts = k->nthreads;

#pragma omp parallel for num_threads(parts) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int t = 0; t < parts; t++) {
        int64_t lo = simd_part(k->count, 64, t, parts), hi = simd_part(k->count, 64, t + 1, parts);

        if (lo < hi)
            fn(a + lo, b == NULL ? NULL : b + lo, y + lo, hi - lo);
    }
}

/* `rows` of these kernels is -1 where there is no second input. */
static tri_status prepare_map(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                              bool two, struct tri_kernel **out)
{
    struct simd_kernel *k;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    if (!two)
        k->rows = -1;
    *out = &k->base;
    return TRI_OK;
}

static void add_f32(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(y + i, vf_add(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i)), n - i);
}

static void relu(const float *x, const float *unused, float *y, int64_t n)
{
    (void)unused;
    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(y + i, vf_max(vf_set(0.0f), vf_load_n(x + i, n - i)), n - i);
}

static void relu_grad(const float *dy, const float *y, float *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF) {
        vm on = vf_gt(vf_load_n(y + i, n - i), vf_set(0.0f));

        vf_store_n(dx + i, vf_select(on, vf_load_n(dy + i, n - i), vf_set(0.0f)), n - i);
    }
}

/* 2 u(x). */
TRI_INLINE vf gelu_arg(vf x)
{
    vf t = vf_fma(vf_mul(x, x), vf_set(2.0f * GELU_A * GELU_B), vf_set(2.0f * GELU_A));

    return vf_mul(x, t);
}

static void gelu(const float *x, const float *unused, float *y, int64_t n)
{
    (void)unused;
    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_load_n(x + i, n - i);

        vf_store_n(y + i, vf_mul(v, vf_sigmoid(gelu_arg(v))), n - i);
    }
}

/* d/dx x s(2u) = s + 2 x s (1 - s) u', with s = 1 / (1 + e), s (1 - s) = e s^2. Beyond |x| = 8 this
 * is 0 or 1 to all digits: x is bounded there so that e and the powers of x do not overflow. */
static void gelu_grad(const float *dy, const float *x, float *dx, int64_t n)
{
    vf one = vf_set(1.0f), zero = vf_set(0.0f);

    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_min(vf_set(8.0f), vf_max(vf_set(-8.0f), vf_load_n(x + i, n - i)));
        vf e = vf_exp(vf_sub(zero, gelu_arg(v))), s = vf_div(one, vf_add(one, e));
        vf du = vf_fma(vf_mul(v, v), vf_set(6.0f * GELU_A * GELU_B), vf_set(2.0f * GELU_A));
        vf w = vf_fma(vf_mul(v, du), vf_mul(vf_mul(e, s), s), s);

        vf_store_n(dx + i, vf_mul(vf_load_n(dy + i, n - i), w), n - i);
    }
}

#define MAP_KERNEL(kernel, fn, two)                                                                \
    static tri_status prepare_##kernel(const struct tri_kernel_desc *d, struct tri_kernel **out)   \
    {                                                                                              \
        return prepare_map(d, &TRI_ISA_NAME(tri_simd_##kernel), two, out);                         \
    }                                                                                              \
    static tri_status run_##kernel(const struct tri_kernel *k, const struct tri_kernel_args *a)    \
    {                                                                                              \
        map(k, a, fn);                                                                             \
        return TRI_OK;                                                                             \
    }                                                                                              \
    TRI_SIMD_KERNEL(kernel)

MAP_KERNEL(relu, relu, false);
MAP_KERNEL(relu_grad, relu_grad, true);
MAP_KERNEL(gelu, gelu, false);
MAP_KERNEL(gelu_grad, gelu_grad, true);

/* ADD also takes 16-bit types: widened, added, rounded. */
static void add_half(enum tri_dtype t, const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t n)
{
    int64_t i = 0;

    for (; t == TRI_BF16 && i + VF <= n; i += VF)
        vf_store_bf16(y + i, vf_add(vf_load_bf16(a + i), vf_load_bf16(b + i)));
    for (; t == TRI_F16 && i + VF <= n; i += VF)
        vf_store_f16(y + i, vf_add(vf_load_f16(a + i), vf_load_f16(b + i)));
    for (; i < n; i++)
        y[i] = t == TRI_BF16 ? tri_bf16_from_f32(tri_bf16_to_f32(a[i]) + tri_bf16_to_f32(b[i]))
                             : tri_f16_from_f32(tri_f16_to_f32(a[i]) + tri_f16_to_f32(b[i]));
}

static tri_status prepare_add(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;
    enum tri_dtype t = d->in[0].dtype;

    if (t != TRI_F32 && t != TRI_BF16 && t != TRI_F16)
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_add), 0, &k));
    *out = &k->base;
    return TRI_OK;
}

static tri_status run_add(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const uint16_t *a = args->in[0], *b = args->in[1];
    uint16_t *y = args->out[0];
    int parts = k->nthreads;

    if (k->from == TRI_F32) {
        map(kernel, args, add_f32);
        return TRI_OK;
    }
#pragma omp parallel for num_threads(parts) schedule(static) if (k->count > TRI_SIMD_GRAIN)
    for (int t = 0; t < parts; t++) {
        int64_t lo = simd_part(k->count, 64, t, parts), hi = simd_part(k->count, 64, t + 1, parts);

        add_half(k->from, a + lo, b + lo, y + lo, hi - lo);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(add);

static tri_status prepare_dropout(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_map(d, &TRI_ISA_NAME(tri_simd_dropout), true, out);
}

static void dropout_piece(const struct simd_dropout *d, uint64_t first, const float *x, float *y,
                          int64_t n)
{
    float buffer[SIMD_DROPOUT_BUFFER];
    const float *f = simd_dropout_factors(d, first, n, buffer);

    for (int64_t i = 0; i < n; i += VF)
        vf_store_n(y + i, vf_mul(vf_load_n(x + i, n - i), vf_load_n(f + i, n - i)), n - i);
}

static tri_status run_dropout(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const struct tri_attr_dropout *attr = &k->attrs.dropout;
    struct simd_dropout d = simd_dropout_make(attr->p, attr->seed, attr->stream, args->in[1]);
    uint64_t base = (uint64_t)args->grain * (uint64_t)k->count;
    const float *x = args->in[0];
    float *y = args->out[0];
    int64_t pieces = (k->count + SIMD_DROPOUT_MAX - 1) / SIMD_DROPOUT_MAX;

#pragma omp parallel for num_threads(k->nthreads)                                                  \
    schedule(static) if (k->count > TRI_SIMD_GRAIN / 4)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t at = p * SIMD_DROPOUT_MAX, n = k->count - at;

        dropout_piece(&d, base + (uint64_t)at, x + at, y + at,
                      n < SIMD_DROPOUT_MAX ? n : SIMD_DROPOUT_MAX);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(dropout);
