/* trireme bench scaling: the training step of a configuration on 1, 2, 4, ... of the ranks of one
 * job, in turn.
 *
 * Weak: data.batch samples for each rank; strong: data.batch samples in all. Each size is a job of
 * the first ranks alone, with communicators of its own; the others sleep in a barrier. Threads of a
 * rank are those that it gets among all ranks, so that a small size is not faster by idle cores. */
#include "launch/bench.h"
#include "launch/threads.h"
#include "launch/timed_steps.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6

enum { MAX_SIZES = 16, OVERRIDES = 3, OVERRIDE_BYTES = 512 };

enum mode { WEAK, STRONG, MODES };
static const char *const mode_name[MODES] = {"weak", "strong"};

/* One size under one mode. Times are those of rank 0, which is of every size. */
struct point {
    int ranks, nodes;
    int64_t batch;
    double units; /* samples or tokens of a step */
    struct tri_step_times times;
};

struct bench {
    struct tri_env env;
    const char *config, *json, *link;
    const char **pair; /* borrowed; followed by OVERRIDES free places */
    int npairs;
    int64_t steps, batch;
    struct tri_config *cfg; /* as written, for all ranks */
    const char *unit;
    int threads;
    int size[MAX_SIZES], nsizes;
    struct point point[MODES][MAX_SIZES];
};

/* "1,2,4": ascending, at most all ranks. */
static tri_status parse_sizes(struct bench *b, const char *text)
{
    for (const char *at = text; b->nsizes < MAX_SIZES;) {
        char *end;
        long n = strtol(at, &end, 10);

        if (end == at || n <= (b->nsizes > 0 ? b->size[b->nsizes - 1] : 0) || n > b->env.size ||
            (*end != ',' && *end != '\0'))
            break;
        b->size[b->nsizes++] = (int)n;
        if (*end == '\0')
            return TRI_OK;
        at = end + 1;
    }
    return tri_fail(TRI_ERR_USAGE,
                    "--ranks: '%s' is no list of at most %d growing numbers up to %d", text,
                    MAX_SIZES, b->env.size);
}

/* 1, 2, 4, ... and all ranks. */
static void fill_sizes(struct bench *b)
{
    for (int n = 1; n < b->env.size && b->nsizes < MAX_SIZES - 1; n *= 2)
        b->size[b->nsizes++] = n;
    b->size[b->nsizes++] = b->env.size;
}

/* debug.nodes cut off behind `ranks` ranks; empty where the nodes are the real ones. */
static void print_nodes(const struct tri_opt_ints *nodes, int ranks, char text[OVERRIDE_BYTES])
{
    int64_t left = ranks;
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < nodes->count && left > 0 && at < OVERRIDE_BYTES - 32; i++) {
        int64_t n = nodes->v[i] < left ? nodes->v[i] : left;

        at += (size_t)snprintf(text + at, OVERRIDE_BYTES - at, "%s%lld",
                               i == 0 ? "debug.nodes=[" : ",", (long long)n);
        left -= n;
    }
    if (at > 0)
        (void)snprintf(text + at, OVERRIDE_BYTES - at, "]");
}

/* Steps of `p->batch` samples on the ranks of `first`. Collective over them. */
static tri_status time_steps(struct bench *b, struct tri_env *first, struct point *p)
{
    struct tri_timed_steps timed = {0};
    char extra[OVERRIDES][OVERRIDE_BYTES];
    struct tri_job_args args = {.config = b->config,
                                .overrides = b->pair,
                                .noverrides = b->npairs,
                                .world = first->world,
                                .nranks = first->size,
                                .need_train = true};
    tri_status st;

    (void)snprintf(extra[0], OVERRIDE_BYTES, "data.batch=%lld", (long long)p->batch);
    (void)snprintf(extra[1], OVERRIDE_BYTES, "run.threads=%d", b->threads);
    print_nodes(&b->cfg->debug.nodes, first->size, extra[2]);
    for (int i = 0; i < OVERRIDES; i++)
        if (extra[i][0] != '\0')
            b->pair[args.noverrides++] = extra[i];
    st = tri_timed_steps_init(&timed, first, &args, b->steps);
    if (st == TRI_OK)
        st = tri_timed_steps_run(&timed, &p->times);
    if (st == TRI_OK) {
        bool language = timed.job->shape.task == TRI_TASK_LANGUAGE;

        b->unit = language ? "tokens" : "samples";
        p->units = (double)(p->batch * (language ? timed.job->shape.sequence : 1));
        p->nodes = first->world->topology.nodes;
    }
    tri_timed_steps_finish(&timed);
    return st;
}

static tri_status measure_point(struct bench *b, struct point *p)
{
    struct tri_env first;
    tri_status st = tri_env_enter_first(&b->env, p->ranks, &first);

    if (st == TRI_OK && first.world != NULL)
        st = time_steps(b, &first, p);
    tri_env_leave(&first);
    return tri_comm_agree(b->env.world->control, st);
}

