/* Shapes of values: up to six dimensions, plain data, row-major, the last dimension contiguous. */
#ifndef TRI_RUNTIME_GRAPH_SHAPE_H
#define TRI_RUNTIME_GRAPH_SHAPE_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_MAX_DIMS 6

struct tri_shape {
    int ndim;                  /* 0: a scalar, one element */
    int64_t dim[TRI_MAX_DIMS]; /* 0 beyond ndim */
};

/* Copies ndim (at most TRI_MAX_DIMS) dimensions. Local. */
struct tri_shape tri_shape_make(int ndim, const int64_t *dim);
int64_t tri_shape_count(const struct tri_shape *s);
bool tri_shape_equal(const struct tri_shape *a, const struct tri_shape *b);
/* "[4, 256, 768]" into buf, cut to fit; returns buf. TRI_SHAPE_TEXT bytes hold every sane shape. */
#define TRI_SHAPE_TEXT 96
const char *tri_shape_text(const struct tri_shape *s, char *buf, size_t bytes);
/* Product of all dims but the last, and the last: the matrix view of a tensor.
 * A scalar is 1 x 1. */
int64_t tri_shape_rows(const struct tri_shape *s);
int64_t tri_shape_cols(const struct tri_shape *s);

TRI_END_DECLS
#endif
