/* The processor as a device: memory of the process, copies by memcpy, and neither streams nor
 * events, since a kernel has ended when its call returns. */
#include "runtime/device/device.h"

#include "runtime/core/memory.h"
#include "runtime/kernels/kernels.h"

#include <string.h>

static tri_status alloc_cpu(struct tri_device *d, size_t bytes, void **out)
{
    void *p = tri_alloc_aligned(tri_round_up(bytes, TRI_ALIGN_BYTES), "device memory");

    (void)d;
    if (p == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu bytes of memory", bytes);
    memset(p, 0, bytes);
    *out = p;
    return TRI_OK;
}

static void free_cpu(struct tri_device *d, void *p)
{
    (void)d;
    tri_free(p);
}

static tri_status stream_create_cpu(struct tri_device *d, bool urgent, void **out)
{
    (void)d;
    (void)urgent;
    *out = NULL;
    return TRI_OK;
}

static void destroy_nothing(struct tri_device *d, void *object)
{
    (void)d;
    (void)object;
}

static tri_status sync_cpu(struct tri_device *d, void *object)
{
    (void)d;
    (void)object;
    return TRI_OK;
}

static tri_status copy_cpu(struct tri_device *d, void *dst, const void *src, size_t bytes,
                           void *stream)
{
    (void)d;
    (void)stream;
    memcpy(dst, src, bytes);
    return TRI_OK;
}

static tri_status fill_cpu(struct tri_device *d, void *dst, int byte, size_t bytes, void *stream)
{
    (void)d;
    (void)stream;
    memset(dst, byte, bytes);
    return TRI_OK;
}

static tri_status event_create_cpu(struct tri_device *d, bool timed, void **out)
{
    (void)d;
    (void)timed;
    *out = NULL;
    return TRI_OK;
}

static tri_status order_cpu(struct tri_device *d, void *event, void *stream)
{
    (void)d;
    (void)event;
    (void)stream;
    return TRI_OK;
}

static tri_status event_query_cpu(struct tri_device *d, void *event, bool *happened)
{
    (void)d;
    (void)event;
    *happened = true;
    return TRI_OK;
}

static tri_status event_elapsed_cpu(struct tri_device *d, void *begin, void *end, float *ms)
{
    (void)d;
    (void)begin;
    (void)end;
    *ms = 0;
    return TRI_OK;
}

static tri_status no_graphs(void)
{
    return tri_fail(TRI_ERR_UNSUPPORTED, "the CPU has no graphs");
}

static tri_status capture_begin_cpu(struct tri_device *d, void *stream)
{
    (void)d;
    (void)stream;
    return no_graphs();
}

static tri_status capture_end_cpu(struct tri_device *d, void *stream, void **graph)
{
    (void)d;
    (void)stream;
    (void)graph;
    return no_graphs();
}

static tri_status graph_launch_cpu(struct tri_device *d, void *graph, void *stream)
{
    (void)d;
    (void)graph;
    (void)stream;
    return no_graphs();
}

static void destroy_cpu(struct tri_device *d)
{
    (void)d;
}

static const struct tri_device_ops cpu_ops = {
    .alloc = alloc_cpu,
    .free = free_cpu,
    .alloc_host = alloc_cpu,
    .free_host = free_cpu,
    .stream_create = stream_create_cpu,
    .stream_destroy = destroy_nothing,
    .stream_sync = sync_cpu,
    .copy = copy_cpu,
    .fill = fill_cpu,
    .event_create = event_create_cpu,
    .event_destroy = destroy_nothing,
    .event_record = order_cpu,
    .event_wait = order_cpu,
    .event_sync = sync_cpu,
    .event_query = event_query_cpu,
    .event_elapsed = event_elapsed_cpu,
    .capture_begin = capture_begin_cpu,
    .capture_end = capture_end_cpu,
    .graph_launch = graph_launch_cpu,
    .graph_destroy = destroy_nothing,
    .destroy = destroy_cpu,
};

struct tri_device *tri_device_cpu(void)
{
    static struct tri_device cpu = {.ops = &cpu_ops,
                                    .kernels = tri_kernels_cpu,
                                    .name = "cpu",
                                    .uuid = "",
                                    .bus = "",
                                    .host = true};

    return &cpu;
}

const char *tri_device_uuid(const struct tri_device *d)
{
    return d->uuid;
}

void tri_device_destroy(struct tri_device *d)
{
    if (d != NULL)
        d->ops->destroy(d);
}
