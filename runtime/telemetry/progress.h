/* What a person sees of a run: one line that is redrawn on a terminal, plain lines elsewhere. Rank
 * 0. All Local. */
#ifndef TRI_RUNTIME_TELEMETRY_PROGRESS_H
#define TRI_RUNTIME_TELEMETRY_PROGRESS_H

#include "runtime/core/status.h"
#include "runtime/telemetry/metrics.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_progress_spec {
    int fd;            /* where to; borrowed */
    bool terminal;     /* redraw one line, at most 5 times a second; else lines by log_every */
    int64_t last_step; /* of the run */
    int64_t log_every; /* 0: no plain lines but the last */
    bool tokens;       /* the rate is in tokens, not in samples */
};

struct tri_progress;

tri_status tri_progress_create(const struct tri_progress_spec *spec,
                               struct tri_progress **out) TRI_CHECKED;
/* Shows the step when it is due. Neither allocates nor touches a file on the calling thread once
 * warm. */
tri_status tri_progress_step(struct tri_progress *p, const struct tri_step_metrics *m) TRI_CHECKED;
/* A line of its own, without newline in `text`; the redrawn line goes on below it. */
tri_status tri_progress_note(struct tri_progress *p, const char *text) TRI_CHECKED;
/* Leaves the cursor on a fresh line. NULL is fine. */
void tri_progress_destroy(struct tri_progress *p);

/* "0:07", "12:30", "3:05:00", "2d 4h"; "?" when unknown (negative or not finite). Returns buf. */
const char *tri_duration_text(double seconds, char *buf, size_t bytes);

TRI_END_DECLS
#endif
