/* The open dataset, shared by the files of data/ that read it. Touched on the I/O thread only once
 * it is open. */
#ifndef TRI_DATA_DATASET_PRIV_H
#define TRI_DATA_DATASET_PRIV_H

#include "data/column.h"
#include "data/dataset.h"

struct tri_split_columns {
    struct tri_column x; /* tokens, images or x */
    struct tri_column y; /* targets, labels or y; no parts for tokens without targets */
    bool cached;         /* tri_column_load was tried */
};

struct tri_dataset {
    struct tri_dataset_info info;
    struct tri_split_columns split[TRI_SPLIT_COUNT];
    const char *first_path; /* for messages about the whole; memory of a part or of the caller */
    int32_t *scratch;       /* room for the tokens of a read */
    size_t scratch_bytes;
};

extern const char *const tri_split_names[TRI_SPLIT_COUNT];

#endif
