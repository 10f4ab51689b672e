/* trireme bench step: the training step of a configuration, fed as in training, without a run
 * folder.
 *
 * Times are of the slowest rank. The limits are measured before and after the steps, on all ranks
 * at once, and the better ones count: other work on a machine only ever lowers them. */
#include "launch/bench.h"
#include "launch/feed.h"
#include "launch/job.h"
#include "launch/session.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1024.0 * 1024.0)

enum { WARMUP = 2, MAX_STEPS = 10000 };

/* What is measured in each step: the largest of all ranks. From PHASES on, the time inside the
 * kernels of each phase; that of the exchange is the time inside collectives. */
enum { STEP_S, COMPUTE_S, EXPOSED_S, INPUT_S, PHASES, MEASURED = PHASES + TRI_PHASE_COUNT };

struct bench {
    struct tri_env env;
    struct tri_job_args args;
    int64_t steps;
    const char *json;
    struct tri_comm *control; /* borrowed */
    struct tri_job *job;
    struct tri_session session;
    struct tri_loader *loader;
    struct tri_feed feed;
    double *times[MEASURED];    /* steps each */
    struct tri_exec_span *span; /* of the last step */
    struct tri_bench_limits limits;
};

struct work {
    double plan_flops;    /* of a step, all ranks: what the programs compute */
    double formula_flops; /* 6 N tokens + 12 L C T tokens, or 6 x MACs */
    double units;         /* tokens or samples of a step */
    const char *unit;
    double comm_bytes; /* sent by a rank in a step */
    int64_t resident;  /* bytes, largest rank */
};

static tri_status compile(struct bench *b)
{
    struct tri_session *s = &b->session;
    tri_status st;

    omp_set_num_threads(b->job->spec.threads);
    st = tri_layout_create(&s->layout);
    if (st == TRI_OK)
        st = tri_compile_train(&b->job->spec, s->layout, NULL, &s->train);
    TRI_TRY(tri_comm_agree(b->control, st));
    TRI_TRY(tri_plan_agree(s->train, b->control, tri_world_inter(b->env.world)));
    TRI_TRY(tri_session_start(s, b->env.world));
    if (b->job->cfg->device.graph)
        tri_session_graph(s, b->env.rank == 0);
    return TRI_OK;
}

static tri_status open_loader(struct bench *b)
{
    const struct tri_job *job = b->job;
    const struct tri_data_options *o = &job->cfg->data;
    struct tri_loader_cfg lc = {
        .dataset = job->data,
        .split = TRI_SPLIT_TRAIN,
        .sampler = {.samples = tri_dataset_info(job->data)->samples[TRI_SPLIT_TRAIN],
                    .batch = o->batch,
                    .seed = (uint64_t)job->cfg->run.seed,
                    .shuffle = o->shuffle},
        .grain = job->spec.grains.grain,
        .first_grain = job->spec.grains.first,
        .ngrains = job->spec.grains.count,
        .first_step = 1,
        .last_step = WARMUP + b->steps,
        .depth = (int)o->workers,
        .augment = o->augment};

    TRI_TRY(tri_loader_create(&lc, &b->loader));
    return tri_feed_create(&b->feed, b->session.train, b->session.train_exec, b->loader,
                           job->spec.grains.first);
}

/* The command's steps take the place of run.steps. */
static tri_status open_bench(struct bench *b)
{
    struct tri_config *cfg;

    TRI_TRY(tri_job_load_config(&b->args, &cfg));
    tri_env_set_timeout(&b->env, (int64_t)(cfg->timeouts.collective_s * 1000));
    b->args.need_train = true;
    TRI_TRY(tri_job_create(&b->args, cfg, NULL, &b->job));
    TRI_TRY(tri_job_arrange(b->job, b->env.world, b->env.mpi_comm, NULL));
    TRI_TRY(compile(b));
    TRI_TRY(tri_session_fill(&b->session, (uint64_t)b->job->cfg->run.seed));
    if (b->job->cfg->model.init[0] != '\0')
        TRI_TRY(tri_session_read_weights(&b->session, b->control, b->job->cfg->model.init));
    for (int i = 0; i < MEASURED; i++) {
        b->times[i] = tri_calloc((size_t)b->steps, sizeof(double), "times of steps");
        if (b->times[i] == NULL)
            return tri_fail(TRI_ERR_NOMEM, "bench: cannot hold %lld times", (long long)b->steps);
    }
    b->span = tri_calloc((size_t)b->session.train->ninstr, sizeof(*b->span), "times of a step");
    if (b->span == NULL)
        return tri_fail(TRI_ERR_NOMEM, "bench: cannot hold the times of a step");
    tri_exec_trace(b->session.train_exec, b->span);
    return tri_comm_agree(b->control, open_loader(b));
}

