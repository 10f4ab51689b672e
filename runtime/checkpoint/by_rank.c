/* Tensors by rank (checkpoint.h): a row for each rank, whose sum is what counts. */
#include "runtime/checkpoint/by_rank.h"

#include "runtime/checkpoint/folder.h"
#include "runtime/core/memory.h"

#include <string.h>

bool tri_by_rank_fits(const struct tri_checkpoint_tensor *t, const struct tri_manifest_tensor *s)
{
    if (s->dtype != t->dtype || s->shape.ndim != t->shape.ndim || s->shape.dim[0] < 1)
        return false;
    for (int d = 1; d < t->shape.ndim; d++)
        if (s->shape.dim[d] != t->shape.dim[d])
            return false;
    return true;
}

/* t->data = sum over rows of n elements each / number of t's rows. */
static void spread(const float *rows, int64_t nrows, int64_t n,
                   const struct tri_checkpoint_tensor *t)
{
    float *out = t->data;

    for (int64_t i = 0; i < t->count; i++) {
        double sum = 0;

        for (int64_t r = 0; r < nrows; r++)
            sum += (double)rows[r * n + t->first % n + i];
        out[i] = (float)(sum / (double)t->shape.dim[0]);
    }
}

tri_status tri_by_rank_read(int fd, const char *path, const struct tri_manifest_tensor *s,
                            const struct tri_checkpoint_tensor *t)
{
    int64_t nrows = s->shape.dim[0], n = tri_shape_count(&s->shape) / nrows;
    float *rows = tri_calloc((size_t)(nrows * n) + 1, sizeof(*rows), "state by rank");
    uint64_t hash = 0;
    tri_status st = TRI_OK;

    if (rows == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate '%s' of %lld ranks", t->name,
                        (long long)nrows);
    TRI_TRY_GOTO(st, tri_stored_hash(fd, path, s, rows, &hash), free_rows);
    if (hash != s->checksum)
        st = tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: the checksum of '%s' is wrong", path,
                      t->name);
    else if (nrows == t->shape.dim[0])
        memcpy(t->data, rows + t->first, (size_t)t->count * sizeof(*rows));
    else
        spread(rows, nrows, n, t);

free_rows:
    tri_free(rows);
    return st;
}
