/* trireme bench step: the training step of a configuration, fed as in training, without a run
 * folder.
 *
 * Times are of the slowest rank. The limits are measured before and after the steps, on all ranks
 * at once, and the better ones count: other work on a machine only ever lowers them. */
#include "launch/bench.h"
#include "launch/timed_steps.h"

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

struct bench {
    struct tri_env env;
    struct tri_job_args args;
    int64_t steps;
    const char *json, *link;
    struct tri_comm *control; /* borrowed */
    struct tri_timed_steps timed;
    struct tri_step_times times;
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

static tri_status better_limits(struct bench *b)
{
    const struct tri_measured m = tri_job_measured(b->timed.job);
    struct tri_bench_limits now;
    tri_status st = tri_bench_limits(b->control, &m, &now);

    if (st == TRI_ERR_NOMEM && !m.device->host)
        return TRI_OK; /* the model takes all of the device: there is no limit to compare with */
    TRI_TRY(st);
    b->limits.flops_per_s = fmax(b->limits.flops_per_s, now.flops_per_s);
    b->limits.bytes_per_s = fmax(b->limits.bytes_per_s, now.bytes_per_s);
    return TRI_OK;
}

static tri_status measure(struct bench *b)
{
    TRI_TRY(better_limits(b));
    TRI_TRY(tri_timed_steps_run(&b->timed, &b->times));
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
    const struct tri_model_dims *d = &b->timed.job->dims;
    const struct tri_program *p = b->timed.session.train;
    struct tri_plan_summary sum;
    struct rusage usage = {0};
    double flops[2] = {0, forward_products(p)};
    double tokens = (double)b->timed.job->cfg->data.batch * (double)b->timed.job->shape.sequence;

    tri_plan_summarise(p, &sum);
    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        flops[0] += sum.flops[i];
    TRI_TRY(tri_comm_allreduce(b->control, flops, 2, TRI_F64, TRI_REDUCE_SUM, false));
    *w = (struct work){.plan_flops = flops[0],
                       .formula_flops = 3 * flops[1],
                       .units = (double)b->timed.job->cfg->data.batch,
                       .unit = "samples"};
    if (b->timed.job->shape.task == TRI_TASK_LANGUAGE) {
        w->unit = "tokens";
        w->units = tokens;
        w->formula_flops =
            tokens * (6.0 * (double)sum.params +
                      12.0 * (double)(d->layers * d->width * b->timed.job->shape.sequence));
    }
    w->comm_bytes = b->times.sent[TRI_LEVEL_ALL] + b->times.sent[TRI_LEVEL_INTRA] +
                    b->times.sent[TRI_LEVEL_INTER];
    (void)getrusage(RUSAGE_SELF, &usage);
    w->resident = (int64_t)usage.ru_maxrss * 1024;
    return tri_comm_allreduce(b->control, &w->resident, 1, TRI_I64, TRI_REDUCE_MAX, false);
}

static void print_flops(const char *name, double flops, double seconds, double limit)
{
    printf("%-11s %.2f GFLOP a step, %.1f GFLOP/s", name, flops * 1e-9, flops / seconds * 1e-9);
    if (limit > 0)
        printf(", %.1f %% of a square product", 100 * flops / seconds / limit);
    printf("\n");
}

static void print_limits(const struct bench *b)
{
    const struct tri_measured m = tri_job_measured(b->timed.job);

    if (b->limits.flops_per_s <= 0)
        printf("limits      not measured: %s has no room for it beside the model\n",
               m.device->name);
    else if (m.device->host)
        printf("limits      %.1f GFLOP/s square product, %.1f GB/s triad, all ranks at once\n",
               b->limits.flops_per_s * 1e-9, b->limits.bytes_per_s * 1e-9);
    else
        printf("limits      %.1f GFLOP/s square product of %s%s, %.1f GB/s copy, all ranks at once "
               "on %s\n",
               b->limits.flops_per_s * 1e-9, tri_dtype_name(m.compute), m.tf32 ? " in tf32" : "",
               b->limits.bytes_per_s * 1e-9, m.device->name);
}

static void print_report(const struct bench *b, const struct work *w)
{
    const double *best = b->times.best, *median = b->times.median;
    const struct tri_program *p = b->timed.session.train;

    printf("ranks       %d on %d node%s, %d thread%s each; %lld steps after %d to warm up\n",
           b->env.size, b->env.world->topology.nodes, b->env.world->topology.nodes == 1 ? "" : "s",
           b->timed.job->spec.threads, b->timed.job->spec.threads == 1 ? "" : "s",
           (long long)b->steps, TRI_TIMED_WARMUP);
    printf("step        %.1f ms best, %.1f ms median\n", best[TRI_TIMED_STEP_S] * 1e3,
           median[TRI_TIMED_STEP_S] * 1e3);
    printf("rate        %.1f %s/s best, %.1f median\n", w->units / best[TRI_TIMED_STEP_S], w->unit,
           w->units / median[TRI_TIMED_STEP_S]);
    print_flops("plan", w->plan_flops, best[TRI_TIMED_STEP_S], b->limits.flops_per_s);
    print_flops("formula", w->formula_flops, best[TRI_TIMED_STEP_S], b->limits.flops_per_s);
    print_limits(b);
    printf("compute     %.1f ms median; input %.2f ms\n", median[TRI_TIMED_COMPUTE_S] * 1e3,
           median[TRI_TIMED_INPUT_S] * 1e3);
    printf("phases     ");
    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        printf(" %s %.1f ms%s", tri_phase_name((enum tri_phase)i),
               median[TRI_TIMED_PHASES + i] * 1e3, i + 1 < TRI_PHASE_COUNT ? "," : ", median\n");
    printf("exchange    %.1f ms exposed, median (%.1f %% of the step); %.2f MiB sent a rank\n",
           median[TRI_TIMED_EXPOSED_S] * 1e3,
           100 * median[TRI_TIMED_EXPOSED_S] / median[TRI_TIMED_STEP_S], w->comm_bytes / MIB);
    printf("memory      %.1f MiB kept, %.1f MiB step, %.1f MiB exchange; %.1f MiB resident\n",
           (double)tri_layout_bytes(b->timed.session.layout) / MIB,
           (double)p->arena_bytes[TRI_ARENA_STEP] / MIB,
           (double)p->arena_bytes[TRI_ARENA_EXCHANGE] / MIB, (double)w->resident / MIB);
}

static void append(struct tri_text *t, const char *key, double value)
{
    tri_text_printf(t, ",\n \"%s\": ", key);
    tri_text_json_double(t, value);
}

/* What was not measured is null in the result. */
static double known(double rate)
{
    return rate > 0 ? rate : (double)NAN;
}

static tri_status write_json(const struct bench *b, const struct work *w)
{
    const double *best = b->times.best, *median = b->times.median;
    const struct tri_program *p = b->timed.session.train;
    const struct tri_device *d = b->timed.job->spec.device;
    struct tri_text t = {0};
    tri_status st;

    tri_bench_begin(
        &t, "step",
        &(struct tri_bench_setting){&b->env.world->topology, b->timed.job->spec.threads, b->link});
    tri_text_printf(&t, ",\n \"config\": ");
    tri_text_json_string(&t, b->args.config);
    tri_text_printf(&t, ", \"unit\": \"%s\", \"device\": ", w->unit);
    tri_text_json_string(&t, d->name);
    append(&t, "steps", (double)b->steps);
    append(&t, "best_ms", best[TRI_TIMED_STEP_S] * 1e3);
    append(&t, "median_ms", median[TRI_TIMED_STEP_S] * 1e3);
    append(&t, "per_s", w->units / best[TRI_TIMED_STEP_S]);
    append(&t, "plan_flops", w->plan_flops);
    append(&t, "formula_flops", w->formula_flops);
    append(&t, "product_flops_per_s", known(b->limits.flops_per_s));
    append(&t, d->host ? "triad_bytes_per_s" : "copy_bytes_per_s", known(b->limits.bytes_per_s));
    append(&t, "of_product",
           w->formula_flops / best[TRI_TIMED_STEP_S] / known(b->limits.flops_per_s));
    append(&t, "compute_ms", median[TRI_TIMED_COMPUTE_S] * 1e3);
    append(&t, "exposed_comm_ms", median[TRI_TIMED_EXPOSED_S] * 1e3);
    append(&t, "input_ms", median[TRI_TIMED_INPUT_S] * 1e3);
    for (int i = 0; i < TRI_PHASE_COUNT; i++) {
        char key[32];

        (void)snprintf(key, sizeof(key), "%s_ms", tri_phase_name((enum tri_phase)i));
        append(&t, key, median[TRI_TIMED_PHASES + i] * 1e3);
    }
    append(&t, "comm_bytes", w->comm_bytes);
    append(&t, "kept_bytes", (double)tri_layout_bytes(b->timed.session.layout));
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
    struct work work;

    TRI_TRY(measure(b));
    TRI_TRY(count_work(b, &work));
    if (b->env.rank == 0)
        print_report(b, &work);
    return tri_comm_agree(b->control, write_json(b, &work));
}

static void close_all(struct bench *b)
{
    tri_timed_steps_finish(&b->timed);
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
                                        .nranks = b->env.size,
                                        .need_train = true};
        st = tri_timed_steps_init(&b->timed, &b->env, &b->args, b->steps);
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

static int run_step_bench(const struct tri_command *self, int argc, char **argv)
{
    struct bench b = {0};
    const char *steps = "10";
    const struct tri_flag flags[] = {{"steps", &steps}, {"json", &b.json}, {"link", &b.link}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 3, 1, &a);
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
        st = tri_timed_steps_parse(steps, &b.steps);
    code = st == TRI_OK ? run_parsed(&b, &a) : tri_command_refuse_job(st);
    tri_free(a.pair);
    return code;
}

const struct tri_command tri_bench_step = {
    .name = "step",
    .help = "usage: [mpirun -n N --bind-to none] trireme bench step RUN.yaml [--steps N] [--json "
            "FILE] [--link TEXT] [key=value ...]\n\n"
            "Runs N training steps (default 10, after 2 to warm up) as `trireme train` would, "
            "without a run folder, and prints\n"
            "the step time of the slowest rank, the rate, GFLOP/s by the plan's own count and by "
            "the usual formula (language\n"
            "models: 6 N + 12 L C T a token; others: 6 a multiply-add of the forward products), "
            "their share of a square product\n"
            "measured in the same run, exposed communication and memory.\n"
            "--link states what joins the nodes, for the environment in the result.\n",
    .run = run_step_bench,
};
