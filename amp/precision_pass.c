/* One sweep over the ops in order: each op's type follows from the policy, its inputs are brought
 * to that type, its outputs get it. Casts are appended and then sorted to where they are first
 * read. */
#include "amp/precision_pass.h"

#include "amp/policy.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct precision {
    struct tri_graph *g;
    const struct tri_precision_spec *spec;
    int nop, nvalue;     /* of the graph as it came */
    bool *kept;          /* [nop] stays f32 by a pattern */
    bool *weight;        /* [nvalue] part of the gradient of a parameter */
    tri_vid *half, *f32; /* [nvalue] the value in that type, once made */
    int64_t *key;        /* [key_cap] order of ops; op i of before has 2 i + 1 */
    int64_t key_cap;
    tri_vid scale; /* STATE, or TRI_NONE */
};

static int match(const struct precision *p, const struct tri_op *op)
{
    int found = tri_policy_match(p->spec->keep_fp32, p->spec->nkeep, op->name);

    for (int k = 0; k < op->nin && found < 0; k++)
        if (op->in[k] != TRI_NONE && p->g->value[op->in[k]].role == TRI_ROLE_PARAM)
            found =
                tri_policy_match(p->spec->keep_fp32, p->spec->nkeep, p->g->value[op->in[k]].name);
    return found;
}

/* Every pattern must take something; one behind another that takes the same is no mistake. */
static tri_status check_patterns(const struct precision *p)
{
    for (int i = 0; i < p->spec->nkeep; i++) {
        bool takes = false;

        for (int o = 0; o < p->nop && !takes; o++) {
            const struct tri_op *op = &p->g->op[o];

            takes = tri_policy_match(&p->spec->keep_fp32[i], 1, op->name) == 0;
            for (int k = 0; k < op->nin && !takes; k++)
                takes =
                    op->in[k] != TRI_NONE && p->g->value[op->in[k]].role == TRI_ROLE_PARAM &&
                    tri_policy_match(&p->spec->keep_fp32[i], 1, p->g->value[op->in[k]].name) == 0;
        }
        if (!takes)
            return tri_fail(TRI_ERR_USAGE,
                            "precision.keep_fp32: pattern '%s' takes no layer and no parameter",
                            p->spec->keep_fp32[i]);
    }
    return TRI_OK;
}

/* A layer is kept with its backward ops, which bear its name but may not read its parameter. */
static void mark_kept(struct precision *p)
{
    for (int i = 0; i < p->nop; i++)
        p->kept[i] = match(p, &p->g->op[i]) >= 0;
    for (int i = 0; i < p->nop; i++)
        for (int k = 0; k < p->nop && !p->kept[i]; k++)
            p->kept[i] = p->kept[k] && strcmp(p->g->op[i].name, p->g->op[k].name) == 0;
}

/* Walks back from the sums through additions and running totals. */
static void mark_weights(struct precision *p)
{
    const struct tri_graph *g = p->g;

    for (int s = 0; s < g->nsum; s++)
        if (g->sum[s].kind == TRI_SUM_GRAD)
            p->weight[g->sum[s].value] = true;
    for (int i = p->nop - 1; i >= 0; i--) {
        const struct tri_op *op = &g->op[i];
        int acc = tri_op_info(op->kind)->acc_in;

        if (op->nout == 0 || op->out[0] == TRI_NONE || !p->weight[op->out[0]])
            continue;
        if (acc > 0 && acc < op->nin && op->in[acc] != TRI_NONE)
            p->weight[op->in[acc]] = true;
        for (int k = 0; k < op->nin && (op->kind == TRI_OP_ADD || op->kind == TRI_OP_RESHAPE); k++)
            p->weight[op->in[k]] = true;
    }
}

/* Appends a CAST that belongs at `key`. */
static tri_vid cast_at(struct precision *p, const char *name, tri_vid v, enum tri_dtype to,
                       int32_t beside, int64_t key)
{
    struct tri_attrs attrs = {0};
    struct tri_graph *g = p->g;

    attrs.cast.to = to;
    g->phase = g->op[beside].phase;
    TRI_ASSERT(g->nop < p->key_cap);
    p->key[g->nop] = key;
    return tri_graph_op1(g, TRI_OP_CAST, name, &v, 1, &attrs);
}

tri_vid tri_precision_copy_of(const struct tri_graph *g, tri_vid v)
{
    char name[512];

    snprintf(name, sizeof(name), TRI_HALF_PREFIX "%s", g->value[v].name);
    return tri_graph_find(g, name);
}

static tri_vid make_copy(struct precision *p, tri_vid v)
{
    struct tri_graph *g = p->g;
    const char *name = tri_pool_printf(&g->pool, TRI_HALF_PREFIX "%s", g->value[v].name);
    struct tri_init zero = {.kind = TRI_INIT_ZERO};
    tri_vid copy = tri_graph_state(g, name, p->spec->compute, g->value[v].shape, zero);

    if (copy != TRI_NONE)
        g->value[copy].transient = true;
    return copy;
}

