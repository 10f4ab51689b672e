/* Grains go round the ranks: round r gives grain r * ranks + rank to each. */
#include "launch/evaluate.h"

#include "launch/feed.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <string.h>

struct tri_evaluator {
    const struct tri_job *job;
    const struct tri_session *session;
    struct tri_comm *comm;
    struct tri_sampler sampler;
    struct tri_loader *loader;
    struct tri_feed feed;
    int64_t rounds;
    const double *stats;     /* OUTPUT of the program */
    const float *prediction; /* likewise, a grain */
    size_t prediction_bytes;
    double *own, *all;       /* statistics of each round of this rank, of all ranks */
    unsigned char *gathered; /* predictions of one round, all ranks; made at first use */
};

static tri_status open_loader(struct tri_evaluator *e, int rank, int size)
{
    const struct tri_dataset_info *info = tri_dataset_info(e->job->data);
    int64_t grain = e->job->shape.grain;
    struct tri_loader_cfg cfg = {.dataset = e->job->data,
                                 .split = TRI_SPLIT_VALIDATION,
                                 .grain = grain,
                                 .first_grain = rank,
                                 .ngrains = 1,
                                 .first_step = 1};

    e->sampler =
        (struct tri_sampler){.samples = info->samples[TRI_SPLIT_VALIDATION], .batch = grain * size};
    e->rounds = tri_sampler_steps_per_epoch(&e->sampler);
    cfg.sampler = e->sampler;
    cfg.last_step = 0; /* nothing is read before the first pass seeks */
    cfg.depth = (int)e->job->cfg->data.workers;
    return tri_loader_create(&cfg, &e->loader);
}

static void find_outputs(struct tri_evaluator *e)
{
    const struct tri_session *s = e->session;
    tri_vid v = tri_graph_find(s->eval->graph, "eval/prediction");

    e->stats = tri_session_find(s->eval, s->eval_exec, "eval/stats");
    e->prediction = tri_exec_value(s->eval_exec, v);
    e->prediction_bytes = tri_value_bytes(&s->eval->graph->value[v]);
}

tri_status tri_evaluator_create(const struct tri_job *job, const struct tri_session *s,
                                struct tri_evaluator **out)
{
    struct tri_evaluator *e = tri_calloc(1, sizeof(*e), "evaluator");
    int size;
    tri_status st;

    if (e == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the evaluator");
    e->job = job;
    e->session = s;
    e->comm = job->world != NULL ? job->world->control : NULL;
    size = tri_comm_size(e->comm);
    TRI_TRY_GOTO(st, open_loader(e, tri_comm_rank(e->comm), size), destroy);
    TRI_TRY_GOTO(st, tri_feed_create(&e->feed, s->eval, s->eval_exec, e->loader, 0), destroy);
    find_outputs(e);
    e->own = tri_calloc((size_t)e->rounds * TRI_STATS_COUNT, sizeof(double), "statistics");
    e->all = tri_calloc((size_t)(e->rounds * size) * TRI_STATS_COUNT, sizeof(double),
                        "statistics of all ranks");
    if (e->own == NULL || e->all == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the statistics of %lld rounds",
                      (long long)e->rounds);
        goto destroy;
    }
    *out = e;
    return TRI_OK;

destroy:
    tri_evaluator_destroy(e);
    return st;
}

void tri_evaluator_destroy(struct tri_evaluator *e)
{
    if (e == NULL)
        return;
    tri_feed_finish(&e->feed);
    tri_loader_destroy(e->loader);
    tri_free(e->own);
    tri_free(e->all);
    tri_free(e->gathered);
    tri_free(e);
}

/* Hands one round's predictions to rank 0's file, unless some rank's round has failed (`st`: that
 * of this rank). Collective; a failure is shared. */
static tri_status gather_predictions(struct tri_evaluator *e, struct tri_predictions *sink,
                                     int64_t round, tri_status st)
{
    struct tri_batch_position at = tri_sampler_at(&e->sampler, round + 1);
    int size = tri_comm_size(e->comm);

    if (e->gathered == NULL)
        e->gathered =
            tri_alloc_aligned(e->prediction_bytes * (size_t)size, "predictions of a round");
    if (e->gathered == NULL && st == TRI_OK)
        st = tri_fail(TRI_ERR_NOMEM, "cannot gather predictions of %d ranks", size);
    TRI_TRY(tri_comm_agree(e->comm, st));
    TRI_TRY(tri_comm_allgather(e->comm, e->prediction, e->prediction_bytes, e->gathered));
    if (sink != NULL) /* the grains of a round lie one behind the other, padding at the end */
        st = tri_predictions_write(sink, at.first, at.count,
                                   (const float *)(const void *)e->gathered);
    return tri_comm_agree(e->comm, st);
}

/* This rank's grain of a round. Local. */
static tri_status run_round(struct tri_evaluator *e, int64_t round)
{
    struct tri_batch batch;

    TRI_TRY(tri_loader_next(e->loader, &batch));
    tri_feed_fill(&e->feed, &batch);
    TRI_TRY(tri_exec_run(e->session->eval_exec));
    memcpy(e->own + round * TRI_STATS_COUNT, e->stats, TRI_STATS_COUNT * sizeof(double));
    return TRI_OK;
}

/* Collective; a failure is shared: with predictions in each round, else at the end. */
static tri_status run_rounds(struct tri_evaluator *e, bool predict, struct tri_predictions *sink)
{
    tri_status st = TRI_OK;

    tri_loader_seek(e->loader, 1, e->rounds);
    for (int64_t r = 0; r < e->rounds && st == TRI_OK; r++) {
        st = run_round(e, r);
        if (predict)
            st = gather_predictions(e, sink, r, st);
    }
    return predict ? st : tri_comm_agree(e->comm, st);
}

tri_status tri_evaluate(struct tri_evaluator *e, struct tri_predictions *sink,
                        struct tri_eval_metrics *out)
{
    int size = tri_comm_size(e->comm);
    size_t bytes = (size_t)e->rounds * TRI_STATS_COUNT * sizeof(double);
    int64_t predict = sink != NULL;
    double sum[TRI_STATS_COUNT] = {0};

    TRI_TRY(tri_comm_allreduce(e->comm, &predict, 1, TRI_I64, TRI_REDUCE_MAX, false));
    TRI_TRY(run_rounds(e, predict != 0, sink));
    TRI_TRY(tri_comm_allgather(e->comm, e->own, bytes, e->all));
    for (int64_t r = 0; r < e->rounds; r++)
        for (int q = 0; q < size; q++)
            for (int i = 0; i < TRI_STATS_COUNT; i++)
                sum[i] += e->all[(q * e->rounds + r) * TRI_STATS_COUNT + i];
    *out = (struct tri_eval_metrics){.loss = sum[TRI_STATS_LOSS] / sum[TRI_STATS_TARGETS],
                                     .accuracy = sum[TRI_STATS_RIGHT] / sum[TRI_STATS_TARGETS],
                                     .has_accuracy = e->job->shape.task == TRI_TASK_CLASSES,
                                     .has_perplexity = e->job->shape.task == TRI_TASK_LANGUAGE};
    out->perplexity = exp(out->loss);
    return TRI_OK;
}
