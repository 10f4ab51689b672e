/* Dead code: one sweep from the last op to the first, since consumers come after producers. */
#include "runtime/graph/graph.h"

static void keep(bool *read, tri_vid v)
{
    if (v != TRI_NONE)
        read[v] = true;
}

/* Values that somebody outside the ops reads. */
static void mark_roots(const struct tri_graph *g, bool *read)
{
    for (tri_vid v = 0; v < g->nvalue; v++)
        read[v] = g->value[v].role != TRI_ROLE_TEMP;
    for (int i = 0; i < g->nsum; i++)
        read[g->sum[i].value] = true;
    keep(read, g->loss_stats);
    keep(read, g->prediction);
    keep(read, g->counters);
    keep(read, g->scalars);
}

static bool op_is_needed(const struct tri_op *op, const bool *read)
{
    if (tri_op_info(op->kind)->side_effect)
        return true;
    for (int o = 0; o < op->nout; o++) {
        if (op->out[o] != TRI_NONE && read[op->out[o]])
            return true;
    }
    return false;
}

tri_status tri_graph_prune(struct tri_graph *g)
{
    bool *read = tri_calloc((size_t)g->nvalue + 1, sizeof(*read), "values read");
    bool *dead = tri_calloc((size_t)g->nop + 1, sizeof(*dead), "dead ops");
    tri_status st = TRI_OK;

    if (read == NULL || dead == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "graph: cannot prune %d ops", g->nop);
        goto free_marks;
    }
    mark_roots(g, read);
    for (int i = g->nop - 1; i >= 0; i--) {
        struct tri_op *op = &g->op[i];
        uint32_t optional = tri_op_info(op->kind)->optional_out;

        dead[i] = !op_is_needed(op, read);
        if (dead[i])
            continue;
        for (int o = 0; o < op->nout; o++) {
            if ((optional >> o & 1) != 0 && op->out[o] != TRI_NONE && !read[op->out[o]]) {
                g->value[op->out[o]].producer = TRI_NONE;
                op->out[o] = TRI_NONE;
            }
        }
        for (int k = 0; k < op->nin; k++)
            keep(read, op->in[k]);
    }
    tri_graph_drop(g, dead);

free_marks:
    tri_free(read);
    tri_free(dead);
    return st;
}
