/* trireme train: from RUN.yaml to a trained model. */
#include "launch/check.h"
#include "launch/command.h"
#include "launch/env.h"
#include "launch/kept_layers.h"
#include "launch/tokenizer_state.h"
#include "launch/trainer.h"

#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/rundir.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Everything that a training run opens, in order. */
struct train {
    struct tri_env env;
    struct tri_job_args args;
    const char *trace;
    struct tri_rundir *rundir;
    struct tri_checkpoint *resumed; /* NULL: fresh start */
    struct tri_job *job;
    struct tri_session session;
    struct tri_trainer *trainer;
};

static bool wants_eval(const struct tri_config *cfg)
{
    return cfg->run.eval_every != 0;
}

/* A trace that cannot be written is found before the run, not in its middle. Collective. */
static tri_status try_trace(const struct train *t)
{
    tri_status st = TRI_OK;

    if (t->trace == NULL)
        return TRI_OK;
    if (t->env.rank == 0) {
        int fd = open(t->trace, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

        if (fd < 0)
            st = tri_file_fail("create the trace", t->trace);
        else
            close(fd);
    }
    return tri_comm_agree(t->env.world->control, st);
}

/* Configuration, run folder, checkpoint, data: what may be refused. Collective, failures agreed. */
static tri_status open_job(struct train *t)
{
    struct tri_comm *comm = t->env.world->control;
    struct tri_config *cfg;
    tri_status st;

    TRI_TRY(tri_job_load_config(&t->args, &cfg));
    tri_env_set_timeout(&t->env, (int64_t)(cfg->timeouts.collective_s * 1000));
    t->args.need_train = true;
    t->args.need_validation = cfg->run.eval_every > 0 || cfg->checkpoint.best != TRI_BEST_NONE;
    TRI_TRY_GOTO(st, try_trace(t), destroy_config);
    TRI_TRY_GOTO(st, tri_rundir_open(comm, cfg->run.dir, &t->rundir), destroy_config);
    TRI_TRY_GOTO(st, tri_checkpoint_find(comm, cfg->run.dir, cfg->run.resume, &t->resumed),
                 destroy_config);
    TRI_TRY(tri_job_create(&t->args, cfg, t->resumed, &t->job));
    return tri_job_arrange(t->job, t->env.world, t->env.mpi_comm, t->resumed);

destroy_config:
    tri_config_destroy(cfg);
    return st;
}

static void print_plan(const struct train *t, size_t messages, const struct tri_text *groups)
{
    const struct tri_program *p = t->session.train;
    const struct tri_job *job = t->job;
    double mib = 1024.0 * 1024.0;
    struct tri_plan_summary sum;

    tri_plan_summarise(p, &sum);
    tri_info("%d rank%s, %d thread%s each; batch %lld = %lld grains of %lld; %lld steps of %lld an "
             "epoch",
             job->nranks, job->nranks == 1 ? "" : "s", job->spec.threads,
             job->spec.threads == 1 ? "" : "s", (long long)job->cfg->data.batch,
             (long long)job->spec.grains.total, (long long)job->spec.grains.grain,
             (long long)job->total_steps, (long long)job->steps_per_epoch);
    tri_info("%lld parameters; memory per rank: %.1f MiB kept, %.1f MiB of a step, %.1f MiB of "
             "exchange, %.1f MiB of messages",
             (long long)sum.params, (double)tri_layout_bytes(t->session.layout) / mib,
             (double)tri_session_arena_bytes(&t->session, TRI_ARENA_STEP) / mib,
             (double)tri_session_arena_bytes(&t->session, TRI_ARENA_EXCHANGE) / mib,
             (double)messages / mib);
    for (const char *line = groups->data; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');

        tri_info("%.*s", (int)(end - line), line);
        line = end + 1;
    }
}

/* Ranks of a node exchange through shared memory. */
static bool shares_memory(const struct tri_world *w)
{
    const struct tri_comm *c = w->intra != NULL ? w->intra : w->exchange;

    return strcmp(c->ops->name, "mpi") != 0;
}

/* Compares the training programs between ranks. Collective. */
static tri_status agree_programs(const struct train *t)
{
    const struct tri_session *s = &t->session;
    struct tri_comm *comm = t->env.world->control, *inter = tri_world_inter(t->env.world);

    for (int k = 0; k < s->nwarm; k++)
        TRI_TRY(tri_plan_agree(s->warm[k], comm, inter));
    return tri_plan_agree(s->train, comm, inter);
}

/* Compiles on every rank, compares the programs, makes the memory. Collective. */
static tri_status compile(struct train *t)
{
    struct tri_comm *comm = t->env.world->control;
    struct tri_session *s = &t->session;
    struct tri_checkpoint_tensor merges;
    struct tri_text groups = {0};
    size_t messages = 0;
    tri_status st;

    omp_set_num_threads(t->job->spec.threads);
    st = tri_layout_create(&s->layout);
    if (st == TRI_OK)
        st = tri_compile_train(&t->job->spec, s->layout, &groups, &s->train);
    if (st == TRI_OK)
        st = tri_session_compile_warmup(s, &t->job->spec, t->job->cfg->gradient.compress.warmup);
    if (st == TRI_OK && wants_eval(t->job->cfg))
        st = tri_compile_eval(&t->job->spec, s->layout, &s->eval);
    if (st == TRI_OK && tri_job_checks_precision(t->job))
        st = tri_check_compile(s, &t->job->spec);
    if (st == TRI_OK && !t->env.world->exchange->ops->on_stream)
        st =
            tri_session_scratch(s, &t->env.world->topology, shares_memory(t->env.world), &messages);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), finish_groups);
    TRI_TRY_GOTO(st, agree_programs(t), finish_groups);
    if (t->env.rank == 0)
        print_plan(t, messages, &groups);
    TRI_TRY_GOTO(st, tri_session_start(s, t->env.world), finish_groups);
    if (t->job->cfg->device.graph)
        tri_session_graph(s, t->env.rank == 0);
    if (t->job->tokenizer != NULL && tri_tokenizer_tensor(t->job->tokenizer, t->env.rank, &merges))
        tri_session_keep(s, merges);

