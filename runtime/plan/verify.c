/* verify: the program is checked again from nothing but the op table, so that a mistake of a pass
 * shows before the first step. */
#include "runtime/plan/verify_internal.h"

#include "runtime/core/memory.h"

#include <string.h>

enum { MAX_OUTPUTS = TRI_MULTI_OUTPUTS, SHAPE_TEXT_BYTES = 128, ERROR_BYTES = 512 };

const char *tri_value_name(const struct tri_program *p, tri_vid v)
{
    return p->graph->value[v].name != NULL ? p->graph->value[v].name : "";
}

static const char *op_name(const struct tri_op *op)
{
    return op->name != NULL ? op->name : "";
}

const char *tri_instr_name(const struct tri_program *p, int32_t i)
{
    return op_name(&p->graph->op[p->instr[i].op]);
}

/* Shapes and dtypes of op's outputs are those that the op table infers from its inputs. */
static tri_status check_types(const struct tri_graph *g, const struct tri_op *op)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    enum tri_dtype dtype[MAX_OUTPUTS] = {0};
    struct tri_shape shape[MAX_OUTPUTS] = {0};
    tri_status st;

    if (op->nout != info->nout || op->nout > MAX_OUTPUTS)
        return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" has %d outputs, not %d", op_name(op),
                        op->nout, info->nout);
    st = info->infer(g, op, dtype, shape);
    if (st != TRI_OK) {
        char text[ERROR_BYTES];

        strncpy(text, tri_error_text(), sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\": %s", op_name(op), text);
    }
    for (int o = 0; o < op->nout; o++) {
        char has[SHAPE_TEXT_BYTES], wants[SHAPE_TEXT_BYTES];
        const struct tri_value *v;

        if (op->out[o] == TRI_NONE)
            continue;
        v = &g->value[op->out[o]];
        if (v->dtype == dtype[o] && tri_shape_equal(&v->shape, &shape[o]))
            continue;
        return tri_fail(
            TRI_ERR_INTERNAL, "verify: output %d of op \"%s\" is %s %s, the op table says %s %s", o,
            op_name(op), tri_dtype_name(v->dtype), tri_shape_text(&v->shape, has, sizeof(has)),
            tri_dtype_name(dtype[o]), tri_shape_text(&shape[o], wants, sizeof(wants)));
    }
    return TRI_OK;
}

/* Every value has at most one writer, the one that it names. */
static tri_status check_writers(const struct tri_program *p)
{
    const struct tri_graph *g = p->graph;
    int32_t *writer = tri_calloc((size_t)g->nvalue + 1, sizeof(*writer), "writers"); /* op + 1 */
    tri_status st = TRI_OK;

    if (writer == NULL)
        return tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate tables for %d values", g->nvalue);
    for (int32_t o = 0; st == TRI_OK && o < g->nop; o++) {
        for (int k = 0; st == TRI_OK && k < g->op[o].nout; k++) {
            tri_vid v = g->op[o].out[k];

            if (v == TRI_NONE)
                continue;
            if (writer[v] != 0)
                st = tri_fail(TRI_ERR_INTERNAL,
                              "verify: value \"%s\" is written by op \"%s\" and by op \"%s\"",
                              tri_value_name(p, v), op_name(&g->op[writer[v] - 1]),
                              op_name(&g->op[o]));
            writer[v] = o + 1;
        }
    }
    for (tri_vid v = 0; st == TRI_OK && v < g->nvalue; v++)
        if (g->value[v].producer != writer[v] - 1)
            st =
                tri_fail(TRI_ERR_INTERNAL, "verify: value \"%s\" names op %d as its writer, not %d",
                         tri_value_name(p, v), g->value[v].producer, writer[v] - 1);
    tri_free(writer);
    return st;
}

static enum tri_stream stream_of(const struct tri_op *op)
{
    const struct tri_op_info *info = tri_op_info(op->kind);
    enum tri_level level = info->comm ? op->attrs.comm.level : op->attrs.compress.level;

    if (!info->comm && !info->beside_comm)
        return TRI_STREAM_COMPUTE;
    return level == TRI_LEVEL_INTER ? TRI_STREAM_INTER : TRI_STREAM_INTRA;
}

/* Each op that does something is exactly one instruction, with a kernel unless it is a collective,
 * on the stream that its kind asks for. */
