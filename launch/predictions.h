/* The file of `trireme eval --predictions`: HDF5 with `outputs` (f32 logits or values, in file
 * order) and, for classes, `labels` (i32 argmax). */
#ifndef TRI_LAUNCH_PREDICTIONS_H
#define TRI_LAUNCH_PREDICTIONS_H

#include "runtime/core/status.h"
#include "runtime/graph/shape.h"

#include <stdbool.h>
#include <stdint.h>

struct tri_predictions;

/* A file for n samples of outputs [sample...] each; with `labels` the last dim is argmaxed (first
 * maximum). It is written beside `path` and takes its name when closed. TRI_ERR_IO, also when the
 * disk is too small for all of it. Local. */
tri_status tri_predictions_create(const char *path, int64_t n, const struct tri_shape *sample,
                                  bool labels, struct tri_predictions **out) TRI_CHECKED;
/* Samples [first, first + count) of the file. Local. */
tri_status tri_predictions_write(struct tri_predictions *p, int64_t first, int64_t count,
                                 const float *outputs) TRI_CHECKED;
/* Makes the file durable and gives it its name; on failure, or with keep false, removes it. Frees
 * p. Accepts NULL. Local. */
tri_status tri_predictions_close(struct tri_predictions *p, bool keep) TRI_CHECKED;

#endif