static tri_status measure_all(struct bench *b)
{
    for (int m = 0; m < MODES; m++)
        for (int i = 0; i < b->nsizes; i++) {
            struct point *p = &b->point[m][i];

            if (m == STRONG && b->size[i] == 1) { /* the same work as in weak scaling */
                *p = b->point[WEAK][i];
                continue;
            }
            p->ranks = b->size[i];
            p->batch = m == WEAK ? b->batch * p->ranks : b->batch;
            TRI_TRY(measure_point(b, p));
        }
    return TRI_OK;
}

/* Against the smallest size: its step / this step, for strong scaling also its ranks / these. */
static double efficiency(const struct bench *b, enum mode m, const struct point *p)
{
    const struct point *base = &b->point[m][0];
    double ratio = base->times.best[TRI_TIMED_STEP_S] / p->times.best[TRI_TIMED_STEP_S];

    return m == WEAK ? ratio : ratio * base->ranks / p->ranks;
}

static void print_table(const struct bench *b)
{
    printf("%-6s %5s %5s %7s %10s %10s %12s %10s %10s %7s %9s %9s %9s\n", "mode", "ranks", "nodes",
           "batch", "step ms", "median ms", b->unit[0] == 't' ? "tokens/s" : "samples/s",
           "efficiency", "exposed ms", "exposed", "flat MB", "intra MB", "inter MB");
    for (int m = 0; m < MODES; m++)
        for (int i = 0; i < b->nsizes; i++) {
            const struct point *p = &b->point[m][i];
            const double *best = p->times.best, *median = p->times.median, *sent = p->times.sent;

            printf(
                "%-6s %5d %5d %7lld %10.2f %10.2f %12.1f %8.1f %% %10.2f %5.1f %% %9.3f %9.3f "
                "%9.3f\n",
                mode_name[m], p->ranks, p->nodes, (long long)p->batch, best[TRI_TIMED_STEP_S] * 1e3,
                median[TRI_TIMED_STEP_S] * 1e3, p->units / best[TRI_TIMED_STEP_S],
                100 * efficiency(b, (enum mode)m, p), median[TRI_TIMED_EXPOSED_S] * 1e3,
                100 * median[TRI_TIMED_EXPOSED_S] / median[TRI_TIMED_STEP_S],
                sent[TRI_LEVEL_ALL] / MB, sent[TRI_LEVEL_INTRA] / MB, sent[TRI_LEVEL_INTER] / MB);
        }
}

static void append(struct tri_text *t, const char *key, double value)
{
    tri_text_printf(t, ", \"%s\": ", key);
    tri_text_json_double(t, value);
}

static void append_point(const struct bench *b, enum mode m, const struct point *p,
                         struct tri_text *t)
{
    const double *best = p->times.best, *median = p->times.median, *sent = p->times.sent;

    tri_text_printf(t, "{\"mode\": \"%s\", \"ranks\": %d, \"nodes\": %d, \"batch\": %lld",
                    mode_name[m], p->ranks, p->nodes, (long long)p->batch);
    append(t, "best_ms", best[TRI_TIMED_STEP_S] * 1e3);
    append(t, "median_ms", median[TRI_TIMED_STEP_S] * 1e3);
    append(t, "per_s", p->units / best[TRI_TIMED_STEP_S]);
    append(t, "efficiency", efficiency(b, m, p));
    append(t, "compute_ms", median[TRI_TIMED_COMPUTE_S] * 1e3);
    append(t, "exposed_comm_ms", median[TRI_TIMED_EXPOSED_S] * 1e3);
    append(t, "input_ms", median[TRI_TIMED_INPUT_S] * 1e3);
    append(t, "flat_bytes", sent[TRI_LEVEL_ALL]);
    append(t, "intra_bytes", sent[TRI_LEVEL_INTRA]);
    append(t, "inter_bytes", sent[TRI_LEVEL_INTER]);
    tri_text_printf(t, "}");
}

static tri_status write_json(const struct bench *b)
{
    struct tri_topology topology = b->env.world->topology; /* its tables stay the world's */
    struct tri_text t = {0};
    tri_status st;

    topology.pretended = b->cfg->debug.nodes.count > 0;
    topology.nodes = b->point[WEAK][b->nsizes - 1].nodes;
    tri_bench_begin(&t, "scaling", &(struct tri_bench_setting){&topology, b->threads, b->link});
    tri_text_printf(&t, ",\n \"config\": ");
    tri_text_json_string(&t, b->config);
    tri_text_printf(&t, ", \"unit\": \"%s\", \"steps\": %lld, \"lines\": [", b->unit,
                    (long long)b->steps);
    for (int m = 0; m < MODES; m++)
        for (int i = 0; i < b->nsizes; i++) {
            tri_text_printf(&t, "%s\n  ", m + i > 0 ? "," : "");
            append_point(b, (enum mode)m, &b->point[m][i], &t);
        }
    tri_text_printf(&t, "]}\n");
    st = tri_bench_write(b->env.world->control, b->json, &t);
    tri_text_finish(&t);
    return st;
}

