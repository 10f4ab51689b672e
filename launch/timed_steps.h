/* Training steps of a configuration, fed as in training but without a run folder, and their times:
 * what the benchmarks of steps share. */
#ifndef TRI_LAUNCH_TIMED_STEPS_H
#define TRI_LAUNCH_TIMED_STEPS_H

#include "launch/env.h"
#include "launch/feed.h"
#include "launch/job.h"
#include "launch/session.h"

enum { TRI_TIMED_WARMUP = 2, TRI_TIMED_MAX_STEPS = 10000 };

/* What is measured in each step, in seconds: the largest of all ranks. From PHASES on, the time
 * inside the kernels of each phase; that of the exchange is the time inside collectives. */
enum {
    TRI_TIMED_STEP_S,
    TRI_TIMED_COMPUTE_S,
    TRI_TIMED_EXPOSED_S,
    TRI_TIMED_INPUT_S,
    TRI_TIMED_PHASES,
    TRI_TIMED_COUNT = TRI_TIMED_PHASES + TRI_PHASE_COUNT
};

struct tri_timed_steps {
    const struct tri_env *env; /* borrowed */
    struct tri_job *job;
    struct tri_session session;
    struct tri_loader *loader;
    struct tri_feed feed;
    int64_t steps;
    double *times[TRI_TIMED_COUNT]; /* steps each */
    struct tri_exec_span *span;     /* of the last step */
};

struct tri_step_times {
    double best[TRI_TIMED_COUNT], median[TRI_TIMED_COUNT]; /* seconds */
    double sent[TRI_LEVEL_COUNT]; /* bytes of a step for gradients, of the rank that sends most */
};

/* Compiles the job of `args` for the ranks of env and prepares `steps` steps, which take the place
 * of run.steps. env is borrowed until finish; t is zeroed before, and finished by the caller in any
 * case. Collective; a failure is shared. */
tri_status tri_timed_steps_init(struct tri_timed_steps *t, struct tri_env *env,
                                const struct tri_job_args *args, int64_t steps) TRI_CHECKED;
/* Runs TRI_TIMED_WARMUP steps and then the timed ones. Once. Collective. */
tri_status tri_timed_steps_run(struct tri_timed_steps *t, struct tri_step_times *out) TRI_CHECKED;
void tri_timed_steps_finish(struct tri_timed_steps *t);

/* The number of an option --steps. Local. */
tri_status tri_timed_steps_parse(const char *text, int64_t *out) TRI_CHECKED;

#endif
