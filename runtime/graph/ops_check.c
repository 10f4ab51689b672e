#include "runtime/graph/ops_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 256

tri_status tri_op_refuse(const struct tri_graph *g, const struct tri_op *op, int i,
                         const char *needs, ...)
{
    char text[TEXT_BYTES];
    char shape[TRI_SHAPE_TEXT];
    const struct tri_value *v = tri_op_in(g, op, i);
    va_list ap;

    va_start(ap, needs);
    vsnprintf(text, sizeof(text), needs, ap);
    va_end(ap);
    return tri_fail(TRI_ERR_USAGE, "%s \"%s\": input %d \"%s\" is %s %s, needs %s",
                    tri_op_name(op->kind), op->name, i, v->name, tri_dtype_name(v->dtype),
                    tri_shape_text(&v->shape, shape, sizeof(shape)), text);
}

tri_status tri_op_refuse_attr(const struct tri_op *op, const char *what, ...)
{
    char text[TEXT_BYTES];
    va_list ap;

    va_start(ap, what);
    vsnprintf(text, sizeof(text), what, ap);
    va_end(ap);
    return tri_fail(TRI_ERR_USAGE, "%s \"%s\": %s", tri_op_name(op->kind), op->name, text);
}

tri_status tri_op_need_dtype(const struct tri_graph *g, const struct tri_op *op, int i,
                             enum tri_dtype t)
{
    if (!tri_op_has(op, i) || tri_op_in(g, op, i)->dtype == t)
        return TRI_OK;
    return tri_op_refuse(g, op, i, "%s", tri_dtype_name(t));
}

tri_status tri_op_need_shape(const struct tri_graph *g, const struct tri_op *op, int i,
                             enum tri_dtype t, const struct tri_shape *s)
{
    char shape[TRI_SHAPE_TEXT];

    if (!tri_op_has(op, i))
        return TRI_OK;
    if (tri_op_in(g, op, i)->dtype == t && tri_shape_equal(tri_op_shape(g, op, i), s))
        return TRI_OK;
    return tri_op_refuse(g, op, i, "%s %s", tri_dtype_name(t),
                         tri_shape_text(s, shape, sizeof(shape)));
}

tri_status tri_op_need_ndim(const struct tri_graph *g, const struct tri_op *op, int i,
                            enum tri_dtype t, int ndim)
{
    if (!tri_op_has(op, i))
        return TRI_OK;
    if (tri_op_in(g, op, i)->dtype == t && tri_op_shape(g, op, i)->ndim == ndim)
        return TRI_OK;
    return tri_op_refuse(g, op, i, "%s with %d dimensions", tri_dtype_name(t), ndim);
}

tri_status tri_op_need_vector(const struct tri_graph *g, const struct tri_op *op, int i,
                              enum tri_dtype t, int64_t n)
{
    struct tri_shape s = tri_shape_1(n);

    return tri_op_need_shape(g, op, i, t, &s);
}

enum tri_dtype tri_op_type(const struct tri_graph *g, const struct tri_op *op)
{
    uint32_t mask = tri_op_info(op->kind)->half_in;

    for (int i = 0; i < op->nin; i++)
        if ((mask >> i & 1) != 0 && tri_op_has(op, i))
            return tri_dtype_is_half(tri_op_in(g, op, i)->dtype) ? tri_op_in(g, op, i)->dtype
                                                                 : TRI_F32;
    return TRI_F32;
}

struct tri_shape tri_shape_1(int64_t a)
{
    return tri_shape_make(1, &a);
}

struct tri_shape tri_shape_2(int64_t a, int64_t b)
{
    return tri_shape_make(2, (const int64_t[]){a, b});
}

struct tri_shape tri_shape_3(int64_t a, int64_t b, int64_t c)
{
    return tri_shape_make(3, (const int64_t[]){a, b, c});
}

struct tri_shape tri_shape_4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tri_shape_make(4, (const int64_t[]){a, b, c, d});
}

struct tri_shape tri_shape_with_cols(const struct tri_shape *s, int64_t cols)
{
    struct tri_shape t = *s;

    if (t.ndim == 0)
        t.ndim = 1;
    t.dim[t.ndim - 1] = cols;
    return t;
}

tri_status tri_infer_like_first(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    dtype[0] = tri_op_in(g, op, 0)->dtype;
    shape[0] = *tri_op_shape(g, op, 0);
    return TRI_OK;
}

enum tri_alias tri_alias_may_first(const struct tri_graph *g, const struct tri_op *op, int o,
                                   int *input)
{
    (void)g;
    (void)op;
    *input = 0;
    return o == 0 ? TRI_ALIAS_MAY : TRI_ALIAS_NO;
}

enum tri_alias tri_alias_must_first(const struct tri_graph *g, const struct tri_op *op, int o,
                                    int *input)
{
    (void)g;
    (void)op;
    *input = 0;
    return o == 0 ? TRI_ALIAS_MUST : TRI_ALIAS_NO;
}

enum tri_alias tri_alias_acc(const struct tri_graph *g, const struct tri_op *op, int o, int *input)
{
    (void)g;
    *input = tri_op_info(op->kind)->acc_in;
    return o == 0 && tri_op_has(op, *input) ? TRI_ALIAS_MUST : TRI_ALIAS_NO;
}

tri_vid tri_grad_op(struct tri_graph *g, const struct tri_op *forward, enum tri_op_kind kind,
                    const tri_vid *in, int nin, const struct tri_attrs *attrs)
{
    return tri_graph_op1(g, kind, forward->name, in, nin, attrs);
}

double tri_flops_per_input(const struct tri_graph *g, const struct tri_op *op, double per)
{
    return per * (double)tri_shape_count(tri_op_shape(g, op, 0));
}
