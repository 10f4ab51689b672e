/* The choice is a function of the topology, the options and a table of six numbers that all ranks
 * share: the slowest rank's times. */
#include "launch/hierarchy.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>

enum {
    SMALL_COUNT = 16,      /* f32 elements: latency */
    LARGE_COUNT = 1 << 20, /* 4 MiB: rate */
    SMALL_REPEATS = 20,
    LARGE_REPEATS = 3
};

static const char *const layout_key[] = {"level_ranks", "level_nodes", "level_slices"};
static const char *const latency_key[TRI_LEVEL_COUNT] = {"latency_all_s", "latency_intra_s",
                                                         "latency_inter_s"};
static const char *const rate_key[TRI_LEVEL_COUNT] = {"rate_all", "rate_intra", "rate_inter"};

void tri_level_costs_save(const struct tri_level_costs *c,
                          struct tri_checkpoint_item item[TRI_LEVEL_ITEMS])
{
    const int64_t layout[] = {c->ranks, c->nodes, c->slices};
    int n = 0;

    for (int i = 0; i < 3; i++)
        item[n++] = (struct tri_checkpoint_item){.key = layout_key[i], .integer = layout[i]};
    for (int l = 0; l < TRI_LEVEL_COUNT; l++) {
        item[n++] = (struct tri_checkpoint_item){
            .key = latency_key[l], .real = true, .value = c->latency_s[l]};
        item[n++] = (struct tri_checkpoint_item){
            .key = rate_key[l], .real = true, .value = c->bytes_per_s[l]};
    }
}

void tri_level_costs_load(const struct tri_checkpoint *from, struct tri_level_costs *c)
{
    bool ok = tri_checkpoint_integer(from, layout_key[0], &c->ranks) &&
              tri_checkpoint_integer(from, layout_key[1], &c->nodes) &&
              tri_checkpoint_integer(from, layout_key[2], &c->slices);

    for (int l = 0; l < TRI_LEVEL_COUNT; l++)
        ok = ok && tri_checkpoint_real(from, latency_key[l], &c->latency_s[l]) &&
             tri_checkpoint_real(from, rate_key[l], &c->bytes_per_s[l]);
    c->known = ok;
}

/* The slowest rank's shortest time of a sum over comm, which may be NULL on some ranks. */
static tri_status time_sum(struct tri_comm *control, struct tri_comm *comm, float *x, int64_t count,
                           int repeats, double *seconds)
{
    double best = INFINITY;

    for (int k = 0; k < repeats; k++) {
        int64_t begin;

        TRI_TRY(tri_comm_barrier(control));
        begin = tri_now_ns();
        TRI_TRY(tri_comm_allreduce(comm, x, count, TRI_F32, TRI_REDUCE_SUM, false));
        best = fmin(best, (double)(tri_now_ns() - begin) * 1e-9);
    }
    TRI_TRY(tri_comm_allreduce(control, &best, 1, TRI_F64, TRI_REDUCE_MAX, false));
    *seconds = best;
    return TRI_OK;
}

static tri_status measure(const struct tri_world *w, struct tri_level_costs *c)
{
    struct tri_comm *comm[TRI_LEVEL_COUNT] = {w->exchange, w->intra, w->inter};
    const struct tri_topology *t = &w->topology;
    float *x = tri_calloc(LARGE_COUNT, sizeof(*x), "measurement");
    tri_status st = TRI_OK;

    if (x == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a measurement of %d elements", LARGE_COUNT);
    st = tri_comm_agree(w->control, st);
    for (int l = 0; st == TRI_OK && l < TRI_LEVEL_COUNT; l++) {
        double small, large;

        TRI_TRY_GOTO(st, time_sum(w->control, comm[l], x, SMALL_COUNT, SMALL_REPEATS, &small),
                     free_data);
        TRI_TRY_GOTO(st, time_sum(w->control, comm[l], x, LARGE_COUNT, LARGE_REPEATS, &large),
                     free_data);
        c->latency_s[l] = small;
        c->bytes_per_s[l] = LARGE_COUNT * sizeof(*x) / fmax(large - small, 1e-9);
    }
    c->ranks = t->size;
    c->nodes = t->nodes;
    c->slices = t->slices;
    c->known = true;

free_data:
    tri_free(x);
    return st;
}

void tri_level_costs_predict(const struct tri_level_costs *c, int64_t bytes, double *flat,
                             double *two)
{
    const double *latency = c->latency_s, *rate = c->bytes_per_s;
    double n = (double)bytes;

    *flat = latency[TRI_LEVEL_ALL] + n / rate[TRI_LEVEL_ALL];
    *two = latency[TRI_LEVEL_INTRA] + n / rate[TRI_LEVEL_INTRA] + latency[TRI_LEVEL_INTER] +
           n / (double)c->slices / rate[TRI_LEVEL_INTER];
}

/* *two: auto takes two levels. The levels are connected. */
static tri_status choose_by_costs(struct tri_world *w, struct tri_level_costs *c,
                                  int64_t bucket_bytes, bool *two)
{
    const struct tri_topology *t = &w->topology;
    bool kept = c->known && c->ranks == t->size && c->nodes == t->nodes && c->slices == t->slices;
    double flat_s, two_s;

    if (!kept)
        TRI_TRY(measure(w, c));
    tri_level_costs_predict(c, bucket_bytes, &flat_s, &two_s);
    *two = two_s < flat_s;
    if (t->rank == 0)
        tri_info("gradients are summed %s: %d nodes, a bucket of %.3g MiB takes %.3g ms in two "
                 "levels and %.3g ms flat (%s)",
                 *two ? "in two levels" : "flat", t->nodes, (double)bucket_bytes / 1048576,
                 two_s * 1e3, flat_s * 1e3, kept ? "by the costs of the checkpoint" : "measured");
    return TRI_OK;
}

tri_status tri_hierarchy_choose(struct tri_world *w, const void *mpi_comm, int wanted,
                                struct tri_level_costs *c, struct tri_exchange_spec *spec)
{
    const struct tri_topology *t = &w->topology;
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
        TRI_TRY(choose_by_costs(w, c, spec->bucket_bytes, &two));
    else if (t->rank == 0)
        tri_info("gradients are summed in two levels, as asked for: %d node%s, %d slice%s",
                 t->nodes, t->nodes == 1 ? "" : "s", t->slices, t->slices == 1 ? "" : "s");
    if (!two) {
        tri_world_drop_levels(w);
        return TRI_OK;
    }
    spec->slices = t->slices;
    spec->local_rank = t->local_rank;
    return TRI_OK;
}

void tri_compression_choose(const struct tri_gradient_options *gradient,
                            const struct tri_optimizer_options *optimizer,
                            const struct tri_mesh *mesh, const struct tri_topology *t,
                            uint64_t seed, const struct tri_level_costs *costs,
                            struct tri_exchange_spec *spec)
{
    struct tri_compress_layout layout = {.rank = mesh->coord[TRI_AXIS_DATA],
                                         .ranks = mesh->size[TRI_AXIS_DATA],
                                         .node = t != NULL ? t->node : 0,
                                         .nodes = t != NULL ? t->nodes : 1,
                                         .slices = spec->slices};
    struct tri_compress_spec *c = &spec->compress;

    *c = tri_compress_spec_make(gradient, optimizer, seed, &layout);
    if (costs->known && costs->bytes_per_s[c->level] > 0)
        c->link = (struct tri_link_rate){costs->bytes_per_s[c->level], costs->latency_s[c->level]};
}
