/* trireme plan: what a run would compute, move and need, for any number of ranks; nothing runs. */
#include "launch/command.h"
#include "launch/env.h"
#include "launch/job.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"
#include "runtime/exec/simulate.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1024.0 * 1024.0)

static void print_work(const struct tri_plan_summary *s)
{
    printf("%-10s %14s %14s\n", "phase", "GFLOP", "MiB touched");
    for (int p = 0; p < TRI_PHASE_COUNT; p++)
        printf("%-10s %14.3f %14.1f\n", tri_phase_name((enum tri_phase)p), s->flops[p] * 1e-9,
               s->bytes_touched[p] / MIB);
}

static void print_memory(const struct tri_program *p, const struct tri_layout *layout)
{
    size_t kept = tri_layout_bytes(layout);

    printf("memory      kept %.1f MiB, step %.1f MiB (%.3f of its live bytes), exchange %.1f MiB, "
           "peak %.1f MiB\n",
           (double)kept / MIB, (double)p->arena_bytes[TRI_ARENA_STEP] / MIB,
           p->live_bytes > 0 ? (double)p->arena_bytes[TRI_ARENA_STEP] / (double)p->live_bytes : 1.0,
           (double)p->arena_bytes[TRI_ARENA_EXCHANGE] / MIB,
           (double)(kept + p->arena_bytes[TRI_ARENA_STEP] + p->arena_bytes[TRI_ARENA_EXCHANGE]) /
               MIB);
}

static tri_status print_time(const struct tri_program *p, int threads, int nranks)
{
    struct tri_costs costs;
    struct tri_simulation sim;

    TRI_TRY(tri_costs_measure(tri_kernels_cpu, threads, &costs));
    TRI_TRY(tri_program_simulate(p, &costs, nranks, &sim));
    printf("predicted   step %.1f ms, exposed communication %.1f ms (from %.0f GFLOP/s, %.1f GB/s "
           "measured now; link %.1f "
           "GB/s and %.0f us assumed)\n",
           sim.step_s * 1e3, sim.exposed_comm_s * 1e3, costs.flops_per_s * 1e-9,
           costs.bytes_per_s * 1e-9, costs.comm_bytes_per_s * 1e-9, costs.latency_s * 1e6);
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

static tri_status plan(const struct tri_job *job, const char *dot)
{
    struct tri_layout *layout;
    struct tri_program *p = NULL, *eval = NULL;
    struct tri_plan_summary sum;
    tri_status st;

    omp_set_num_threads(job->spec.threads);
    TRI_TRY(tri_layout_create(&layout));
    TRI_TRY_GOTO(st, tri_compile_train(&job->spec, layout, NULL, &p), destroy_layout);
    if (job->cfg->run.eval_every != 0) /* adds to what the run keeps */
        TRI_TRY_GOTO(st, tri_compile_eval(&job->spec, layout, &eval), destroy_programs);
    tri_plan_summarise(p, &sum);
    printf("parameters  %lld\n", (long long)sum.params);
    printf("ranks       %d (shown: rank 0), %d thread%s each\n", job->nranks, job->spec.threads,
           job->spec.threads == 1 ? "" : "s");
    printf("batch       %lld samples = %lld grains of %lld, %lld on this rank\n",
           (long long)job->cfg->data.batch, (long long)job->spec.grains.total,
           (long long)job->spec.grains.grain, (long long)job->spec.grains.count);
    printf("program     %lld instructions, %lld collectives of %.1f MiB\n", (long long)sum.instrs,
           (long long)sum.collectives, sum.comm_bytes / MIB);
    print_memory(p, layout);
    print_work(&sum);
    st = print_time(p, job->spec.threads, job->nranks);
    if (st == TRI_OK && dot != NULL)
        st = write_dot(p, dot);

destroy_programs:
    tri_program_destroy(eval);
    tri_program_destroy(p);
destroy_layout:
    tri_layout_destroy(layout);
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
    struct tri_job *job;
    tri_status st;

    TRI_TRY(parse_ranks(ranks, &args.nranks));
    TRI_TRY(tri_job_load_config(&args, &cfg));
    TRI_TRY(tri_job_create(&args, cfg, NULL, &job));
    st = plan(job, dot);
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
