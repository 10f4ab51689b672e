#include "tests/unit/exec/fake_device.h"

static struct tri_device_ops ops;
static struct tri_device device;
static size_t most;

static tri_status alloc_fake(struct tri_device *d, size_t bytes, void **out)
{
    if (bytes > most)
        return tri_fail(TRI_ERR_NOMEM, "%s has no room for %zu bytes", d->name, bytes);
    return tri_device_cpu()->ops->alloc(d, bytes, out);
}

static tri_status event_create_fake(struct tri_device *d, bool timed, void **out)
{
    (void)timed;
    *out = d; /* events are told from none */
    return TRI_OK;
}

struct tri_device *fake_device(size_t limit)
{
    most = limit;
    ops = *tri_device_cpu()->ops;
    ops.alloc = alloc_fake;
    ops.event_create = event_create_fake;
    device = *tri_device_cpu();
    device.ops = &ops;
    device.name = "fake device";
    device.host = false;
    return &device;
}
