/* The training loop: data in, a step, metrics out, and between steps evaluation and checkpoints. */
#ifndef TRI_LAUNCH_TRAINER_H
#define TRI_LAUNCH_TRAINER_H

#include "data/loader.h"
#include "launch/evaluate.h"
#include "launch/feed.h"
#include "launch/job.h"
#include "launch/session.h"
#include "launch/stop.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/telemetry/metrics.h"
#include "runtime/telemetry/progress.h"

/* What a run carries from step to step beside the values of the program; all of it is in every
 * checkpoint. */
struct tri_progress_state {
    int64_t step, updates;
    int64_t samples, tokens; /* used, over all ranks */
    bool has_best;
    double best; /* of checkpoint.best */
};

struct tri_trainer {
    const struct tri_job *job;
    struct tri_session *session;
    struct tri_comm *comm; /* control */
    bool root;             /* rank 0 */
    struct tri_progress_state state;
    struct tri_loader *loader;
    struct tri_feed feed;
    struct tri_batch first; /* read before anything is written, so that bad data is refused */
    bool has_first;         /* not yet used */
    struct tri_evaluator *evaluator; /* NULL: no validation data or no evaluation */
    struct tri_saver *saver;         /* checkpoint.async; else NULL */
    int64_t saved_step;              /* of its latest save, which may be running; -1: none */
    struct tri_metrics *metrics;     /* rank 0 */
    struct tri_progress *progress;   /* rank 0 */
    const double *scalars;           /* OUTPUT of a step */
    const char *trace_path;          /* NULL: no trace */
    struct tri_exec_span *span;
    int64_t trace_step;
    uint64_t mem_bytes;       /* largest rank, at the last look */
    uint64_t sent_bytes;      /* by this rank before the step */
    int64_t window_ns;        /* where the measured time of the coming step begins */
    int64_t *ids;             /* log_samples: count and ids of this rank, then of all ranks */
    struct tri_text overflow; /* report of a skipped step, until it is printed */
    struct tri_text over;     /* of tri_check_run: the run must go back with these layers in f32 */
    char *config_text;
    struct tri_stop stop;
    struct tri_stop_cause stopped; /* a signal, if one ended the run */
    bool shared_failure;           /* the failure that ends the run is known to all ranks */
};

/* Borrows job and session. resumed: NULL for a fresh start; its tensors are loaded already. Writes
 * config.yaml and opens the metrics. Collective. */
tri_status tri_trainer_create(const struct tri_job *job, struct tri_session *s,
                              const struct tri_checkpoint *resumed, const char *trace_path,
                              struct tri_trainer **out) TRI_CHECKED;
void tri_trainer_destroy(struct tri_trainer *t);

/* From the step behind state.step to the last, with the checkpoint at the end; or to the one behind
 * which a signal stops it (t->stopped), likewise; or to the step whose precision check asks for a
 * return (t->over is not empty), without saving or evaluating it. After a failure
 * t->shared_failure tells whether all ranks have it. Collective. */
tri_status tri_trainer_run(struct tri_trainer *t) TRI_CHECKED;

/* Saves the state of t->state.step, in the background with checkpoint.async: a failure then shows
 * at the next save or at tri_trainer_finish_save. Collective; a failure is shared. */
tri_status tri_trainer_save(struct tri_trainer *t, bool best) TRI_CHECKED;
/* Waits for the save in the background. Collective; a failure is shared. */
tri_status tri_trainer_finish_save(struct tri_trainer *t) TRI_CHECKED;
/* Position and host state of a checkpoint. Local. */
void tri_trainer_restore(struct tri_progress_state *state, const struct tri_checkpoint *c);
/* Evaluates; *improved: the value of checkpoint.best got better. Collective. */
tri_status tri_trainer_evaluate(struct tri_trainer *t, bool *improved) TRI_CHECKED;
/* Makes the faults of debug.inject that belong to `where` (checkpoint or eval) at `step`. Local. */
void tri_trainer_inject(const struct tri_trainer *t, int where, int64_t step);

#endif
