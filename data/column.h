/* One entry of a dataset ("train/tokens") over a list of files: rows of equal shape, concatenated.
 *
 * Internal to data/. Every function makes HDF5 calls and belongs into closures of the I/O thread.
 * All calls: Local. Errors are TRI_ERR_DATA with file and entry. */
#ifndef TRI_DATA_COLUMN_H
#define TRI_DATA_COLUMN_H

#include "data/dataset.h"

#include <hdf5.h>

enum tri_column_want {
    TRI_WANT_INTEGERS, /* any width and byte order; rows are single numbers; read as i32 */
    TRI_WANT_BYTES,    /* unsigned 8 bit; read as u8 */
    TRI_WANT_FLOATS,   /* any floating-point type; read as f32 */
    TRI_WANT_NUMBERS,  /* floats [N, ...], or integers [N] */
};

struct tri_column_part {
    char *path;
    hid_t dset;
    int64_t first, rows; /* place of its rows in the column */
};

struct tri_column {
    char entry[40]; /* "/train/tokens" */
    struct tri_column_part *parts;
    int nparts;
    int64_t rows;
    int rank; /* of a row */
    int64_t shape[TRI_DATA_MAX_RANK];
    int64_t row_count; /* elements of a row */
    bool integers;     /* i32 or u8 in memory, else f32 */
    hid_t mem_type;    /* predefined, never closed */
    size_t elem_bytes;
    void *cache; /* all rows in mem_type, or NULL */
};

/* Appends the entry of one open file; the first file decides shape and type, the
 * others must agree. */
tri_status tri_column_add(struct tri_column *c, enum tri_column_want want, const char *path,
                          hid_t file, const char *entry) TRI_CHECKED;
void tri_column_finish(struct tri_column *c);

/* Rows [first, first + count) as mem_type (the column's own: from the cache when there is one). */
tri_status tri_column_read(const struct tri_column *c, int64_t first, int64_t count, hid_t mem_type,
                           void *out) TRI_CHECKED;
/* Reads all rows into the cache. */
tri_status tri_column_load(struct tri_column *c) TRI_CHECKED;

/* The file that holds a row, and the row's number in it. */
const struct tri_column_part *tri_column_find(const struct tri_column *c, int64_t row);

/* Bytes of all rows in memory. */
static inline size_t tri_column_bytes(const struct tri_column *c)
{
    return (size_t)c->rows * (size_t)c->row_count * c->elem_bytes;
}

#endif
