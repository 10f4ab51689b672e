/* See costs.h. The file has the format of a configuration, read by the same code. */
#include "launch/costs.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/options.h"
#include "runtime/kernels/kernels.h"

#include <math.h>
#include <stddef.h>
#include <unistd.h>

enum {
    SMALL_COUNT = 16,      /* f32 elements: latency */
    LARGE_COUNT = 1 << 20, /* 4 MiB: rate */
    SMALL_REPEATS = 20,
    LARGE_REPEATS = 3
};

#define COSTS_FILE "costs.yaml"

#define AT(field) offsetof(struct tri_cost_table, field)
#define REAL(key, field, help)                                                                     \
    {                                                                                              \
        key, TRI_OPT_DOUBLE, AT(costs.field), "0", "[0, inf)", help, NULL                          \
    }
#define COUNT(key, field, help)                                                                    \
    {                                                                                              \
        key, TRI_OPT_INT, AT(field), "0", "[0, inf)", help, NULL                                   \
    }
static const struct tri_opt rows[TRI_COST_ITEMS] = {
    COUNT("layout.ranks", ranks, "ranks of the job"),
    COUNT("layout.nodes", nodes, "nodes of the job"),
    COUNT("layout.slices", slices, "ranks of the smallest node"),
    REAL("compute.flops_per_s", flops_per_s, "rate of products, of a rank"),
    REAL("compute.bytes_per_s", bytes_per_s, "rate of memory, of a rank"),
    REAL("all.latency_s", level[TRI_LEVEL_ALL].latency_s, "sum of few bytes over all ranks"),
    REAL("all.bytes_per_s", level[TRI_LEVEL_ALL].bytes_per_s, "rate of long sums over all ranks"),
    REAL("intra.latency_s", level[TRI_LEVEL_INTRA].latency_s, "the same inside nodes"),
    REAL("intra.bytes_per_s", level[TRI_LEVEL_INTRA].bytes_per_s, "the same inside nodes"),
    REAL("inter.latency_s", level[TRI_LEVEL_INTER].latency_s, "the same between nodes"),
    REAL("inter.bytes_per_s", level[TRI_LEVEL_INTER].bytes_per_s, "the same between nodes"),
};
#undef COUNT
#undef REAL
#undef AT

void tri_cost_table_save(const struct tri_cost_table *c,
                         struct tri_checkpoint_item item[TRI_COST_ITEMS])
{
    for (int i = 0; i < TRI_COST_ITEMS; i++) {
        const void *at = (const char *)c + rows[i].offset;
        bool real = rows[i].type == TRI_OPT_DOUBLE;

        item[i] = (struct tri_checkpoint_item){.key = rows[i].key, .real = real};
        if (real)
            item[i].value = *(const double *)at;
        else
            item[i].integer = *(const int64_t *)at;
    }
}

void tri_cost_table_load(const struct tri_checkpoint *from, struct tri_cost_table *c)
{
    bool ok = true;

    *c = (struct tri_cost_table){0};
    for (int i = 0; ok && i < TRI_COST_ITEMS; i++) {
        void *at = (char *)c + rows[i].offset;

        ok = rows[i].type == TRI_OPT_DOUBLE ? tri_checkpoint_real(from, rows[i].key, at)
                                            : tri_checkpoint_integer(from, rows[i].key, at);
    }
    c->source = ok ? TRI_COSTS_CHECKPOINT : TRI_COSTS_UNKNOWN;
}

static tri_status open_rows(struct tri_opt_section *section, struct tri_cost_table *c,
                            struct tri_opts **out)
{
    *section = (struct tri_opt_section){.rows = rows, .count = TRI_COST_ITEMS};
    return tri_opts_create(section, 1, c, out);
}

tri_status tri_cost_table_read(const char *run_dir, struct tri_cost_table *c)
{
    struct tri_cost_table read = {0};
    struct tri_opt_section section;
    struct tri_opts *opts = NULL;
    char *path = NULL;
    tri_status st = TRI_OK;

    *c = read;
    TRI_TRY(tri_path_join(run_dir, COSTS_FILE, &path));
    if (access(path, F_OK) != 0)
        goto free_path;
    TRI_TRY_GOTO(st, open_rows(&section, &read, &opts), free_path);
    TRI_TRY_GOTO(st, tri_opts_read_file(opts, path), destroy_opts);
    read.source = TRI_COSTS_FILE;
    *c = read;

destroy_opts:
    tri_opts_destroy(opts);
free_path:
    tri_free(path);
    return st;
}

