/* Checkpoints, evaluation and host state of the trainer. */
#include "launch/trainer.h"

#include "runtime/core/log.h"
#include "runtime/kernels/inject.h"

#include <stdio.h>

void tri_trainer_inject(const struct tri_trainer *t, int where, int64_t step)
{
    const struct tri_opt_records *list = &t->job->cfg->debug.inject;
    const struct tri_fault_options *f = list->v;

    for (size_t i = 0; i < list->count; i++)
        if (f[i].where == where && f[i].step == step && f[i].rank == tri_comm_rank(t->comm))
            tri_inject_process((enum tri_inject_what)f[i].what, (int)f[i].ms, (int)f[i].code);
}

static tri_status probe(void *arg, enum tri_checkpoint_phase phase)
{
    const struct tri_trainer *t = arg;

    if (phase == TRI_CHECKPOINT_WRITE)
        tri_trainer_inject(t, TRI_FAULT_CHECKPOINT, t->saved_step);
    return TRI_OK;
}

enum { ITEMS = 6 }; /* of progress, in each checkpoint */

static struct tri_checkpoint_item integer(const char *key, int64_t v)
{
    return (struct tri_checkpoint_item){.key = key, .integer = v};
}

tri_status tri_trainer_save(struct tri_trainer *t, bool best)
{
    const struct tri_config *cfg = t->job->cfg;
    const struct tri_progress_state *s = &t->state;
    struct tri_checkpoint_item item[ITEMS + TRI_COST_ITEMS] = {
        integer("updates", s->updates),   integer("samples", s->samples),
        integer("tokens", s->tokens),     integer("threads", t->job->spec.threads),
        integer("has_best", s->has_best), {.key = "best", .real = true, .value = s->best},
    };
    struct tri_checkpoint_save save = {.run_dir = cfg->run.dir,
                                       .step = s->step,
                                       .tensor = t->session->tensor,
                                       .ntensor = t->session->ntensor,
                                       .item = item,
                                       .nitem = ITEMS,
                                       .field = t->job->field,
                                       .nfield = t->job->nfield,
                                       .config = t->config_text,
                                       .keep = (int)cfg->checkpoint.keep,
                                       .best = best,
                                       .probe = probe,
                                       .probe_arg = t};
    tri_status st = TRI_OK;

    if (t->job->costs.source != TRI_COSTS_UNKNOWN) {
        tri_cost_table_save(&t->job->costs, item + ITEMS);
        save.nitem += TRI_COST_ITEMS;
    }
    if (t->root && t->metrics != NULL)
        st = tri_metrics_flush(t->metrics);
    if (st == TRI_OK)
        st = tri_session_pull(t->session);
    TRI_TRY(tri_comm_agree(t->comm, st));
    if (t->saver != NULL)
        TRI_TRY(tri_saver_wait(t->saver)); /* before saved_step, which its thread reads */
    t->saved_step = s->step;
    return t->saver != NULL ? tri_saver_begin(t->saver, &save)
                            : tri_checkpoint_save(t->comm, &save);
}

tri_status tri_trainer_finish_save(struct tri_trainer *t)
{
    t->shared_failure = true;
    if (t->saver != NULL)
        TRI_TRY(tri_saver_wait(t->saver));
    t->shared_failure = false;
    return TRI_OK;
}

void tri_trainer_restore(struct tri_progress_state *s, const struct tri_checkpoint *c)
{
    int64_t has_best = 0;

    s->step = c->manifest.step;
    if (!tri_checkpoint_integer(c, "updates", &s->updates) ||
        !tri_checkpoint_integer(c, "samples", &s->samples) ||
        !tri_checkpoint_integer(c, "tokens", &s->tokens))
        tri_warn("checkpoint '%s' lacks its totals; they start at 0", c->path);
    s->has_best = tri_checkpoint_integer(c, "has_best", &has_best) && has_best != 0 &&
                  tri_checkpoint_real(c, "best", &s->best);
}

static bool better(const struct tri_trainer *t, const struct tri_eval_metrics *m, double *value)
{
    int best = t->job->cfg->checkpoint.best;

    *value = best == TRI_BEST_ACCURACY ? m->accuracy : m->loss;
    if (best == TRI_BEST_NONE || !(*value == *value))
        return false;
    return !t->state.has_best ||
           (best == TRI_BEST_ACCURACY ? *value > t->state.best : *value < t->state.best);
}

static tri_status report(struct tri_trainer *t, const struct tri_eval_metrics *m)
{
    char line[160];
    int n = snprintf(line, sizeof(line), "evaluation at step %lld: loss %.6g",
                     (long long)t->state.step, m->loss);

    if (m->has_accuracy)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", accuracy %.2f %%", 100 * m->accuracy);
    if (m->has_perplexity)
        snprintf(line + n, sizeof(line) - (size_t)n, ", perplexity %.4g", m->perplexity);
    TRI_TRY(tri_metrics_eval(t->metrics, t->state.step, m));
    return tri_progress_note(t->progress, line);
}

tri_status tri_trainer_evaluate(struct tri_trainer *t, bool *improved)
{
    struct tri_eval_metrics m;
    double value;

    tri_trainer_inject(t, TRI_FAULT_EVAL, t->state.step);
    t->shared_failure = true;
    TRI_TRY(tri_evaluate(t->evaluator, NULL, &m));
    t->shared_failure = false;
    if (t->root)
        TRI_TRY(report(t, &m));
    *improved = better(t, &m, &value);
    if (*improved) {
        t->state.has_best = true;
        t->state.best = value;
    }
    return TRI_OK;
}
