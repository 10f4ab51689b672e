/* run.dir/metrics.jsonl and run.dir/samples.jsonl: one JSON object a line, in the order of steps.
 * Rank 0 writes. */
#ifndef TRI_RUNTIME_TELEMETRY_METRICS_H
#define TRI_RUNTIME_TELEMETRY_METRICS_H

#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* One step. Times are of rank 0 and each is measured. */
struct tri_step_metrics {
    int64_t step, updates, epoch;
    double loss;      /* mean over the step's targets, before regularisation */
    double grad_norm; /* unscaled, before clipping */
    double lr, loss_scale;
    bool skipped;            /* the update was left out */
    int64_t samples, tokens; /* cumulative */
    double step_ms, compute_ms, exposed_comm_ms, input_ms, other_ms;
    uint64_t comm_bytes; /* sent by rank 0 in the step */
    double samples_per_s, tokens_per_s;
    uint64_t mem_bytes; /* largest rank */
    bool hashed;        /* weights_hash was asked for */
    uint64_t weights_hash;
};

struct tri_eval_metrics {
    double loss;
    bool has_accuracy, has_perplexity;
    double accuracy; /* 0..1 */
    double perplexity;
};

/* Appends the object without a newline. Local. */
void tri_step_metrics_print(const struct tri_step_metrics *m, struct tri_text *out);
/* {"step": n, "eval": {...}} without a newline: also what `trireme eval` prints. Local. */
void tri_eval_metrics_print(int64_t step, const struct tri_eval_metrics *m, struct tri_text *out);

struct tri_metrics;

/* Opens the files for appending. Lines of steps after `loaded_step` (0: a fresh start), and a
 * damaged line at the end, are removed first, by rewriting into a new file and a rename. samples:
 * also samples.jsonl. TRI_ERR_IO. Local, on rank 0. */
tri_status tri_metrics_open(const char *run_dir, int64_t loaded_step, bool samples,
                            struct tri_metrics **out) TRI_CHECKED;
/* These hand a line to the I/O thread; a failed write is told by a later call. Local. */
tri_status tri_metrics_step(struct tri_metrics *m, const struct tri_step_metrics *step) TRI_CHECKED;
tri_status tri_metrics_eval(struct tri_metrics *m, int64_t step,
                            const struct tri_eval_metrics *eval) TRI_CHECKED;
/* Samples that `rank` used in the step, in order of use, padding left out. Nothing happens unless
 * opened with samples. Local. */
tri_status tri_metrics_samples(struct tri_metrics *m, int64_t step, int64_t epoch, int rank,
                               const int64_t *ids, int64_t count) TRI_CHECKED;
/* Waits for all lines; tells a failure. Local. */
tri_status tri_metrics_flush(struct tri_metrics *m) TRI_CHECKED;
void tri_metrics_close(struct tri_metrics *m);

/* Removes lines {"step": n, ...} with n > step and damaged lines from a file; an absent file is
 * fine. Local. */
tri_status tri_metrics_truncate(const char *path, int64_t step) TRI_CHECKED;

TRI_END_DECLS
#endif
