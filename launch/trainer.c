/* One pass of the loop is one step. Time is measured in pieces that lie end to end, so that they
 * add up to the step. */
#include "launch/trainer.h"

#include "launch/check.h"
#include "launch/overflow.h"
#include "runtime/checkpoint/files.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/telemetry/trace.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_SKIPS_IN_A_ROW 20

static tri_status open_loader(struct tri_trainer *t)
{
    const struct tri_job *job = t->job;
    const struct tri_config *cfg = job->cfg;
    struct tri_loader_cfg lc = {
        .dataset = job->data,
        .split = TRI_SPLIT_TRAIN,
        .sampler = {.samples = tri_dataset_info(job->data)->samples[TRI_SPLIT_TRAIN],
                    .batch = cfg->data.batch,
                    .seed = (uint64_t)cfg->run.seed,
                    .shuffle = cfg->data.shuffle},
        .grain = job->spec.grains.grain,
        .first_grain = job->spec.grains.first,
        .ngrains = job->spec.grains.count,
        .first_step = t->state.step + 1,
        .last_step = job->total_steps,
        .depth = (int)cfg->data.workers,
        .augment = cfg->data.augment};

    TRI_TRY(tri_loader_create(&lc, &t->loader));
    return tri_feed_create(&t->feed, t->session->train, t->session->train_exec, t->loader,
                           job->spec.grains.first);
}

/* config.yaml, metrics and progress line: rank 0's. */
static tri_status open_outputs(struct tri_trainer *t)
{
    const struct tri_config *cfg = t->job->cfg;
    struct tri_progress_spec spec = {.fd = STDERR_FILENO,
                                     .terminal = isatty(STDERR_FILENO) == 1,
                                     .last_step = t->job->total_steps,
                                     .log_every = cfg->run.log_every,
                                     .tokens = t->job->shape.task == TRI_TASK_LANGUAGE};
    char *path = NULL;
    tri_status st;

    if (!t->root)
        return TRI_OK;
    TRI_TRY(tri_path_join(cfg->run.dir, "config.yaml", &path));
    TRI_TRY_GOTO(st, tri_write_file(path, t->config_text, strlen(t->config_text)), free_path);
    TRI_TRY_GOTO(st,
                 tri_metrics_open(cfg->run.dir, t->state.step, cfg->debug.log_samples, &t->metrics),
                 free_path);
    st = tri_progress_create(&spec, &t->progress);

free_path:
    tri_free(path);
    return st;
}

/* Instructions of the longest training step. */
static size_t longest_program(const struct tri_session *s)
{
    int n = s->train->ninstr;

    for (int k = 0; k < s->nwarm; k++)
        n = s->warm[k]->ninstr > n ? s->warm[k]->ninstr : n;
    return (size_t)n;
}

static tri_status prepare(struct tri_trainer *t)
{
    const struct tri_config *cfg = t->job->cfg;
    size_t ids = (size_t)(t->job->spec.grains.count * t->job->spec.grains.grain + 1);
    struct tri_text text = {0};

    tri_config_print(cfg, &text);
    t->config_text = text.data;
    TRI_TRY(tri_session_round_weights(t->session));
    t->scalars = tri_exec_value(t->session->train_exec, t->session->train->graph->scalars);
    if (cfg->debug.log_samples)
        t->ids =
            tri_calloc(ids * ((size_t)tri_comm_size(t->comm) + 1), sizeof(*t->ids), "sample ids");
    if (t->trace_path != NULL)
        t->span = tri_calloc(longest_program(t->session), sizeof(*t->span), "trace");
    if (t->config_text == NULL || (cfg->debug.log_samples && t->ids == NULL) ||
        (t->trace_path != NULL && t->span == NULL))
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the trainer");
    return open_loader(t);
}

static tri_status open_evaluator(struct tri_trainer *t)
{
    int64_t samples = tri_dataset_info(t->job->data)->samples[TRI_SPLIT_VALIDATION];

    if (t->session->eval == NULL || samples == 0)
        return TRI_OK;
    return tri_evaluator_create(t->job, t->session, &t->evaluator);
}

static tri_status open_saver(struct tri_trainer *t)
{
    if (!t->job->cfg->checkpoint.async)
        return TRI_OK;
    return tri_saver_create(t->job->world != NULL ? t->job->world->io : NULL, &t->saver);
}

/* The batch of the first step, if there is one. */
static tri_status read_first(struct tri_trainer *t)
{
    if (t->state.step >= t->job->total_steps)
        return TRI_OK;
    TRI_TRY(tri_loader_next(t->loader, &t->first));
    t->has_first = true;
    return TRI_OK;
}