/* v in type t for op i, which reads it. */
static tri_vid typed(struct precision *p, int32_t i, tri_vid v, enum tri_dtype t)
{
    tri_vid *made = t == TRI_F32 ? &p->f32[v] : &p->half[v];

    if (p->g->value[v].dtype == t)
        return v;
    if (*made == TRI_NONE)
        *made = p->g->value[v].role == TRI_ROLE_PARAM
                    ? make_copy(p, v)
                    : cast_at(p, p->g->op[i].name, v, t, i, 2 * (int64_t)i);
    return *made;
}

static enum tri_dtype type_of(const struct precision *p, int32_t i)
{
    const struct tri_op *op = &p->g->op[i];

    switch (tri_policy_of(op->kind)) {
    case TRI_POLICY_HALF:
        return p->kept[i] ? TRI_F32 : p->spec->compute;
    case TRI_POLICY_WIDEST:
        for (int k = 0; k < op->nin; k++)
            if (!tri_dtype_is_half(p->g->value[op->in[k]].dtype))
                return p->g->value[op->in[k]].dtype;
        return p->kept[i] ? TRI_F32 : p->spec->compute;
    case TRI_POLICY_F32:
        break;
    }
    return TRI_F32;
}

/* Type that input k of an op of type t must have; TRI_DTYPE_COUNT: as it is. */
static enum tri_dtype input_type(const struct precision *p, const struct tri_op *op, int k,
                                 enum tri_dtype t)
{
    const struct tri_op_info *info = tri_op_info(op->kind);

    if (info->no_kernel || op->kind == TRI_OP_CAST)
        return TRI_DTYPE_COUNT;
    if ((info->half_in >> k & 1) != 0)
        return t;
    if (info->acc_in == k && k > 0 && op->kind == TRI_OP_MATMUL && !p->weight[op->out[0]])
        return t;
    return tri_dtype_is_half(p->g->value[op->in[k]].dtype) ? TRI_F32 : TRI_DTYPE_COUNT;
}

static tri_status add_scale(struct precision *p, int32_t i)
{
    struct tri_graph *g = p->g;
    struct tri_op *op = &g->op[i];
    int at = 3; /* input of SOFTMAX_XENT_GRAD and MSE_GRAD */
    tri_vid *in;
    double targets;

    if (p->scale == TRI_NONE ||
        (op->kind != TRI_OP_SOFTMAX_XENT_GRAD && op->kind != TRI_OP_MSE_GRAD))
        return TRI_OK;
    in = tri_pool_alloc(&g->pool, (size_t)(at + 1) * sizeof(*in));
    if (in == NULL)
        return tri_fail(TRI_ERR_NOMEM, "precision: cannot store op \"%s\"", op->name);
    memcpy(in, op->in, (size_t)at * sizeof(*in));
    in[at] = p->scale;
    op->in = in;
    op->nin = at + 1;
    targets = op->kind == TRI_OP_MSE_GRAD ? (double)g->value[in[1]].shape.dim[0]
                                          : (double)tri_shape_count(&g->value[in[1]].shape);
    op->attrs.loss.unit = exp2(-ceil(log2(targets * (double)p->spec->grains)));
    return TRI_OK;
}

static tri_status retype(struct precision *p, int32_t i)
{
    struct tri_graph *g = p->g;
    const struct tri_op_info *info = tri_op_info(g->op[i].kind);
    enum tri_dtype t = type_of(p, i);
    bool wide;

    TRI_TRY(add_scale(p, i));
    for (int k = 0; k < g->op[i].nin; k++) {
        enum tri_dtype want;
        tri_vid v;

        if (g->op[i].in[k] == TRI_NONE)
            continue;
        want = input_type(p, &g->op[i], k, t);
        if (want == TRI_DTYPE_COUNT || g->op[i].in[k] >= p->nvalue)
            continue;
        v = typed(p, i, g->op[i].in[k], want);
        if (v == TRI_NONE)
            return tri_graph_status(g);
        g->op[i].in[k] = v;
    }
    if (g->op[i].kind == TRI_OP_RESHAPE)
        g->value[g->op[i].out[0]].dtype = g->value[g->op[i].in[0]].dtype;
    wide = g->op[i].kind == TRI_OP_MATMUL && p->weight[g->op[i].out[0]];
    if (wide)
        g->op[i].attrs.matmul.wide = tri_dtype_is_half(t);
    for (int o = 0; o < g->op[i].nout && !wide; o++)
        if ((info->half_out >> o & 1) != 0 && g->op[i].out[o] != TRI_NONE)
            g->value[g->op[i].out[o]].dtype = t;
    return TRI_OK;
}

