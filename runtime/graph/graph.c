/* Building graphs: growing arrays of values and ops, a hash table of the names that the outside
 * knows. */
#include "runtime/graph/graph.h"

#include "runtime/core/rng.h"

#include <string.h>

#define FIRST_CAP 64

tri_status tri_graph_create(struct tri_graph **out)
{
    struct tri_graph *g = tri_calloc(1, sizeof(*g), "graph");

    if (g == NULL)
        return tri_fail(TRI_ERR_NOMEM, "graph: cannot allocate %zu bytes", sizeof(*g));
    g->loss_stats = g->prediction = g->counters = g->scalars = TRI_NONE;
    g->grain = TRI_NONE;
    *out = g;
    return TRI_OK;
}

void tri_graph_destroy(struct tri_graph *g)
{
    if (g == NULL)
        return;
    tri_free(g->value);
    tri_free(g->op);
    tri_free(g->sum);
    tri_free(g->named);
    tri_pool_finish(&g->pool);
    tri_free(g);
}

tri_status tri_graph_status(const struct tri_graph *g)
{
    return g->status;
}

static bool failed(const struct tri_graph *g)
{
    return g->status != TRI_OK;
}

void tri_graph_fail(struct tri_graph *g, tri_status st)
{
    if (g->status == TRI_OK)
        g->status = st;
}

static bool grow(struct tri_graph *g, void **array, int *cap, size_t size, const char *what)
{
    int bigger = *cap == 0 ? FIRST_CAP : 2 * *cap;
    void *p = tri_realloc(*array, (size_t)bigger, size, what);

    if (p == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "graph: cannot hold %d %s", bigger, what));
        return false;
    }
    *array = p;
    *cap = bigger;
    return true;
}

/* Slot of `name`, or the free slot where it belongs. The table is never full. */
static size_t named_slot(const struct tri_graph *g, const char *name)
{
    size_t mask = (size_t)g->named_cap - 1;
    size_t at = (size_t)tri_mix64(tri_hash_name(name)) & mask;

    while (g->named[at] != TRI_NONE && strcmp(g->value[g->named[at]].name, name) != 0)
        at = (at + 1) & mask;
    return at;
}

static bool grow_named(struct tri_graph *g)
{
    int old_cap = g->named_cap;
    tri_vid *old = g->named;
    int cap = old_cap == 0 ? FIRST_CAP : 2 * old_cap;
    tri_vid *bigger = tri_calloc((size_t)cap, sizeof(*bigger), "names");

    if (bigger == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "graph: cannot hold %d names", cap));
        return false;
    }
    for (int i = 0; i < cap; i++)
        bigger[i] = TRI_NONE;
    g->named = bigger;
    g->named_cap = cap;
    for (int i = 0; i < old_cap; i++) {
        if (old[i] != TRI_NONE)
            bigger[named_slot(g, g->value[old[i]].name)] = old[i];
    }
    tri_free(old);
    return true;
}

/* Makes v findable under its name. */
static bool enter_name(struct tri_graph *g, tri_vid v)
{
    size_t at;

    if (2 * (g->nnamed + 1) > g->named_cap && !grow_named(g))
        return false;
    at = named_slot(g, g->value[v].name);
    if (g->named[at] != TRI_NONE) {
        tri_graph_fail(
            g, tri_fail(TRI_ERR_USAGE, "graph: the name \"%s\" is taken", g->value[v].name));
        return false;
    }
    g->named[at] = v;
    g->nnamed++;
    return true;
}

tri_vid tri_graph_find(const struct tri_graph *g, const char *name)
{
    return g->named_cap == 0 ? TRI_NONE : g->named[named_slot(g, name)];
}

static tri_status check_shape(const char *name, enum tri_dtype dtype, const struct tri_shape *s)
{
    char text[TRI_SHAPE_TEXT];
    size_t bytes = tri_dtype_bytes(dtype);

    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] <= 0)
            return tri_fail(TRI_ERR_USAGE, "value \"%s\": shape %s has an empty dimension", name,
                            tri_shape_text(s, text, sizeof(text)));
        TRI_TRY(tri_mul_size(bytes, (size_t)s->dim[i], name, &bytes));
    }
    return TRI_OK;
}

