/* Images and labels in memory, and their writing as a dataset: shared by the importers. All calls:
 * Local. */
#ifndef TRI_DATA_IMAGE_SET_H
#define TRI_DATA_IMAGE_SET_H

#include "data/dataset.h"
#include "runtime/core/text.h"

struct tri_image_set {
    int rank; /* 3: [N, H, W]; 4: [N, H, W, C] */
    int64_t dims[4];
    const uint8_t *pixels;
    const int64_t *labels; /* [N], 0..INT32_MAX, or TRI_IGNORE */
};

/* Writes train (set[0]) and validation (set[1], rank 0: none) with mean, scale and classes; one
 * line to `report`. TRI_ERR_DATA when the two do not fit together. */
tri_status tri_image_set_write(const struct tri_image_set set[TRI_SPLIT_COUNT], const char *out,
                               struct tri_text *report) TRI_CHECKED;

#endif
