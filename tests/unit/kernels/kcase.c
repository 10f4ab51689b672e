#include "tests/unit/kernels/kcase.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64 /* bytes before and behind each buffer that nobody may write */
#define FILL  0xA5

struct buffers {
    void *in[KCASE_ARGS], *out[KCASE_ARGS];
    void *scratch;
    size_t scratch_bytes;
};

/* Copies of the same buffers in the memory of the device. */
struct mirror {
    void *in[KCASE_ARGS], *out[KCASE_ARGS], *scratch;
};

static struct tri_device *device; /* NULL: the CPU */
static void *stream;
static uint64_t draw_seed = 7, draw_index;

void kcase_on(struct tri_device *d)
{
    if (device != NULL)
        device->ops->stream_destroy(device, stream);
    device = d;
    stream = NULL;
    if (d != NULL)
        KCASE_CHECK(d->ops->stream_create(d, false, &stream) == TRI_OK, "%s", tri_error_text());
}

void kcase_seed(uint64_t seed)
{
    draw_seed = seed;
    draw_index = 0;
}

static double uniform(double lo, double hi)
{
    struct tri_rng_key key = tri_rng_key_make(draw_seed, 11, 0);
    uint32_t w[4];

    tri_philox4x32(&key, draw_index++, w);
    return lo + (hi - lo) * (double)tri_rng_uniform(w[0]);
}

static size_t arg_bytes(const struct tri_arg *a)
{
    return (size_t)tri_shape_count(&a->shape) * tri_dtype_bytes(a->dtype);
}

static double load(enum tri_dtype t, const void *p, int64_t i)
{
    switch (t) {
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
    default:
        return ((const uint8_t *)p)[i];
    }
}

static void store(enum tri_dtype t, void *p, int64_t i, double x)
{
    if (t == TRI_F32)
        ((float *)p)[i] = (float)x;
    else if (t == TRI_F64)
        ((double *)p)[i] = x;
    else if (t == TRI_BF16)
        ((uint16_t *)p)[i] = tri_bf16_from_f32((float)x);
    else if (t == TRI_F16)
        ((uint16_t *)p)[i] = tri_f16_from_f32((float)x);
    else if (t == TRI_I32)
        ((int32_t *)p)[i] = (int32_t)floor(x);
    else if (t == TRI_I64)
        ((int64_t *)p)[i] = (int64_t)floor(x);
    else
        ((uint8_t *)p)[i] = (uint8_t)x;
}

void kcase_init(struct kcase *c, enum tri_op_kind kind, const struct tri_attrs *attrs)
{
    memset(c, 0, sizeof(*c));
    c->d.kind = kind;
    if (attrs)
        c->d.attrs = *attrs;
    c->d.in = c->in;
    c->d.out = c->out;
}

void *kcase_in(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double lo, double hi)
{
    int i = c->d.nin++;
    int64_t n = tri_shape_count(&shape);

    c->in[i] = (struct tri_arg){dtype, shape};
    c->data[i] = tri_alloc_aligned(arg_bytes(&c->in[i]) + 1, "test");
    KCASE_CHECK(c->data[i] != NULL, "out of memory");
    for (int64_t j = 0; j < n; j++)
        store(dtype, c->data[i], j, uniform(lo, hi));
    return c->data[i];
}

void kcase_absent(struct kcase *c)
{
    c->in[c->d.nin++].shape.ndim = TRI_ARG_ABSENT;
}

void kcase_out(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double abs,
               double rel)
{
    int o = c->d.nout++;

    c->out[o] = (struct tri_arg){dtype, shape};
    c->abs[o] = abs;
    c->rel[o] = rel;
}

void kcase_out_near(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double near)
{
    kcase_out(c, dtype, shape, 0, 0);
    c->near[c->d.nout - 1] = near;
}

void kcase_half(struct kcase *c, double abs, double near)
{
    c->half_abs[c->d.nout - 1] = abs;
    c->half_near[c->d.nout - 1] = near;
}

void kcase_out_absent(struct kcase *c)
{
    c->out[c->d.nout++].shape.ndim = TRI_ARG_ABSENT;
}

void kcase_alias(struct kcase *c, enum tri_alias alias, int i)
{
    c->alias[c->d.nout - 1] = alias;
    c->alias_in[c->d.nout - 1] = i;
}

static void *guarded(size_t bytes)
{
    unsigned char *p = tri_alloc_aligned(bytes + 2 * GUARD, "test");

    KCASE_CHECK(p != NULL, "out of memory");
    memset(p, FILL, bytes + 2 * GUARD);
    return p + GUARD;
}

