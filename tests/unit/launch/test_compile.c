/* The whole list of passes on a small model, for one rank and for two. */
#include "launch/compile.h"
#include "models/model_options.h"

#include <criterion/criterion.h>

#define GOOD(call) cr_assert_eq(call, TRI_OK, "%s", tri_error_text())

static const int64_t hidden[] = {16};
static const struct tri_model_options options = {.name = TRI_MODEL_MLP,
                                                 .preset = "",
                                                 .init = "",
                                                 .dropout = TRI_OPT_AUTO,
                                                 .hidden = {hidden, 1, true}};
static const struct tri_group_rules rules = {.lr = 0.1};

/* Four grains over `ranks`. */
static struct tri_compile_spec spec_of(int ranks, int rank, const struct tri_model_dims *dims,
                                       const struct tri_data_shape *data)
{
    struct tri_compile_spec s = {.dims = dims,
                                 .data = data,
                                 .mesh = tri_mesh_data(ranks, rank),
                                 .seed = 1,
                                 .deterministic = true,
                                 .overlap = true,
                                 .threads = 1,
                                 .device = tri_device_cpu(),
                                 .exchange = {.bucket_bytes = 1024, .fixed_tree = true},
                                 .groups = &rules};

    GOOD(tri_grains_make(&s.mesh, 4 * data->grain, data->grain, true, &s.grains));
    return s;
}

static int count_instrs(const struct tri_program *p, enum tri_op_kind kind)
{
    int n = 0;

    for (int i = 0; i < p->ninstr; i++)
        n += p->graph->op[p->instr[i].op].kind == kind;
    return n;
}

static void compile(int ranks, int rank)
{
    struct tri_data_shape data = {.task = TRI_TASK_CLASSES, .grain = 8, .classes = 10};
    struct tri_model_dims dims;
    struct tri_compile_spec spec;
    struct tri_layout *layout;
    struct tri_program *train, *eval;
    size_t persistent;

    data.x = TRI_SHAPE(20);
    GOOD(tri_model_resolve(&options, &data, &dims));
    spec = spec_of(ranks, rank, &dims, &data);
    GOOD(tri_layout_create(&layout));
    GOOD(tri_compile_train(&spec, layout, NULL, &train));
    GOOD(tri_plan_verify(train));
    persistent = tri_layout_bytes(layout);
    GOOD(tri_compile_eval(&spec, layout, &eval));
    GOOD(tri_plan_verify(eval));
    cr_assert_eq(count_instrs(train, TRI_OP_SOFTMAX_XENT_FUSED), 4 / ranks);
    cr_assert_eq(count_instrs(train, TRI_OP_SGD), 4);
    cr_assert_eq(count_instrs(train, TRI_OP_ALLREDUCE) > 1, ranks > 1);
    cr_assert_eq(train->arena_bytes[TRI_ARENA_EXCHANGE] > 0, ranks > 1);
    cr_assert_eq(count_instrs(eval, TRI_OP_ALLREDUCE), 0);
    cr_assert_neq(tri_graph_find(eval->graph, "eval/stats"), TRI_NONE);
    cr_assert_gt(tri_layout_bytes(layout), persistent); /* inputs and outputs of eval */
    tri_program_destroy(train);
    tri_program_destroy(eval);
    tri_layout_destroy(layout);
}

Test(compile, an_mlp_for_one_rank)
{
    compile(1, 0);
}

Test(compile, an_mlp_for_each_of_two_ranks)
{
    compile(2, 0);
    compile(2, 1);
}