tri_status tri_cost_table_write(const char *run_dir, const struct tri_cost_table *c)
{
    struct tri_cost_table copy = {0};
    struct tri_opt_section section;
    struct tri_opts *opts = NULL;
    struct tri_text text = {0};
    char *path = NULL;
    tri_status st;

    TRI_TRY(tri_path_join(run_dir, COSTS_FILE, &path));
    TRI_TRY_GOTO(st, open_rows(&section, &copy, &opts), free_path);
    copy = *c; /* over the defaults */
    tri_opts_print(opts, &text);
    st = text.failed ? tri_fail(TRI_ERR_NOMEM, "cannot print the costs")
                     : tri_write_file(path, text.data, text.len);
    tri_text_finish(&text);
    tri_opts_destroy(opts);
free_path:
    tri_free(path);
    return st;
}

tri_status tri_cost_table_share(const char *run_dir, struct tri_comm *control,
                                struct tri_cost_table *c)
{
    struct tri_cost_table read = {0};
    tri_status st = TRI_OK;

    if (tri_comm_rank(control) == 0)
        st = tri_cost_table_read(run_dir, &read);
    TRI_TRY(tri_comm_agree(control, st));
    TRI_TRY(tri_comm_broadcast(control, &read, sizeof(read), 0));
    if (read.source != TRI_COSTS_UNKNOWN)
        *c = read;
    return TRI_OK;
}

bool tri_cost_table_fits(const struct tri_cost_table *c, const struct tri_topology *t)
{
    return c->source != TRI_COSTS_UNKNOWN && c->ranks == t->size && c->nodes == t->nodes &&
           c->slices == t->slices;
}

const char *tri_cost_table_origin(const struct tri_cost_table *c)
{
    static const char *const text[] = {"unknown", "measured", "by the costs of the run folder",
                                       "by the costs of the checkpoint"};

    return text[c->source];
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

static tri_status measure_levels(const struct tri_world *w, float *x, struct tri_costs *c)
{
    struct tri_comm *comm[TRI_LEVEL_COUNT] = {w->exchange, w->intra, w->inter};

    for (int l = 0; l < TRI_LEVEL_COUNT; l++) {
        double small, large;

        TRI_TRY(time_sum(w->control, comm[l], x, SMALL_COUNT, SMALL_REPEATS, &small));
        TRI_TRY(time_sum(w->control, comm[l], x, LARGE_COUNT, LARGE_REPEATS, &large));
        c->level[l].latency_s = small;
        c->level[l].bytes_per_s = LARGE_COUNT * sizeof(*x) / fmax(large - small, 1e-9);
    }
    return TRI_OK;
}

tri_status tri_cost_table_measure(const struct tri_world *w, int threads, struct tri_cost_table *c)
{
    const struct tri_topology *t = &w->topology;
    struct tri_cost_table made = {
        .source = TRI_COSTS_MEASURED, .ranks = t->size, .nodes = t->nodes, .slices = t->slices};
    float *x = tri_calloc(LARGE_COUNT, sizeof(*x), "measurement");
    double rate[2];
    tri_status st = TRI_OK;

    if (x == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a measurement of %d elements", LARGE_COUNT);
    if (st == TRI_OK)
        st = tri_costs_measure(tri_kernels_cpu, threads, &made.costs);
    TRI_TRY_GOTO(st, tri_comm_agree(w->control, st), free_data);
    rate[0] = made.costs.flops_per_s;
    rate[1] = made.costs.bytes_per_s;
    TRI_TRY_GOTO(st, tri_comm_allreduce(w->control, rate, 2, TRI_F64, TRI_REDUCE_MIN, false),
                 free_data);
    made.costs.flops_per_s = rate[0];
    made.costs.bytes_per_s = rate[1];
    TRI_TRY_GOTO(st, measure_levels(w, x, &made.costs), free_data);
    *c = made;

free_data:
    tri_free(x);
    return st;
}
