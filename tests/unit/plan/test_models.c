/* Whole steps of real models through every pass: they verify, and their arenas stay near the live
 * bytes. */
#include "models/model.h"
#include "optim/exchange_pass.h"
#include "optim/update_pass.h"
#include "runtime/graph/passes.h"
#include "runtime/plan/program.h"

#include "runtime/core/log.h"

#include <criterion/criterion.h>

#define GOOD(call) cr_assert_eq(call, TRI_OK, "%s", tri_error_text())

static struct tri_graph *build_step(struct tri_model_dims *dims, const struct tri_data_shape *data,
                                    int64_t ngrains, bool deterministic)
{
    const struct tri_exchange_spec exchange = {.bucket_bytes = 1 << 20,
                                               .fixed_tree = deterministic};
    const struct tri_update_spec update = {
        .kind = TRI_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    struct tri_mesh mesh = tri_mesh_data(2, 1);
    struct tri_graph *grain, *step;
    struct tri_grains grains;

    GOOD(dims->ops->resolve(dims, data));
    GOOD(tri_model_build(dims, data, true, 1, &grain));
    GOOD(tri_pass_fuse(grain));
    GOOD(tri_pass_autodiff(grain));
    GOOD(tri_pass_fuse(grain));
    GOOD(tri_grains_make(&mesh, 2 * ngrains * data->grain, data->grain, deterministic, &grains));
    GOOD(tri_pass_pipeline(grain, &grains, deterministic, &step));
    tri_graph_destroy(grain);
    GOOD(tri_pass_exchange(step, &mesh, &exchange));
    GOOD(tri_pass_update(step, &update));
    GOOD(tri_graph_prune(step));
    return step;
}

static void check_plan(struct tri_model_dims dims, const struct tri_data_shape *data,
                       int64_t ngrains, bool deterministic)
{
    struct tri_graph *step = build_step(&dims, data, ngrains, deterministic);
    struct tri_layout *layout;
    struct tri_program *p;

    GOOD(tri_layout_create(&layout));
    GOOD(tri_plan_schedule(step, tri_kernels_ref, NULL, 1, true, &p));
    GOOD(tri_plan_memory(p, layout));
    GOOD(tri_plan_verify(p));
    cr_assert_leq((double)p->arena_bytes[TRI_ARENA_STEP], 1.1 * (double)p->live_bytes,
                  "%s: %zu of %zu", dims.ops->name, p->arena_bytes[TRI_ARENA_STEP], p->live_bytes);
    tri_program_destroy(p);
    tri_layout_destroy(layout);
}

Test(models, a_language_model)
{
    const struct tri_data_shape data = {
        .task = TRI_TASK_LANGUAGE, .grain = 2, .sequence = 64, .vocab = 512};
    const struct tri_model_dims dims = {.ops = &tri_model_gpt,
                                        .preset = "",
                                        .layers = 6,
                                        .heads = 4,
                                        .width = 64,
                                        .context = 64,
                                        .vocab = 512,
                                        .dropout = 0.1};

    for (int64_t n = 1; n <= 16; n *= 4)
        for (int deterministic = 0; deterministic < 2; deterministic++)
            check_plan(dims, &data, n, deterministic == 1);
}

Test(models, a_network_for_images)
{
    static const int depth[] = {18, 20, 50};
    const struct tri_data_shape data = {
        .task = TRI_TASK_CLASSES, .grain = 4, .classes = 10, .x = {.ndim = 3, .dim = {28, 28, 1}}};

    for (int i = 0; i < 3; i++)
        for (int64_t n = 1; n <= 4; n *= 4)
            check_plan((struct tri_model_dims){.ops = &tri_model_resnet,
                                               .preset = "",
                                               .depth = depth[i],
                                               .width = 16,
                                               .outputs = 10,
                                               .dropout = -1},
                       &data, n, n == 4);
}

Test(models, thirty_thousand_ops_compile_in_a_second)
{
    const struct tri_data_shape data = {
        .task = TRI_TASK_LANGUAGE, .grain = 1, .sequence = 32, .vocab = 64};
    struct tri_model_dims dims = {.ops = &tri_model_gpt,
                                  .preset = "",
                                  .layers = 12,
                                  .heads = 2,
                                  .width = 16,
                                  .context = 32,
                                  .vocab = 64,
                                  .dropout = 0};
    struct tri_graph *step = build_step(&dims, &data, 64, true);
    int64_t begin = tri_now_ns();
    struct tri_layout *layout;
    struct tri_program *p;

    GOOD(tri_layout_create(&layout));
    GOOD(tri_plan_schedule(step, tri_kernels_ref, NULL, 1, true, &p));
    GOOD(tri_plan_memory(p, layout));
    GOOD(tri_plan_verify(p));
    cr_assert_gt(p->ninstr, 25000);
    cr_assert_lt(tri_now_ns() - begin,
                 INT64_C(5000000000)); /* 0.5 s alone; the machine may be busy */
    tri_program_destroy(p);
    tri_layout_destroy(layout);
}