/* Sizes, batch and threads. Collective. */
static tri_status settle(struct bench *b, const char *sizes)
{
    struct tri_job_args args = {.config = b->config,
                                .overrides = b->pair,
                                .noverrides = b->npairs,
                                .world = b->env.world,
                                .nranks = b->env.size};
    struct tri_env_settings settings;

    if (sizes != NULL)
        TRI_TRY(parse_sizes(b, sizes));
    else
        fill_sizes(b);
    TRI_TRY(tri_job_load_config(&args, &b->cfg));
    b->batch = b->cfg->data.batch;
    tri_env_read_settings(&settings);
    TRI_TRY(tri_threads_choose(b->cfg->run.threads, settings.threads, b->env.world, &b->threads));
    /* Those who are not of a size wait as long as it takes. */
    tri_env_set_timeout(&b->env, -1);
    return TRI_OK;
}

static int run_parsed(struct bench *b, const char *sizes)
{
    tri_status st = tri_env_init(&b->env);
    struct tri_comm *control = st == TRI_OK ? b->env.world->control : NULL;

    if (st == TRI_OK)
        st = tri_io_start();
    if (st == TRI_OK)
        st = settle(b, sizes);
    if (st == TRI_OK)
        st = measure_all(b);
    if (st == TRI_OK && b->env.rank == 0) {
        print_table(b);
        st = write_json(b);
    }
    if (control != NULL)
        st = tri_comm_agree(control, st);
    if (st != TRI_OK)
        tri_command_error(control, false);
    tri_config_destroy(b->cfg);
    tri_io_stop();
    tri_env_finish(&b->env);
    return st == TRI_OK ? TRI_EXIT_DONE : TRI_EXIT_REFUSED;
}

/* Room for the overrides of a size behind the user's. */
static tri_status copy_pairs(struct bench *b, const struct tri_arguments *a)
{
    size_t n = (size_t)a->npairs;

    b->pair = tri_calloc(n + OVERRIDES, sizeof(*b->pair), "overrides");
    if (b->pair == NULL)
        return tri_fail(TRI_ERR_NOMEM, "bench: cannot hold %d overrides", a->npairs);
    for (size_t i = 0; i < n; i++)
        b->pair[i] = a->pair[i];
    b->npairs = a->npairs;
    b->config = a->file[0];
    return TRI_OK;
}

static int run_scaling(const struct tri_command *self, int argc, char **argv)
{
    struct bench b = {0};
    const char *steps = "10", *sizes = NULL;
    const struct tri_flag flags[] = {
        {"steps", &steps}, {"ranks", &sizes}, {"json", &b.json}, {"link", &b.link}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 4, 1, &a);
    int code = TRI_EXIT_DONE;

    if (st == TRI_OK && a.help) {
        printf("%s", self->help);
        tri_free(a.pair);
        return code;
    }
    if (st == TRI_OK && a.nfiles == 0)
        st = tri_fail(TRI_ERR_USAGE,
                      "bench scaling: RUN.yaml is missing (see trireme bench scaling --help)");
    if (st == TRI_OK)
        st = tri_timed_steps_parse(steps, &b.steps);
    if (st == TRI_OK)
        st = copy_pairs(&b, &a);
    code = st == TRI_OK ? run_parsed(&b, sizes) : tri_command_refuse_job(st);
    tri_free(b.pair);
    tri_free(a.pair);
    return code;
}

const struct tri_command tri_bench_scaling = {
    .name = "scaling",
    .help =
        "usage: mpirun -n N --bind-to none trireme bench scaling RUN.yaml [--ranks 1,2,4] [--steps "
        "N] [--json FILE] [--link TEXT]\n"
        "           [key=value ...]\n\n"
        "Times N training steps (default 10, after 2 to warm up) on the first 1, 2, 4, ... ranks "
        "of "
        "the job in turn, while the\nothers sleep, and prints for each size\n"
        "  weak     data.batch samples for each rank: efficiency = step of the smallest size / "
        "this "
        "step\n"
        "  strong   data.batch samples in all: the same, times ranks of the smallest size / these "
        "ranks\n"
        "step is the best of the slowest rank; exposed is the time that its kernels wait for the "
        "exchange, median, and its part\nof the step; flat, intra and inter are what a rank sends "
        "of gradients in a step to all ranks at once, inside its node and\nbetween nodes. Which "
        "ranks share a node is mpirun's choice (--map-by), or that of debug.nodes, which is cut to "
        "the\nsize. A rank has the threads that it gets among all ranks. --link states what joins "
        "the nodes, for the environment in\nthe result. benchmarks/scaling.sh draws the plot.\n",
    .run = run_scaling,
};