tri_status tri_trainer_create(const struct tri_job *job, struct tri_session *s,
                              const struct tri_checkpoint *resumed, const char *trace_path,
                              struct tri_trainer **out)
{
    struct tri_trainer *t = tri_calloc(1, sizeof(*t), "trainer");
    tri_status st;

    if (t == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the trainer");
    t->job = job;
    t->session = s;
    t->comm = job->world != NULL ? job->world->control : NULL;
    t->root = tri_comm_rank(t->comm) == 0;
    t->trace_path = trace_path;
    if (resumed != NULL)
        tri_trainer_restore(&t->state, resumed);
    t->saved_step = -1;
    t->trace_step = job->total_steps;
    if (job->cfg->telemetry.trace_step < job->total_steps - t->state.step)
        t->trace_step = t->state.step + job->cfg->telemetry.trace_step;
    st = prepare(t);
    TRI_TRY_GOTO(st, tri_comm_agree(t->comm, st), destroy);
    TRI_TRY_GOTO(st, tri_comm_agree(t->comm, read_first(t)), destroy);
    TRI_TRY_GOTO(st, tri_comm_agree(t->comm, open_evaluator(t)), destroy);
    TRI_TRY_GOTO(st, tri_comm_agree(t->comm, open_outputs(t)), destroy);
    TRI_TRY_GOTO(st, tri_comm_agree(t->comm, open_saver(t)), destroy);
    *out = t;
    return TRI_OK;

destroy:
    tri_trainer_destroy(t);
    return st;
}

void tri_trainer_destroy(struct tri_trainer *t)
{
    if (t == NULL)
        return;
    tri_saver_destroy(t->saver);
    tri_progress_destroy(t->progress);
    tri_metrics_close(t->metrics);
    tri_evaluator_destroy(t->evaluator);
    tri_feed_finish(&t->feed);
    tri_loader_destroy(t->loader);
    tri_text_finish(&t->overflow);
    tri_text_finish(&t->over);
    tri_free(t->config_text);
    tri_free(t->span);
    tri_free(t->ids);
    tri_free(t);
}

static uint64_t bytes_sent(const struct tri_trainer *t)
{
    return t->job->world != NULL ? tri_world_exchange_bytes(t->job->world) : 0;
}

/* Largest resident set of a rank. Collective. */
static tri_status look_at_memory(struct tri_trainer *t)
{
    struct rusage usage;
    int64_t bytes = 0;

    if (getrusage(RUSAGE_SELF, &usage) == 0)
        bytes = (int64_t)usage.ru_maxrss * 1024;
    TRI_TRY(tri_comm_allreduce(t->comm, &bytes, 1, TRI_I64, TRI_REDUCE_MAX, false));
    t->mem_bytes = (uint64_t)bytes;
    return TRI_OK;
}

/* Hands the ids that every rank used to rank 0's samples.jsonl. Collective. */
static tri_status log_samples(struct tri_trainer *t, const struct tri_batch *b)
{
    int64_t width = t->job->spec.grains.count * t->job->spec.grains.grain + 1;
    int64_t *all = t->ids + width;

    t->ids[0] = b->samples;
    for (int64_t i = 0; i < b->samples; i++)
        t->ids[i + 1] = b->ids[i];
    TRI_TRY(tri_comm_allgather(t->comm, t->ids, (size_t)width * sizeof(*t->ids), all));
    for (int r = 0; t->root && r < tri_comm_size(t->comm); r++)
        TRI_TRY(tri_metrics_samples(t->metrics, b->step, b->position.epoch, r, all + r * width + 1,
                                    all[r * width]));
    return TRI_OK;
}

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* What the program decided, and the checks that may end the run. All ranks see the same scalars. */
static tri_status look_at_step(struct tri_trainer *t, const struct tri_batch *b,
                               struct tri_step_metrics *m)
{
    const struct tri_config *cfg = t->job->cfg;
    const double *s = t->scalars;

