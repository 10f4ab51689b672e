/* Small file operations of checkpoints and run folders. Every failure names the path and the errno
 * text. All Local. */
#ifndef TRI_RUNTIME_CHECKPOINT_FILES_H
#define TRI_RUNTIME_CHECKPOINT_FILES_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_FILE_PIECE_BYTES ((size_t)16 << 20) /* largest single read or write */

/* TRI_ERR_IO with "cannot VERB 'PATH': errno text". */
tri_status tri_file_fail(const char *verb, const char *path);

/* "a/b" in fresh memory (tri_free); TRI_ERR_NOMEM. */
tri_status tri_path_join(const char *a, const char *b, char **out) TRI_CHECKED;
/* Creates the folder and its missing parents; an existing folder is fine. */
tri_status tri_make_folders(const char *path) TRI_CHECKED;
bool tri_is_folder(const char *path);
/* Removes a file or a folder with all it holds, without following links; absent is fine. */
tri_status tri_remove_tree(const char *path) TRI_CHECKED;
/* Makes directory entries of the folder durable. */
tri_status tri_sync_folder(const char *path) TRI_CHECKED;

/* Creates or truncates the file, writes all bytes and makes them durable. */
tri_status tri_write_file(const char *path, const void *data, size_t bytes) TRI_CHECKED;
/* The whole file with a NUL behind it (tri_free). A file above max_bytes is TRI_ERR_DATA, before
 * anything is allocated. */
tri_status tri_read_file(const char *path, size_t max_bytes, char **data,
                         size_t *bytes) TRI_CHECKED;
/* All bytes at `offset`, in pieces; `path` is for messages. A read past the end is TRI_ERR_DATA. */
tri_status tri_pwrite_all(int fd, const void *data, size_t bytes, int64_t offset,
                          const char *path) TRI_CHECKED;
tri_status tri_pread_all(int fd, void *data, size_t bytes, int64_t offset,
                         const char *path) TRI_CHECKED;
/* May the file at `path` be made or replaced, while the n files `input` (NULL ones count nothing)
 * are read? TRI_ERR_USAGE for one of them, under whatever name, and for what is no regular file. */
tri_status tri_check_output(const char *path, const char *const *input, int n) TRI_CHECKED;
/* Makes folder/name a relative link to `target`, atomically replacing an older one. */
tri_status tri_replace_link(const char *folder, const char *name, const char *target) TRI_CHECKED;

TRI_END_DECLS
#endif
