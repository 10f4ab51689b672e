/* NumPy .npy files (format versions 1 to 3), mapped into memory. All calls: Local. */
#ifndef TRI_DATA_NPY_H
#define TRI_DATA_NPY_H

#include "data/dataset.h"

#include <stddef.h>

struct tri_npy {
    const char *path; /* borrowed */
    char kind;        /* 'u', 'i', 'f' (b1 counts as u1) */
    bool big_endian;
    size_t elem_bytes;
    int rank;
    int64_t dims[TRI_DATA_MAX_RANK + 1];
    const void *data; /* elements as stored, C order */
    size_t data_bytes;
    void *map;
    size_t map_bytes;
};

/* TRI_ERR_DATA for files that are damaged, in Fortran order or of other element types. `path` is
 * borrowed until close. */
tri_status tri_npy_open(const char *path, struct tri_npy *n) TRI_CHECKED;
void tri_npy_close(struct tri_npy *n);

#endif
