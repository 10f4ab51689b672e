/* trireme plan: what a run would compute, move and need, for any number of ranks; nothing runs. */
#include "collectives/machine.h"
#include "launch/check.h"
#include "launch/command.h"
#include "launch/env.h"
#include "launch/job.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"
#include "runtime/exec/measure.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1024.0 * 1024.0)

static const double SHARED_LATENCY_S = 2e-6, SHARED_BANDWIDTH_SHARE = 0.5;
static const double LINK_LATENCY_S = 5e-5, LINK_BYTES_PER_S = 1.2e8; /* 1 Gbit/s */

static void print_work(const struct tri_plan_summary *s)
{
    printf("%-10s %14s %14s\n", "phase", "GFLOP", "MiB touched");
    for (int p = 0; p < TRI_PHASE_COUNT; p++)
        printf("%-10s %14.3f %14.1f\n", tri_phase_name((enum tri_phase)p), s->flops[p] * 1e-9,
               s->bytes_touched[p] / MIB);
}

/* All programs of the run lie in the same arenas. */
static void print_memory(const struct tri_session *s, size_t messages)
{
    size_t kept = tri_layout_bytes(s->layout);
    size_t step = tri_session_arena_bytes(s, TRI_ARENA_STEP);
    size_t exchange = tri_session_arena_bytes(s, TRI_ARENA_EXCHANGE);
    double live = (double)s->train->live_bytes;

    printf("memory      kept %.1f MiB, step %.1f MiB (%.3f of its live bytes), exchange %.1f MiB, "
           "messages %.1f MiB, peak %.1f MiB\n",
           (double)kept / MIB, (double)step / MIB,
           live > 0 ? (double)s->train->arena_bytes[TRI_ARENA_STEP] / live : 1.0,
           (double)exchange / MIB, (double)messages / MIB,
           (double)(kept + step + exchange + messages) / MIB);
}

/* What links carry where nobody has measured them. Inside a node a message is a few cache lines
 * through shared memory, and a sum reads and writes every byte about twice; the ranks of a node
 * share its link to the others. */
static void assume_links(struct tri_costs *c, const struct tri_topology *t)
{
    const double memory = SHARED_BANDWIDTH_SHARE * c->bytes_per_s;
    const int local = (t->size + t->nodes - 1) / t->nodes;

    c->level[TRI_LEVEL_INTRA] = tri_sum_cost_of_link(local, SHARED_LATENCY_S, memory);
    c->level[TRI_LEVEL_INTER] =
        tri_sum_cost_of_link(t->nodes, LINK_LATENCY_S, LINK_BYTES_PER_S / t->slices);
    c->level[TRI_LEVEL_ALL] =
        t->nodes == 1 ? c->level[TRI_LEVEL_INTRA]
                      : tri_sum_cost_of_link(t->size, LINK_LATENCY_S, LINK_BYTES_PER_S / local);
}

/* The costs of the run folder where they fit, else measured ones; the links of CPUs are assumed
 * then, those between devices unknown: a second device need not even be here. */
static tri_status find_costs(struct tri_job *job, const struct tri_topology *t)
{
    const struct tri_measured m = tri_job_measured(job);
    struct tri_cost_table *c = &job->costs;

    TRI_TRY(tri_cost_table_read(job->cfg->run.dir, c));
    if (tri_cost_table_fits(c, t, &m, false) || tri_cost_table_fits(c, t, &m, true))
        return TRI_OK;
    *c = (struct tri_cost_table){0};
    TRI_TRY(tri_device_measure(&m, &c->costs));
    if (m.device->host)
        assume_links(&c->costs, t);
    return TRI_OK;
}

/* Between the devices of several ranks nothing is known. */
static bool links_unknown(const struct tri_job *job)
{
    return job->nranks > 1 && job->costs.source == TRI_COSTS_UNKNOWN && !job->spec.device->host;
}

/* Flat or by levels, as a run on such nodes would choose. */
static tri_status choose_levels(struct tri_job *job, const struct tri_topology *t)
{
    struct tri_exchange_spec *e = &job->spec.exchange, two = *e;
    int wanted = job->cfg->gradient.hierarchy;
    struct tri_simulation flat_time, two_time;

    two.slices = t->slices;
    two.local_rank = t->local_rank;
    if (t->size == 1 || wanted == TRI_HIERARCHY_FLAT ||
        (wanted == TRI_HIERARCHY_AUTO &&
         (t->nodes == 1 || t->nodes == t->size || links_unknown(job))) ||
        (e->fixed_tree && !tri_topology_regular(t)))
        return TRI_OK;
    if (wanted == TRI_HIERARCHY_AUTO) {
        TRI_TRY(tri_job_predict(job, e, &job->costs.costs, &flat_time));
        TRI_TRY(tri_job_predict(job, &two, &job->costs.costs, &two_time));
        if (two_time.step_s >= flat_time.step_s)
            return TRI_OK;
    }
    *e = two;
    return TRI_OK;
}

