/* See bench_device.h. */
#include "launch/bench_device.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCHES = 10, MAX_REPEATS = 200, SMALLEST = 1024, LARGEST = 8192 };
static const size_t COPY_BYTES = (size_t)256 << 20; /* several times the second-level cache */
static const double BATCH_S = 2e-3, LONGEST_S = 0.05;

/* What is timed: a kernel, or a copy where there is none. */
struct work {
    const struct tri_kernel *k;
    const struct tri_kernel_args *args;
    void *dst, *src;
    void *stream;
};

static tri_status enqueue(struct tri_device *d, const struct work *w)
{
    if (w->k != NULL)
        return w->k->ops->run(w->k, w->args);
    return d->ops->copy(d, w->dst, w->src, COPY_BYTES, w->stream);
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
    *seconds = (double)ms * 1e-3 / repeats;
    return TRI_OK;
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
    for (int i = 0; i < n; i++)
        TRI_TRY(time_batch(d, w, event, repeats, &times[i]));
    tri_bench_sort(times, n, best_s, median_s);
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

tri_status tri_bench_device_time(struct tri_device *d, const struct tri_kernel *k,
                                 const struct tri_kernel_args *args, double *best_s,
                                 double *median_s)
{
    struct work w = {.k = k, .args = args, .stream = args->stream};

    return with_events(d, &w, best_s, median_s);
}

static tri_status measure_copy(struct tri_device *d, void *stream, double *bytes_per_s)
{
    struct work w = {.stream = stream};
    double best, median;
    tri_status st;

    TRI_TRY_GOTO(st, d->ops->alloc(d, COPY_BYTES, &w.dst), free_both);
    TRI_TRY_GOTO(st, d->ops->alloc(d, COPY_BYTES, &w.src), free_both);
    TRI_TRY_GOTO(st, with_events(d, &w, &best, &median), free_both);
    *bytes_per_s = 2 * (double)COPY_BYTES / best;

free_both:
    d->ops->free(d, w.dst);
    d->ops->free(d, w.src);
    return st;
}

/* y = a b, all [n, n] in bf16; zeros, whose products draw less power than random numbers and so
 * bound a step from above. */
static tri_status time_product(struct tri_device *d, void *stream, int64_t n, double *best_s)
{
    const struct tri_arg matrix = {.dtype = TRI_BF16, .shape = {.ndim = 2, .dim = {n, n}}};
    const struct tri_arg in[] = {matrix, matrix};
    struct tri_kernel_desc desc = {
        .kind = TRI_OP_MATMUL, .nin = 2, .nout = 1, .in = in, .out = &matrix, .device = d};
    void *buffer[4] = {NULL};
    struct tri_kernel_args args = {.in = buffer, .out = buffer + 2, .stream = stream};
    struct tri_kernel *k = NULL;
    double median;
    tri_status st;

    TRI_TRY(tri_kernel_prepare(d->kernels, &desc, &k));
    for (int i = 0; i < 3; i++)
        TRI_TRY_GOTO(st, d->ops->alloc(d, (size_t)(n * n) * sizeof(uint16_t), &buffer[i]), destroy);
    TRI_TRY_GOTO(st, d->ops->alloc(d, k->scratch_bytes + 1, &buffer[3]), destroy);
    args.scratch = buffer[3];
    st = tri_bench_device_time(d, k, &args, best_s, &median);

destroy:
    for (int i = 0; i < 4; i++)
        d->ops->free(d, buffer[i]);
    k->ops->destroy(k);
    return st;
}

tri_status tri_bench_device_limits(struct tri_device *d, void *stream, struct tri_bench_limits *out)
{
    struct tri_bench_limits found = {0};
    double seconds = 0;

    TRI_TRY(measure_copy(d, stream, &found.bytes_per_s));
    for (int64_t n = SMALLEST; n <= LARGEST && 8 * seconds < LONGEST_S; n *= 2) {
        TRI_TRY(time_product(d, stream, n, &seconds));
        found.flops_per_s = fmax(found.flops_per_s, 2 * pow((double)n, 3) / seconds);
    }
    *out = found;
    return TRI_OK;
}
