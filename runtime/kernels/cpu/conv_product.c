/* 1x1 convolutions as products: with P pixels x [P, I], y [P, O] and w [O, I]
 *   y = x w^T,   dx = dy w,   dw = dy^T x (+ acc).
 * Class: 4 ulp of the sum of |x||w|, f32; the order of a sum is oneDNN's, fixed for a shape and a
 * number of threads. */
#include "runtime/kernels/cpu/conv_product.h"

#include "runtime/core/memory.h"

#include <dnnl.h>
#include <omp.h>

struct product_kernel {
    struct tri_kernel base;
    int64_t m, n, depth; /* of the result and the sum */
    int64_t lda, ldb;
    char ta, tb;
    int a, b; /* arguments that are the operands */
    float beta;
    int nthreads;
};

static tri_status run_product(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct product_kernel *k = (const struct product_kernel *)kernel;
    int caller_threads = omp_get_max_threads();
    dnnl_status_t st;

    omp_set_num_threads(k->nthreads);
    st = dnnl_sgemm(k->ta, k->tb, k->m, k->n, k->depth, 1.0f, args->in[k->a], k->lda,
                    args->in[k->b], k->ldb, k->beta, args->out[0], k->n);
    omp_set_num_threads(caller_threads);
    if (st != dnnl_success)
        return tri_fail(TRI_ERR_INTERNAL, "onednn: sgemm failed with code %d", (int)st);
    return TRI_OK;
}

static void destroy_product(struct tri_kernel *k)
{
    tri_free(k);
}

static const struct tri_kernel_ops ops_product = {.name = "conv2d_product",
                                                  .prepare = tri_conv_product_prepare,
                                                  .run = run_product,
                                                  .destroy = destroy_product};

tri_status tri_conv_product_prepare(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct product_kernel *k = tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"conv2d_product\": out of memory");
    k->base.ops = &ops_product;
    k->nthreads = d->nthreads > 0 ? d->nthreads : 1;
    k->ta = k->tb = 'N';
    k->b = 1;
    k->lda = tri_shape_cols(&d->in[0].shape);
    if (d->kind == TRI_OP_CONV2D_DW) {
        k->ta = 'T';
        k->a = 1;
        k->b = 0;
        k->m = k->lda = tri_shape_cols(&d->in[1].shape);
        k->n = k->ldb = tri_shape_cols(&d->in[0].shape);
        k->depth = tri_shape_rows(&d->in[0].shape);
        k->beta = d->nin > 2 && d->in[2].shape.ndim >= 0 ? 1.0f : 0.0f;
    } else {
        k->m = tri_shape_rows(&d->in[0].shape);
        k->n = tri_shape_cols(&d->out[0].shape);
        k->depth = k->lda;
        k->tb = d->kind == TRI_OP_CONV2D ? 'T' : 'N';
        k->ldb = d->in[1].shape.dim[1];
    }
    *out = &k->base;
    return TRI_OK;
}