finish_groups:
    tri_text_finish(&groups);
    return st;
}

/* First values: the checkpoint's, a file's, or fresh ones; then all replicas must be equal.
 * Collective. */
static tri_status start_values(struct train *t)
{
    struct tri_comm *comm = t->env.world->control;
    const struct tri_config *cfg = t->job->cfg;
    struct tri_session *s = &t->session;
    uint64_t hash;

    TRI_TRY(tri_session_fill(s, (uint64_t)cfg->run.seed));
    if (t->resumed != NULL) {
        TRI_TRY(tri_checkpoint_load(comm, t->resumed, s->tensor, s->ntensor, false));
        TRI_TRY(tri_session_push(s));
    }
    if (t->resumed == NULL && cfg->model.init[0] != '\0')
        TRI_TRY(tri_session_read_weights(s, comm, cfg->model.init));
    TRI_TRY(tri_session_hash(s, comm, true, &hash));
    return tri_trainer_create(t->job, s, t->resumed, t->trace, &t->trainer);
}

static bool finished(const struct train *t)
{
    return t->resumed != NULL && t->resumed->manifest.step >= t->job->total_steps;
}

/* Says how far the run came, unless the message does. */
static void add_step(const struct train *t)
{
    char *text = tri_strdup(tri_error_text());

    if (text != NULL && strncmp(text, "step ", 5) != 0)
        (void)tri_fail(TRI_OK, "%s (after step %lld)", text, (long long)t->trainer->state.step);
    tri_free(text);
}

/* The exit code after a failure. Failures that other ranks may not know of end the job at once. */
static int failed(struct train *t, tri_status st, bool running)
{
    bool local = running && t->trainer != NULL && !t->trainer->shared_failure;
    bool shared = !local && st != TRI_ERR_COMM && st != TRI_ERR_TIMEOUT;
    struct tri_comm *comm = t->env.world != NULL ? t->env.world->control : NULL;
    int code = running ? TRI_EXIT_FAILED : TRI_EXIT_REFUSED;

    if (running && t->trainer != NULL)
        add_step(t);
    tri_command_error(comm, !shared);
    if (!shared) {
        tri_rundir_close(t->rundir);
        tri_env_abort(code);
    }
    return code;
}

/* One line: which layers, at most NAMED of them, and from where the run goes on. */
static void say_back(const struct train *t, int64_t step, const char *names)
{
    enum { NAMED = 6 };
    struct tri_text list = {0};
    int n = 0;

    for (const char *at = names; *at != '\0'; at += strspn(at, " "), n++) {
        size_t len = strcspn(at, " ");

        if (n < NAMED)
            tri_text_printf(&list, "%s'%.*s'", n > 0 ? ", " : "", (int)len, at);
        at += len;
    }
    if (n > NAMED)
        tri_text_printf(&list, " and %d more", n - NAMED);
    tri_warn("precision check at step %lld: keeping %s in fp32 and going on from step %lld (%s)",
             (long long)step, list.data != NULL ? list.data : "layers",
             (long long)t->trainer->state.step,
             t->resumed != NULL ? t->resumed->path : "the start: there is no checkpoint");
    tri_text_finish(&list);
}

/* Back to the newest checkpoint with the layers that the check has named in f32: everything that
 * was compiled and allocated is made again. What lies in the run folder counts only once this run
 * has saved there; before, it may be a past that run.resume went behind. Collective; a failure is
 * shared. */