/* A gradient that no wide op made (that of a parameter which is added, say) is widened at once. */
static tri_status widen_sums(struct precision *p)
{
    struct tri_graph *g = p->g;

    for (int s = 0; s < g->nsum; s++) {
        tri_vid v = g->sum[s].value;
        int32_t from = g->value[v].producer;

        if (g->sum[s].kind == TRI_SUM_GRAD && tri_dtype_is_half(g->value[v].dtype))
            g->sum[s].value = cast_at(p, g->op[from].name, v, TRI_F32, from, 2 * (int64_t)from + 2);
    }
    return tri_graph_status(g);
}

static tri_status run(struct precision *p)
{
    enum tri_phase phase = p->g->phase;

    for (int i = 0; i < p->nop; i++)
        p->key[i] = 2 * (int64_t)i + 1;
    for (tri_vid v = 0; v < p->nvalue; v++)
        p->half[v] = p->f32[v] = TRI_NONE;
    TRI_TRY(check_patterns(p));
    mark_kept(p);
    mark_weights(p);
    p->scale = TRI_NONE;
    if (p->spec->initial_scale > 0)
        p->scale = tri_graph_state(
            p->g, TRI_LOSS_SCALE_STATE, TRI_F32, tri_shape_make(1, (const int64_t[]){1}),
            (struct tri_init){.kind = TRI_INIT_CONSTANT, .a = (float)p->spec->initial_scale});
    for (int32_t i = 0; i < p->nop; i++)
        TRI_TRY(retype(p, i));
    TRI_TRY(widen_sums(p));
    p->g->phase = phase;
    return tri_graph_order(p->g, p->key);
}

static tri_status run_tf32(struct precision *p)
{
    TRI_TRY(check_patterns(p));
    mark_kept(p);
    for (int i = 0; i < p->nop; i++) {
        struct tri_op *op = &p->g->op[i];

        if (p->kept[i])
            continue;
        if (op->kind == TRI_OP_MATMUL)
            op->attrs.matmul.tf32 = true;
        if (op->kind == TRI_OP_CONV2D || op->kind == TRI_OP_CONV2D_DX ||
            op->kind == TRI_OP_CONV2D_DW)
            op->attrs.window.tf32 = true;
    }
    return TRI_OK;
}

tri_status tri_pass_precision(struct tri_graph *g, const struct tri_precision_spec *spec)
{
    struct precision p = {.g = g, .spec = spec, .nop = g->nop, .nvalue = g->nvalue};
    size_t nop = (size_t)g->nop + 1, nvalue = (size_t)g->nvalue + 1;
    tri_status st;

    TRI_TRY(tri_graph_status(g));
    if (spec->compute == TRI_F32 && !spec->tf32)
        return TRI_OK;
    p.key_cap = (int64_t)(nop + 2 * nvalue + (size_t)g->nsum);
    p.kept = tri_calloc(nop, sizeof(*p.kept), "ops in f32");
    p.weight = tri_calloc(nvalue, sizeof(*p.weight), "gradients of parameters");
    p.half = tri_calloc(nvalue, sizeof(*p.half), "16-bit values");
    p.f32 = tri_calloc(nvalue, sizeof(*p.f32), "f32 values");
    p.key = tri_calloc((size_t)p.key_cap, sizeof(*p.key), "order of ops");
    if (p.kept == NULL || p.weight == NULL || p.half == NULL || p.f32 == NULL || p.key == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "precision: cannot look at %d ops", g->nop);
    else
        st = spec->compute == TRI_F32 ? run_tf32(&p) : run(&p);
    tri_free(p.kept);
    tri_free(p.weight);
    tri_free(p.half);
    tri_free(p.f32);
    tri_free(p.key);
    return st;
}

double tri_precision_unit(const struct tri_graph *g)
{
    for (int i = 0; i < g->nop; i++) {
        enum tri_op_kind kind = g->op[i].kind;

        if (kind == TRI_OP_SOFTMAX_XENT_FUSED || kind == TRI_OP_SOFTMAX_XENT_GRAD ||
            kind == TRI_OP_MSE_GRAD)
            return g->op[i].attrs.loss.unit > 0 ? g->op[i].attrs.loss.unit : 1;
    }
    return 1;
}

static bool touches_half(const struct tri_graph *g, const struct tri_op *op)
{
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] != TRI_NONE && tri_dtype_is_half(g->value[op->in[k]].dtype))
            return true;
    for (int k = 0; k < op->nout; k++)
        if (op->out[k] != TRI_NONE && tri_dtype_is_half(g->value[op->out[k]].dtype))
            return true;
    return false;
}

bool tri_precision_keeps(const struct tri_graph *g, tri_vid v)
{
    if (tri_precision_copy_of(g, v) != TRI_NONE)
        return false;
    for (int i = 0; i < g->nop; i++)
        for (int k = 0; k < g->op[i].nin; k++)
            if (g->op[i].in[k] == v && touches_half(g, &g->op[i]))
                return false;
    return true;
}

void tri_precision_round(enum tri_dtype type, const float *from, void *to, int64_t count)
{
    uint16_t *h = to;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        h[i] = type == TRI_BF16 ? tri_bf16_from_f32(from[i]) : tri_f16_from_f32(from[i]);
}