/* A value whose name already lies in the pool. */
static tri_vid append_value(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                            const struct tri_shape *shape, enum tri_role role)
{
    tri_status st = check_shape(name, dtype, shape);

    if (st != TRI_OK) {
        tri_graph_fail(g, st);
        return TRI_NONE;
    }
    if (g->nvalue == g->value_cap) {
        void *p = g->value;
        bool ok = grow(g, &p, &g->value_cap, sizeof(*g->value), "values");

        g->value = p;
        if (!ok)
            return TRI_NONE;
    }
    g->value[g->nvalue] = (struct tri_value){.name = name,
                                             .dtype = dtype,
                                             .shape = *shape,
                                             .role = role,
                                             .producer = TRI_NONE,
                                             .grain = TRI_NONE};
    if (role != TRI_ROLE_TEMP && !enter_name(g, g->nvalue))
        return TRI_NONE;
    return g->nvalue++;
}

static const char *pooled(struct tri_graph *g, const char *name)
{
    const char *copy = name == NULL ? NULL : tri_pool_strdup(&g->pool, name);

    if (copy == NULL)
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "graph: cannot store a name"));
    return copy;
}

tri_vid tri_graph_value(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape, enum tri_role role)
{
    const char *copy;

    if (failed(g))
        return TRI_NONE;
    copy = pooled(g, name);
    return copy == NULL ? TRI_NONE : append_value(g, copy, dtype, &shape, role);
}

tri_vid tri_graph_input(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape)
{
    return tri_graph_value(g, name, dtype, shape, TRI_ROLE_INPUT);
}

tri_vid tri_graph_param(struct tri_graph *g, const char *name, struct tri_shape shape,
                        struct tri_init init)
{
    tri_vid v = tri_graph_value(g, name, TRI_F32, shape, TRI_ROLE_PARAM);
    struct tri_param_info *info;

    if (v == TRI_NONE)
        return TRI_NONE;
    info = tri_pool_alloc(&g->pool, sizeof(*info));
    if (info == NULL) {
        tri_graph_fail(g, tri_fail(TRI_ERR_NOMEM, "graph: cannot store parameter \"%s\"", name));
        return TRI_NONE;
    }
    *info = (struct tri_param_info){.init = init, .decay = shape.ndim >= 2};
    g->value[v].param = info;
    return v;
}

tri_vid tri_graph_state(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape, struct tri_init init)
{
    tri_vid v = tri_graph_value(g, name, dtype, shape, TRI_ROLE_STATE);

    if (v != TRI_NONE)
        g->value[v].init = init;
    return v;
}

void tri_graph_output(struct tri_graph *g, tri_vid v, const char *name)
{
    const char *copy;

    if (failed(g))
        return;
    if (v < 0 || v >= g->nvalue || g->value[v].role != TRI_ROLE_TEMP) {
        tri_graph_fail(
            g, tri_fail(TRI_ERR_INTERNAL, "graph: output \"%s\" is not a temporary value", name));
        return;
    }
    copy = pooled(g, name);
    if (copy == NULL)
        return;
    g->value[v].name = copy;
    g->value[v].role = TRI_ROLE_OUTPUT;
    enter_name(g, v);
}

size_t tri_value_bytes(const struct tri_value *v)
{
    return (size_t)tri_shape_count(&v->shape) * tri_dtype_bytes(v->dtype);
}

void tri_graph_add_sum(struct tri_graph *g, enum tri_sum_kind kind, tri_vid value, tri_vid target,
                       tri_vid target2)
{
    if (failed(g))
        return;
    if (value < 0 || value >= g->nvalue) {
        tri_graph_fail(g, tri_fail(TRI_ERR_INTERNAL, "graph: sum of a value that does not exist"));
        return;
    }
    if (g->nsum == g->sum_cap) {
        void *p = g->sum;
        bool ok = grow(g, &p, &g->sum_cap, sizeof(*g->sum), "sums");

        g->sum = p;
        if (!ok)
            return;
    }
    g->sum[g->nsum++] =
        (struct tri_sum){.kind = kind, .value = value, .target = target, .target2 = target2};
}

static tri_status check_inputs(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_op_info *info = tri_op_info(op->kind);

    if (op->nin < info->min_in || (info->max_in >= 0 && op->nin > info->max_in))
        return tri_fail(TRI_ERR_INTERNAL, "%s \"%s\": %d inputs, takes %d to %d", info->name,
                        op->name, op->nin, info->min_in, info->max_in);
    for (int i = 0; i < op->nin; i++) {
        bool optional = i < 32 && (info->optional_in >> i & 1) != 0;

        if (op->in[i] == TRI_NONE && !optional)
            return tri_fail(TRI_ERR_INTERNAL, "%s \"%s\": input %d is missing", info->name,
                            op->name, i);
        if (op->in[i] < TRI_NONE || op->in[i] >= g->nvalue)
            return tri_fail(TRI_ERR_INTERNAL, "%s \"%s\": input %d is no value of this graph",
                            info->name, op->name, i);
    }
    return TRI_OK;
}

