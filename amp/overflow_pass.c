#include "amp/overflow_pass.h"

#include "runtime/core/memory.h"

tri_status tri_pass_overflow(struct tri_graph *g)
{
    enum tri_phase phase = g->phase;
    size_t most = (size_t)(g->nop + g->nsum) + 1;
    int64_t *key = tri_calloc(most, sizeof(*key), "order of ops");
    tri_status st;

    if (key == NULL)
        return tri_fail(TRI_ERR_NOMEM, "overflow: cannot order %zu ops", most);
    for (int i = 0; i < g->nop; i++)
        key[i] = 2 * (int64_t)i;
    g->phase = TRI_PHASE_BACKWARD;
    for (int s = 0; s < g->nsum; s++) {
        tri_vid v = g->sum[s].value;
        const char *name;

        if (g->sum[s].kind != TRI_SUM_GRAD)
            continue;
        name = tri_pool_printf(&g->pool, TRI_OVERFLOW_PREFIX "%s", g->value[g->sum[s].target].name);
        key[g->nop] = 2 * (int64_t)g->value[v].producer + 1;
        tri_graph_output(g, tri_graph_op1(g, TRI_OP_SUMSQ, name, &v, 1, NULL), name);
    }
    g->phase = phase;
    st = tri_graph_status(g);
    if (st == TRI_OK)
        st = tri_graph_order(g, key);
    tri_free(key);
    return st;
}
