/* Choice of a kernel: the device's table first, then its f32 kernel with 16-bit arguments widened,
 * then, where memory is the process's own, the reference. */
#include "runtime/core/text.h"
#include "runtime/kernels/widen.h"

/* Names the types of all arguments that are there. */
static tri_status no_kernel(const struct tri_kernel_desc *d)
{
    struct tri_text types = {0};
    tri_status st;

    for (int i = 0; i < d->nin + d->nout; i++) {
        const struct tri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];

        if (a->shape.ndim >= 0)
            tri_text_printf(&types, "%s%s",
                            i == d->nin ? " -> "
                            : i > 0     ? ", "
                                        : "",
                            tri_dtype_name(a->dtype));
    }
    st = tri_fail(TRI_ERR_UNSUPPORTED, "op \"%s\" has no kernel for %s on \"%s\"",
                  tri_op_name(d->kind), types.data != NULL ? types.data : "these types",
                  d->device->name);
    tri_text_finish(&types);
    return st;
}

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
        return no_kernel(d);
    ops = tri_kernels_ref[d->kind];
    if (ops == NULL)
        return tri_fail(TRI_ERR_INTERNAL, "op \"%s\" has no kernel", tri_op_name(d->kind));
    return ops->prepare(d, out);
}