static tri_status check_instrs(const struct tri_program *p)
{
    const struct tri_graph *g = p->graph;
    bool *seen = tri_calloc((size_t)g->nop + 1, sizeof(*seen), "instructions");
    tri_status st = TRI_OK;

    if (seen == NULL)
        return tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate tables for %d ops", g->nop);
    for (int32_t i = 0; st == TRI_OK && i < p->ninstr; i++) {
        const struct tri_instr *in = &p->instr[i];
        const struct tri_op_info *info = tri_op_info(g->op[in->op].kind);

        if (seen[in->op])
            st = tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" runs twice", tri_instr_name(p, i));
        else if (in->stream != stream_of(&g->op[in->op]) ||
                 info->comm != (in->kernel == TRI_NONE) || in->kernel >= p->nkernel)
            st = tri_fail(TRI_ERR_INTERNAL,
                          "verify: op \"%s\" is on the wrong stream or has no kernel",
                          tri_instr_name(p, i));
        seen[in->op] = true;
    }
    for (int32_t o = 0; st == TRI_OK && o < g->nop; o++)
        if (!seen[o] && !tri_op_info(g->op[o].kind)->no_kernel)
            st = tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" never runs", op_name(&g->op[o]));
    tri_free(seen);
    return st;
}

/* Instruction i's wait for stream t: a signalling instruction that stands before it in the list. */
static tri_status check_wait(const struct tri_program *p, int32_t i, int t, const uint32_t *issued,
                             int32_t *const at[TRI_STREAM_COUNT])
{
    uint32_t seq = p->instr[i].wait[t];

    if (t == (int)p->instr[i].stream)
        return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" waits for its own stream",
                        tri_instr_name(p, i));
    if (seq > issued[t])
        return tri_fail(TRI_ERR_INTERNAL,
                        "verify: op \"%s\" waits for instruction %u of stream %d, which can never "
                        "be complete by then",
                        tri_instr_name(p, i), seq, t);
    if (!p->instr[at[t][seq]].signal)
        return tri_fail(TRI_ERR_INTERNAL,
                        "verify: op \"%s\" waits for op \"%s\", which does not signal",
                        tri_instr_name(p, i), tri_instr_name(p, at[t][seq]));
    return TRI_OK;
}

/* Numbers and waits of all instructions; fills `clock`. `at` has room for ninstr + 1 a stream. */
static tri_status check_waits(const struct tri_program *p, tri_clock *clock,
                              int32_t *const at[TRI_STREAM_COUNT])
{
    uint32_t issued[TRI_STREAM_COUNT] = {0};

    for (int32_t i = 0; i < p->ninstr; i++) {
        const struct tri_instr *in = &p->instr[i];

        if (in->seq != issued[in->stream] + 1)
            return tri_fail(TRI_ERR_INTERNAL, "verify: op \"%s\" is number %u of stream %d, not %u",
                            tri_instr_name(p, i), in->seq, (int)in->stream, issued[in->stream] + 1);
        if (in->seq > 1)
            memcpy(clock[i], clock[at[in->stream][in->seq - 1]], sizeof(clock[i]));
        for (int t = 0; t < TRI_STREAM_COUNT; t++) {
            const uint32_t *other;

            if (in->wait[t] == 0)
                continue;
            TRI_TRY(check_wait(p, i, t, issued, at));
            other = clock[at[t][in->wait[t]]];
            for (int u = 0; u < TRI_STREAM_COUNT; u++)
                clock[i][u] = other[u] > clock[i][u] ? other[u] : clock[i][u];
            clock[i][t] = in->wait[t] > clock[i][t] ? in->wait[t] : clock[i][t];
        }
        clock[i][in->stream] = in->seq - 1;
        at[in->stream][in->seq] = i;
        issued[in->stream] = in->seq;
    }
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (issued[t] != p->stream_count[t])
            return tri_fail(TRI_ERR_INTERNAL, "verify: stream %d has %u instructions, not %u", t,
                            issued[t], p->stream_count[t]);
    return TRI_OK;
}

tri_status tri_plan_verify(const struct tri_program *p)
{
    size_t n = (size_t)p->ninstr + 1;
    tri_clock *clock = tri_calloc(n, sizeof(*clock), "clocks");
    int32_t *at[TRI_STREAM_COUNT] = {NULL};
    tri_status st = TRI_OK;

    if (clock == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate clocks");
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        at[t] = tri_calloc(n, sizeof(*at[t]), "clocks");
        if (at[t] == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "verify: cannot allocate clocks");
    }
    for (int o = 0; st == TRI_OK && o < p->graph->nop; o++)
        st = check_types(p->graph, &p->graph->op[o]);
    if (st == TRI_OK)
        st = check_writers(p);
    if (st == TRI_OK)
        st = check_instrs(p);
    if (st == TRI_OK)
        st = check_waits(p, clock, at);
    if (st == TRI_OK)
        st = tri_verify_memory(p, clock);
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        tri_free(at[t]);
    tri_free(clock);
    return st;
}
