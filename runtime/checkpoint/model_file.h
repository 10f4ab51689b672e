/* The HDF5 side of checkpoints. Only layouts are written through the library: it crashes or hangs
 * when a disk fills, so that tensor bytes go by pwrite to the offsets found here. All Local; on the
 * I/O thread or before it starts, since the library is not thread-safe. */
#ifndef TRI_RUNTIME_CHECKPOINT_MODEL_FILE_H
#define TRI_RUNTIME_CHECKPOINT_MODEL_FILE_H

#include "runtime/checkpoint/manifest.h"

/* Creates the file with one contiguous, allocated, unwritten data set per tensor of m, reserves its
 * space on the disk and fills in m->tensor[].offset and m->model_bytes. No time stamps: equal
 * contents give equal files. TRI_ERR_IO with the errno text. */
tri_status tri_model_file_create(const char *path, struct tri_manifest *m) TRI_CHECKED;

#endif
