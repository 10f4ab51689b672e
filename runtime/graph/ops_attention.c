/* Causal attention over heads that lie side by side in the last dimension (the layout of GPT-2). */
#include "runtime/graph/ops_check.h"

/* Sizes of qkv [B, T, 3C]. */
struct heads {
    int64_t batch, time, width, count;
};

static tri_status check_qkv(const struct tri_graph *g, const struct tri_op *op, int i,
                            struct heads *h)
{
    const struct tri_shape *s = tri_op_shape(g, op, i);

    TRI_TRY(tri_op_need_ndim(g, op, i, tri_op_type(g, op), 3));
    h->count = op->attrs.attention.heads;
    if (h->count < 1 || s->dim[2] % (3 * h->count) != 0)
        return tri_op_refuse(g, op, i, "a width that is 3 times a multiple of %lld heads",
                             (long long)h->count);
    h->batch = s->dim[0];
    h->time = s->dim[1];
    h->width = s->dim[2] / 3;
    return TRI_OK;
}

/* Dropout of the probabilities draws its mask from the counters. */
static tri_status check_dropout(const struct tri_graph *g, const struct tri_op *op, int counters)
{
    double p = op->attrs.attention.p;

    if (!(p >= 0 && p < 1))
        return tri_op_refuse_attr(op, "probability %g is not in [0, 1)", p);
    if (p > 0 && !tri_op_has(op, counters))
        return tri_op_refuse_attr(op, "dropout needs the counters");
    return tri_op_need_vector(g, op, counters, TRI_I64, TRI_COUNTER_COUNT);
}

/* qkv, [counters] -> out, lse */
static tri_status infer_attention(const struct tri_graph *g, const struct tri_op *op,
                                  enum tri_dtype *dtype, struct tri_shape *shape)
{
    struct heads h = {0};

    TRI_TRY(check_qkv(g, op, 0, &h));
    TRI_TRY(check_dropout(g, op, 1));
    dtype[0] = tri_op_type(g, op);
    dtype[1] = TRI_F32;
    shape[0] = tri_shape_3(h.batch, h.time, h.width);
    shape[1] = tri_shape_3(h.batch, h.count, h.time);
    return TRI_OK;
}

static tri_status grad_attention(struct tri_graph *g, int32_t index, const int32_t *dout,
                                 const bool *need, const int32_t *acc, int32_t *din, uint32_t *used)
{
    const struct tri_op op = g->op[index];
    tri_vid in[] = {dout[0], op.in[0], op.out[0], op.out[1], op.nin > 1 ? op.in[1] : TRI_NONE};

    (void)acc;
    (void)used;
    if (need[0])
        din[0] = tri_grad_op(g, &op, TRI_OP_ATTENTION_GRAD, in, 5, &op.attrs);
    return tri_graph_status(g);
}

/* Two products of T x T x C a sample, half of it under the causal mask, and the softmax. */
static double flops_of_qkv(const struct tri_graph *g, const struct tri_op *op, int i, int products)
{
    const struct tri_shape *s = tri_op_shape(g, op, i);
    double t = (double)s->dim[1], c = (double)s->dim[2] / 3;
    double pairs = op->attrs.attention.causal ? t * (t + 1) / 2 : t * t;
    double softmax = 5 * pairs * (double)op->attrs.attention.heads;

    return (double)s->dim[0] * (2.0 * products * pairs * c + softmax);
}

static double flops_attention(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_of_qkv(g, op, 0, 2);
}

const struct tri_op_info tri_op_row_ATTENTION = {.name = "attention",
                                                 .min_in = 1,
                                                 .max_in = 2,
                                                 .optional_in = 1u << 1,
                                                 .nout = 2,
                                                 .diff_out = 1,
                                                 .half_in = 1,
                                                 .half_out = 1,
                                                 .infer = infer_attention,
                                                 .grad = grad_attention,
                                                 .flops = flops_attention};

/* dout, qkv, out, lse, [counters] -> dqkv */
static tri_status infer_attention_grad(const struct tri_graph *g, const struct tri_op *op,
                                       enum tri_dtype *dtype, struct tri_shape *shape)
{
    struct heads h = {0};
    struct tri_shape out, lse;

    TRI_TRY(check_qkv(g, op, 1, &h));
    TRI_TRY(check_dropout(g, op, 4));
    out = tri_shape_3(h.batch, h.time, h.width);
    lse = tri_shape_3(h.batch, h.count, h.time);
    TRI_TRY(tri_op_need_shape(g, op, 0, tri_op_type(g, op), &out));
    TRI_TRY(tri_op_need_shape(g, op, 2, tri_op_type(g, op), &out));
    TRI_TRY(tri_op_need_shape(g, op, 3, TRI_F32, &lse));
    dtype[0] = tri_op_type(g, op);
    shape[0] = *tri_op_shape(g, op, 1);
    return TRI_OK;
}

/* The scores once more, dV, dP, dQ and dK. */
static double flops_attention_grad(const struct tri_graph *g, const struct tri_op *op)
{
    return flops_of_qkv(g, op, 1, 5);
}

const struct tri_op_info tri_op_row_ATTENTION_GRAD = {.name = "attention_grad",
                                                      .min_in = 4,
                                                      .max_in = 5,
                                                      .optional_in = 1u << 4,
                                                      .nout = 1,
                                                      .half_in = 7,
                                                      .half_out = 1,
                                                      .infer = infer_attention_grad,
                                                      .flops = flops_attention_grad};

/* qkv, kcache, vcache, offset -> out, kcache', vcache' */
static tri_status infer_attention_cached(const struct tri_graph *g, const struct tri_op *op,
                                         enum tri_dtype *dtype, struct tri_shape *shape)
{
    struct heads h = {0};
    const struct tri_shape *cache = tri_op_shape(g, op, 1);

    TRI_TRY(check_qkv(g, op, 0, &h));
    TRI_TRY(tri_op_need_ndim(g, op, 1, TRI_F32, 3));
    if (cache->dim[0] != h.batch || cache->dim[1] < h.time || cache->dim[2] != h.width)
        return tri_op_refuse(g, op, 1, "[%lld, at least %lld, %lld]", (long long)h.batch,
                             (long long)h.time, (long long)h.width);
    TRI_TRY(tri_op_need_shape(g, op, 2, TRI_F32, cache));
    TRI_TRY(tri_op_need_vector(g, op, 3, TRI_I32, 1));
    dtype[0] = dtype[1] = dtype[2] = TRI_F32;
    shape[0] = tri_shape_3(h.batch, h.time, h.width);
    shape[1] = shape[2] = *cache;
    return TRI_OK;
}

static enum tri_alias alias_attention_cached(const struct tri_graph *g, const struct tri_op *op,
                                             int o, int *input)
{
    (void)g;
    (void)op;
    *input = o;
    return o == 0 ? TRI_ALIAS_NO : TRI_ALIAS_MUST;
}

/* An upper bound: as if the whole cache were filled. */
static double flops_attention_cached(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_shape *qkv = tri_op_shape(g, op, 0);

    return 4.0 * (double)tri_shape_count(qkv) / 3 * (double)tri_op_shape(g, op, 1)->dim[1];
}

const struct tri_op_info tri_op_row_ATTENTION_CACHED = {.name = "attention_cached",
                                                        .min_in = 4,
                                                        .max_in = 4,
                                                        .nout = 3,
                                                        .side_effect = true,
                                                        .infer = infer_attention_cached,
                                                        .flops = flops_attention_cached,
                                                        .alias = alias_attention_cached};
