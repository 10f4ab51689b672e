/* HDF5 datasets: what a file holds, and rows of it. The format is described in data/format.md.
 *
 * A dataset is one file or a list of files whose rows are concatenated. Each split (train,
 * validation) is a few columns of equal length: tokens (+ targets), images + labels, or x + y.
 * Everything that can be wrong with a file is found before training: names, ranks, types, shapes,
 * lengths and attributes by tri_dataset_open, values by tri_dataset_check.
 *
 * Errors of this file are TRI_ERR_DATA with file, entry and, for values, row, value and allowed
 * range. All calls are Local; the HDF5 calls are made on the I/O thread, into which these functions
 * go themselves. One thread at a time. */
#ifndef TRI_DATA_DATASET_H
#define TRI_DATA_DATASET_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRI_IGNORE            (-100) /* a target or label that has no loss */
#define TRI_DATA_MAX_RANK     8      /* of one sample */
#define TRI_DATA_MAX_CHANNELS 64

enum tri_split { TRI_SPLIT_TRAIN, TRI_SPLIT_VALIDATION, TRI_SPLIT_COUNT };

enum tri_data_kind {
    TRI_DATA_TOKENS, /* inputs i32 [T]; targets i32 [T] */
    TRI_DATA_IMAGES, /* inputs f32 [H, W, C]; targets i32 [] */
    TRI_DATA_XY,     /* inputs f32 [...]; targets f32 [...] or i32 [] */
};

struct tri_dataset_cfg {
    const char *const *paths; /* borrowed during open */
    int npaths;
    int64_t sequence;           /* T, for tokens only (others ignore it) */
    bool need[TRI_SPLIT_COUNT]; /* a split without samples is then an error */
};

/* What is known of an open dataset. One sample only; batches add a leading axis. */
struct tri_dataset_info {
    enum tri_data_kind kind;
    int64_t rows[TRI_SPLIT_COUNT];    /* tokens, images or vectors in the files */
    int64_t samples[TRI_SPLIT_COUNT]; /* rows; tokens: ceil((N-1)/T), own targets ceil(N/T) */
    int64_t sequence;                 /* T of tokens, else 0 */
    bool explicit_targets;            /* tokens: a `targets` entry, not shifted */
    bool class_targets; /* targets are integers (labels); always for tokens and images */
    int x_rank, y_rank; /* of one sample; y_rank 0: one number */
    int64_t x_shape[TRI_DATA_MAX_RANK], y_shape[TRI_DATA_MAX_RANK];
    int64_t x_count, y_count; /* elements of one sample */
    int64_t vocab;            /* attribute, or of the tokenizer; 0: not stated */
    int64_t classes;          /* attribute; 0: not stated */
    float mean[TRI_DATA_MAX_CHANNELS], scale[TRI_DATA_MAX_CHANNELS]; /* per channel of images */
    char tokenizer[16];                                              /* "byte", "bpe" or "" */
};

struct tri_dataset;

/* Opens the files read-only and validates all but the values. */
tri_status tri_dataset_open(const struct tri_dataset_cfg *cfg,
                            struct tri_dataset **out) TRI_CHECKED;
void tri_dataset_close(struct tri_dataset *ds);
const struct tri_dataset_info *tri_dataset_info(const struct tri_dataset *ds);

/* Reads part `part` of `nparts` of all integers of both splits (parts are equal shares of the rows,
 * so that ranks can divide the work) and checks ids against [0, vocab) and labels against [0,
 * classes) or -100. A limit of 0 means not known: then only negative ids are refused. *max_id and
 * *max_label are the largest ids and labels seen (-1: none), from which a caller without stated
 * limits gets them by a maximum over the ranks. */
tri_status tri_dataset_check(struct tri_dataset *ds, int part, int nparts, int64_t vocab,
                             int64_t classes, int64_t *max_id, int64_t *max_label) TRI_CHECKED;

/* Input tokens that are real in sample `id` (T but for a short tail); 1 for the other kinds. */
int64_t tri_dataset_tokens(const struct tri_dataset *ds, enum tri_split split, int64_t id);

/* Reads samples [first, first + count) as stored, in file order: for tokens i32 [count, T] and i32
 * [count, T] (beyond a short tail 0 and -100); for images u8 [count, H, W, C] and i32 [count]; for
 * x+y f32 [count, ...] and f32 [count, ...] or i32 [count]. Consecutive samples are one HDF5
 * selection. A split whose decoded size is at most TRI_DATA_CACHE_BYTES is kept in memory after the
 * first read. */
tri_status tri_dataset_read(struct tri_dataset *ds, enum tri_split split, int64_t first,
                            int64_t count, void *x, void *y) TRI_CHECKED;

#define TRI_DATA_CACHE_BYTES ((size_t)256 << 20)

/* Bytes of one sample's input as tri_dataset_read gives it. */
size_t tri_dataset_x_bytes(const struct tri_dataset *ds);

/* A hash of what makes two datasets the same for a resumed run: kind, shapes, rows, types. Values
 * are not hashed. */
uint64_t tri_dataset_fingerprint(const struct tri_dataset *ds);

#endif