/* Puts the ranks on the nodes of debug.nodes and prints who sits where. */
static tri_status arrange(struct tri_job *job, struct tri_topology *t)
{
    const struct tri_opt_ints *nodes = &job->cfg->debug.nodes;
    const struct tri_config *cfg = job->cfg;
    struct tri_text text = {0};
    tri_status st = TRI_OK;

    if (nodes->count > 0)
        TRI_TRY(tri_topology_pretend(t, nodes->v, nodes->count));
    TRI_TRY_GOTO(st, tri_machine_describe(t, NULL, &text), finish_text);
    TRI_TRY_GOTO(st, find_costs(job, t), finish_text);
    TRI_TRY_GOTO(st, choose_levels(job, t), finish_text);
    tri_compression_choose(&cfg->gradient, &cfg->optimizer, &job->spec.mesh, t, job->spec.seed,
                           &job->costs, &job->spec.exchange);
    printf("topology    %s\n", text.data != NULL ? text.data : "");
    printf("gradients   summed %s%s\n", job->spec.exchange.slices > 0 ? "in two levels" : "flat",
           links_unknown(job) && cfg->gradient.hierarchy == TRI_HIERARCHY_AUTO && t->nodes > 1
               ? " here; a run measures the links between its devices and may choose two levels"
               : "");

finish_text:
    tri_text_finish(&text);
    return st;
}

static tri_status print_time(const struct tri_job *job, const struct tri_program *p)
{
    const struct tri_costs *c = &job->costs.costs;
    const struct tri_device *d = job->spec.device;
    const char *source = job->costs.source == TRI_COSTS_FILE ? "costs of the run folder"
                         : job->nranks == 1 || !d->host      ? "measured now"
                                                             : "measured now, links assumed";
    struct tri_simulation sim;

    TRI_TRY(tri_program_simulate(p, c, &sim));
    if (links_unknown(job))
        printf("predicted   step %.1f ms without communication, which is not known: no run has "
               "measured the links between these devices (from ",
               sim.step_s * 1e3);
    else
        printf("predicted   step %.1f ms, exposed communication %.1f ms (from ", sim.step_s * 1e3,
               sim.exposed_comm_s * 1e3);
    printf("%.0f GFLOP/s, %.1f GB/s of %s; ", c->flops_per_s * 1e-9, c->bytes_per_s * 1e-9,
           d->host ? "the CPU" : d->name);
    if (job->nranks > 1 && !links_unknown(job))
        printf("sums over all ranks at %.2f GB/s; ", c->level[TRI_LEVEL_ALL].bytes_per_s * 1e-9);
    printf("%s)\n", source);
    return TRI_OK;
}

static tri_status write_dot(const struct tri_program *p, const char *path)
{
    struct tri_text text = {0};
    tri_status st = tri_graph_dot(p->graph, &text);
    FILE *f;

    if (st == TRI_OK) {
        f = fopen(path, "w");
        if (f == NULL || fwrite(text.data, 1, text.len, f) != text.len)
            st = tri_fail(TRI_ERR_IO, "cannot write '%s'", path);
        if (f != NULL && fclose(f) != 0 && st == TRI_OK)
            st = tri_fail(TRI_ERR_IO, "cannot write '%s'", path);
    }
    tri_text_finish(&text);
    return st;
}

/* Every program that the run would hold. */
static tri_status compile_all(const struct tri_job *job, struct tri_session *s)
{
    omp_set_num_threads(job->spec.threads);
    TRI_TRY(tri_layout_create(&s->layout));
    TRI_TRY(tri_compile_train(&job->spec, s->layout, NULL, &s->train));
    TRI_TRY(tri_session_compile_warmup(s, &job->spec, job->cfg->gradient.compress.warmup));
    if (job->cfg->run.eval_every != 0)
        TRI_TRY(tri_compile_eval(&job->spec, s->layout, &s->eval));
    return tri_job_checks_precision(job) ? tri_check_compile(s, &job->spec) : TRI_OK;
}

