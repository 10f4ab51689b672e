#include "runtime/kernels/cuda/cuda_kernel.h"

#include "runtime/core/memory.h"
#include "runtime/device/cuda_device.h"

tri_status tri_cuda_kernel_create(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  size_t scratch_bytes, struct cuda_kernel **out)
{
    const struct tri_cuda_device *dev = tri_cuda_device(d->device);
    struct cuda_kernel *k = tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", ops->name);
    k->base.ops = ops;
    k->base.scratch_bytes = scratch_bytes;
    k->attrs = d->attrs;
    k->from = d->in[0].dtype;
    k->to = d->out[0].dtype;
    k->count = tri_shape_count(&d->in[0].shape);
    k->rows = tri_shape_rows(&d->in[0].shape);
    k->cols = tri_shape_cols(&d->in[0].shape);
    k->sm_count = dev->sm_count;
    k->shared_bytes = dev->shared_bytes;
    *out = k;
    return TRI_OK;
}

tri_status tri_cuda_prepare_plain(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  struct tri_kernel **out)
{
    struct cuda_kernel *k = NULL;

    TRI_TRY(tri_cuda_kernel_create(d, ops, 0, &k));
    *out = &k->base;
    return TRI_OK;
}

void tri_cuda_kernel_destroy(struct tri_kernel *k)
{
    tri_free(k);
}
