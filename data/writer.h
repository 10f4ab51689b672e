/* Writes a dataset file under a temporary name and renames it when it is complete, so that a
 * failure leaves no half file and nothing overwritten.
 *
 * HDF5 1.10 crashes on a full disk; therefore it only lays the file out (contiguous arrays,
 * allocated early, never filled). The space is then reserved, and the bytes go to their places by
 * pwrite, whose errors are clean. Order of calls: create, arrays and attributes (on `file`),
 * layout, put ..., finish; destroy in the end in any case. To be used in closures of the I/O
 * thread. Errors are TRI_ERR_IO with path and reason. All calls: Local. */
#ifndef TRI_DATA_WRITER_H
#define TRI_DATA_WRITER_H

#include "runtime/core/status.h"

#include <hdf5.h>
#include <stdint.h>

enum { TRI_WRITER_ARRAYS = 8 };

struct tri_writer {
    char *path, *tmp;
    hid_t file; /* open from create to layout */
    hid_t dset[TRI_WRITER_ARRAYS];
    size_t bytes[TRI_WRITER_ARRAYS];
    int64_t offset[TRI_WRITER_ARRAYS]; /* in the file, from layout on */
    int narrays;
    int fd; /* from layout on */
};

tri_status tri_writer_create(struct tri_writer *w, const char *path) TRI_CHECKED;
/* Adds "train/x" with its groups; the elements are of `type` as stored. *index names it in put. */
tri_status tri_writer_array(struct tri_writer *w, const char *entry, hid_t type, int rank,
                            const int64_t *dims, int *index) TRI_CHECKED;
/* Closes the HDF5 side and reserves the space. */
tri_status tri_writer_layout(struct tri_writer *w) TRI_CHECKED;
/* Writes bytes of an array, as stored, at a byte offset within it. */
tri_status tri_writer_put(struct tri_writer *w, int index, size_t offset, const void *data,
                          size_t bytes) TRI_CHECKED;
/* Syncs and renames to the final path. */
tri_status tri_writer_finish(struct tri_writer *w) TRI_CHECKED;
/* Frees all; removes the temporary file unless finish succeeded. */
void tri_writer_destroy(struct tri_writer *w);

#endif