static void guarded_free(void *p, size_t bytes, const char *what)
{
    unsigned char *raw = p;

    if (p == NULL)
        return;
    for (size_t i = 0; i < GUARD; i++)
        KCASE_CHECK(raw[-(ptrdiff_t)i - 1] == FILL && raw[bytes + i] == FILL,
                    "%s: wrote outside a buffer", what);
    tri_free(raw - GUARD);
}

static bool is_shared(const struct kcase *c, int o, bool in_place)
{
    return c->alias[o] == TRI_ALIAS_MUST || (in_place && c->alias[o] == TRI_ALIAS_MAY);
}

static void buffers_make(const struct kcase *c, bool in_place, size_t scratch, struct buffers *b)
{
    memset(b, 0, sizeof(*b));
    for (int i = 0; i < c->d.nin; i++) {
        if (c->in[i].shape.ndim < 0)
            continue;
        b->in[i] = guarded(arg_bytes(&c->in[i]));
        memcpy(b->in[i], c->data[i], arg_bytes(&c->in[i]));
    }
    for (int o = 0; o < c->d.nout; o++) {
        if (c->out[o].shape.ndim < 0)
            continue;
        b->out[o] =
            is_shared(c, o, in_place) ? b->in[c->alias_in[o]] : guarded(arg_bytes(&c->out[o]));
    }
    b->scratch_bytes = scratch;
    b->scratch = guarded(scratch);
}

/* Checks guards, and that inputs which no output shares are as they were. */
static void buffers_free(const struct kcase *c, bool in_place, struct buffers *b, const char *what)
{
    bool written[KCASE_ARGS] = {false};

    for (int o = 0; o < c->d.nout; o++) {
        if (b->out[o] == NULL)
            continue;
        if (is_shared(c, o, in_place))
            written[c->alias_in[o]] = true;
        else
            guarded_free(b->out[o], arg_bytes(&c->out[o]), what);
    }
    for (int i = 0; i < c->d.nin; i++) {
        size_t bytes = b->in[i] ? arg_bytes(&c->in[i]) : 0;

        KCASE_CHECK(written[i] || b->in[i] == NULL || memcmp(b->in[i], c->data[i], bytes) == 0,
                    "%s: wrote input %d", what, i);
        guarded_free(b->in[i], bytes, what);
    }
    guarded_free(b->scratch, b->scratch_bytes, what);
}

