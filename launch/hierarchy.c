/* The choice is a function of the topology, the options and the cost table, which all ranks share.
 */
#include "launch/hierarchy.h"

#include "collectives/mpi_sum.h"
#include "runtime/core/log.h"

void tri_hierarchy_predict(const struct tri_cost_table *c, int64_t bytes, double *flat, double *two)
{
    const struct tri_sum_cost *level = c->costs.level;
    double n = (double)bytes;

    *flat = level[TRI_LEVEL_ALL].latency_s + n / level[TRI_LEVEL_ALL].bytes_per_s;
    *two = level[TRI_LEVEL_INTRA].latency_s + n / level[TRI_LEVEL_INTRA].bytes_per_s +
           level[TRI_LEVEL_INTER].latency_s +
           n / (double)c->slices / level[TRI_LEVEL_INTER].bytes_per_s;
}

/* By the step that each way gives. */
static tri_status compare_steps(const struct tri_topology *t, const struct tri_hierarchy_args *args,
                                const struct tri_exchange_spec *spec, bool *two)
{
    struct tri_exchange_spec exchange = *spec;
    struct tri_simulation flat, levels;

    TRI_TRY(args->predict(args->arg, &exchange, &args->costs->costs, &flat));
    exchange.slices = t->slices;
    exchange.local_rank = t->local_rank;
    TRI_TRY(args->predict(args->arg, &exchange, &args->costs->costs, &levels));
    *two = levels.step_s < flat.step_s;
    tri_info(
        "gradients are summed %s: %d nodes, %.3g ms of communication are exposed in two levels "
        "and %.3g ms flat, in a step of %.3g ms (%s)",
        *two ? "in two levels" : "flat", t->nodes, levels.exposed_comm_s * 1e3,
        flat.exposed_comm_s * 1e3, (*two ? levels : flat).step_s * 1e3,
        tri_cost_table_origin(args->costs));
    return TRI_OK;
}

/* By one bucket alone. */
static void compare_buckets(const struct tri_topology *t, const struct tri_hierarchy_args *args,
                            const struct tri_exchange_spec *spec, bool *two)
{
    double flat_s, two_s;

    tri_hierarchy_predict(args->costs, spec->bucket_bytes, &flat_s, &two_s);
    *two = two_s < flat_s;
    tri_info("gradients are summed %s: %d nodes, a bucket of %.3g MiB takes %.3g ms in two levels "
             "and %.3g ms flat (%s)",
             *two ? "in two levels" : "flat", t->nodes, (double)spec->bucket_bytes / 1048576,
             two_s * 1e3, flat_s * 1e3, tri_cost_table_origin(args->costs));
}

/* *two: auto takes two levels. The levels are connected. Rank 0 decides. */
static tri_status choose_by_costs(struct tri_world *w, const struct tri_hierarchy_args *args,
                                  const struct tri_exchange_spec *spec, bool *two)
{
    const struct tri_topology *t = &w->topology;
    tri_status st = TRI_OK;

    if (!tri_cost_table_fits(args->costs, t, &args->measured, args->nccl))
        TRI_TRY(tri_cost_table_measure(w, &args->measured, args->costs));
    if (t->rank == 0 && args->predict != NULL)
        st = compare_steps(t, args, spec, two);
    else if (t->rank == 0)
        compare_buckets(t, args, spec, two);
    TRI_TRY(tri_comm_agree(w->control, st));
    return tri_comm_broadcast(w->control, two, sizeof(*two), 0);
}

tri_status tri_hierarchy_choose(struct tri_world *w, const void *mpi_comm,
                                const struct tri_hierarchy_args *args,
                                struct tri_exchange_spec *spec)
{
    const struct tri_topology *t = &w->topology;
    int wanted = args->wanted;
    bool two = wanted == TRI_HIERARCHY_TWO_LEVEL;

    spec->slices = spec->local_rank = 0;
    if (t->size == 1 || wanted == TRI_HIERARCHY_FLAT ||
        (wanted == TRI_HIERARCHY_AUTO && (t->nodes == 1 || t->nodes == t->size)))
        return TRI_OK;
    if (spec->fixed_tree && !tri_topology_regular(t)) {
        if (t->rank == 0)
            tri_info("gradients are summed flat: run.deterministic takes two levels only where "
                     "the nodes hold equal powers of two of consecutive ranks");
        return TRI_OK;
    }
    TRI_TRY(tri_comm_agree(w->control, tri_world_add_levels(w, mpi_comm)));
    if (wanted == TRI_HIERARCHY_AUTO)
        TRI_TRY(choose_by_costs(w, args, spec, &two));
    else if (t->rank == 0)
        tri_info("gradients are summed in two levels, %s: %d node%s, %d slice%s",
                 args->why != NULL ? args->why : "as asked for", t->nodes, t->nodes == 1 ? "" : "s",
                 t->slices, t->slices == 1 ? "" : "s");
    if (!two) {
        tri_world_drop_levels(w);
        return TRI_OK;
    }
    spec->slices = t->slices;
    spec->local_rank = t->local_rank;
    return TRI_OK;
}

tri_status tri_hierarchy_scratch(const struct tri_program *p, const struct tri_topology *t,
                                 bool shared, size_t *bytes)
{
    const int size[TRI_LEVEL_COUNT] = {t->size, t->local_size, t->nodes};
    const bool mpi[TRI_LEVEL_COUNT] = {t->nodes > 1 || !shared, !shared, true};
    size_t most[TRI_LEVEL_COUNT] = {0}, need;

    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_op *op = &p->graph->op[p->instr[i].op];
        const struct tri_attr_comm *a = &op->attrs.comm;
        bool half = op->kind == TRI_OP_REDUCE_SCATTER;
        const struct tri_value *v;

        if ((op->kind != TRI_OP_ALLREDUCE && !half) || !mpi[a->level] || size[a->level] < 2)
            continue;
        v = &p->graph->value[op->in[0]];
        TRI_TRY(tri_mpi_scratch(size[a->level], half ? a->slices : 0,
                                a->count > 0 ? a->count : tri_shape_count(&v->shape), v->dtype,
                                &need));
        most[a->level] = need > most[a->level] ? need : most[a->level];
    }
    *bytes = most[TRI_LEVEL_ALL] + most[TRI_LEVEL_INTRA] + most[TRI_LEVEL_INTER];
    return TRI_OK;
}

void tri_compression_choose(const struct tri_gradient_options *gradient,
                            const struct tri_optimizer_options *optimizer,
                            const struct tri_mesh *mesh, const struct tri_topology *t,
                            uint64_t seed, const struct tri_cost_table *costs,
                            struct tri_exchange_spec *spec)
{
    struct tri_compress_layout layout = {.rank = mesh->coord[TRI_AXIS_DATA],
                                         .ranks = mesh->size[TRI_AXIS_DATA],
                                         .node = t != NULL ? t->node : 0,
                                         .nodes = t != NULL ? t->nodes : 1,
                                         .slices = spec->slices,
                                         .local_rank = spec->local_rank};
    struct tri_compress_spec *c = &spec->compress;

    *c = tri_compress_spec_make(gradient, optimizer, seed, &layout);
    if (costs->source != TRI_COSTS_UNKNOWN && costs->costs.level[c->level].bytes_per_s > 0)
        c->link = (struct tri_link_rate){costs->costs.level[c->level].bytes_per_s,
                                         costs->costs.level[c->level].latency_s};
}
