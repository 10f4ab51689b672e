/* Reference products. One dot product in double per element, terms in index order. */
#include "runtime/kernels/ref/ref.h"

/* y = op(a) op(b) + bias + acc, op(m) = m or its transpose. */
tri_status tri_ref_matmul(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const struct tri_attr_matmul *t = &d->attrs.matmul;
    const float *a = args->in[0], *b = args->in[1];
    const float *bias = d->nin > 2 ? args->in[2] : NULL, *acc = d->nin > 3 ? args->in[3] : NULL;
    float *y = args->out[0];
    int64_t ar = tri_shape_rows(&d->in[0].shape), ac = tri_shape_cols(&d->in[0].shape);
    int64_t br = tri_shape_rows(&d->in[1].shape), bc = tri_shape_cols(&d->in[1].shape);
    int64_t m = t->ta ? ac : ar, depth = t->ta ? ar : ac, n = t->tb ? br : bc;

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double s = acc ? acc[i * n + j] : 0;

            if (bias)
                s += bias[j];
            for (int64_t l = 0; l < depth; l++)
                s +=
                    (double)a[t->ta ? l * ac + i : i * ac + l] * b[t->tb ? j * bc + l : l * bc + j];
            y[i * n + j] = (float)s;
        }
    }
    return TRI_OK;
}

/* db[j] = acc[j] + sum over rows i of dy[i][j]. */
tri_status tri_ref_column_sum(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *dy = args->in[0], *acc = d->nin > 1 ? args->in[1] : NULL;
    float *db = args->out[0];
    int64_t m = tri_shape_rows(&d->in[0].shape), n = tri_shape_cols(&d->in[0].shape);

    for (int64_t j = 0; j < n; j++) {
        double s = acc ? acc[j] : 0;

        for (int64_t i = 0; i < m; i++)
            s += dy[i * n + j];
        db[j] = (float)s;
    }
    return TRI_OK;
}
