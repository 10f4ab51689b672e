#include "tests/unit/optim/fixture.h"

#include "runtime/graph/passes.h"

#include <criterion/criterion.h>
#include <string.h>

struct tri_graph *grain_graph(void)
{
    struct tri_builder b = {.training = true};
    tri_vid h;

    GOOD(tri_graph_create(&b.graph));
    h = tri_linear(&b, tri_input(&b, "x", TRI_F32, TRI_SHAPE(2, 5)), "first", 7);
    h = tri_relu(&b, tri_layernorm(&b, h, "norm"));
    tri_loss_softmax(&b, tri_linear(&b, h, "last", 1000),
                     tri_input(&b, "labels", TRI_I32, TRI_SHAPE(2)));
    GOOD(tri_graph_status(b.graph));
    return b.graph;
}

struct tri_graph *step_graph(int ranks, int rank)
{
    struct tri_graph *grain = grain_graph(), *step;
    struct tri_mesh mesh = tri_mesh_data(ranks, rank);
    struct tri_grains grains;

    GOOD(tri_pass_autodiff(grain));
    GOOD(tri_graph_prune(grain));
    GOOD(tri_grains_make(&mesh, 2 * ranks, 2, false, &grains));
    GOOD(tri_pass_pipeline(grain, &grains, false, &step));
    tri_graph_destroy(grain);
    return step;
}

const struct tri_op *nth_op(const struct tri_graph *g, enum tri_op_kind kind, int n)
{
    for (int i = 0; i < g->nop; i++)
        if (g->op[i].kind == kind && n-- == 0)
            return &g->op[i];
    return NULL;
}

const struct tri_op *step_of(const struct tri_graph *g, const char *name)
{
    for (int i = 0; i < g->nop; i++)
        if ((g->op[i].kind == TRI_OP_SGD || g->op[i].kind == TRI_OP_ADAMW) &&
            strcmp(g->value[g->op[i].in[0]].name, name) == 0)
            return &g->op[i];
    return NULL;
}