static tri_status go_back(struct train *t)
{
    struct tri_comm *comm = t->env.world->control;
    struct tri_text names = t->trainer->over;
    int64_t step = t->trainer->state.step;
    bool saved = t->trainer->saved_step >= 0;
    tri_status st;

    t->trainer->over = (struct tri_text){0};
    tri_trainer_destroy(t->trainer);
    t->trainer = NULL;
    tri_session_finish(&t->session);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, tri_kept_layers_add(t->job, names.data)), finish_names);
    if (saved) {
        tri_checkpoint_close(t->resumed);
        t->resumed = NULL;
        TRI_TRY_GOTO(st, tri_checkpoint_find(comm, t->job->cfg->run.dir, "auto", &t->resumed),
                     finish_names);
    }
    TRI_TRY_GOTO(st, compile(t), finish_names);
    TRI_TRY_GOTO(st, start_values(t), finish_names);
    if (t->env.rank == 0)
        say_back(t, step, names.data);

finish_names:
    tri_text_finish(&names);
    return st;
}

static int run_job(struct train *t)
{
    struct tri_comm *comm = t->env.world->control;
    tri_status st = open_job(t);

    if (st == TRI_OK && finished(t)) {
        if (t->env.rank == 0)
            tri_info("the run in '%s' is finished: step %lld of %lld", t->job->cfg->run.dir,
                     (long long)t->resumed->manifest.step, (long long)t->job->total_steps);
        return TRI_EXIT_DONE;
    }
    if (st == TRI_OK)
        st = compile(t);
    if (st == TRI_OK)
        st = start_values(t);
    if (st == TRI_OK)
        st = tri_job_keep_costs(t->job, comm);
    if (st != TRI_OK)
        return failed(t, st, false);
    if (t->env.rank == 0 && t->resumed != NULL)
        tri_info("going on from '%s'", t->resumed->path);
    st = tri_trainer_run(t->trainer);
    while (st == TRI_OK && t->trainer->over.len > 0) {
        st = go_back(t);
        if (st == TRI_OK)
            st = tri_trainer_run(t->trainer);
    }
    if (st != TRI_OK)
        return failed(t, st, true);
    return t->trainer->stopped.signal != NULL ? TRI_EXIT_STOPPED : TRI_EXIT_DONE;
}

static void close_all(struct train *t)
{
    tri_trainer_destroy(t->trainer);
    tri_session_finish(&t->session);
    tri_job_destroy(t->job);
    tri_checkpoint_close(t->resumed);
    tri_rundir_close(t->rundir);
}

static int run_train(const struct tri_command *self, int argc, char **argv)
{
    struct train t = {0};
    const struct tri_flag flags[] = {{"trace", &t.trace}};
    struct tri_arguments a;
    int code = TRI_EXIT_REFUSED;
    tri_status st = tri_arguments_parse(argc, argv, flags, 1, 1, &a);

    if (st == TRI_OK && a.help) {
        printf("%s", self->help);
        tri_free(a.pair);
        return TRI_EXIT_DONE;
    }
    if (st == TRI_OK && a.nfiles == 0)
        st = tri_fail(TRI_ERR_USAGE, "train: RUN.yaml is missing (see trireme train --help)");
    if (st != TRI_OK) {
        tri_free(a.pair);
        return tri_command_refuse_job(st);
    }
    (void)signal(SIGPIPE, SIG_IGN); /* training outlives the reader of its messages */
    tri_stop_listen();
    st = tri_env_init(&t.env);
    if (st == TRI_OK)
        st = tri_io_start();
    if (st == TRI_OK) {
        t.args = (struct tri_job_args){.config = a.file[0],
                                       .overrides = a.pair,
                                       .noverrides = a.npairs,
                                       .world = t.env.world,
                                       .nranks = t.env.size};
        code = run_job(&t);
    } else if (t.env.rank == 0) {
        tri_command_refuse(st);
    }
    close_all(&t);
    tri_io_stop();
    tri_env_finish(&t.env);
    tri_free(a.pair);
    return code;
}

const struct tri_command tri_command_train = {
    .name = "train",
    .summary = "train the model of RUN.yaml; alone, or on all ranks of mpirun or srun",
    .help = "usage: [mpirun -n N --bind-to none] trireme train RUN.yaml [--trace FILE] [key=value "
            "...]\n\n"
            "Trains, writes metrics and checkpoints into run.dir, and goes on from the newest "
            "checkpoint there if there is\n"
            "one. key=value overrides a setting, with dotted keys and YAML values: "
            "optimizer.lr=0.1 (see trireme config).\n"
            "--trace FILE writes one step of all ranks for chrome://tracing or Perfetto.\n\n"
            "SIGTERM or SIGUSR1 to any rank ends the run behind the current step with a "
            "checkpoint.\n\n"
            "exit codes: 0 done, 1 failed after the first step began, 2 refused before it, 75 "
            "stopped by a signal\n",
    .run = run_train,
};
