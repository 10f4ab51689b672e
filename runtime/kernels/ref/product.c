/* Reference products. One dot product in double per element, terms in index order. */
#include "runtime/kernels/ref/ref.h"

/* A product y[m][n] = op(a) op(b) over `depth` terms, op(m) = m or its transpose. */
struct product {
    const float *a, *b;
    int64_t m, n, depth, acols, bcols;
    bool ta, tb;
};

static struct product product_of(const struct tri_kernel_desc *d, void *const *in)
{
    const struct tri_attr_matmul *t = &d->attrs.matmul;
    int64_t arows = tri_shape_rows(&d->in[0].shape), brows = tri_shape_rows(&d->in[1].shape);
    struct product p = {.a = in[0],
                        .b = in[1],
                        .acols = tri_shape_cols(&d->in[0].shape),
                        .bcols = tri_shape_cols(&d->in[1].shape),
                        .ta = t->ta,
                        .tb = t->tb};

    p.m = t->ta ? p.acols : arows;
    p.depth = t->ta ? arows : p.acols;
    p.n = t->tb ? brows : p.bcols;
    return p;
}

/* s + element (i, j). */
static double product_at(const struct product *p, int64_t i, int64_t j, double s)
{
    for (int64_t l = 0; l < p->depth; l++)
        s += (double)p->a[p->ta ? l * p->acols + i : i * p->acols + l] *
             p->b[p->tb ? j * p->bcols + l : l * p->bcols + j];
    return s;
}

/* y = op(a) op(b) + bias + acc. */
tri_status tri_ref_matmul(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *bias = d->nin > 2 ? args->in[2] : NULL, *acc = d->nin > 3 ? args->in[3] : NULL;
    struct product p = product_of(d, args->in);
    float *y = args->out[0];

    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            double s = acc ? acc[i * p.n + j] : 0;

            y[i * p.n + j] = (float)product_at(&p, i, j, bias ? s + bias[j] : s);
        }
    }
    return TRI_OK;
}

/* x = op(a) op(b) + bias, y = gelu(x). */
tri_status tri_ref_matmul_gelu(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *bias = d->nin > 2 ? args->in[2] : NULL;
    struct product p = product_of(d, args->in);
    float *y = args->out[0], *x = d->nout > 1 ? args->out[1] : NULL;

    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            double s = product_at(&p, i, j, bias ? bias[j] : 0);

            if (x)
                x[i * p.n + j] = (float)s;
            y[i * p.n + j] = (float)tri_ref_gelu_of(s);
        }
    }
    return TRI_OK;
}

/* dx = gelu'(x) (op(a) op(b)). */
tri_status tri_ref_matmul_gelu_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    struct product p = product_of(tri_ref_desc(k), args->in);
    const float *x = args->in[2];
    float *dx = args->out[0];

    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            dx[i * p.n + j] = (float)(tri_ref_gelu_slope(x[i * p.n + j]) * product_at(&p, i, j, 0));
    return TRI_OK;
}

/* y = op(a) op(b) + acc; db[j] = acc[j] + sum over rows l of x[l][j], x = a or b. */
tri_status tri_ref_matmul_bgrad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *acc = d->nin > 2 ? args->in[2] : NULL;
    const float *bias_acc = d->nin > 3 ? args->in[3] : NULL;
    struct product p = product_of(d, args->in);
    const float *x = d->attrs.matmul.bgrad_a ? p.a : p.b;
    int64_t count = d->attrs.matmul.bgrad_a ? p.acols : p.bcols;
    float *y = args->out[0], *db = args->out[1];

    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            y[i * p.n + j] = (float)product_at(&p, i, j, acc ? acc[i * p.n + j] : 0);
    for (int64_t j = 0; j < count; j++) {
        double s = bias_acc ? bias_acc[j] : 0;

        for (int64_t l = 0; l < p.depth; l++)
            s += x[l * count + j];
        db[j] = (float)s;
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