/* Infers and appends the outputs; the first bears the op's name. */
static tri_status create_outputs(struct tri_graph *g, struct tri_op *op, uint32_t want)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    enum tri_dtype dtype[32] = {TRI_F32};
    struct tri_shape shape[32] = {{0}};

    TRI_ASSERT(info->nout <= 32);
    TRI_TRY(info->infer(g, op, dtype, shape));
    for (int o = 0; o < op->nout; o++) {
        bool optional = (info->optional_out >> o & 1) != 0;

        op->out[o] = TRI_NONE;
        if (shape[o].ndim < 0) {
            TRI_ASSERT(optional);
            continue;
        }
        if (optional && (want >> o & 1) == 0)
            continue;
        op->out[o] = append_value(g, op->name, dtype[o], &shape[o], TRI_ROLE_TEMP);
        if (op->out[o] == TRI_NONE)
            return g->status;
        g->value[op->out[o]].producer = g->nop;
    }
    return TRI_OK;
}

static tri_status append_op(struct tri_graph *g, struct tri_op *op, const tri_vid *in,
                            uint32_t want)
{
    size_t slots = (size_t)(op->nin + op->nout);

    op->in = tri_pool_alloc(&g->pool, (slots > 0 ? slots : 1) * sizeof(*op->in));
    if (op->in == NULL)
        return tri_fail(TRI_ERR_NOMEM, "graph: cannot store op \"%s\"", op->name);
    op->out = op->in + op->nin;
    for (int i = 0; i < op->nin; i++)
        op->in[i] = in[i];
    TRI_TRY(check_inputs(g, op));
    TRI_TRY(create_outputs(g, op, want));
    if (g->nop == g->op_cap) {
        void *p = g->op;
        bool ok = grow(g, &p, &g->op_cap, sizeof(*g->op), "ops");

        g->op = p;
        if (!ok)
            return g->status;
    }
    g->op[g->nop++] = *op;
    return TRI_OK;
}

int32_t tri_graph_op(struct tri_graph *g, enum tri_op_kind kind, const char *name,
                     const tri_vid *in, int nin, const struct tri_attrs *attrs, uint32_t want_out)
{
    struct tri_op op = {.kind = kind, .nin = nin, .phase = g->phase, .grain = g->grain};
    tri_status st;

    if (failed(g))
        return TRI_NONE;
    op.nout = tri_op_info(kind)->nout;
    op.name = pooled(g, name);
    if (op.name == NULL)
        return TRI_NONE;
    if (attrs != NULL)
        op.attrs = *attrs;
    st = append_op(g, &op, in, want_out);
    if (st != TRI_OK) {
        tri_graph_fail(g, st);
        return TRI_NONE;
    }
    return g->nop - 1;
}

tri_vid tri_graph_op1(struct tri_graph *g, enum tri_op_kind kind, const char *name,
                      const tri_vid *in, int nin, const struct tri_attrs *attrs)
{
    int32_t op = tri_graph_op(g, kind, name, in, nin, attrs, UINT32_MAX);

    return op == TRI_NONE ? TRI_NONE : g->op[op].out[0];
}

/* Mends value.producer for the ops from `first` on. */
static void mend_producers(struct tri_graph *g, int32_t first)
{
    for (int32_t i = first; i < g->nop; i++) {
        for (int o = 0; o < g->op[i].nout; o++) {
            if (g->op[i].out[o] != TRI_NONE)
                g->value[g->op[i].out[o]].producer = i;
        }
    }
}

int32_t tri_graph_op_before(struct tri_graph *g, int32_t at, enum tri_op_kind kind,
                            const char *name, const tri_vid *in, int nin,
                            const struct tri_attrs *attrs, uint32_t want_out)
{
    int32_t last = tri_graph_op(g, kind, name, in, nin, attrs, want_out);
    struct tri_op op;

    if (last == TRI_NONE)
        return TRI_NONE;
    TRI_ASSERT(at >= 0 && at <= last);
    op = g->op[last];
    memmove(g->op + at + 1, g->op + at, (size_t)(last - at) * sizeof(*g->op));
    g->op[at] = op;
    mend_producers(g, at);
    return at;
}

void tri_graph_drop(struct tri_graph *g, const bool *dead)
{
    int n = 0;

    for (int i = 0; i < g->nop; i++) {
        for (int o = 0; o < g->op[i].nout && dead[i]; o++) {
            if (g->op[i].out[o] != TRI_NONE && g->value[g->op[i].out[o]].producer == i)
                g->value[g->op[i].out[o]].producer = TRI_NONE;
        }
        if (!dead[i])
            g->op[n++] = g->op[i];
    }
    g->nop = n;
    mend_producers(g, 0);
}