static void add_phases(const struct bench *b, double measured[MEASURED])
{
    const struct tri_program *p = b->session.train;

    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        measured[PHASES + i] = 0;
    for (int i = 0; i < p->ninstr; i++)
        measured[PHASES + p->graph->op[p->instr[i].op].phase] +=
            (double)(b->span[i].end_ns - b->span[i].begin_ns) * 1e-9;
}

static tri_status run_step(struct bench *b, double measured[MEASURED])
{
    struct tri_exec_times x;
    struct tri_batch batch;
    int64_t begin = tri_now_ns(), fed;

    TRI_TRY(tri_loader_next(b->loader, &batch));
    tri_feed_fill(&b->feed, &batch);
    fed = tri_now_ns();
    TRI_TRY(tri_exec_run(b->session.train_exec));
    measured[STEP_S] = (double)(tri_now_ns() - begin) * 1e-9;
    tri_exec_times(b->session.train_exec, &x);
    measured[COMPUTE_S] = (double)x.compute_ns * 1e-9;
    measured[EXPOSED_S] = (double)x.wait_ns * 1e-9;
    measured[INPUT_S] = (double)(fed - begin) * 1e-9;
    add_phases(b, measured);
    return tri_comm_allreduce(b->control, measured, MEASURED, TRI_F64, TRI_REDUCE_MAX, false);
}

static tri_status better_limits(struct bench *b)
{
    struct tri_bench_limits now;

    TRI_TRY(tri_bench_limits(b->control, b->job->spec.threads, &now));
    b->limits.flops_per_s = fmax(b->limits.flops_per_s, now.flops_per_s);
    b->limits.bytes_per_s = fmax(b->limits.bytes_per_s, now.bytes_per_s);
    return TRI_OK;
}

static tri_status measure(struct bench *b)
{
    double measured[MEASURED];

    TRI_TRY(better_limits(b));
    for (int64_t i = -WARMUP; i < b->steps; i++) {
        TRI_TRY(run_step(b, measured));
        for (int k = 0; i >= 0 && k < MEASURED; k++)
            b->times[k][i] = measured[k];
    }
    return better_limits(b);
}

/* Operations of the products and convolutions of this rank's forward pass: 2 a MAC. */
static double forward_products(const struct tri_program *p)
{
    double sum = 0;

    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_op *op = &p->graph->op[p->instr[i].op];
        bool gelu = op->kind == TRI_OP_MATMUL_GELU;
        double flops, bytes;

        if (op->phase != TRI_PHASE_FORWARD ||
            (op->kind != TRI_OP_MATMUL && op->kind != TRI_OP_CONV2D && !gelu))
            continue;
        tri_plan_cost(p, &p->instr[i], &flops, &bytes);
        sum += flops;
        if (gelu)
            sum -= TRI_FLOPS_GELU * (double)tri_shape_count(&p->graph->value[op->out[0]].shape);
    }
    return sum;
}

/* Collective. */
static tri_status count_work(struct bench *b, struct work *w)
{
    const struct tri_model_dims *d = &b->job->dims;
    const struct tri_program *p = b->session.train;
    struct tri_plan_summary sum;
    struct rusage usage = {0};
    double flops[2] = {0, forward_products(p)};
    double tokens = (double)b->job->cfg->data.batch * (double)b->job->shape.sequence;

    tri_plan_summarise(p, &sum);
    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        flops[0] += sum.flops[i];
    TRI_TRY(tri_comm_allreduce(b->control, flops, 2, TRI_F64, TRI_REDUCE_SUM, false));
    *w = (struct work){.plan_flops = flops[0],
                       .formula_flops = 3 * flops[1],
                       .units = (double)b->job->cfg->data.batch,
                       .unit = "samples"};
    if (b->job->shape.task == TRI_TASK_LANGUAGE) {
        w->unit = "tokens";
        w->units = tokens;
        w->formula_flops =
            tokens * (6.0 * (double)sum.params +
                      12.0 * (double)(d->layers * d->width * b->job->shape.sequence));
    }
    w->comm_bytes = (double)tri_world_exchange_bytes(b->env.world) / (double)(b->steps + WARMUP);
    (void)getrusage(RUSAGE_SELF, &usage);
    w->resident = (int64_t)usage.ru_maxrss * 1024;
    return tri_comm_allreduce(b->control, &w->resident, 1, TRI_I64, TRI_REDUCE_MAX, false);
}

