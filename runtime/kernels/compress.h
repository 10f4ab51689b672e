/* What COMPRESS and DECOMPRESS need of a compressor: a small table, implemented in
 * optim/compressors/, and the arithmetic around it that all compressors share: error feedback,
 * momentum correction, values that are not finite.
 *
 * Error feedback (Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy
 * et al., "Error feedback fixes SignSGD", ICML 2019): x = g + residual is encoded, residual' = x -
 * decode(encode(x)), so that nothing is lost, only late. Momentum correction (Lin et al., "Deep
 * gradient compression", ICLR 2018): u' = m u + g, x = residual + u' (Nesterov: residual + g + m
 * u'), and u' is cleared where an element was sent. */
#ifndef TRI_RUNTIME_KERNELS_COMPRESS_H
#define TRI_RUNTIME_KERNELS_COMPRESS_H

#include "runtime/core/rng.h"
#include "runtime/graph/ops.h"

#include <stdint.h>

TRI_BEGIN_DECLS

/* Keys of a step: of the parameter, the same for all contributors, and of this contributor. */
struct tri_compress_keys {
    struct tri_rng_key shared, own;
};

/* A compressor of n >= 1 f32 values into a payload whose size depends on n alone. Local, no
 * allocation. */
struct tri_compressor {
    const char *name;
    double bytes_per_s; /* f32 bytes that one thread encodes and decodes once in a second */
    /* Bytes of the payload: a multiple of what its elements are aligned to, since the next
     * contributor's may follow at once. */
    int64_t (*bytes)(const struct tri_attr_compress *a, int64_t n);
    /* Encodes x, all of it finite, and leaves x - decode(payload) in x. */
    void (*encode)(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                   float *x, int64_t n, void *payload);
    /* Makes a payload that decodes to something that is not finite. */
    void (*spoil)(const struct tri_attr_compress *a, int64_t n, void *payload);
    /* out += decode(payload). Of keys only `shared` counts. */
    void (*decode_add)(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                       const void *payload, int64_t n, float *out);
    /* u = 0 for each element that the payload holds; NULL: the compressor sends all elements. */
    void (*clear_sent)(const struct tri_attr_compress *a, const struct tri_compress_keys *keys,
                       const void *payload, int64_t n, float *u);
};

/* One tensor of n elements of this contributor: all borrowed. velocity and velocity_out are NULL
 * without momentum correction; outputs do not overlap inputs. */
struct tri_compress_job {
    const float *grad, *residual, *velocity;
    int64_t n;
    void *payload;
    float *residual_out, *velocity_out;
};

/* Encodes. When x is not finite the payload decodes to something that is not finite either, and
 * residual_out and velocity_out are as before. Local. */
void tri_compress_encode(const struct tri_attr_compress *a, int64_t step,
                         const struct tri_compress_job *job);
/* out = sum over contributors r = 0, 1, ... of payload r, which lies at `gathered` + r a->stride +
 * a->offset. Local. */
void tri_compress_decode(const struct tri_attr_compress *a, int64_t step, const void *gathered,
                         int64_t n, float *out);

TRI_END_DECLS
#endif
