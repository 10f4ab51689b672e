/* Feeding: which input of a program takes which part of a batch. Resolved once; filling is a copy
 * an input. */
#ifndef TRI_LAUNCH_FEED_H
#define TRI_LAUNCH_FEED_H

#include "data/loader.h"
#include "runtime/core/status.h"
#include "runtime/exec/exec.h"

struct tri_feed_input;

struct tri_feed {
    struct tri_feed_input *input;
    int ninputs;
};

/* Inputs named "tokens" or "x", "targets", "labels" or "y", and "nreal" (with ".<grain>" behind in
 * a step graph) take the loader's x, y and nreal of grain (value.grain - first_grain). Another
 * name, or another size than the loader gives, is TRI_ERR_INTERNAL. Local. */
tri_status tri_feed_create(struct tri_feed *f, const struct tri_program *p,
                           const struct tri_exec *x, const struct tri_loader *loader,
                           int64_t first_grain) TRI_CHECKED;
void tri_feed_finish(struct tri_feed *f);
/* Copies the batch into the inputs. Local. */
void tri_feed_fill(const struct tri_feed *f, const struct tri_batch *batch);

#endif
