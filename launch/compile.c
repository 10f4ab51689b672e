/* The pipeline of DESIGN.md: build, then graph passes, then program passes and the check. Every
 * feature is one line of this list. */
#include "launch/compile.h"

#include "amp/overflow_pass.h"

/* Streams, order, memory and the check: the same for every program. Takes g. */
static tri_status finish_program(const struct tri_compile_spec *s, struct tri_graph *g,
                                 struct tri_layout *layout, struct tri_program **out)
{
    struct tri_program *p;
    tri_status st;

    TRI_TRY(tri_plan_schedule(g, s->device->kernels, s->device, s->threads, s->overlap, &p));
    TRI_TRY_GOTO(st, tri_plan_memory(p, layout), destroy_program);
    TRI_TRY_GOTO(st, tri_plan_verify(p), destroy_program);
    *out = p;
    return TRI_OK;

destroy_program:
    tri_program_destroy(p);
    return st;
}

/* Patterns that the tables of some devices have a kernel for. */
static tri_status fuse_for(const struct tri_compile_spec *s, struct tri_graph *g)
{
    TRI_TRY(tri_pass_fuse(g));
    return s->device->kernels[TRI_OP_MATMUL_GELU] != NULL ? tri_pass_fuse_products(g) : TRI_OK;
}

/* Such patterns among what the passes over a step made. */
static tri_status fuse_step_for(const struct tri_compile_spec *s, struct tri_graph *g)
{
    if (s->device->kernels[TRI_OP_MATMUL_BGRAD] != NULL)
        TRI_TRY(tri_pass_fuse_bias_gradients(g));
    return s->device->kernels[TRI_OP_MULTI_ADAMW] != NULL ? tri_pass_fuse_updates(g) : TRI_OK;
}

/* Passes over the graph of one grain: everything that knows nothing of ranks and grains. */
static tri_status differentiate(const struct tri_compile_spec *s, struct tri_graph *g,
                                struct tri_text *report)
{
    TRI_TRY(tri_pass_groups(g, s->groups, report));
    TRI_TRY(tri_pass_fuse(g));
    TRI_TRY(tri_pass_autodiff(g));
    TRI_TRY(tri_pass_precision(g, &s->precision));
    TRI_TRY(fuse_for(s, g));
    return tri_graph_prune(g);
}

/* Passes over the graph of one step of this rank. */
static tri_status distribute(const struct tri_compile_spec *s, struct tri_graph *g,
                             struct tri_text *report)
{
    struct tri_exchange_spec exchange = s->exchange;

    exchange.report = report;
    for (int where = TRI_PHASE_FORWARD; where <= TRI_PHASE_EXCHANGE; where++)
        TRI_TRY(tri_pass_inject(g, s->faults, s->nfaults, s->mesh.rank, (enum tri_phase)where));
    if (s->precision.compute != TRI_F32)
        TRI_TRY(tri_pass_overflow(g));
    TRI_TRY(tri_pass_exchange(g, &s->mesh, &exchange));
    TRI_TRY(tri_pass_update(g, &s->update));
    TRI_TRY(tri_pass_inject(g, s->faults, s->nfaults, s->mesh.rank, TRI_PHASE_UPDATE));
    return fuse_step_for(s, g);
}

tri_status tri_compile_step(const struct tri_compile_spec *s, struct tri_graph *grain,
                            struct tri_layout *layout, struct tri_text *report,
                            struct tri_program **out)
{
    struct tri_graph *step = NULL;
    tri_status st;

    TRI_TRY_GOTO(st, differentiate(s, grain, report), destroy_grain);
    TRI_TRY_GOTO(st, tri_pass_pipeline(grain, &s->grains, s->deterministic, &step), destroy_grain);
    TRI_TRY_GOTO(st, distribute(s, step, report), destroy_step);
    tri_graph_destroy(grain);
    return finish_program(s, step, layout, out);

destroy_step:
    tri_graph_destroy(step);
destroy_grain:
    tri_graph_destroy(grain);
    return st;
}

tri_status tri_compile_train(const struct tri_compile_spec *s, struct tri_layout *layout,
                             struct tri_text *report, struct tri_program **out)
{
    struct tri_graph *g;

    TRI_TRY(tri_model_build(s->dims, s->data, true, s->seed, &g));
    return tri_compile_step(s, g, layout, report, out);
}

/* Makes outputs of what the sums of g hold. */
static void output_sums(struct tri_graph *g, const char *prefix)
{
    for (int i = 0; i < g->nsum; i++) {
        const struct tri_sum *s = &g->sum[i];

        if (s->kind == TRI_SUM_STATS)
            tri_graph_output(g, s->value, tri_pool_printf(&g->pool, "%s/loss", prefix));
        if (s->kind == TRI_SUM_GRAD)
            tri_graph_output(g, s->value,
                             tri_pool_printf(&g->pool, "%s/%s", prefix, g->value[s->target].name));
    }
}

tri_status tri_compile_grain(const struct tri_compile_spec *s, const char *prefix,
                             struct tri_layout *layout, struct tri_program **out)
{
    struct tri_graph *grain, *step = NULL;
    tri_status st;

    TRI_TRY(tri_model_build(s->dims, s->data, true, s->seed, &grain));
    TRI_TRY_GOTO(st, differentiate(s, grain, NULL), destroy_grain);
    TRI_TRY_GOTO(st, tri_pass_pipeline(grain, &s->grains, false, &step), destroy_grain);
    output_sums(step, prefix);
    TRI_TRY_GOTO(st, fuse_step_for(s, step), destroy_step);
    TRI_TRY_GOTO(st, tri_graph_status(step), destroy_step);
    tri_graph_destroy(grain);
    return finish_program(s, step, layout, out);

destroy_step:
    tri_graph_destroy(step);
destroy_grain:
    tri_graph_destroy(grain);
    return st;
}

static tri_status infer_program(const struct tri_compile_spec *s, struct tri_graph *g,
                                struct tri_layout *layout, struct tri_program **out)
{
    tri_status st;

    TRI_TRY_GOTO(st, fuse_for(s, g), destroy_graph);
    TRI_TRY_GOTO(st, tri_graph_prune(g), destroy_graph);
    return finish_program(s, g, layout, out);

destroy_graph:
    tri_graph_destroy(g);
    return st;
}

tri_status tri_compile_eval(const struct tri_compile_spec *s, struct tri_layout *layout,
                            struct tri_program **out)
{
    struct tri_graph *g;

    TRI_TRY(tri_model_build(s->dims, s->data, false, s->seed, &g));
    tri_graph_output(g, g->loss_stats, "eval/stats");
    tri_graph_output(g, g->prediction, "eval/prediction");
    return infer_program(s, g, layout, out);
}

tri_status tri_compile_generate(const struct tri_compile_spec *s, int64_t n,
                                struct tri_layout *layout, struct tri_program **out)
{
    struct tri_graph *g;

    TRI_TRY(tri_model_build_cached(s->dims, n, &g));
    tri_graph_output(g, g->prediction, tri_pool_printf(&g->pool, "generate/%lld", (long long)n));
    return infer_program(s, g, layout, out);
}