static double largest(const struct kcase *c, int o, const void *p)
{
    double most = 0;

    for (int64_t i = 0; i < tri_shape_count(&c->out[o].shape); i++) {
        double x = fabs(load(c->out[o].dtype, p, i));

        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

static void compare(const struct kcase *c, const struct buffers *got, const struct buffers *want,
                    const char *what)
{
    for (int o = 0; o < c->d.nout; o++) {
        int64_t n = got->out[o] ? tri_shape_count(&c->out[o].shape) : 0;
        double near = n > 0 && c->near[o] > 0 ? c->near[o] * largest(c, o, want->out[o]) : 0;

        for (int64_t i = 0; i < n; i++) {
            double g = load(c->out[o].dtype, got->out[o], i);
            double w = load(c->out[o].dtype, want->out[o], i),
                   limit = c->abs[o] + near + c->rel[o] * fabs(w);
            bool same = g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= limit;

            KCASE_CHECK(same,
                        "%s: output %d [%lld] is %.9g, not %.9g (difference %.3g, limit %.3g)",
                        what, o, (long long)i, g, w, fabs(g - w), limit);
        }
    }
}

static void *upload(const void *host, size_t bytes)
{
    const unsigned char *from = host;
    unsigned char *p = NULL;

    if (host == NULL)
        return NULL;
    KCASE_CHECK(device->ops->alloc(device, bytes + 2 * GUARD, (void **)&p) == TRI_OK, "%s",
                tri_error_text());
    KCASE_CHECK(device->ops->copy(device, p, from - GUARD, bytes + 2 * GUARD, stream) == TRI_OK,
                "%s", tri_error_text());
    return p + GUARD;
}

static void download(void *host, void *p, size_t bytes)
{
    unsigned char *from = p, *to = host;

    if (p == NULL)
        return;
    KCASE_CHECK(device->ops->copy(device, to - GUARD, from - GUARD, bytes + 2 * GUARD, stream) ==
                    TRI_OK,
                "%s", tri_error_text());
    KCASE_CHECK(device->ops->stream_sync(device, stream) == TRI_OK, "%s", tri_error_text());
    device->ops->free(device, from - GUARD);
}

/* Input whose memory output o of b is, or -1. */
static int shares(const struct kcase *c, const struct buffers *b, int o)
{
    for (int i = 0; i < c->d.nin; i++)
        if (b->out[o] != NULL && b->out[o] == b->in[i])
            return i;
    return -1;
}

/* Runs k on the device over copies of the buffers, guards and all, and brings them back. */
static tri_status run_on_device(const struct kcase *c, const struct tri_kernel *k,
                                struct buffers *b)
{
    struct mirror m = {0};
    struct tri_kernel_args args = {.in = m.in, .out = m.out, .grain = c->grain, .stream = stream};
    tri_status st;

    for (int i = 0; i < c->d.nin; i++)
        m.in[i] = b->in[i] == NULL ? NULL : upload(b->in[i], arg_bytes(&c->in[i]));
    for (int o = 0; o < c->d.nout; o++) {
        int i = shares(c, b, o);

        if (b->out[o] != NULL)
            m.out[o] = i >= 0 ? m.in[i] : upload(b->out[o], arg_bytes(&c->out[o]));
    }
    args.scratch = m.scratch = upload(b->scratch, b->scratch_bytes);
    st = k->ops->run(k, &args);
    for (int o = 0; o < c->d.nout; o++)
        if (shares(c, b, o) < 0)
            download(b->out[o], m.out[o], arg_bytes(&c->out[o]));
    for (int i = 0; i < c->d.nin; i++)
        download(b->in[i], m.in[i], b->in[i] == NULL ? 0 : arg_bytes(&c->in[i]));
    download(b->scratch, m.scratch, b->scratch_bytes);
    return st;
}

/* ops NULL: what tri_kernel_prepare takes of the table under test. */
static tri_status run_one(const struct kcase *c, const struct tri_kernel_ops *ops, bool in_place,
                          struct buffers *b)
{
    bool away = device != NULL && ops != tri_kernels_ref[c->d.kind];
    struct tri_kernel_desc d = c->d;
    struct tri_kernel *k = NULL;
    struct tri_kernel_args args = {.in = b->in, .out = b->out, .grain = c->grain};
    tri_status st;

    d.device = away ? device : NULL;
    st = ops == NULL ? tri_kernel_prepare(away ? device->kernels : tri_kernels_cpu, &d, &k)
                     : ops->prepare(&d, &k);
    if (st != TRI_OK)
        return st;
    buffers_make(c, in_place, k->scratch_bytes, b);
    args.scratch = b->scratch;
    st = away ? run_on_device(c, k, b) : k->ops->run(k, &args);
    KCASE_CHECK(st == TRI_OK, "%s: %s", k->ops->name, tri_error_text());
    k->ops->destroy(k);
    return st;
}

static void same_bits(const struct kcase *c, const struct buffers *one, const struct buffers *two,
                      const char *what, const char *why)
{
    for (int o = 0; o < c->d.nout; o++)
        KCASE_CHECK(one->out[o] == NULL ||
                        memcmp(one->out[o], two->out[o], arg_bytes(&c->out[o])) == 0,
                    "%s: output %d depends on %s", what, o, why);
}

static bool run_both(struct kcase *c, const struct tri_kernel_ops *ops, bool in_place,
                     const char *what)
{
    struct buffers got, want, again;
    tri_status st = run_one(c, ops, in_place, &got);

    if (st == TRI_ERR_UNSUPPORTED)
        return false;
    KCASE_CHECK(st == TRI_OK, "%s: prepare failed: %s", what, tri_error_text());
    KCASE_CHECK(run_one(c, tri_kernels_ref[c->d.kind], in_place, &want) == TRI_OK, "%s: %s", what,
                tri_error_text());
    compare(c, &got, &want, what);
    if (device != NULL) {
        KCASE_CHECK(run_one(c, ops, in_place, &again) == TRI_OK, "%s: %s", what, tri_error_text());
        same_bits(c, &got, &again, what, "the run");
        buffers_free(c, in_place, &again, what);
    }
    buffers_free(c, in_place, &got, what);
    buffers_free(c, in_place, &want, what);
    return true;
}

/* With 1 and 2 threads (a device has no say in them), and in place where that is allowed. */
static bool repeat(struct kcase *c, const struct tri_kernel_ops *ops, const char *what)
{
    bool may = false, ran = true;

    for (int o = 0; o < c->d.nout; o++)
        may = may || c->alias[o] == TRI_ALIAS_MAY;
    for (int threads = 1; threads <= (device == NULL ? 2 : 1) && ran; threads++) {
        c->d.nthreads = threads;
        ran = run_both(c, ops, false, what);
        if (ran && may)
            run_both(c, ops, true, what);
    }
    return ran;
}

/* Input i as type t. */
static void round_input(struct kcase *c, int i, enum tri_dtype t)
{
    int64_t n = c->in[i].shape.ndim < 0 ? 0 : tri_shape_count(&c->in[i].shape);
    void *rounded = tri_alloc_aligned((size_t)n * sizeof(uint16_t) + 1, "test");

    KCASE_CHECK(rounded != NULL, "out of memory");
    if (c->in[i].shape.ndim < 0 || c->in[i].dtype != TRI_F32) {
        tri_free(rounded);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        store(t, rounded, j, load(TRI_F32, c->data[i], j));
    tri_free(c->data[i]);
    c->data[i] = rounded;
    c->in[i].dtype = t;
}

/* The case once more with 16-bit arguments; wide: a MATMUL whose y stays f32. Kernel and reference
 * round sums that differ by the f32 tolerance once each: one unit in the last place between them,
 * 2^-7 (bf16) or 2^-10 (f16) of the larger, 2^-24 where f16 is subnormal. */
static void run_half(const struct kcase *full, enum tri_dtype t, bool wide, const char *what)
{
    struct kcase half = *full, *c = &half;
    const struct tri_op_info *info = tri_op_info(c->d.kind);
    double rel = t == TRI_BF16 ? 0x1p-7 : 0x1p-10;

    c->d.in = c->in;
    c->d.out = c->out;
    if (wide)
        c->d.attrs.matmul.wide = true;
    for (int i = 0; i < c->d.nin; i++) {
        if (c->in[i].shape.ndim < 0)
            continue;
        c->data[i] = tri_alloc_aligned(arg_bytes(&c->in[i]) + 1, "test");
        KCASE_CHECK(c->data[i] != NULL, "out of memory");
        memcpy(c->data[i], full->data[i], arg_bytes(&c->in[i]));
    }
    for (int i = 0; i < c->d.nin; i++)
        if ((info->half_in >> i & 1) != 0 ||
            (c->d.kind == TRI_OP_MATMUL && i == info->acc_in && !wide))
            round_input(c, i, t);
    for (int o = 0; o < c->d.nout; o++) {
        if (device != NULL) {
            c->abs[o] += c->half_abs[o] * rel / 2;
            c->near[o] += c->half_near[o] * rel / 2;
        }
        if ((info->half_out >> o & 1) == 0 || wide)
            continue;
        c->out[o].dtype = t;
        c->rel[o] += rel;
        c->abs[o] += 0x1p-24;
    }
    repeat(c, NULL, what);
    for (int i = 0; i < c->d.nin; i++)
        tri_free(c->data[i]);
}

/* All arguments that may be 16-bit are f32 in this case. */
static bool has_half_form(const struct kcase *c)
{
    uint32_t mask = tri_op_info(c->d.kind)->half_in;
    bool f32 = mask != 0;

    for (int i = 0; i < c->d.nin; i++)
        f32 = f32 && ((mask >> i & 1) == 0 || c->in[i].shape.ndim < 0 || c->in[i].dtype == TRI_F32);
    return f32;
}

bool kcase_run(struct kcase *c, const struct tri_kernel_ops *ops, const char *what)
{
    bool ran = repeat(c, ops, what);

    for (int t = TRI_BF16; t <= TRI_F16 && has_half_form(c); t++) {
        run_half(c, (enum tri_dtype)t, false, what);
        if (c->d.kind == TRI_OP_MATMUL)
            run_half(c, (enum tri_dtype)t, true, what);
    }
    for (int i = 0; i < c->d.nin; i++)
        tri_free(c->data[i]);
    return ran;
}

void kcase_check(struct kcase *c)
{
    const char *what = tri_op_name(c->d.kind);
    struct buffers want, one, three;

    c->d.nthreads = 1;
    KCASE_CHECK(run_one(c, tri_kernels_ref[c->d.kind], false, &want) == TRI_OK, "%s: %s", what,
                tri_error_text());
    for (int isa = TRI_ISA_SCALAR; isa < TRI_ISA_COUNT; isa++) {
        tri_cpu_isa_limit((enum tri_isa)isa);
        c->d.nthreads = 1;
        KCASE_CHECK(run_one(c, NULL, false, &one) == TRI_OK, "%s: %s", what, tri_error_text());
        c->d.nthreads = 3;
        KCASE_CHECK(run_one(c, NULL, false, &three) == TRI_OK, "%s: %s", what, tri_error_text());
        compare(c, &one, &want, what);
        same_bits(c, &one, &three, what, "the number of threads");
        buffers_free(c, false, &one, what);
        buffers_free(c, false, &three, what);
    }
    buffers_free(c, false, &want, what);
    for (int i = 0; i < c->d.nin; i++)
        tri_free(c->data[i]);
}
