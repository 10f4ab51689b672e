/* From stored bytes to the numbers of an image input: normalisation, and pad+crop and flip. See
 * data/loader.h. All calls: Local. */
#ifndef TRI_DATA_TRANSFORM_H
#define TRI_DATA_TRANSFORM_H

#include "data/dataset.h"

struct tri_transform {
    int64_t H, W, C;
    float *table; /* [C, 256]: (u8 / 255 - mean) / scale */
    bool augment;
    uint64_t seed;
};

/* `info` is of an image dataset. */
tri_status tri_transform_init(struct tri_transform *t, const struct tri_dataset_info *info,
                              bool augment, uint64_t seed) TRI_CHECKED;
void tri_transform_finish(struct tri_transform *t);

/* src u8 [H, W, C] -> dst f32 [H, W, C]; epoch and id key the augmentation. */
void tri_transform_image(const struct tri_transform *t, int64_t epoch, int64_t id,
                         const uint8_t *src, float *dst);

#endif
