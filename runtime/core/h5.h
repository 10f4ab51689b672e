/* Small wrappers around HDF5 that datasets and checkpoints share. Every function makes HDF5 calls:
 * use it only in closures of the I/O thread (runtime/core/io_thread.h). HDF5's own printing of
 * errors is silenced by each of them. All calls: Local. */
#ifndef TRI_RUNTIME_CORE_H5_H
#define TRI_RUNTIME_CORE_H5_H

#include "runtime/core/status.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stops HDF5 from printing its error stack. */
void tri_h5_quiet(void);

/* Fails with code and the message "'path': <what> 'object': <innermost line of HDF5's error
 * stack>", then clears the stack. `object` may be NULL. `what` as in "cannot read". */
tri_status tri_h5_fail(tri_status code, const char *path, const char *what, const char *object);

/* Opens for reading. Tries with HDF5's advisory lock first and then without it, so that a lock that
 * is refused or not supported (another process has the file open, a network file system) does not
 * matter. code_on_error is what a failure returns (TRI_ERR_DATA, TRI_ERR_CHECKPOINT); the message
 * names the file and the reason. Close with H5Fclose. */
tri_status tri_h5_open(const char *path, tri_status code_on_error, hid_t *file) TRI_CHECKED;

/* Creates a file, or empties one, for writing without HDF5's lock: all files are written under a
 * name of their own, on file systems that may know no locks. Negative on failure, with errno and
 * HDF5's error stack as H5Fcreate left them. Close with H5Fclose. */
hid_t tri_h5_create(const char *path);

/* Is there a link of that path ("train/tokens")? False also when a part of the path is missing. */
bool tri_h5_exists(hid_t loc, const char *path);

/* Numeric attribute of obj as doubles or 64-bit integers: a scalar or a vector of at most `max`
 * elements. *count is the number read, 0 when there is no such attribute. Integers are also
 * accepted as doubles, not the other way round. `path` and the name are for the message; errors are
 * TRI_ERR_DATA. */
tri_status tri_h5_attr_f64(hid_t obj, const char *path, const char *name, int max, double *out,
                           int *count) TRI_CHECKED;
tri_status tri_h5_attr_i64(hid_t obj, const char *path, const char *name, int max, int64_t *out,
                           int *count) TRI_CHECKED;
/* String attribute (fixed or variable length), cut to size - 1 bytes; "" when there is none. */
tri_status tri_h5_attr_string(hid_t obj, const char *path, const char *name, char *out,
                              size_t size) TRI_CHECKED;

/* Writes root or object attributes; count < 0 means a scalar. A failure is TRI_ERR_IO. */
tri_status tri_h5_put_f64(hid_t obj, const char *path, const char *name, int count,
                          const double *v) TRI_CHECKED;
tri_status tri_h5_put_i64(hid_t obj, const char *path, const char *name, int count,
                          const int64_t *v) TRI_CHECKED;
tri_status tri_h5_put_string(hid_t obj, const char *path, const char *name,
                             const char *v) TRI_CHECKED;

/* "uint16 big-endian", "float32", "string", ... for messages and reports. Returns buf. */
const char *tri_h5_type_text(hid_t type, char *buf, size_t size);
/* "[60000, 28, 28]" of a dataspace. Returns buf. */
const char *tri_h5_space_text(hid_t space, char *buf, size_t size);

#endif
