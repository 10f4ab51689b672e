/* Importers: foreign files to datasets of data/format.md, and a report on such a file.
 *
 * A failure leaves no output and an existing output as it was. Errors: TRI_ERR_DATA for inputs
 * (with file and reason), TRI_ERR_IO for the output, TRI_ERR_USAGE for arguments. All strings are
 * borrowed. All calls: Local. */
#ifndef TRI_DATA_IMPORT_H
#define TRI_DATA_IMPORT_H

#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <stdint.h>

struct tri_import_text {
    const char *const *files; /* joined without a separator */
    int nfiles;
    int64_t bpe_vocab; /* 0: bytes; else of the byte-pair encoding learnt from the training part */
    double validation; /* the last fraction of the bytes, in [0, 1) */
    const char *out;
};

/* Text to tokens. One summary line is appended to `report`. The text is held in memory. */
tri_status tri_import_text(const struct tri_import_text *a, struct tri_text *report) TRI_CHECKED;

/* Pairs of idx files (as MNIST has them), plain or gzip: images u8 [N, H, W] or [N, H, W, C],
 * labels u8 [N]. The validation pair may be NULL. The attributes mean, scale (standard deviation;
 * per channel, over the training images) and classes are computed. */
struct tri_import_idx {
    const char *images[2], *labels[2]; /* [train, validation] */
    const char *out;
};
tri_status tri_import_idx(const struct tri_import_idx *a, struct tri_text *report) TRI_CHECKED;

/* Pairs of .npy files (format 1 to 3, C order). x u8 of 3 or 4 axes with integer y becomes images
 * and labels as above; any other x becomes floats (integers are converted to f32) beside y float
 * [N, ...] or integer [N]. The validation pair may be NULL. */
struct tri_import_npy {
    const char *x[2], *y[2]; /* [train, validation] */
    const char *out;
};
tri_status tri_import_npy(const struct tri_import_npy *a, struct tri_text *report) TRI_CHECKED;

/* Appends what the dataset file holds, one item a line: kind, splits, attributes, entries with
 * type, shape, chunks and filters, and the largest id or label (all of them are
 * read and checked). */
tri_status tri_data_info(const char *path, struct tri_text *report) TRI_CHECKED;

#endif