static void print_report(const struct bench *b, const struct work *w, double best[MEASURED],
                         double median[MEASURED])
{
    const struct tri_program *p = b->session.train;
    double limit = b->limits.flops_per_s;

    printf("ranks       %d on %d node%s, %d thread%s each; %lld steps after %d to warm up\n",
           b->env.size, b->env.world->topology.nodes, b->env.world->topology.nodes == 1 ? "" : "s",
           b->job->spec.threads, b->job->spec.threads == 1 ? "" : "s", (long long)b->steps, WARMUP);
    printf("step        %.1f ms best, %.1f ms median\n", best[STEP_S] * 1e3, median[STEP_S] * 1e3);
    printf("rate        %.1f %s/s best, %.1f median\n", w->units / best[STEP_S], w->unit,
           w->units / median[STEP_S]);
    printf("plan        %.2f GFLOP a step, %.1f GFLOP/s, %.1f %% of a square product\n",
           w->plan_flops * 1e-9, w->plan_flops / best[STEP_S] * 1e-9,
           100 * w->plan_flops / best[STEP_S] / limit);
    printf("formula     %.2f GFLOP a step, %.1f GFLOP/s, %.1f %% of a square product\n",
           w->formula_flops * 1e-9, w->formula_flops / best[STEP_S] * 1e-9,
           100 * w->formula_flops / best[STEP_S] / limit);
    printf("limits      %.1f GFLOP/s square product, %.1f GB/s triad, all ranks at once\n",
           limit * 1e-9, b->limits.bytes_per_s * 1e-9);
    printf("compute     %.1f ms median; input %.2f ms\n", median[COMPUTE_S] * 1e3,
           median[INPUT_S] * 1e3);
    printf("phases     ");
    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        printf(" %s %.1f ms%s", tri_phase_name((enum tri_phase)i), median[PHASES + i] * 1e3,
               i + 1 < TRI_PHASE_COUNT ? "," : ", median\n");
    printf("exchange    %.1f ms exposed, median (%.1f %% of the step); %.2f MiB sent a rank\n",
           median[EXPOSED_S] * 1e3, 100 * median[EXPOSED_S] / median[STEP_S], w->comm_bytes / MIB);
    printf("memory      %.1f MiB kept, %.1f MiB step, %.1f MiB exchange; %.1f MiB resident\n",
           (double)tri_layout_bytes(b->session.layout) / MIB,
           (double)p->arena_bytes[TRI_ARENA_STEP] / MIB,
           (double)p->arena_bytes[TRI_ARENA_EXCHANGE] / MIB, (double)w->resident / MIB);
}

static void append(struct tri_text *t, const char *key, double value)
{
    tri_text_printf(t, ",\n \"%s\": ", key);
    tri_text_json_double(t, value);
}

static tri_status write_json(const struct bench *b, const struct work *w,
                             const double best[MEASURED], const double median[MEASURED])
{
    const struct tri_program *p = b->session.train;
    struct tri_text t = {0};
    tri_status st;

    tri_bench_begin(&t, "step", b->env.world, b->job->spec.threads);
    tri_text_printf(&t, ",\n \"config\": ");
    tri_text_json_string(&t, b->args.config);
    tri_text_printf(&t, ", \"unit\": \"%s\"", w->unit);
    append(&t, "steps", (double)b->steps);
    append(&t, "best_ms", best[STEP_S] * 1e3);
    append(&t, "median_ms", median[STEP_S] * 1e3);
    append(&t, "per_s", w->units / best[STEP_S]);
    append(&t, "plan_flops", w->plan_flops);
    append(&t, "formula_flops", w->formula_flops);
    append(&t, "product_flops_per_s", b->limits.flops_per_s);
    append(&t, "triad_bytes_per_s", b->limits.bytes_per_s);
    append(&t, "of_product", w->formula_flops / best[STEP_S] / b->limits.flops_per_s);
    append(&t, "compute_ms", median[COMPUTE_S] * 1e3);
    append(&t, "exposed_comm_ms", median[EXPOSED_S] * 1e3);
    append(&t, "input_ms", median[INPUT_S] * 1e3);
    for (int i = 0; i < TRI_PHASE_COUNT; i++) {
        char key[32];

        (void)snprintf(key, sizeof(key), "%s_ms", tri_phase_name((enum tri_phase)i));
        append(&t, key, median[PHASES + i] * 1e3);
    }
    append(&t, "comm_bytes", w->comm_bytes);
    append(&t, "kept_bytes", (double)tri_layout_bytes(b->session.layout));
    append(&t, "step_bytes", (double)p->arena_bytes[TRI_ARENA_STEP]);
    append(&t, "exchange_bytes", (double)p->arena_bytes[TRI_ARENA_EXCHANGE]);
    append(&t, "resident_bytes", (double)w->resident);
    tri_text_printf(&t, "}\n");
    st = tri_bench_write(b->control, b->json, &t);
    tri_text_finish(&t);
    return st;
}

