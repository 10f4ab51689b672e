#include "runtime/kernels/cpu/simd_kernel.h"

#include "runtime/core/memory.h"

tri_status tri_simd_kernel_create(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  size_t scratch_bytes, struct simd_kernel **out)
{
    struct simd_kernel *k = tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel '%s': out of memory", ops->name);
    k->base.ops = ops;
    k->base.scratch_bytes = scratch_bytes;
    k->attrs = d->attrs;
    k->from = d->in[0].dtype;
    k->to = d->out[0].dtype;
    k->nthreads = d->nthreads > 0 ? d->nthreads : 1;
    k->count = tri_shape_count(&d->in[0].shape);
    k->rows = tri_shape_rows(&d->in[0].shape);
    k->cols = tri_shape_cols(&d->in[0].shape);
    for (int i = 0; i < d->in[0].shape.ndim; i++)
        k->dim[i] = d->in[0].shape.dim[i];
    *out = k;
    return TRI_OK;
}

void tri_simd_kernel_destroy(struct tri_kernel *k)
{
    tri_free(k);
}

bool tri_simd_has_in(const struct tri_kernel_desc *d, int i)
{
    return i < d->nin && d->in[i].shape.ndim >= 0;
}

bool tri_simd_has_out(const struct tri_kernel_desc *d, int o)
{
    return o < d->nout && d->out[o].shape.ndim >= 0;
}

static bool is_half(enum tri_dtype t)
{
    return t == TRI_BF16 || t == TRI_F16;
}

bool tri_simd_is_f32(const struct tri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        if (tri_simd_has_in(d, i) && is_half(d->in[i].dtype))
            return false;
    for (int o = 0; o < d->nout; o++)
        if (tri_simd_has_out(d, o) && is_half(d->out[o].dtype))
            return false;
    return true;
}

int64_t tri_simd_row_blocks(int64_t rows, int64_t cols)
{
    int64_t n = (rows + 31) / 32;

    if (n > 64)
        n = 64;
    while (n > 1 && n * cols > 1 << 20)
        n /= 2;
    return n > 0 ? n : 1;
}
