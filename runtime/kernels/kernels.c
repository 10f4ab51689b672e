/* Choice of a kernel: the device's table first, the reference where it has none. */
#include "runtime/kernels/kernels.h"

tri_status tri_kernel_prepare(const struct tri_kernel_ops *const *table,
                              const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    const struct tri_kernel_ops *ops = table[d->kind];

    if (ops != NULL) {
        tri_status st = ops->prepare(d, out);

        if (st != TRI_ERR_UNSUPPORTED)
            return st;
    }
    ops = tri_kernels_ref[d->kind];
    if (ops == NULL)
        return tri_fail(TRI_ERR_INTERNAL, "op \"%s\" has no kernel", tri_op_name(d->kind));
    return ops->prepare(d, out);
}
