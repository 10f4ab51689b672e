/* See measure.h. */
#include "runtime/exec/measure.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <math.h>

enum {
    BATCHES = 10,
    MAX_REPEATS = 200,
    SMALLEST = 512, /* rows of the products */
    LARGEST = 8192,
    NOISE_BYTES = 1 << 20 /* random numbers that are repeated to fill a matrix */
};
static const size_t FIRST_COPY = (size_t)16 << 20;
static const size_t LAST_COPY = (size_t)256 << 20; /* several times the second-level cache */
static const double BATCH_S = 2e-3, LONGEST_S = 0.05;

/* What is timed: a kernel, or a copy where there is none. */
struct work {
    const struct tri_kernel *k;
    const struct tri_kernel_args *args;
    void *dst, *src;
    size_t bytes;
    void *stream;
};

static tri_status enqueue(struct tri_device *d, const struct work *w)
{
    if (w->k != NULL)
        return w->k->ops->run(w->k, w->args);
    return d->ops->copy(d, w->dst, w->src, w->bytes, w->stream);
}

static tri_status time_batch(struct tri_device *d, const struct work *w, void *event[2],
                             int repeats, double *seconds)
{
    float ms;

    TRI_TRY(d->ops->event_record(d, event[0], w->stream));
    for (int i = 0; i < repeats; i++)
        TRI_TRY(enqueue(d, w));
    TRI_TRY(d->ops->event_record(d, event[1], w->stream));
    TRI_TRY(d->ops->stream_sync(d, w->stream));
    TRI_TRY(d->ops->event_elapsed(d, event[0], event[1], &ms));
    *seconds = fmax((double)ms * 1e-3 / repeats, 1e-9);
    return TRI_OK;
}

/* Puts x among the n ascending numbers of sorted. */
static void insert(double *sorted, int n, double x)
{
    while (n > 0 && sorted[n - 1] > x) {
        sorted[n] = sorted[n - 1];
        n--;
    }
    sorted[n] = x;
}

static tri_status time_work(struct tri_device *d, const struct work *w, void *event[2],
                            double *best_s, double *median_s)
{
    double times[BATCHES], one;
    int repeats, n = BATCHES;

    TRI_TRY(time_batch(d, w, event, 1, &one)); /* warms up */
    TRI_TRY(time_batch(d, w, event, 1, &one));
    repeats = one > BATCH_S ? 1 : (int)fmin(BATCH_S / fmax(one, 1e-7), MAX_REPEATS);
    n = one > LONGEST_S ? 1 : n;
    for (int i = 0; i < n; i++) {
        double x;

        TRI_TRY(time_batch(d, w, event, repeats, &x));
        insert(times, i, x);
    }
    *best_s = times[0];
    *median_s = times[n / 2];
    return TRI_OK;
}

static tri_status with_events(struct tri_device *d, const struct work *w, double *best_s,
                              double *median_s)
{
    void *event[2] = {NULL, NULL};
    tri_status st;

    TRI_TRY_GOTO(st, d->ops->event_create(d, true, &event[0]), destroy);
    TRI_TRY_GOTO(st, d->ops->event_create(d, true, &event[1]), destroy);
    st = time_work(d, w, event, best_s, median_s);

destroy:
    for (int i = 0; i < 2; i++)
        if (event[i] != NULL)
            d->ops->event_destroy(d, event[i]);
    return st;
}

tri_status tri_device_time(struct tri_device *d, const struct tri_kernel *k,
                           const struct tri_kernel_args *args, double *best_s, double *median_s)
{
    struct work w = {.k = k, .args = args, .stream = args->stream};

    return with_events(d, &w, best_s, median_s);
}

static tri_status time_copy(struct tri_device *d, void *stream, size_t bytes, double *best_s)
{
    struct work w = {.stream = stream, .bytes = bytes};
    double median;
    tri_status st;

    TRI_TRY_GOTO(st, d->ops->alloc(d, bytes, &w.dst), free_both);
    TRI_TRY_GOTO(st, d->ops->alloc(d, bytes, &w.src), free_both);
    st = with_events(d, &w, best_s, &median);

free_both:
    d->ops->free(d, w.dst);
    d->ops->free(d, w.src);
    return st;
}

/* Random elements of a product, in [-1, 1): zeros would draw less power, and the clock be higher
 * than in a step. `noise` has NOISE_BYTES. */
