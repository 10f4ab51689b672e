/* Loader: fills host buffers with the samples of one rank's grains, step by step, some steps ahead.
 *
 * Reading and preparing (normalisation, augmentation, padding) happen on the I/O thread; the main
 * thread takes finished batches. The position is the step: samples read ahead but not used are not
 * lost, because a loader created at the next step reads them again. tri_loader_next takes no lock
 * and allocates nothing. All calls: Local, from one thread.
 *
 * Layout of a batch of `ngrains` grains of B samples, grain after grain:
 *   tokens  x i32 [ngrains, B, T]         y i32 [ngrains, B, T]       (-100: no target)
 *   images  x f32 [ngrains, B, H, W, C]   y i32 [ngrains, B]          x = (u8 / 255 - mean) / scale
 *   x + y   x f32 [ngrains, B, ...]       y f32 [ngrains, B, ...] or i32 [ngrains, B]
 * Padding samples are zeros with y = -100 (0 for float targets) and stand at the end of their
 * grain; nreal counts the others.
 *
 * Augmentation of images (training only, on the stored bytes): 4 zero pixels are added on each
 * side, a window of the original size is cut at one of 9 x 9 places, and half of the images are
 * mirrored. The choice is keyed by (seed, epoch, id). */
#ifndef TRI_DATA_LOADER_H
#define TRI_DATA_LOADER_H

#include "data/dataset.h"
#include "data/sampler.h"

#define TRI_AUGMENT_PAD 4 /* pixels on each side */

struct tri_loader_cfg {
    struct tri_dataset *dataset; /* borrowed until destroy */
    enum tri_split split;
    struct tri_sampler sampler; /* samples: of the split; shuffle false for evaluation */
    int64_t grain;              /* B */
    int64_t first_grain;        /* the grains of a step that this rank runs: */
    int64_t ngrains;            /* [first_grain, first_grain + ngrains) */
    int64_t first_step;         /* the first tri_loader_next returns this one */
    int64_t last_step;          /* nothing is read beyond */
    int depth;                  /* data.workers: batches read ahead; 0 reads when asked */
    bool augment;
};

struct tri_batch {
    int64_t step;
    struct tri_batch_position position; /* of the global batch: epoch, count */
    int64_t global_tokens;    /* real input tokens of the global batch (samples for other kinds) */
    int64_t samples, targets; /* this rank's, real ones (float targets count by samples) */
    const void *x, *y;    /* see the layout above; valid until the next tri_loader_next or seek */
    const int32_t *nreal; /* [ngrains] */
    const int64_t *ids;   /* [samples]: this rank's, in order of use */
    int64_t wait_ns;      /* time that tri_loader_next waited for it */
};

struct tri_loader;

/* Starts reading ahead. Errors: TRI_ERR_NOMEM, TRI_ERR_USAGE (augment without images). */
tri_status tri_loader_create(const struct tri_loader_cfg *cfg, struct tri_loader **out) TRI_CHECKED;
void tri_loader_destroy(struct tri_loader *l);

/* The batch of the next step. A read error names the file (TRI_ERR_DATA). Must not go beyond
 * last_step. */
tri_status tri_loader_next(struct tri_loader *l, struct tri_batch *out) TRI_CHECKED;
/* Goes on at `step`, up to last_step: a new pass of evaluation. What was read ahead is dropped. */
void tri_loader_seek(struct tri_loader *l, int64_t step, int64_t last_step);

/* Bytes of x and y of one grain. */
size_t tri_loader_x_bytes(const struct tri_loader *l);
size_t tri_loader_y_bytes(const struct tri_loader *l);

#endif