static void print_check(const struct tri_session *s, int64_t every)
{
    struct tri_plan_summary half, full;

    if (s->extra[0] == NULL)
        return;
    tri_plan_summarise(s->extra[0], &half);
    tri_plan_summarise(s->extra[1], &full);
    printf("check       every %lld steps: programs of %lld instructions in 16 bit and %lld in "
           "fp32\n",
           (long long)every, (long long)half.instrs, (long long)full.instrs);
}

static tri_status plan(const struct tri_job *job, const struct tri_topology *t, const char *dot)
{
    struct tri_session s = {0};
    struct tri_plan_summary sum;
    size_t messages;
    tri_status st;

    TRI_TRY_GOTO(st, compile_all(job, &s), finish_session);
    TRI_TRY_GOTO(st, tri_session_scratch(&s, t, true, &messages), finish_session);
    tri_plan_summarise(s.train, &sum);
    printf("parameters  %lld\n", (long long)sum.params);
    printf("ranks       %d (shown: rank 0), %d thread%s each\n", job->nranks, job->spec.threads,
           job->spec.threads == 1 ? "" : "s");
    printf("batch       %lld samples = %lld grains of %lld, %lld on this rank\n",
           (long long)job->cfg->data.batch, (long long)job->spec.grains.total,
           (long long)job->spec.grains.grain, (long long)job->spec.grains.count);
    printf("program     %lld instructions, %lld collectives of %.1f MiB\n", (long long)sum.instrs,
           (long long)sum.collectives, sum.comm_bytes / MIB);
    print_check(&s, job->cfg->precision.check_every);
    print_memory(&s, messages);
    print_work(&sum);
    st = print_time(job, s.train);
    if (st == TRI_OK && dot != NULL)
        st = write_dot(s.train, dot);

finish_session:
    tri_session_finish(&s);
    return st;
}

static tri_status parse_ranks(const char *text, int *out)
{
    char *end;
    long n = 1;

    if (text != NULL) {
        n = strtol(text, &end, 10);
        if (*end != '\0' || n < 1 || n > 1000000)
            return tri_fail(TRI_ERR_USAGE, "--ranks: '%s' is not a number from 1 to 1000000", text);
    }
    *out = (int)n;
    return TRI_OK;
}

static tri_status run_parsed(const struct tri_arguments *a, const char *ranks, const char *dot)
{
    struct tri_job_args args = {
        .config = a->file[0], .overrides = a->pair, .noverrides = a->npairs, .need_train = true};
    struct tri_config *cfg;
    struct tri_topology t;
    struct tri_job *job;
    tri_status st;

    TRI_TRY(parse_ranks(ranks, &args.nranks));
    TRI_TRY(tri_job_load_config(&args, &cfg));
    TRI_TRY(tri_job_create(&args, cfg, NULL, &job));
    TRI_TRY_GOTO(st, tri_topology_alone(&t, job->nranks), destroy_job);
    TRI_TRY_GOTO(st, arrange(job, &t), finish_topology);
    st = plan(job, &t, dot);

finish_topology:
    tri_topology_finish(&t);
destroy_job:
    tri_job_destroy(job);
    return st;
}

static int run_plan(const struct tri_command *self, int argc, char **argv)
{
    const char *ranks = NULL, *dot = NULL;
    const struct tri_flag flags[] = {{"ranks", &ranks}, {"dot", &dot}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 2, 1, &a);

    if (st == TRI_OK && a.help)
        printf("%s", self->help);
    else if (st == TRI_OK && a.nfiles == 0)
        st = tri_fail(TRI_ERR_USAGE, "plan: RUN.yaml is missing (see trireme plan --help)");
    else if (st == TRI_OK)
        st = run_parsed(&a, ranks, dot);
    tri_free(a.pair);
    return tri_command_refuse(st);
}

const struct tri_command tri_command_plan = {
    .name = "plan",
    .summary = "show the work, memory, traffic and predicted time of RUN.yaml on N ranks",
    .help = "usage: trireme plan RUN.yaml [--ranks N] [--dot FILE] [key=value ...]\n\n"
            "Compiles the training step as rank 0 of N ranks would and prints parameters, FLOPs, "
            "memory, bytes and a\n"
            "predicted time. Needs the data file, but no MPI; nothing runs. --dot writes the "
            "step's graph for Graphviz.\n",
    .run = run_plan,
};
