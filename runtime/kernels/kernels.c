/* Choice of a kernel: the device's table first, then its f32 kernel with 16-bit arguments widened,
 * then, where memory is the process's own, the reference. */
#include "runtime/kernels/widen.h"

tri_status tri_kernel_prepare(const struct tri_kernel_ops *const *table,
                              const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    const struct tri_kernel_ops *ops = table[d->kind];

    if (ops != NULL) {
        tri_status st = ops->prepare(d, out);

        if (st != TRI_ERR_UNSUPPORTED)
            return st;
    }
    if (tri_kernel_needs_widening(d))
        return tri_kernel_prepare_widened(table, d, out);
    if (d->device != NULL && !d->device->host)
        return tri_fail(TRI_ERR_UNSUPPORTED, "op \"%s\" has no kernel for %s on \"%s\"",
                        tri_op_name(d->kind), tri_dtype_name(d->in[0].dtype), d->device->name);
    ops = tri_kernels_ref[d->kind];
    if (ops == NULL)
        return tri_fail(TRI_ERR_INTERNAL, "op \"%s\" has no kernel", tri_op_name(d->kind));
    return ops->prepare(d, out);
}
