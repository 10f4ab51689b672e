#include "tests/unit/kernels/compare.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct tri_shape shape_of(const int64_t *dims)
{
    struct tri_shape s = {0};

    for (; dims[s.ndim] > 0; s.ndim++)
        s.dim[s.ndim] = dims[s.ndim];
    return s;
}

static size_t bytes_of(const struct tri_arg *a)
{
    return (size_t)tri_shape_count(&a->shape) * tri_dtype_bytes(a->dtype);
}

static struct tri_arg *add_in(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape)
{
    struct tri_arg *a = &c->in[c->d.nin];

    a->dtype = dtype;
    a->shape = shape;
    c->data[c->d.nin++] = tri_alloc_aligned(bytes_of(a) + 64, "input");
    return a;
}

void kcase_init(struct kcase *c, enum tri_op_kind kind)
{
    memset(c, 0, sizeof(*c));
    c->d.kind = kind;
    c->d.in = c->in;
    c->d.out = c->out;
}

void *kcase_in(struct kcase *c, enum tri_dtype dtype, double lo, double hi, const int64_t *dims)
{
    struct tri_arg *a = add_in(c, dtype, shape_of(dims));
    void *p = c->data[c->d.nin - 1];
    struct tri_rng_key key = tri_rng_key_make(7, 11, 13);
    int64_t n = tri_shape_count(&a->shape);

    for (int64_t i = 0; i < n; i++) {
        float x;

        tri_rng_fill_uniform(&key, c->draws++, 1, (float)lo, (float)hi, &x);
        if (dtype == TRI_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = dtype == TRI_BF16 ? tri_bf16_from_f32(x) : tri_f16_from_f32(x);
    }
    return p;
}

int32_t *kcase_in_i32(struct kcase *c, int32_t lo, int32_t hi, const int64_t *dims)
{
    struct tri_arg *a = add_in(c, TRI_I32, shape_of(dims));
    int32_t *p = c->data[c->d.nin - 1];

    for (int64_t i = 0; i < tri_shape_count(&a->shape); i++)
        p[i] = lo + (int32_t)(tri_mix64(c->draws++) % (uint64_t)(hi - lo));
    return p;
}

void *kcase_in_zero(struct kcase *c, enum tri_dtype dtype, int64_t n)
{
    struct tri_arg *a = add_in(c, dtype, shape_of((const int64_t[]){n, 0}));
    void *p = c->data[c->d.nin - 1];

    memset(p, 0, bytes_of(a));
    return p;
}

void kcase_in_absent(struct kcase *c)
{
    c->in[c->d.nin++].shape.ndim = TRI_ARG_ABSENT;
}

void kcase_out(struct kcase *c, enum tri_dtype dtype, int alias, double tol, const int64_t *dims)
{
    struct tri_arg *a = &c->out[c->d.nout];

    a->dtype = dtype;
    a->shape = shape_of(dims);
    c->alias[c->d.nout] = alias;
    c->tol[c->d.nout++] = tol;
}

void kcase_out_absent(struct kcase *c)
{
    c->alias[c->d.nout] = -1;
    c->out[c->d.nout++].shape.ndim = TRI_ARG_ABSENT;
}

/* Runs the case with a table into fresh buffers: 64 bytes behind each output are watched. */
static void run(struct kcase *c, const struct tri_kernel_ops *const *table, int nthreads,
                void **result)
{
    struct tri_kernel *k = NULL;
    struct tri_kernel_args args = {0};
    void *in[CASE_ARGS];

    c->d.nthreads = nthreads;
    memcpy(in, c->data, sizeof(in));
    for (int o = 0; o < c->d.nout; o++) {
        result[o] = NULL;
        if (c->out[o].shape.ndim < 0)
            continue;
        result[o] = tri_alloc_aligned(bytes_of(&c->out[o]) + 64, "output");
        memset(result[o], 0x5a, bytes_of(&c->out[o]) + 64);
        if (c->alias[o] >= 0) {
            memcpy(result[o], c->data[c->alias[o]], bytes_of(&c->out[o]));
            in[c->alias[o]] = result[o];
        }
    }
    cr_assert_eq(tri_kernel_prepare(table, &c->d, &k), TRI_OK, "%s", tri_error_text());
    args.in = in;
    args.out = result;
    args.grain = c->grain;
    args.scratch = tri_alloc_aligned(k->scratch_bytes + 64, "scratch");
    memset(args.scratch, 0xff, k->scratch_bytes + 64);
    cr_assert_eq(k->ops->run(k, &args), TRI_OK, "%s", tri_error_text());
    for (int i = 0; i < 64; i++) {
        cr_assert_eq(((unsigned char *)args.scratch)[k->scratch_bytes + (size_t)i], 0xff,
                     "%s writes behind its scratch", k->ops->name);
        for (int o = 0; o < c->d.nout; o++)
            if (result[o] != NULL)
                cr_assert_eq(((unsigned char *)result[o])[bytes_of(&c->out[o]) + (size_t)i], 0x5a,
                             "%s writes behind output %d", k->ops->name, o);
    }
    tri_free(args.scratch);
    k->ops->destroy(k);
}

static double element(enum tri_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TRI_F32:
        return (double)((const float *)p)[i];
    case TRI_F64:
        return ((const double *)p)[i];
    case TRI_BF16:
        return (double)tri_bf16_to_f32(((const uint16_t *)p)[i]);
    case TRI_F16:
        return (double)tri_f16_to_f32(((const uint16_t *)p)[i]);
    default:
        return (double)((const int32_t *)p)[i];
    }
}

static void compare(const struct kcase *c, int o, const void *want, const void *got)
{
    const struct tri_arg *a = &c->out[o];
    int64_t n = tri_shape_count(&a->shape), worst = 0;
    double largest = 0.0, error = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double w = element(a->dtype, want, i), g = element(a->dtype, got, i);
        double e = w == g ? 0.0 : fabs(w - g);

        largest = isfinite(w) && fabs(w) > largest ? fabs(w) : largest;
        if (!(e <= error)) {
            error = e;
            worst = i;
        }
    }
    cr_assert(error <= c->tol[o] * largest, "%s, %s, output %d element %lld: %.9g, not %.9g",
              tri_op_name(c->d.kind), tri_isa_name(tri_cpu_isa()), o, (long long)worst,
              element(a->dtype, got, worst), element(a->dtype, want, worst));
}

void kcase_check(struct kcase *c)
{
    void *want[CASE_ARGS], *one[CASE_ARGS], *three[CASE_ARGS];

    run(c, tri_kernels_ref, 1, want);
    for (int isa = TRI_ISA_SCALAR; isa < TRI_ISA_COUNT; isa++) {
        tri_cpu_isa_limit((enum tri_isa)isa);
        run(c, tri_kernels_cpu, 1, one);
        run(c, tri_kernels_cpu, 3, three);
        for (int o = 0; o < c->d.nout; o++) {
            if (want[o] != NULL && c->tol[o] >= 0.0) {
                compare(c, o, want[o], one[o]);
                cr_assert_eq(memcmp(one[o], three[o], bytes_of(&c->out[o])), 0,
                             "%s, %s: output %d depends on the number of threads",
                             tri_op_name(c->d.kind), tri_isa_name(tri_cpu_isa()), o);
            }
            tri_free(one[o]);
            tri_free(three[o]);
        }
    }
    for (int o = 0; o < c->d.nout; o++)
        tri_free(want[o]);
    for (int i = 0; i < c->d.nin; i++)
        tri_free(c->data[i]);
}
