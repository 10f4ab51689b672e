/* The tokenizer of a language model as part of its checkpoints, so that generation needs no
 * dataset. */
#ifndef TRI_LAUNCH_TOKENIZER_STATE_H
#define TRI_LAUNCH_TOKENIZER_STATE_H

#include "data/tokenizer.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/core/status.h"

#define TRI_TOKENIZER_TENSOR "state/tokenizer/merges" /* i32 [M, 2] */
#define TRI_TOKENIZER_FIELD  "tokenizer"              /* "byte", "bpe" or "" among the settings */

/* The merges as a tensor that this rank writes if it is the first; false for tokenizers without
 * merges. Borrows t. Local. */
bool tri_tokenizer_tensor(const struct tri_tokenizer *t, int rank,
                          struct tri_checkpoint_tensor *out);
/* The tokenizer that a checkpoint carries. TRI_ERR_USAGE when its model was not trained on text.
 * Collective over comm (NULL: alone). */
tri_status tri_tokenizer_load(struct tri_comm *comm, const struct tri_checkpoint *c,
                              struct tri_tokenizer **out) TRI_CHECKED;

#endif
