/* See costs.h. The file has the format of a configuration, read by the same code. */
#include "launch/costs.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/options.h"

#include <math.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALL_COUNT = 16,       /* f32 elements: latency */
    LARGE_COUNT = 1 << 20,  /* 4 MiB: rate */
    DEVICE_COUNT = 1 << 22, /* the same between devices, whose links are faster: 16 MiB */
    SMALL_REPEATS = 20,
    LARGE_REPEATS = 3,
    SPIN_NS = 200000, /* polls before it naps */
    NAP_NS = 20000
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
    COUNT("layout.device", device,
          "0: CPU; CUDA with products in 1: fp32, 2: tf32, 3: bf16, 4: fp16"),
    COUNT("layout.nccl", nccl, "1: sums travel by NCCL, 0: by MPI"),
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

/* As the table names it. */
static int64_t device_code(const struct tri_measured *m)
{
    if (m->device->host)
        return 0;
    if (m->compute == TRI_F32)
        return m->tf32 ? 2 : 1;
    return m->compute == TRI_BF16 ? 3 : 4;
}

bool tri_cost_table_fits(const struct tri_cost_table *c, const struct tri_topology *t,
                         const struct tri_measured *m, bool nccl)
{
    return c->source != TRI_COSTS_UNKNOWN && c->ranks == t->size && c->nodes == t->nodes &&
           c->slices == t->slices && c->device == device_code(m) && c->nccl == nccl;
}

const char *tri_cost_table_origin(const struct tri_cost_table *c)
{
    static const char *const text[] = {"unknown", "measured", "by the costs of the run folder",
                                       "by the costs of the checkpoint"};

    return text[c->source];
}

/* What is summed: memory of the process, or of a device beside its stream. */
struct summed {
    struct tri_device *d; /* NULL: memory of the process */
    void *stream, *event;
    float *x;
    int64_t count; /* elements of a long sum */
};

/* Until the stream has done what it was given. A lost peer and the deadline show in a poll. */
static tri_status await_stream(const struct summed *s, struct tri_comm *comm)
{
    const struct tri_device_ops *ops = s->d->ops;
    int64_t begin = tri_now_ns();
    bool ended = false;

    TRI_TRY(ops->event_record(s->d, s->event, s->stream));
    for (;;) {
        TRI_TRY(ops->event_query(s->d, s->event, &ended));
        if (comm->ops->poll != NULL)
            TRI_TRY(comm->ops->poll(comm));
        if (ended)
            return TRI_OK;
        if (tri_now_ns() - begin > SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* comm NULL: this rank has no part in it. */
static tri_status sum_once(const struct summed *s, struct tri_comm *comm, int64_t count)
{
    if (comm == NULL)
        return TRI_OK;
    if (!comm->ops->on_stream)
        return tri_comm_allreduce(comm, s->x, count, TRI_F32, TRI_REDUCE_SUM, false);
    comm->stream = s->stream;
    TRI_TRY(tri_comm_allreduce(comm, s->x, count, TRI_F32, TRI_REDUCE_SUM, false));
    return await_stream(s, comm);
}

/* The slowest rank's shortest time of a sum over comm. */
static tri_status time_sum(struct tri_comm *control, struct tri_comm *comm, const struct summed *s,
                           int64_t count, int repeats, double *seconds)
{
    double best = INFINITY;

    for (int k = 0; k < repeats; k++) {
        int64_t begin;

        TRI_TRY(tri_comm_barrier(control));
        begin = tri_now_ns();
        TRI_TRY(sum_once(s, comm, count));
        best = fmin(best, (double)(tri_now_ns() - begin) * 1e-9);
    }
    TRI_TRY(tri_comm_allreduce(control, &best, 1, TRI_F64, TRI_REDUCE_MAX, false));
    *seconds = best;
    return TRI_OK;
}

static tri_status measure_levels(const struct tri_world *w, const struct summed *s,
                                 struct tri_costs *c)
{
    struct tri_comm *comm[TRI_LEVEL_COUNT] = {w->exchange, w->intra, w->inter};

    for (int l = 0; l < TRI_LEVEL_COUNT; l++) {
        double small, large;

        TRI_TRY(time_sum(w->control, comm[l], s, SMALL_COUNT, SMALL_REPEATS, &small));
        TRI_TRY(time_sum(w->control, comm[l], s, s->count, LARGE_REPEATS, &large));
        c->level[l].latency_s = small;
        c->level[l].bytes_per_s = (double)s->count * sizeof(*s->x) / fmax(large - small, 1e-9);
    }
    return TRI_OK;
}

static tri_status open_summed(struct summed *s, struct tri_device *device, bool nccl)
{
    const struct tri_device_ops *ops = device->ops;
    void *x;

    if (!nccl) {
        s->count = LARGE_COUNT;
        s->x = tri_calloc(LARGE_COUNT, sizeof(*s->x), "measurement");
        return s->x != NULL ? TRI_OK
                            : tri_fail(TRI_ERR_NOMEM,
                                       "cannot allocate a measurement of %d elements", LARGE_COUNT);
    }
    s->d = device;
    s->count = DEVICE_COUNT;
    TRI_TRY(ops->stream_create(device, true, &s->stream));
    TRI_TRY(ops->event_create(device, false, &s->event));
    TRI_TRY(ops->alloc(device, DEVICE_COUNT * sizeof(*s->x), &x));
    s->x = x;
    return TRI_OK;
}

static void close_summed(struct summed *s)
{
    if (s->d == NULL) {
        tri_free(s->x);
        return;
    }
    s->d->ops->free(s->d, s->x);
    if (s->event != NULL)
        s->d->ops->event_destroy(s->d, s->event);
    if (s->stream != NULL)
        s->d->ops->stream_destroy(s->d, s->stream);
}

/* The slowest rank's. Collective. */
static tri_status measure_compute(struct tri_comm *control, const struct tri_measured *m,
                                  struct tri_costs *c)
{
    double rate[2];

    TRI_TRY(tri_comm_agree(control, tri_device_measure(m, c)));
    rate[0] = c->flops_per_s;
    rate[1] = c->bytes_per_s;
    TRI_TRY(tri_comm_allreduce(control, rate, 2, TRI_F64, TRI_REDUCE_MIN, false));
    c->flops_per_s = rate[0];
    c->bytes_per_s = rate[1];
    return TRI_OK;
}

tri_status tri_cost_table_measure(const struct tri_world *w, const struct tri_measured *m,
                                  struct tri_cost_table *c)
{
    const struct tri_topology *t = &w->topology;
    bool nccl = w->beside[0] != NULL;
    struct tri_cost_table made = {.source = TRI_COSTS_MEASURED,
                                  .ranks = t->size,
                                  .nodes = t->nodes,
                                  .slices = t->slices,
                                  .device = device_code(m),
                                  .nccl = nccl};
    struct summed s = {0};
    tri_status st;

    TRI_TRY(measure_compute(w->control, m, &made.costs));
    TRI_TRY_GOTO(st, tri_comm_agree(w->control, open_summed(&s, m->device, nccl)), close);
    st = measure_levels(w, &s, &made.costs);
    if (st == TRI_OK)
        *c = made;

close:
    close_summed(&s);
    return st;
}
