/* The layers of builder.h. */
#include "models/builder.h"

#include "runtime/core/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define NORM_EPS 1e-5

struct tri_shape tri_shape_list(const int64_t *dim, size_t n)
{
    return tri_shape_make((int)n, dim);
}

const char *tri_name(struct tri_builder *b, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return tri_pool_strdup(&b->graph->pool, text);
}

tri_vid tri_input(struct tri_builder *b, const char *name, enum tri_dtype dtype,
                  struct tri_shape shape)
{
    tri_vid v = tri_graph_find(b->graph, name);

    return v != TRI_NONE ? v : tri_graph_input(b->graph, name, dtype, shape);
}

tri_vid tri_param(struct tri_builder *b, const char *name, struct tri_shape shape,
                  struct tri_init init)
{
    tri_vid v = tri_graph_find(b->graph, name);

    if (v == TRI_NONE)
        return tri_graph_param(b->graph, name, shape, init);
    if (!tri_shape_equal(&b->graph->value[v].shape, &shape) && b->graph->status == TRI_OK)
        b->graph->status = tri_fail(TRI_ERR_USAGE, "parameter '%s' is used with two shapes", name);
    return v;
}

static int64_t last_dim(const struct tri_builder *b, tri_vid x)
{
    return x == TRI_NONE ? 1 : tri_shape_cols(&b->graph->value[x].shape);
}

static tri_vid product(struct tri_builder *b, tri_vid x, const char *name, tri_vid weight,
                       tri_vid bias, bool tb)
{
    return tri_graph_op1(b->graph, TRI_OP_MATMUL, name, (tri_vid[]){x, weight, bias, TRI_NONE}, 4,
                         &(struct tri_attrs){.matmul = {.tb = tb}});
}

tri_vid tri_linear(struct tri_builder *b, tri_vid x, const char *name, int64_t out)
{
    int64_t in = last_dim(b, x);
    struct tri_init init = {.kind = TRI_INIT_UNIFORM, .a = (float)(1 / sqrt((double)in))};
    tri_vid w = tri_param(b, tri_name(b, "%s.weight", name), TRI_SHAPE(out, in), init);
    tri_vid c = tri_param(b, tri_name(b, "%s.bias", name), TRI_SHAPE(out), init);

    return product(b, x, name, w, c, true);
}

tri_vid tri_linear_conv1d(struct tri_builder *b, tri_vid x, const char *name, int64_t out,
                          float std)
{
    int64_t in = last_dim(b, x);
    tri_vid w = tri_param(b, tri_name(b, "%s.weight", name), TRI_SHAPE(in, out),
                          (struct tri_init){.kind = TRI_INIT_NORMAL, .a = std});
    tri_vid c = tri_param(b, tri_name(b, "%s.bias", name), TRI_SHAPE(out),
                          (struct tri_init){.kind = TRI_INIT_ZERO});

    return product(b, x, name, w, c, false);
}

tri_vid tri_linear_tied(struct tri_builder *b, tri_vid x, const char *name, tri_vid table)
{
    return product(b, x, name, table, TRI_NONE, true);
}

/* <name>.weight = 1 and <name>.bias = 0 over C channels. */
static void gain_and_bias(struct tri_builder *b, const char *name, int64_t C, tri_vid *gamma,
                          tri_vid *beta)
{
    *gamma = tri_param(b, tri_name(b, "%s.weight", name), TRI_SHAPE(C),
                       (struct tri_init){.kind = TRI_INIT_ONE});
    *beta = tri_param(b, tri_name(b, "%s.bias", name), TRI_SHAPE(C),
                      (struct tri_init){.kind = TRI_INIT_ZERO});
}

tri_vid tri_layernorm(struct tri_builder *b, tri_vid x, const char *name)
{
    struct tri_attrs attrs = {.norm = {.eps = NORM_EPS}};
    tri_vid gamma, beta;
    int32_t op;

    gain_and_bias(b, name, last_dim(b, x), &gamma, &beta);
    op = tri_graph_op(b->graph, TRI_OP_LAYERNORM, name, (tri_vid[]){x, gamma, beta, TRI_NONE}, 4,
                      &attrs, 0x7);
    return op == TRI_NONE ? TRI_NONE : b->graph->op[op].out[0];
}

tri_vid tri_batchnorm(struct tri_builder *b, tri_vid x, const char *name)
{
    struct tri_attrs attrs = {.norm = {.eps = NORM_EPS}};
    int64_t C = last_dim(b, x);
    tri_vid gamma, beta, mean, var, nreal;
    int32_t op;

    gain_and_bias(b, name, C, &gamma, &beta);
    mean = tri_graph_state(b->graph, tri_name(b, "%s.running_mean", name), TRI_F32, TRI_SHAPE(C),
                           (struct tri_init){.kind = TRI_INIT_ZERO});
    var = tri_graph_state(b->graph, tri_name(b, "%s.running_var", name), TRI_F32, TRI_SHAPE(C),
                          (struct tri_init){.kind = TRI_INIT_ONE});
    if (mean == TRI_NONE || var == TRI_NONE)
        return TRI_NONE;
    b->graph->value[mean].buffer = b->graph->value[var].buffer = true;
    if (!b->training)
        return tri_graph_op1(b->graph, TRI_OP_BATCHNORM_INFER, name,
                             (tri_vid[]){x, gamma, beta, mean, var, TRI_NONE}, 6, &attrs);
    nreal = tri_input(b, "nreal", TRI_I32, TRI_SHAPE(1));
    op = tri_graph_op(b->graph, TRI_OP_BATCHNORM, name,
                      (tri_vid[]){x, gamma, beta, nreal, TRI_NONE}, 5, &attrs, 0xf);
    if (op == TRI_NONE)
        return TRI_NONE;
    tri_graph_add_sum(b->graph, TRI_SUM_MOMENTS, b->graph->op[op].out[3], mean, var);
    return b->graph->op[op].out[0];
}