static void make_noise(enum tri_dtype dtype, void *noise)
{
    const struct tri_rng_key key = tri_rng_key_make(1, 0, 0);
    size_t n = NOISE_BYTES / tri_dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++) {
        float x;

        tri_rng_fill_uniform(&key, i, 1, -1, 1, &x);
        if (dtype == TRI_F32)
            ((float *)noise)[i] = x;
        else if (dtype == TRI_BF16)
            ((uint16_t *)noise)[i] = tri_bf16_from_f32(x);
        else
            ((uint16_t *)noise)[i] = tri_f16_from_f32(x);
    }
}

static tri_status fill_noise(struct tri_device *d, void *stream, const void *noise, void *matrix,
                             size_t bytes)
{
    for (size_t at = 0; at < bytes; at += NOISE_BYTES) {
        size_t n = bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES;

        TRI_TRY(d->ops->copy(d, (char *)matrix + at, noise, n, stream));
    }
    return d->ops->stream_sync(d, stream);
}

/* y = a b, all [n, n]. */
static tri_status time_product(const struct tri_measured *m, void *stream, const void *noise,
                               int64_t n, double *best_s)
{
    struct tri_device *d = m->device;
    const struct tri_arg matrix = {.dtype = m->compute, .shape = {.ndim = 2, .dim = {n, n}}};
    const struct tri_arg in[] = {matrix, matrix};
    const size_t bytes = (size_t)(n * n) * tri_dtype_bytes(m->compute);
    struct tri_kernel_desc desc = {
        .kind = TRI_OP_MATMUL, .nin = 2, .nout = 1, .in = in, .out = &matrix, .device = d};
    void *buffer[4] = {NULL};
    struct tri_kernel_args args = {.in = buffer, .out = buffer + 2, .stream = stream};
    struct tri_kernel *k = NULL;
    double median;
    tri_status st;

    desc.attrs.matmul.tf32 = m->tf32;
    TRI_TRY(tri_kernel_prepare(d->kernels, &desc, &k));
    for (int i = 0; i < 3; i++)
        TRI_TRY_GOTO(st, d->ops->alloc(d, bytes, &buffer[i]), destroy);
    TRI_TRY_GOTO(st, d->ops->alloc(d, k->scratch_bytes + 1, &buffer[3]), destroy);
    for (int i = 0; i < 2; i++)
        TRI_TRY_GOTO(st, fill_noise(d, stream, noise, buffer[i], bytes), destroy);
    args.scratch = buffer[3];
    st = tri_device_time(d, k, &args, best_s, &median);

destroy:
    for (int i = 0; i < 4; i++)
        d->ops->free(d, buffer[i]);
    k->ops->destroy(k);
    return st;
}

/* The largest copy counts: smaller ones may stay in caches. */
static tri_status measure_copy(struct tri_device *d, void *stream, double *bytes_per_s)
{
    double seconds = 0;

    for (size_t bytes = FIRST_COPY; bytes <= LAST_COPY && seconds < BATCH_S; bytes *= 4) {
        tri_status st = time_copy(d, stream, bytes, &seconds);

        if (st == TRI_ERR_NOMEM && bytes > FIRST_COPY)
            break;
        TRI_TRY(st);
        *bytes_per_s = 2 * (double)bytes / seconds;
    }
    return TRI_OK;
}

/* The fastest product counts. */
static tri_status measure_products(const struct tri_measured *m, void *stream, double *flops_per_s)
{
    void *noise = tri_alloc_aligned(NOISE_BYTES, "random numbers");
    double seconds = 0, best = 0;
    tri_status st = TRI_OK;

    if (noise == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d bytes to measure with", NOISE_BYTES);
    make_noise(m->compute, noise);
    for (int64_t n = SMALLEST; st == TRI_OK && n <= LARGEST && 8 * seconds < LONGEST_S; n *= 2) {
        st = time_product(m, stream, noise, n, &seconds);
        if (st == TRI_OK)
            best = fmax(best, 2 * pow((double)n, 3) / seconds);
    }
    tri_free(noise);
    if (st == TRI_ERR_NOMEM && best > 0)
        st = TRI_OK;
    if (st == TRI_OK)
        *flops_per_s = best;
    return st;
}

tri_status tri_device_measure(const struct tri_measured *m, struct tri_costs *out)
{
    struct tri_device *d = m->device;
    struct tri_costs costs = *out;
    void *stream;
    tri_status st;

    if (d->host)
        return tri_costs_measure(d->kernels, m->threads, out);
    TRI_TRY(d->ops->stream_create(d, false, &stream));
    st = measure_copy(d, stream, &costs.bytes_per_s);
    if (st == TRI_OK)
        st = measure_products(m, stream, &costs.flops_per_s);
    d->ops->stream_destroy(d, stream);
    if (st == TRI_OK)
        *out = costs;
    return st;
}
