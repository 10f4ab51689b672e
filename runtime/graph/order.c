/* Reordering of ops: a stable merge of what a pass appended into what was there. */
#include "runtime/graph/graph.h"

#include "runtime/core/memory.h"

#include <stdlib.h>

struct keyed {
    int64_t key;
    int32_t op; /* place before */
};

static int by_key(const void *pa, const void *pb)
{
    const struct keyed *a = pa, *b = pb;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->op < b->op ? -1 : a->op > b->op;
}

tri_status tri_graph_order(struct tri_graph *g, const int64_t *key)
{
    size_t n = (size_t)g->nop;
    struct keyed *k = tri_calloc(n, sizeof(*k), "op order");
    struct tri_op *sorted = tri_calloc(n, sizeof(*sorted), "ops in order");

    if (n > 0 && (k == NULL || sorted == NULL)) {
        tri_free(k);
        tri_free(sorted);
        return tri_fail(TRI_ERR_NOMEM, "graph: cannot order %d ops", g->nop);
    }
    for (int32_t i = 0; i < g->nop; i++)
        k[i] = (struct keyed){.key = key[i], .op = i};
    qsort(k, n, sizeof(*k), by_key);
    for (int32_t i = 0; i < g->nop; i++)
        sorted[i] = g->op[k[i].op];
    for (int32_t i = 0; i < g->nop; i++) {
        g->op[i] = sorted[i];
        for (int o = 0; o < sorted[i].nout; o++)
            if (sorted[i].out[o] != TRI_NONE)
                g->value[sorted[i].out[o]].producer = i;
    }
    tri_free(k);
    tri_free(sorted);
    return TRI_OK;
}
