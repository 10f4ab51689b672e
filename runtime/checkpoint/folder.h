/* Folders of a run's checkpoints, and the check of one folder: shared by saving and loading. All
 * Local. */
#ifndef TRI_RUNTIME_CHECKPOINT_FOLDER_H
#define TRI_RUNTIME_CHECKPOINT_FOLDER_H

#include "runtime/checkpoint/checkpoint.h"

TRI_BEGIN_DECLS

/* Name of the folder of a step inside checkpoints/. */
#define TRI_STEP_NAME_BYTES 40
void tri_step_name(int64_t step, char name[TRI_STEP_NAME_BYTES]);

/* After `step` was saved: removes checkpoints of later steps (the run was taken back), then the
 * oldest beyond `keep` (0: all stay), but not the target of the link `best`. */
tri_status tri_checkpoint_prune(const char *run_dir, int keep, int64_t step) TRI_CHECKED;
/* Newest checkpoint below step `below` whose every byte is good: its path (tri_free), or NULL.
 * Keeps the thread's message. */
char *tri_checkpoint_previous_good(const char *run_dir, int64_t below);

/* Hash of the bytes of an open model.h5 outside the tensors of m. */
tri_status tri_model_file_hash(int fd, const char *path, const struct tri_manifest *m,
                               uint64_t *out) TRI_CHECKED;
/* Hash of a whole tensor as stored, read in pieces: into `data` (all elements), or with NULL
 * through a buffer of one piece. */
tri_status tri_stored_hash(int fd, const char *path, const struct tri_manifest_tensor *t,
                           void *data, uint64_t *out) TRI_CHECKED;
/* Sizes of all files, hash of the layout and of config.yaml, and the step inside model.h5, against
 * the manifest. */
tri_status tri_folder_check(const char *folder, const struct tri_manifest *m) TRI_CHECKED;

/* Address of the first element that this rank owns, NULL without any. */
const void *tri_checkpoint_owned(const struct tri_checkpoint_tensor *t);
/* tri_checkpoint_save with the elements to write at owned[i], the first owned one of tensor i,
 * instead of inside save->tensor[i].data, which is not looked at. NULL: inside. Collective. */
tri_status tri_checkpoint_save_owned(struct tri_comm *comm, const struct tri_checkpoint_save *save,
                                     const void *const *owned) TRI_CHECKED;

/* Name of the tensor that holds the step inside model.h5. */
#define TRI_STEP_TENSOR "step"

TRI_END_DECLS
#endif