static tri_status run_opened(struct bench *b)
{
    double best[MEASURED], median[MEASURED];
    struct work work;

    TRI_TRY(measure(b));
    TRI_TRY(count_work(b, &work));
    for (int i = 0; i < MEASURED; i++)
        tri_bench_sort(b->times[i], (int)b->steps, &best[i], &median[i]);
    if (b->env.rank == 0)
        print_report(b, &work, best, median);
    return tri_comm_agree(b->control, write_json(b, &work, best, median));
}

static void close_all(struct bench *b)
{
    tri_feed_finish(&b->feed);
    tri_loader_destroy(b->loader);
    tri_session_finish(&b->session);
    tri_job_destroy(b->job);
    for (int i = 0; i < MEASURED; i++)
        tri_free(b->times[i]);
    tri_free(b->span);
    tri_io_stop();
    tri_env_finish(&b->env);
}

static int run_parsed(struct bench *b, const struct tri_arguments *a)
{
    tri_status st = tri_env_init(&b->env);
    bool started = false;

    if (st == TRI_OK)
        st = tri_io_start();
    if (st == TRI_OK) {
        b->control = b->env.world->control;
        b->args = (struct tri_job_args){.config = a->file[0],
                                        .overrides = a->pair,
                                        .noverrides = a->npairs,
                                        .world = b->env.world,
                                        .nranks = b->env.size};
        st = open_bench(b);
        started = st == TRI_OK;
    }
    if (started)
        st = run_opened(b);
    if (st != TRI_OK)
        tri_command_error(b->control, started);
    if (st != TRI_OK && started)
        tri_env_abort(TRI_EXIT_FAILED);
    close_all(b);
    return st == TRI_OK ? TRI_EXIT_DONE : TRI_EXIT_REFUSED;
}

static tri_status parse_steps(const char *text, int64_t *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*end != '\0' || n < 1 || n > MAX_STEPS)
        return tri_fail(TRI_ERR_USAGE, "--steps: '%s' is not a number from 1 to %d", text,
                        MAX_STEPS);
    *out = n;
    return TRI_OK;
}

static int run_step_bench(const struct tri_command *self, int argc, char **argv)
{
    struct bench b = {0};
    const char *steps = "10";
    const struct tri_flag flags[] = {{"steps", &steps}, {"json", &b.json}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 2, 1, &a);
    int code = TRI_EXIT_DONE;

    if (st == TRI_OK && a.help) {
        printf("%s", self->help);
        tri_free(a.pair);
        return code;
    }
    if (st == TRI_OK && a.nfiles == 0)
        st = tri_fail(TRI_ERR_USAGE,
                      "bench step: RUN.yaml is missing (see trireme bench step --help)");
    if (st == TRI_OK)
        st = parse_steps(steps, &b.steps);
    code = st == TRI_OK ? run_parsed(&b, &a) : tri_command_refuse_job(st);
    tri_free(a.pair);
    return code;
}

const struct tri_command tri_bench_step = {
    .name = "step",
    .help = "usage: [mpirun -n N --bind-to none] trireme bench step RUN.yaml [--steps N] [--json "
            "FILE] [key=value ...]\n\n"
            "Runs N training steps (default 10, after 2 to warm up) as `trireme train` would, "
            "without a run folder, and prints\n"
            "the step time of the slowest rank, the rate, GFLOP/s by the plan's own count and by "
            "the usual formula (language\n"
            "models: 6 N + 12 L C T a token; others: 6 a multiply-add of the forward products), "
            "their share of a square product\n"
            "measured in the same run, exposed communication and memory.\n",
    .run = run_step_bench,
};