tri_vid tri_conv2d(struct tri_builder *b, tri_vid x, const char *name, int64_t out, int64_t k,
                   int64_t stride, int64_t pad)
{
    float std = (float)sqrt(2.0 / (double)(k * k * out));
    tri_vid w = tri_param(b, tri_name(b, "%s.weight", name), TRI_SHAPE(out, last_dim(b, x), k, k),
                          (struct tri_init){.kind = TRI_INIT_NORMAL, .a = std});
    struct tri_attrs attrs = {.window = {.kh = k, .kw = k, .stride = stride, .pad = pad}};

    return tri_graph_op1(b->graph, TRI_OP_CONV2D, name, (tri_vid[]){x, w, TRI_NONE}, 3, &attrs);
}

tri_vid tri_maxpool(struct tri_builder *b, tri_vid x, int64_t k, int64_t stride, int64_t pad)
{
    struct tri_attrs attrs = {.window = {.kh = k, .kw = k, .stride = stride, .pad = pad}};

    return tri_graph_op1(b->graph, TRI_OP_MAXPOOL, "maxpool", &x, 1, &attrs);
}

tri_vid tri_avgpool(struct tri_builder *b, tri_vid x)
{
    return tri_graph_op1(b->graph, TRI_OP_AVGPOOL, "avgpool", &x, 1, NULL);
}

tri_vid tri_relu(struct tri_builder *b, tri_vid x)
{
    return tri_graph_op1(b->graph, TRI_OP_RELU, "relu", &x, 1, NULL);
}

tri_vid tri_gelu(struct tri_builder *b, tri_vid x)
{
    return tri_graph_op1(b->graph, TRI_OP_GELU, "gelu", &x, 1, NULL);
}

tri_vid tri_add(struct tri_builder *b, tri_vid x, tri_vid y)
{
    return tri_graph_op1(b->graph, TRI_OP_ADD, "add", (tri_vid[]){x, y}, 2, NULL);
}

/* The STATE "counters", whose step keys all randomness of the graph. */
static tri_vid counters(struct tri_builder *b)
{
    struct tri_graph *g = b->graph;

    if (g->counters == TRI_NONE)
        g->counters = tri_graph_state(g, "counters", TRI_I64, TRI_SHAPE(TRI_COUNTER_COUNT),
                                      (struct tri_init){.kind = TRI_INIT_ZERO});
    return g->counters;
}

tri_vid tri_dropout(struct tri_builder *b, tri_vid x, const char *name, double p)
{
    struct tri_attrs attrs = {.dropout = {.p = p, .stream = tri_hash_name(name), .seed = b->seed}};

    if (!b->training || p == 0)
        return x;
    return tri_graph_op1(b->graph, TRI_OP_DROPOUT, name, (tri_vid[]){x, counters(b)}, 2, &attrs);
}

tri_vid tri_reshape(struct tri_builder *b, tri_vid x, struct tri_shape shape)
{
    struct tri_attrs attrs = {.view = {.shape = shape}};

    return tri_graph_op1(b->graph, TRI_OP_RESHAPE, "reshape", &x, 1, &attrs);
}

tri_vid tri_flatten(struct tri_builder *b, tri_vid x)
{
    const struct tri_shape *s;

    if (x == TRI_NONE)
        return TRI_NONE;
    s = &b->graph->value[x].shape;
    return s->ndim == 2 ? x
                        : tri_reshape(b, x, TRI_SHAPE(s->dim[0], tri_shape_count(s) / s->dim[0]));
}

tri_vid tri_embedding(struct tri_builder *b, tri_vid ids, tri_vid table, tri_vid positions,
                      tri_vid offset)
{
    return tri_graph_op1(b->graph, TRI_OP_EMBEDDING, "embedding",
                         (tri_vid[]){ids, table, positions, offset}, 4, NULL);
}

tri_vid tri_attention(struct tri_builder *b, tri_vid qkv, const char *name, int64_t heads, double p)
{
    bool drop = b->training && p > 0;
    struct tri_attrs attrs = {.attention = {.heads = heads,
                                            .causal = true,
                                            .p = drop ? p : 0,
                                            .stream = tri_hash_name(name),
                                            .seed = b->seed}};

    return tri_graph_op1(b->graph, TRI_OP_ATTENTION, name,
                         (tri_vid[]){qkv, drop ? counters(b) : TRI_NONE}, 2, &attrs);
}

static void finish_loss(struct tri_builder *b, tri_vid prediction, tri_vid stats)
{
    b->graph->prediction = prediction;
    b->graph->loss_stats = stats;
    if (stats != TRI_NONE)
        tri_graph_add_sum(b->graph, TRI_SUM_STATS, stats, TRI_NONE, TRI_NONE);
}

void tri_loss_softmax(struct tri_builder *b, tri_vid logits, tri_vid targets)
{
    finish_loss(b, logits,
                tri_graph_op1(b->graph, TRI_OP_SOFTMAX_XENT, "loss", (tri_vid[]){logits, targets},
                              2, NULL));
}

void tri_loss_mse(struct tri_builder *b, tri_vid prediction, tri_vid y)
{
    tri_vid nreal = tri_input(b, "nreal", TRI_I32, TRI_SHAPE(1));

    finish_loss(
        b, prediction,
        tri_graph_op1(b->graph, TRI_OP_MSE, "loss", (tri_vid[]){prediction, y, nreal}, 3, NULL));
}
