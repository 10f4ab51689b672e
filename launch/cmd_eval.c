/* trireme eval: the validation data through a checkpoint. */
#include "launch/command.h"
#include "launch/env.h"
#include "launch/evaluate.h"
#include "launch/kept_layers.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

struct eval {
    struct tri_env env;
    struct tri_job_args args;
    const char *checkpoint, *predictions;
    struct tri_checkpoint *loaded;
    struct tri_job *job;
    struct tri_session session;
    struct tri_evaluator *evaluator;
    struct tri_predictions *sink; /* rank 0 */
};

/* Settings that only matter in training may differ from the checkpoint's. */
static tri_status match_model(const struct eval *e)
{
    for (int i = 0; i < e->job->nfield; i++)
        if (strcmp(e->job->field[i].key, "model") == 0)
            return tri_checkpoint_match(e->loaded, &e->job->field[i], 1);
    return TRI_OK;
}

static tri_status open_all(struct eval *e)
{
    struct tri_comm *comm = e->env.world->control;
    struct tri_config *cfg;
    tri_status st;

    TRI_TRY(tri_job_load_config(&e->args, &cfg));
    tri_env_set_timeout(&e->env, (int64_t)(cfg->timeouts.collective_s * 1000));
    e->args.need_validation = true;
    TRI_TRY(tri_job_create(&e->args, cfg, NULL, &e->job));
    TRI_TRY(tri_checkpoint_open(comm, e->checkpoint, &e->loaded));
    TRI_TRY(tri_comm_agree(comm, match_model(e)));
    TRI_TRY(tri_comm_agree(comm, tri_kept_layers_resume(e->job, e->loaded)));
    omp_set_num_threads(e->job->spec.threads);
    st = tri_layout_create(&e->session.layout);
    if (st == TRI_OK)
        st = tri_compile_eval(&e->job->spec, e->session.layout, &e->session.eval);
    TRI_TRY(tri_comm_agree(comm, st));
    TRI_TRY(tri_session_start(&e->session, e->env.world));
    TRI_TRY(tri_checkpoint_load(comm, e->loaded, e->session.tensor, e->session.ntensor, true));
    TRI_TRY(tri_comm_agree(comm, tri_session_push(&e->session)));
    return tri_comm_agree(comm, tri_evaluator_create(e->job, &e->session, &e->evaluator));
}

/* Predictions must not replace what they are made from. */
static tri_status check_sink(const struct eval *e)
{
    const struct tri_opt_strings *data = &e->job->cfg->data.path;
    const char *input[2] = {e->args.config, NULL};
    char *model = NULL;
    tri_status st;

    TRI_TRY(tri_check_output(e->predictions, data->v, (int)data->count));
    TRI_TRY(tri_path_join(e->loaded->path, "model.h5", &model));
    input[1] = model;
    st = tri_check_output(e->predictions, input, 2);
    tri_free(model);
    return st;
}

/* The prediction of one sample: without the leading axis of the grain. */
static tri_status open_sink(struct eval *e)
{
    const struct tri_graph *g = e->session.eval->graph;
    struct tri_shape s = g->value[tri_graph_find(g, "eval/prediction")].shape;
    int64_t n = tri_dataset_info(e->job->data)->samples[TRI_SPLIT_VALIDATION];
    struct tri_shape sample = tri_shape_make(s.ndim - 1, s.dim + 1);

    if (e->predictions == NULL || e->env.rank != 0)
        return TRI_OK;
    TRI_TRY(check_sink(e));
    return tri_predictions_create(e->predictions, n, &sample, e->job->shape.task != TRI_TASK_VALUES,
                                  &e->sink);
}

static tri_status evaluate(struct eval *e)
{
    struct tri_comm *comm = e->env.world->control;
    struct tri_eval_metrics m;
    struct tri_text line = {0};
    tri_status st;

    TRI_TRY(open_all(e));
    TRI_TRY(tri_comm_agree(comm, open_sink(e)));
    st = tri_evaluate(e->evaluator, e->sink, &m);
    if (st != TRI_OK) {
        (void)!tri_predictions_close(e->sink, false);
        return st;
    }
    TRI_TRY(tri_comm_agree(comm, tri_predictions_close(e->sink, true)));
    tri_eval_metrics_print(e->loaded->manifest.step, &m, &line);
    if (e->env.rank == 0 && line.data != NULL)
        printf("%s\n", line.data);
    tri_text_finish(&line);
    return TRI_OK;
}

static int run_parsed(struct eval *e)
{
    tri_status st = tri_env_init(&e->env);
    int code = TRI_EXIT_DONE;

    if (st == TRI_OK)
        st = tri_io_start();
    if (st == TRI_OK) {
        e->args.world = e->env.world;
        e->args.nranks = e->env.size;
        st = evaluate(e);
    }
    if (st != TRI_OK) {
        code = TRI_EXIT_REFUSED;
        tri_command_error(e->env.world != NULL ? e->env.world->control : NULL, false);
        if (st == TRI_ERR_COMM || st == TRI_ERR_TIMEOUT)
            tri_env_abort(code);
    }
    tri_evaluator_destroy(e->evaluator);
    tri_session_finish(&e->session);
    tri_checkpoint_close(e->loaded);
    tri_job_destroy(e->job);
    tri_io_stop();
    tri_env_finish(&e->env);
    return code;
}

static int run_eval(const struct tri_command *self, int argc, char **argv)
{
    struct eval e = {0};
    const struct tri_flag flags[] = {{"checkpoint", &e.checkpoint},
                                     {"predictions", &e.predictions}};
    struct tri_arguments a;
    int code;
    tri_status st = tri_arguments_parse(argc, argv, flags, 2, 1, &a);

    if (st == TRI_OK && !a.help && (a.nfiles == 0 || e.checkpoint == NULL))
        st = tri_fail(TRI_ERR_USAGE,
                      "eval: RUN.yaml and --checkpoint DIR are needed (see trireme eval --help)");
    if (st != TRI_OK) {
        code = tri_command_refuse_job(st);
    } else if (a.help) {
        printf("%s", self->help);
        code = TRI_EXIT_DONE;
    } else {
        e.args.config = a.file[0];
        e.args.overrides = a.pair;
        e.args.noverrides = a.npairs;
        code = run_parsed(&e);
    }
    tri_free(a.pair);
    return code;
}

const struct tri_command tri_command_eval = {
    .name = "eval",
    .summary = "measure a checkpoint on the validation data",
    .help = "usage: [mpirun -n N] trireme eval RUN.yaml --checkpoint DIR [--predictions OUT.h5] "
            "[key=value ...]\n\n"
            "Prints {\"step\": n, \"eval\": {...}} for the validation data of RUN.yaml. DIR is a "
            "checkpoint, or a run folder\n"
            "(its newest). --predictions writes HDF5: outputs (f32 logits or values, in file "
            "order) and, for classes, labels.\n",
    .run = run_eval,
};
