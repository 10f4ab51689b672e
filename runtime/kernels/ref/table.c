/* The reference table and the one prepared form that all its kernels share. */
#include "runtime/kernels/ref/ref.h"

#include "runtime/core/memory.h"
#include "runtime/kernels/widen.h"

#include <string.h>

/* Doubles of scratch: only attention keeps more than a running sum (see attention.c). */
static size_t scratch_doubles(const struct tri_kernel_desc *d)
{
    size_t t, head;

    if (d->kind == TRI_OP_ATTENTION)
        return (size_t)d->in[0].shape.dim[1];
    if (d->kind == TRI_OP_ATTENTION_CACHED)
        return (size_t)d->in[1].shape.dim[1];
    if (d->kind != TRI_OP_ATTENTION_GRAD)
        return 0;
    t = (size_t)d->in[1].shape.dim[1];
    head = (size_t)(d->in[0].shape.dim[2] / d->attrs.attention.heads);
    return 3 * t * head;
}

tri_status tri_ref_prepare(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    size_t nin = (size_t)d->nin, nargs = nin + (size_t)d->nout;
    struct tri_ref_kernel *r;
    struct tri_arg *args;

    if (tri_kernel_needs_widening(d))
        return tri_kernel_prepare_widened(tri_kernels_ref, d, out);
    r = tri_calloc(1, sizeof(*r) + nargs * sizeof(struct tri_arg), "kernel");
    if (r == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", tri_op_name(d->kind));
    args = (struct tri_arg *)(r + 1);
    r->base.ops = tri_kernels_ref[d->kind];
    r->base.scratch_bytes = scratch_doubles(d) * sizeof(double);
    r->d = *d;
    if (d->nin > 0)
        memcpy(args, d->in, nin * sizeof(*args));
    if (d->nout > 0)
        memcpy(args + nin, d->out, (size_t)d->nout * sizeof(*args));
    r->d.in = args;
    r->d.out = args + nin;
    *out = &r->base;
    return TRI_OK;
}

void tri_ref_destroy(struct tri_kernel *k)
{
    tri_free(k);
}

#define X(kind, fn)                                                                                \
    static const struct tri_kernel_ops ops_##fn = {.name = #fn "_ref",                             \
                                                   .prepare = tri_ref_prepare,                     \
                                                   .run = tri_ref_##fn,                            \
                                                   .destroy = tri_ref_destroy};
TRI_REF_LIST(X)
#undef X

const struct tri_kernel_ops *const tri_kernels_ref[TRI_OP_COUNT] = {
#define X(kind, fn) [TRI_OP_##kind] = &ops_##fn,
    TRI_REF_LIST(X)
#undef X
};
