/* The comparison of `trireme checkpoint diff`. */
#ifndef TRI_LAUNCH_CHECKPOINT_DIFF_H
#define TRI_LAUNCH_CHECKPOINT_DIFF_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/core/status.h"

#include <stdbool.h>

/* Prints on standard output what differs between two good checkpoints: step, host state, settings
 * to match, tensors to the bit. config.yaml is left out, since it holds names of folders. Local. */
tri_status tri_checkpoint_diff(const struct tri_checkpoint *a, const struct tri_checkpoint *b,
                               bool *equal) TRI_CHECKED;

#endif
