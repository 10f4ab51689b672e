/* Reference embedding: rows of a table by id, plus learned positions (GPT-2). */
#include "runtime/kernels/ref/ref.h"

static tri_status check_ids(const int32_t *ids, int64_t n, int64_t vocab)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tri_fail(TRI_ERR_DATA, "embedding: id %d is outside 0 to %lld", (int)ids[i],
                            (long long)(vocab - 1));
    return TRI_OK;
}

/* y[b][t] = table[ids[b][t]] + positions[offset + t]. */
tri_status tri_ref_embedding(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const int32_t *ids = args->in[0];
    const float *table = args->in[1], *positions = d->nin > 2 ? args->in[2] : NULL;
    const int32_t *offset = d->nin > 3 ? args->in[3] : NULL;
    float *y = args->out[0];
    int64_t n = tri_ref_count(&d->in[0]), t = tri_shape_cols(&d->in[0].shape);
    int64_t vocab = d->in[1].shape.dim[0], c = d->in[1].shape.dim[1];

    TRI_TRY(check_ids(ids, n, vocab));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % t + (offset ? *offset : 0);

        if (positions && (at < 0 || at >= d->in[2].shape.dim[0]))
            return tri_fail(TRI_ERR_USAGE, "embedding: position %lld is outside 0 to %lld",
                            (long long)at, (long long)(d->in[2].shape.dim[0] - 1));
        for (int64_t j = 0; j < c; j++)
            y[i * c + j] = table[ids[i] * c + j] + (positions ? positions[at * c + j] : 0);
    }
    return TRI_OK;
}

/* dtable[v] = acc[v] + sum of dy over the tokens with id v, in their order. */
tri_status tri_ref_embedding_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const int32_t *ids = args->in[0];
    const float *dy = args->in[1], *acc = d->nin > 2 ? args->in[2] : NULL;
    float *dtable = args->out[0];
    int64_t n = tri_ref_count(&d->in[0]), c = tri_shape_cols(&d->in[1].shape);
    int64_t vocab = d->attrs.rows;

    TRI_TRY(check_ids(ids, n, vocab));
    for (int64_t v = 0; v < vocab; v++) {
        int64_t first = 0; /* most rows have no token at all */

        while (first < n && ids[first] != v)
            first++;
        for (int64_t j = 0; j < c; j++) {
            double s = acc ? acc[v * c + j] : 0;

            for (int64_t i = first; i < n; i++)
                s += ids[i] == v ? dy[i * c + j] : 0;
            dtable[v * c + j] = (float)s;
        }
    }
    return TRI_OK;
}

/* dpositions[t] = sum over samples of dy[b][t]; 0 beyond T. */
tri_status tri_ref_position_grad(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct tri_kernel_desc *d = tri_ref_desc(k);
    const float *dy = args->in[0];
    float *dpositions = args->out[0];
    int64_t batch = d->in[0].shape.dim[0], t = d->in[0].shape.dim[1], c = d->in[0].shape.dim[2];

    for (int64_t i = 0; i < d->attrs.rows; i++) {
        for (int64_t j = 0; j < c; j++) {
            double s = 0;

            for (int64_t b = 0; i < t && b < batch; b++)
                s += dy[(b * t + i) * c + j];
            dpositions[i * c + j] = (float)s;
        }
    }
    return TRI_OK;
}
