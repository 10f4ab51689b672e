/* Table look-up of tokens and positions. */
#include "runtime/graph/ops_check.h"

enum { IDS, TABLE, POSITIONS, OFFSET };

static tri_status infer_embedding(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *ids = tri_op_shape(g, op, IDS);
    enum tri_dtype type = tri_op_type(g, op);
    int64_t width;

    TRI_TRY(tri_op_need_ndim(g, op, IDS, TRI_I32, 2));
    TRI_TRY(tri_op_need_ndim(g, op, TABLE, type, 2));
    TRI_TRY(tri_op_need_ndim(g, op, POSITIONS, type, 2));
    TRI_TRY(tri_op_need_vector(g, op, OFFSET, TRI_I32, 1));
    width = tri_op_shape(g, op, TABLE)->dim[1];
    if (tri_op_has(op, POSITIONS)) {
        const struct tri_shape *p = tri_op_shape(g, op, POSITIONS);

        if (p->dim[0] < ids->dim[1] || p->dim[1] != width)
            return tri_op_refuse(g, op, POSITIONS, "[at least %lld, %lld]", (long long)ids->dim[1],
                                 (long long)width);
    }
    dtype[0] = type;
    shape[0] = tri_shape_3(ids->dim[0], ids->dim[1], width);
    return TRI_OK;
}

static tri_status grad_embedding(struct tri_graph *g, int32_t index, const int32_t *dout,
                                 const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    struct tri_attrs attrs = {0};

    if (tri_op_has(&op, OFFSET))
        return tri_fail(TRI_ERR_INTERNAL, "embedding \"%s\": no gradient with an offset", op.name);
    if (tri_op_has(&op, POSITIONS) && need[POSITIONS]) {
        attrs.rows = tri_op_shape(g, &op, POSITIONS)->dim[0];
        din[POSITIONS] = tri_grad_op(g, &op, TRI_OP_POSITION_GRAD, dout, 1, &attrs);
    }
    if (need[TABLE]) {
        attrs.rows = tri_op_shape(g, &op, TABLE)->dim[0];
        din[TABLE] = tri_grad_op(g, &op, TRI_OP_EMBEDDING_GRAD,
                                 (tri_vid[]){op.in[IDS], dout[0], acc[TABLE]}, 3, &attrs);
        if (acc[TABLE] != TRI_NONE)
            *used |= 1u << TABLE;
    }
    return tri_graph_status(g);
}

const struct tri_op_info tri_op_row_EMBEDDING = {.name = "embedding",
                                                 .min_in = 2,
                                                 .max_in = 4,
                                                 .optional_in = 1u << POSITIONS | 1u << OFFSET,
                                                 .nout = 1,
                                                 .diff_out = 1,
                                                 .half_in = 1u << TABLE | 1u << POSITIONS,
                                                 .half_out = 1,
                                                 .infer = infer_embedding,
                                                 .grad = grad_embedding};

/* ids, dy, [acc] -> dtable */
static tri_status infer_embedding_grad(const struct tri_graph *g, const struct tri_op *op,
                                       enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *ids = tri_op_shape(g, op, 0);
    const struct tri_shape *dy = tri_op_shape(g, op, 1);

    TRI_TRY(tri_op_need_ndim(g, op, 0, TRI_I32, 2));
    TRI_TRY(tri_op_need_ndim(g, op, 1, tri_op_type(g, op), 3));
    if (dy->dim[0] != ids->dim[0] || dy->dim[1] != ids->dim[1])
        return tri_op_refuse(g, op, 1, "[%lld, %lld, C]", (long long)ids->dim[0],
                             (long long)ids->dim[1]);
    if (op->attrs.rows < 1)
        return tri_op_refuse_attr(op, "table of %lld rows", (long long)op->attrs.rows);
    dtype[0] = TRI_F32;
    shape[0] = tri_shape_2(op->attrs.rows, dy->dim[2]);
    return tri_op_need_shape(g, op, 2, TRI_F32, &shape[0]);
}

static double flops_embedding_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return (double)tri_shape_count(tri_op_shape(g, op, 1));
}

const struct tri_op_info tri_op_row_EMBEDDING_GRAD = {.name = "embedding_grad",
                                                      .min_in = 2,
                                                      .max_in = 3,
                                                      .optional_in = 1u << 2,
                                                      .nout = 1,
                                                      .acc_in = 2,
                                                      .half_in = 1u << 1,
                                                      .infer = infer_embedding_grad,
                                                      .flops = flops_embedding_grad,
                                                      .alias = tri_alias_acc};

static tri_status infer_position_grad(const struct tri_graph *g, const struct tri_op *op,
                                      enum tri_dtype *dtype, struct tri_shape *shape)
{
    const struct tri_shape *dy = tri_op_shape(g, op, 0);

    TRI_TRY(tri_op_need_ndim(g, op, 0, tri_op_type(g, op), 3));
    if (op->attrs.rows < dy->dim[1])
        return tri_op_refuse_attr(op, "%lld positions for %lld", (long long)op->attrs.rows,
                                  (long long)dy->dim[1]);
    dtype[0] = TRI_F32;
    shape[0] = tri_shape_2(op->attrs.rows, dy->dim[2]);
    return TRI_OK;
}

static double flops_position_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return tri_flops_per_input(g, op, 1);
}

const struct tri_op_info tri_op_row_POSITION_GRAD = {.name = "position_grad",
                                                     .min_in = 1,
                                                     .max_in = 1,
                                                     .nout = 1,
                                                     .half_in = 1,
                                                     .infer = infer_position_grad,
                                                     .flops = flops_position_grad};
