/* See timed_steps.h. */
#include "launch/timed_steps.h"

#include "launch/bench.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <omp.h>
#include <stdlib.h>

static struct tri_comm *control(const struct tri_timed_steps *t)
{
    return t->env->world->control;
}

static tri_status compile(struct tri_timed_steps *t)
{
    struct tri_session *s = &t->session;
    tri_status st;

    omp_set_num_threads(t->job->spec.threads);
    st = tri_layout_create(&s->layout);
    if (st == TRI_OK)
        st = tri_compile_train(&t->job->spec, s->layout, NULL, &s->train);
    TRI_TRY(tri_comm_agree(control(t), st));
    TRI_TRY(tri_plan_agree(s->train, control(t), tri_world_inter(t->env->world)));
    TRI_TRY(tri_session_start(s, t->env->world));
    if (t->job->cfg->device.graph)
        tri_session_graph(s, t->env->rank == 0);
    return TRI_OK;
}

static tri_status open_loader(struct tri_timed_steps *t)
{
    const struct tri_job *job = t->job;
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
        .last_step = TRI_TIMED_WARMUP + t->steps,
        .depth = (int)o->workers,
        .augment = o->augment};

    TRI_TRY(tri_loader_create(&lc, &t->loader));
    return tri_feed_create(&t->feed, t->session.train, t->session.train_exec, t->loader,
                           job->spec.grains.first);
}

/* Room for the times, and the loader. */
static tri_status open_rest(struct tri_timed_steps *t)
{
    for (int i = 0; i < TRI_TIMED_COUNT; i++) {
        t->times[i] = tri_calloc((size_t)t->steps, sizeof(double), "times of steps");
        if (t->times[i] == NULL)
            return tri_fail(TRI_ERR_NOMEM, "bench: cannot hold %lld times", (long long)t->steps);
    }
    t->span = tri_calloc((size_t)t->session.train->ninstr, sizeof(*t->span), "times of a step");
    if (t->span == NULL)
        return tri_fail(TRI_ERR_NOMEM, "bench: cannot hold the times of a step");
    tri_exec_trace(t->session.train_exec, t->span);
    return open_loader(t);
}

tri_status tri_timed_steps_init(struct tri_timed_steps *t, struct tri_env *env,
                                const struct tri_job_args *args, int64_t steps)
{
    struct tri_config *cfg;

    t->env = env;
    t->steps = steps;
    TRI_TRY(tri_job_load_config(args, &cfg));
    tri_env_set_timeout(env, (int64_t)(cfg->timeouts.collective_s * 1000));
    TRI_TRY(tri_job_create(args, cfg, NULL, &t->job));
    TRI_TRY(tri_job_arrange(t->job, env->world, env->mpi_comm, NULL));
    TRI_TRY(compile(t));
    TRI_TRY(tri_session_fill(&t->session, (uint64_t)t->job->cfg->run.seed));
    if (t->job->cfg->model.init[0] != '\0')
        TRI_TRY(tri_session_read_weights(&t->session, control(t), t->job->cfg->model.init));
    return tri_comm_agree(control(t), open_rest(t));
}

static void add_phases(const struct tri_timed_steps *t, double measured[TRI_TIMED_COUNT])
{
    const struct tri_program *p = t->session.train;

    for (int i = 0; i < TRI_PHASE_COUNT; i++)
        measured[TRI_TIMED_PHASES + i] = 0;
    for (int i = 0; i < p->ninstr; i++)
        measured[TRI_TIMED_PHASES + p->graph->op[p->instr[i].op].phase] +=
            (double)(t->span[i].end_ns - t->span[i].begin_ns) * 1e-9;
}

static tri_status run_step(struct tri_timed_steps *t, double measured[TRI_TIMED_COUNT])
{
    struct tri_exec_times x;
    struct tri_batch batch;
    int64_t begin = tri_now_ns(), fed;

    TRI_TRY(tri_loader_next(t->loader, &batch));
    tri_feed_fill(&t->feed, &batch);
    fed = tri_now_ns();
    TRI_TRY(tri_exec_run(t->session.train_exec));
    measured[TRI_TIMED_STEP_S] = (double)(tri_now_ns() - begin) * 1e-9;
    tri_exec_times(t->session.train_exec, &x);
    measured[TRI_TIMED_COMPUTE_S] = (double)x.compute_ns * 1e-9;
    measured[TRI_TIMED_EXPOSED_S] = (double)x.wait_ns * 1e-9;
    measured[TRI_TIMED_INPUT_S] = (double)(fed - begin) * 1e-9;
    add_phases(t, measured);
    return tri_comm_allreduce(control(t), measured, TRI_TIMED_COUNT, TRI_F64, TRI_REDUCE_MAX,
                              false);
}

static tri_status count_sent(struct tri_timed_steps *t, double sent[TRI_LEVEL_COUNT])
{
    const struct tri_world *w = t->env->world;
    const struct tri_comm *comm[TRI_LEVEL_COUNT] = {w->exchange, w->intra, w->inter};

    for (int l = 0; l < TRI_LEVEL_COUNT; l++)
        sent[l] = (double)tri_comm_bytes_sent(comm[l]);
    return tri_comm_allreduce(control(t), sent, TRI_LEVEL_COUNT, TRI_F64, TRI_REDUCE_MAX, false);
}

tri_status tri_timed_steps_run(struct tri_timed_steps *t, struct tri_step_times *out)
{
    double measured[TRI_TIMED_COUNT], before[TRI_LEVEL_COUNT];

    TRI_TRY(count_sent(t, before));
    for (int64_t i = -TRI_TIMED_WARMUP; i < t->steps; i++) {
        TRI_TRY(run_step(t, measured));
        for (int k = 0; i >= 0 && k < TRI_TIMED_COUNT; k++)
            t->times[k][i] = measured[k];
    }
    TRI_TRY(count_sent(t, out->sent));
    for (int l = 0; l < TRI_LEVEL_COUNT; l++)
        out->sent[l] = (out->sent[l] - before[l]) / (double)(t->steps + TRI_TIMED_WARMUP);
    for (int k = 0; k < TRI_TIMED_COUNT; k++)
        tri_bench_sort(t->times[k], (int)t->steps, &out->best[k], &out->median[k]);
    return TRI_OK;
}

void tri_timed_steps_finish(struct tri_timed_steps *t)
{
    tri_feed_finish(&t->feed);
    tri_loader_destroy(t->loader);
    tri_session_finish(&t->session);
    tri_job_destroy(t->job);
    for (int i = 0; i < TRI_TIMED_COUNT; i++)
        tri_free(t->times[i]);
    tri_free(t->span);
    *t = (struct tri_timed_steps){0};
}

tri_status tri_timed_steps_parse(const char *text, int64_t *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*end != '\0' || n < 1 || n > TRI_TIMED_MAX_STEPS)
        return tri_fail(TRI_ERR_USAGE, "--steps: '%s' is not a number from 1 to %d", text,
                        TRI_TIMED_MAX_STEPS);
    *out = n;
    return TRI_OK;
}
