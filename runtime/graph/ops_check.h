/* What the files of the op table (ops_*.c) share: looking at inputs, checking them, and appending
 * backward ops. */
#ifndef TRI_RUNTIME_GRAPH_OPS_CHECK_H
#define TRI_RUNTIME_GRAPH_OPS_CHECK_H

#include "runtime/graph/graph.h"

/* Row of each kind, defined in the file of its family. */
#define X(kind, text) extern const struct tri_op_info tri_op_row_##kind;
TRI_OP_LIST(X)
#undef X

static inline bool tri_op_has(const struct tri_op *op, int i)
{
    return i < op->nin && op->in[i] != TRI_NONE;
}

static inline const struct tri_value *tri_op_in(const struct tri_graph *g, const struct tri_op *op,
                                                int i)
{
    return &g->value[op->in[i]];
}

static inline const struct tri_shape *tri_op_shape(const struct tri_graph *g,
                                                   const struct tri_op *op, int i)
{
    return &g->value[op->in[i]].shape;
}

/* TRI_ERR_USAGE: 'matmul "h.0.mlp": input 1 "w" is f32 [4, 8], needs ...'. Local. */
tri_status tri_op_refuse(const struct tri_graph *g, const struct tri_op *op, int i,
                         const char *needs, ...) TRI_PRINTF(4, 5);
/* TRI_ERR_USAGE about an attribute: 'dropout "drop": ...'. Local. */
tri_status tri_op_refuse_attr(const struct tri_op *op, const char *what, ...) TRI_PRINTF(2, 3);

/* Input i must be of that type (and shape, number of dims, or a vector of n). An absent optional
 * input passes. Local. */
tri_status tri_op_need_dtype(const struct tri_graph *g, const struct tri_op *op, int i,
                             enum tri_dtype t) TRI_CHECKED;
tri_status tri_op_need_shape(const struct tri_graph *g, const struct tri_op *op, int i,
                             enum tri_dtype t, const struct tri_shape *s) TRI_CHECKED;
tri_status tri_op_need_ndim(const struct tri_graph *g, const struct tri_op *op, int i,
                            enum tri_dtype t, int ndim) TRI_CHECKED;
tri_status tri_op_need_vector(const struct tri_graph *g, const struct tri_op *op, int i,
                              enum tri_dtype t, int64_t n) TRI_CHECKED;

/* Type of the inputs that the kind's half_in names: that of the first one given if it is bf16 or
 * f16, else f32. Local. */
enum tri_dtype tri_op_type(const struct tri_graph *g, const struct tri_op *op);

/* Shapes of 1, 2, 3 and 4 dims. Local. */
struct tri_shape tri_shape_1(int64_t a);
struct tri_shape tri_shape_2(int64_t a, int64_t b);
struct tri_shape tri_shape_3(int64_t a, int64_t b, int64_t c);
struct tri_shape tri_shape_4(int64_t a, int64_t b, int64_t c, int64_t d);
/* The same shape with another last dimension. Local. */
struct tri_shape tri_shape_with_cols(const struct tri_shape *s, int64_t cols);

/* Most common inference: one output like input 0. Local. */
tri_status tri_infer_like_first(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape) TRI_CHECKED;

/* Alias rules: output 0 may, or must, lie in input 0. Local. */
enum tri_alias tri_alias_may_first(const struct tri_graph *g, const struct tri_op *op, int o,
                                   int *input);
enum tri_alias tri_alias_must_first(const struct tri_graph *g, const struct tri_op *op, int o,
                                    int *input);
/* Output 0 must lie in the kind's acc input where it is given. Local. */
enum tri_alias tri_alias_acc(const struct tri_graph *g, const struct tri_op *op, int o, int *input);

/* Appends a backward op that bears the forward op's name; all outputs wanted. First output or
 * TRI_NONE with the graph's status set. Local. */
tri_vid tri_grad_op(struct tri_graph *g, const struct tri_op *forward, enum tri_op_kind kind,
                    const tri_vid *in, int nin, const struct tri_attrs *attrs);
/* Floating-point operations: `per` for each element of input 0. Local. */
double tri_flops_per_input(const struct tri_graph *g, const struct tri_op *op, double per);

#endif
