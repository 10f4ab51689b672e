/* `trireme checkpoint`. */
#ifndef TRI_LAUNCH_CMD_CHECKPOINT_H
#define TRI_LAUNCH_CMD_CHECKPOINT_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/core/status.h"

#include <stdbool.h>

/* `trireme checkpoint list|show|verify|diff ...`. argv[0] is the word "checkpoint", argv[1] the
 * first word behind it. Prints to standard output. A failure is a wrong use or an unreadable
 * folder; findings (damaged: 2, different: 1) only set *exit_code. Local. */
tri_status tri_cmd_checkpoint(int argc, char **argv, int *exit_code) TRI_CHECKED;

/* Prints what differs between two good checkpoints: step, host state, settings to match, tensors to
 * the bit. config.yaml is left out, since it holds names of folders. Local. */
tri_status tri_checkpoint_diff(const struct tri_checkpoint *a, const struct tri_checkpoint *b,
                               bool *equal) TRI_CHECKED;

#endif