    t->state.step = b->step;
    t->state.updates = (int64_t)s[TRI_SCALAR_UPDATES];
    t->state.samples += b->position.count;
    t->state.tokens += b->global_tokens;
    *m = (struct tri_step_metrics){.step = b->step,
                                   .updates = t->state.updates,
                                   .epoch = b->position.epoch,
                                   .loss = s[TRI_SCALAR_LOSS],
                                   .grad_norm = s[TRI_SCALAR_GRAD_NORM],
                                   .lr = cfg->optimizer.lr * s[TRI_SCALAR_LR_FACTOR],
                                   .loss_scale = s[TRI_SCALAR_LOSS_SCALE],
                                   .skipped = s[TRI_SCALAR_FINITE] == 0,
                                   .samples = t->state.samples,
                                   .tokens = t->state.tokens};
    if (due(cfg->debug.hash_every, b->step)) {
        t->shared_failure = true;
        m->hashed = true;
        TRI_TRY(tri_session_hash(t->session, t->comm, true, &m->weights_hash));
        t->shared_failure = false;
    }
    if (m->skipped && t->job->spec.precision.compute != TRI_F32)
        TRI_TRY(tri_overflow_report(t->session, t->comm, &t->overflow));
    if (t->ids != NULL)
        TRI_TRY(log_samples(t, b));
    if (t->mem_bytes == 0)
        TRI_TRY(look_at_memory(t));
    return TRI_OK;
}

static void fill_times(struct tri_trainer *t, const struct tri_batch *b, int64_t input_ns,
                       int64_t other_ns, struct tri_step_metrics *m)
{
    struct tri_exec_times x;
    double seconds;
    int64_t now = tri_now_ns();
    uint64_t sent = bytes_sent(t);

    tri_exec_times(t->session->now_exec, &x);
    m->step_ms = (double)(now - t->window_ns) * 1e-6;
    m->compute_ms = (double)x.compute_ns * 1e-6;
    m->exposed_comm_ms = (double)x.wait_ns * 1e-6;
    m->input_ms = (double)input_ns * 1e-6;
    m->other_ms = (double)other_ns * 1e-6;
    m->comm_bytes = sent - t->sent_bytes;
    m->mem_bytes = t->mem_bytes;
    seconds = m->step_ms * 1e-3;
    m->samples_per_s = (double)b->position.count / seconds;
    m->tokens_per_s = (double)b->global_tokens / seconds;
    t->sent_bytes = sent;
}

static void warn_skipped(const struct tri_trainer *t, const struct tri_step_metrics *m)
{
    if (t->overflow.len == 0)
        tri_warn("step %lld: a gradient is not finite, the update is skipped", (long long)m->step);
    else if (t->job->spec.precision.initial_scale > 0)
        tri_warn("step %lld is skipped, the loss scale is now %g: %s", (long long)m->step,
                 m->loss_scale, t->overflow.data);
    else
        tri_warn("step %lld is skipped: %s", (long long)m->step, t->overflow.data);
}

static tri_status report(struct tri_trainer *t, const struct tri_step_metrics *m)
{
    if (t->root) {
        TRI_TRY(tri_metrics_step(t->metrics, m));
        TRI_TRY(tri_progress_step(t->progress, m));
        if (m->skipped)
            warn_skipped(t, m);
    }
    tri_text_finish(&t->overflow);
    if (t->scalars[TRI_SCALAR_SCALE_STUCK] != 0) {
        t->shared_failure = true;
        return tri_fail(
            TRI_ERR_NUMERIC,
            "step %lld: the gradient is not finite although the loss scale has fallen to "
            "its floor of %g (precision.loss_scale.floor)",
            (long long)m->step, m->loss_scale);
    }
    if (t->job->spec.precision.initial_scale == 0 &&
        t->scalars[TRI_SCALAR_SKIP_RUN] >= MAX_SKIPS_IN_A_ROW) {
        t->shared_failure = true;
        return tri_fail(TRI_ERR_NUMERIC,
                        "step %lld: the gradient was not finite in %d steps in a row",
                        (long long)m->step, MAX_SKIPS_IN_A_ROW);
    }
    return TRI_OK;
}

static tri_status write_trace(struct tri_trainer *t)
{
    static const char *const streams[] = {"compute", "intra", "inter"};
    const struct tri_program *p = t->session->now;
    struct tri_trace_span *span = tri_calloc((size_t)p->ninstr, sizeof(*span), "trace");
    tri_status st = TRI_OK;

    tri_exec_trace(t->session->now_exec, NULL);
    if (span == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a trace of %d instructions", p->ninstr);
    TRI_TRY(tri_comm_agree(t->comm, st));
    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_op *op = &p->graph->op[p->instr[i].op];

        span[i] = (struct tri_trace_span){
            .name = tri_pool_printf(&t->session->pool, "%s %s", tri_op_name(op->kind), op->name),
            .category = tri_phase_name(op->phase),
            .stream = streams[p->instr[i].stream],
            .begin_ns = t->span[i].begin_ns,
            .end_ns = t->span[i].end_ns};
    }
    st = tri_trace_write(t->comm, t->trace_path, span, p->ninstr);
    tri_free(span);
    return st;
}

/* The stage of the compression's warm-up that the updates so far have reached. All ranks count the
 * same updates. */
static void choose_stage(struct tri_trainer *t)
{
    int64_t warmup = t->job->cfg->gradient.compress.warmup;
    int n = t->session->nwarm;

    tri_session_stage(t->session,
                      t->state.updates < warmup ? (int)(t->state.updates * n / warmup) : n);
}

static tri_status step(struct tri_trainer *t)
{
    bool traced = t->span != NULL && t->state.step + 1 == t->trace_step;
    struct tri_batch batch = t->first;
    struct tri_step_metrics m;
    int64_t begin = tri_now_ns(), fed, done, measured;

    if (!t->has_first)
        TRI_TRY(tri_loader_next(t->loader, &batch));
    t->has_first = false;
    tri_feed_fill(&t->feed, &batch);
    fed = tri_now_ns();
    choose_stage(t);
    if (traced)
        tri_exec_trace(t->session->now_exec, t->span);
    TRI_TRY(tri_exec_run(t->session->now_exec));
    done = tri_now_ns();
    TRI_TRY(look_at_step(t, &batch, &m));
    measured = tri_now_ns();
    /* begin - window: the report of the step before. */
    fill_times(t, &batch, fed - begin, (begin - t->window_ns) + (measured - done), &m);
    t->window_ns = tri_now_ns();
    TRI_TRY(report(t, &m));
    return traced ? write_trace(t) : TRI_OK;
}

static bool evaluation_due(const struct tri_trainer *t)
{
    int64_t every = t->job->cfg->run.eval_every, s = t->state.step;

    if (t->evaluator == NULL || every == 0)
        return false;
    return s == t->job->total_steps ||
           due(every == TRI_OPT_AUTO ? t->job->steps_per_epoch : every, s);
}

/* Compares a grain with f32 on rank 0, whose verdict is everybody's. */
static tri_status check_precision(struct tri_trainer *t)
{
    const struct tri_precision_options *o = &t->job->cfg->precision;
    bool restore = o->check_action == TRI_CHECK_RESTORE;
    tri_status st = TRI_OK;

    if (!tri_job_checks_precision(t->job) || !due(o->check_every, t->state.step))
        return TRI_OK;
    if (t->root)
        st = tri_check_run(t->session, t->state.step, &t->job->spec.precision, o->check_bound,
                           restore ? &t->over : NULL);
    if (!restore)
        return st;
    t->shared_failure = true;
    TRI_TRY(tri_comm_agree(t->comm, st));
    TRI_TRY(tri_check_share(t->comm, &t->over));
    t->shared_failure = false;
    return TRI_OK;
}

static tri_status save_now(struct tri_trainer *t, bool best)
{
    TRI_TRY(look_at_memory(t));
    t->shared_failure = true;
    TRI_TRY(tri_trainer_save(t, best));
    t->shared_failure = false;
    return TRI_OK;
}

/* Evaluation and checkpoint behind a step. */
static tri_status between_steps(struct tri_trainer *t)
{
    bool last = t->state.step == t->job->total_steps, improved = false;
    bool save = last || due(t->job->cfg->checkpoint.every, t->state.step);

    TRI_TRY(check_precision(t));
    if (t->over.len > 0)
        return TRI_OK;
    if (evaluation_due(t))
        TRI_TRY(tri_trainer_evaluate(t, &improved));
    return save || improved ? save_now(t, improved) : TRI_OK;
}

/* Ends the run behind this step if a rank was told so. */
static tri_status look_for_stop(struct tri_trainer *t)
{
    TRI_TRY(tri_stop_look(&t->stop, t->comm, &t->stopped));
    if (t->stopped.signal == NULL || t->saved_step == t->state.step)
        return TRI_OK;
    return save_now(t, false);
}

static void say_stopped(const struct tri_trainer *t)
{
    if (t->root && t->stopped.signal != NULL)
        tri_info("stopped by %s at rank %d: the checkpoint of step %lld is complete, the same "
                 "command goes on from it",
                 t->stopped.signal, t->stopped.rank, (long long)t->state.step);
}

tri_status tri_trainer_run(struct tri_trainer *t)
{
    if (t->job->total_steps == 0 && t->state.step == 0) {
        t->shared_failure = true;
        TRI_TRY(tri_trainer_save(t, false));
    }
    t->sent_bytes = bytes_sent(t);
    t->window_ns = tri_now_ns();
    while (t->state.step < t->job->total_steps && t->over.len == 0) {
        int64_t begin;

        TRI_TRY(look_for_stop(t));
        if (t->stopped.signal != NULL)
            break;
        TRI_TRY(step(t));
        begin = tri_now_ns();
        TRI_TRY(between_steps(t));
        t->window_ns += tri_now_ns() - begin; /* not part of any step */
        t->sent_bytes = bytes_sent(t);
    }
    TRI_TRY(tri_trainer_finish_save(t));
    say_stopped(t);
    return t->root ? tri_metrics_flush(t->metrics) : TRI_OK;
}
