/* Ops that move no data: other views of the same memory. */
#include "runtime/graph/ops_check.h"

static double flops_none(const struct tri_graph *g, const struct tri_op *op)
{
    (void)g;
    (void)op;
    return 0;
}

static tri_status infer_reshape(const struct tri_graph *g, const struct tri_op *op,
                                enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *to = &op->attrs.view.shape;
    char text[TRI_SHAPE_TEXT];

    if (tri_shape_count(tri_op_shape(g, op, 0)) != tri_shape_count(to))
        return tri_op_refuse(g, op, 0, "as many elements as %s",
                             tri_shape_text(to, text, sizeof(text)));
    dtype[0] = tri_op_in(g, op, 0)->dtype;
    shape[0] = *to;
    return TRI_OK;
}

static tri_status grad_reshape(struct tri_graph *g, int32_t index, const int32_t *dout,
                               const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs attrs = {.view = {.shape = *tri_op_shape(g, &op, 0)}};

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_RESHAPE, dout, 1, &attrs);
    return tri_graph_status(g);
}

const struct tri_op_info tri_op_row_RESHAPE = {.name = "reshape",
                                               .min_in = 1,
                                               .max_in = 1,
                                               .nout = 1,
                                               .diff_out = 1,
                                               .no_kernel = true,
                                               .infer = infer_reshape,
                                               .grad = grad_reshape,
                                               .flops = flops_none,
                                               .alias = tri_alias_must_first};

static tri_status infer_pack(const struct tri_graph *g, const struct tri_op *op,
                             enum tri_dtype *dtype, struct tri_shape *shape)
{
    int64_t end = 0;

    dtype[0] = tri_op_in(g, op, 0)->dtype;
    for (int i = 0; i < op->nin; i++) {
        TRI_TRY(tri_op_need_dtype(g, op, i, dtype[0]));
        end = tri_pack_next(end, dtype[0]) + tri_shape_count(tri_op_shape(g, op, i));
    }
    shape[0] = tri_shape_1(end);
    return TRI_OK;
}

const struct tri_op_info tri_op_row_PACK = {.name = "pack",
                                            .min_in = 1,
                                            .max_in = -1,
                                            .nout = 1,
                                            .no_kernel = true,
                                            .infer = infer_pack,
                                            .flops = flops_none,
                                            .alias = tri_alias_must_first};

static tri_status infer_view(const struct tri_graph *g, const struct tri_op *op,
                             enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_attr_view *view = &op->attrs.view;
    int64_t end = view->offset + tri_shape_count(&view->shape);

    if (view->offset < 0 || end > tri_shape_count(tri_op_shape(g, op, 0)))
        return tri_op_refuse(g, op, 0, "elements %lld to %lld", (long long)view->offset,
                             (long long)end);
    dtype[0] = tri_op_in(g, op, 0)->dtype;
    shape[0] = view->shape;
    return TRI_OK;
}

const struct tri_op_info tri_op_row_VIEW = {.name = "view",
                                            .min_in = 1,
                                            .max_in = 1,
                                            .nout = 1,
                                            .no_kernel = true,
                                            .infer = infer_view,
                                            .flops = flops_none,
                                            .alias = tri_alias_must_first};
