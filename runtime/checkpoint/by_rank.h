/* Tensors by rank (checkpoint.h): reading them for another number of ranks. */
#ifndef TRI_RUNTIME_CHECKPOINT_BY_RANK_H
#define TRI_RUNTIME_CHECKPOINT_BY_RANK_H

#include "runtime/checkpoint/checkpoint.h"

/* s differs from t in the number of rows at most. Local. */
bool tri_by_rank_fits(const struct tri_checkpoint_tensor *t, const struct tri_manifest_tensor *s);
/* Fills t->data, this rank's piece of a row, from the stored tensor s in the file of descriptor fd:
 * as it is, or an equal share of the sum where the numbers of rows differ. TRI_ERR_CHECKPOINT,
 * TRI_ERR_NOMEM. Local. */
tri_status tri_by_rank_read(int fd, const char *path, const struct tri_manifest_tensor *s,
                            const struct tri_checkpoint_tensor *t) TRI_CHECKED;

#endif
