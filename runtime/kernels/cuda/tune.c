/* See tune.h. */
#include "runtime/kernels/cuda/tune.h"

#include "runtime/device/device.h"

#include <math.h>

#define MAX_ARGS 8
#define RUNS     5    /* timed one by one; the least counts */
#define FILL     0x3c /* bytes of arguments: 0.01 in f32 and bf16, 1 in f16 */

struct bench {
    struct tri_device *device;
    void *in[MAX_ARGS], *out[MAX_ARGS], *scratch;
    void *stream, *begin, *end;
};

static tri_status alloc(struct bench *b, const struct tri_arg *a, void **out)
{
    size_t bytes = (size_t)tri_shape_count(&a->shape) * tri_dtype_bytes(a->dtype);

    if (a->shape.ndim < 0)
        return TRI_OK;
    TRI_TRY(b->device->ops->alloc(b->device, bytes, out));
    return b->device->ops->fill(b->device, *out, FILL, bytes, b->stream);
}

/* The running sum and the output that adds onto it are one. */
static bool is_sum(const struct tri_kernel_desc *d, int o)
{
    int acc = tri_op_info(d->kind)->acc_in;

    return o == 0 && acc > 0 && acc < d->nin && d->in[acc].shape.ndim >= 0;
}

static tri_status setup(struct bench *b, const struct tri_kernel_desc *d)
{
    const struct tri_device_ops *ops = b->device->ops;

    TRI_ASSERT(d->nin <= MAX_ARGS && d->nout <= MAX_ARGS);
    TRI_TRY(ops->stream_create(b->device, false, &b->stream));
    TRI_TRY(ops->event_create(b->device, true, &b->begin));
    TRI_TRY(ops->event_create(b->device, true, &b->end));
    for (int i = 0; i < d->nin; i++)
        TRI_TRY(alloc(b, &d->in[i], &b->in[i]));
    for (int o = 0; o < d->nout; o++) {
        if (is_sum(d, o))
            b->out[o] = b->in[tri_op_info(d->kind)->acc_in];
        else
            TRI_TRY(alloc(b, &d->out[o], &b->out[o]));
    }
    return TRI_OK;
}

static void teardown(struct bench *b, const struct tri_kernel_desc *d)
{
    const struct tri_device_ops *ops = b->device->ops;

    for (int o = 0; o < d->nout; o++)
        if (!is_sum(d, o))
            ops->free(b->device, b->out[o]);
    for (int i = 0; i < d->nin; i++)
        ops->free(b->device, b->in[i]);
    if (b->end != NULL)
        ops->event_destroy(b->device, b->end);
    if (b->begin != NULL)
        ops->event_destroy(b->device, b->begin);
    if (b->stream != NULL)
        ops->stream_destroy(b->device, b->stream);
}

/* Milliseconds of one run of k, the least of a few. */
static tri_status measure(struct bench *b, const struct tri_kernel *k, float *least)
{
    const struct tri_device_ops *ops = b->device->ops;
    struct tri_kernel_args args = {
        .in = b->in, .out = b->out, .scratch = b->scratch, .stream = b->stream};
    float ms;

    *least = INFINITY;
    TRI_TRY(k->ops->run(k, &args));
    for (int i = 0; i < RUNS; i++) {
        TRI_TRY(ops->event_record(b->device, b->begin, b->stream));
        TRI_TRY(k->ops->run(k, &args));
        TRI_TRY(ops->event_record(b->device, b->end, b->stream));
        TRI_TRY(ops->event_sync(b->device, b->end));
        TRI_TRY(ops->event_elapsed(b->device, b->begin, b->end, &ms));
        *least = fminf(*least, ms);
    }
    return TRI_OK;
}

/* Sets *best to the fastest variant. */
static tri_status compare(struct bench *b, struct tri_kernel *k, int count,
                          void (*select)(struct tri_kernel *k, int variant), int *best)
{
    float least = INFINITY;

    for (int v = 0; v < count; v++) {
        tri_status st;
        float ms = INFINITY;

        select(k, v);
        TRI_TRY(b->device->ops->alloc(b->device, k->scratch_bytes, &b->scratch));
        st = measure(b, k, &ms);
        b->device->ops->free(b->device, b->scratch);
        TRI_TRY(st);
        if (ms < least) {
            least = ms;
            *best = v;
        }
    }
    return TRI_OK;
}

tri_status tri_cuda_tune(const struct tri_kernel_desc *d, struct tri_kernel *k, int count,
                         void (*select)(struct tri_kernel *k, int variant))
{
    struct bench b = {.device = d->device};
    int best = 0;
    tri_status st = setup(&b, d);

    if (st == TRI_OK)
        st = compare(&b, k, count, select, &best);
    teardown(&b, d);
    select(k, best);
    return st;
}
