/* Which tensors of a run and of a checkpoint belong together, and which may stand on one side only:
 * states of compression, momentum that moves between optimizer and compression, a loss scale. */
#ifndef TRI_RUNTIME_CHECKPOINT_TENSORS_H
#define TRI_RUNTIME_CHECKPOINT_TENSORS_H

#include "runtime/checkpoint/checkpoint.h"

/* Place of t in the manifest of c (`guess` is tried first); *index < 0: the checkpoint does not
 * have it and need not. TRI_ERR_CHECKPOINT: it is missing, or of another type or shape. Local. */
tri_status tri_tensor_find(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *t,
                           int guess, int *index) TRI_CHECKED;
/* TRI_ERR_CHECKPOINT when c has a tensor that the run neither has nor may drop. Local. */
tri_status tri_tensors_check_rest(const struct tri_checkpoint *c,
                                  const struct tri_checkpoint_tensor *tensor,
                                  int ntensor) TRI_CHECKED;
/* Logs what starts fresh, is spread over other ranks, or is dropped. Local. */
void tri_tensors_report(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                        int ntensor);

#endif
