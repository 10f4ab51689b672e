#include "runtime/graph/shape.h"

#include <inttypes.h>
#include <stdio.h>

struct tri_shape tri_shape_make(int ndim, const int64_t *dim)
{
    struct tri_shape s = {0};

    TRI_ASSERT(ndim >= 0 && ndim <= TRI_MAX_DIMS);
    s.ndim = ndim;
    for (int i = 0; i < ndim; i++)
        s.dim[i] = dim[i];
    return s;
}

int64_t tri_shape_count(const struct tri_shape *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->ndim; i++)
        n *= s->dim[i];
    return n;
}

bool tri_shape_equal(const struct tri_shape *a, const struct tri_shape *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->dim[i] != b->dim[i])
            return false;
    }
    return true;
}

const char *tri_shape_text(const struct tri_shape *s, char *buf, size_t bytes)
{
    size_t at = 0;

    if (bytes == 0)
        return "";
    buf[0] = '\0';
    for (int i = -1; i <= s->ndim && at < bytes; i++) {
        int n = 0;

        if (i < 0)
            n = snprintf(buf + at, bytes - at, "[");
        else if (i == s->ndim)
            n = snprintf(buf + at, bytes - at, "]");
        else
            n = snprintf(buf + at, bytes - at, "%s%" PRId64, i > 0 ? ", " : "", s->dim[i]);
        at += (size_t)n;
    }
    return buf;
}

int64_t tri_shape_cols(const struct tri_shape *s)
{
    return s->ndim == 0 ? 1 : s->dim[s->ndim - 1];
}

int64_t tri_shape_rows(const struct tri_shape *s)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < s->ndim; i++)
        n *= s->dim[i];
    return n;
}
