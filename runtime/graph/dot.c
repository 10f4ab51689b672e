/* DOT for a look at graphs (dot -Tsvg). Parameters and inputs are ellipses, ops boxes. */
#include "runtime/graph/graph.h"

#include "runtime/core/text.h"

static const char *const phase_colour[TRI_PHASE_COUNT] = {
    [TRI_PHASE_FORWARD] = "lightblue",
    [TRI_PHASE_BACKWARD] = "lightsalmon",
    [TRI_PHASE_EXCHANGE] = "lightgreen",
    [TRI_PHASE_UPDATE] = "khaki",
};

/* One edge from the writer of v to op i. */
static void write_edge(const struct tri_graph *g, struct tri_text *out, tri_vid v, int i)
{
    char shape[TRI_SHAPE_TEXT];
    const struct tri_value *value = &g->value[v];

    if (value->producer != TRI_NONE)
        tri_text_printf(out, "  op%d -> op%d", value->producer, i);
    else
        tri_text_printf(out, "  v%d -> op%d", v, i);
    tri_text_printf(out, " [label=\"%s %s\"];\n", tri_dtype_name(value->dtype),
                    tri_shape_text(&value->shape, shape, sizeof(shape)));
}

tri_status tri_graph_dot(const struct tri_graph *g, struct tri_text *out)
{
    tri_text_printf(out, "digraph trireme {\n  node [shape=box, style=filled];\n");
    for (tri_vid v = 0; v < g->nvalue; v++) {
        if (g->value[v].role == TRI_ROLE_TEMP || g->value[v].producer != TRI_NONE)
            continue;
        tri_text_printf(out, "  v%d [shape=ellipse, fillcolor=white, label=", v);
        tri_text_json_string(out, g->value[v].name);
        tri_text_printf(out, "];\n");
    }
    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];

        tri_text_printf(out, "  op%d [fillcolor=%s, xlabel=\"%s\", label=", i,
                        phase_colour[op->phase], tri_op_name(op->kind));
        tri_text_json_string(out, op->name);
        tri_text_printf(out, "];\n");
        for (int k = 0; k < op->nin; k++) {
            if (op->in[k] != TRI_NONE)
                write_edge(g, out, op->in[k], i);
        }
    }
    tri_text_printf(out, "}\n");
    if (out->failed)
        return tri_fail(TRI_ERR_NOMEM, "graph: cannot write %d ops as text", g->nop);
    return TRI_OK;
}
