/* Which samples a step uses: pure functions of (seed, step), the same on all ranks, without any
 * storage.
 *
 * Steps count from 1, epochs from 0. An epoch is a permutation of the samples, cut into batches;
 * its last batch is the rest with its own count. The permutation is a keyed Feistel network on the
 * smallest even number of bits that holds the samples, walked until it falls below their number
 * (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). A position is therefore
 * nothing but the step: a resumed run goes on exactly where the straight run would. All calls:
 * Local, same on all ranks for the same arguments. */
#ifndef TRI_DATA_SAMPLER_H
#define TRI_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct tri_sampler {
    int64_t samples; /* > 0 */
    int64_t batch;   /* global batch, > 0 */
    uint64_t seed;
    bool shuffle; /* false: file order in every epoch */
};

struct tri_batch_position {
    int64_t epoch; /* from 0 */
    int64_t index; /* of the batch in its epoch, from 0 */
    int64_t first; /* place in the epoch of its first sample: index * batch */
    int64_t count; /* real samples, 1..batch */
};

/* ceil(samples / batch) */
int64_t tri_sampler_steps_per_epoch(const struct tri_sampler *s);
/* The batch of a step (>= 1). */
struct tri_batch_position tri_sampler_at(const struct tri_sampler *s, int64_t step);
/* Samples used by steps 1..step: the cumulative count that metrics show. */
int64_t tri_sampler_used(const struct tri_sampler *s, int64_t step);
/* Sample id at place 0 <= k < samples of an epoch. */
int64_t tri_sampler_id(const struct tri_sampler *s, int64_t epoch, int64_t k);
/* Samples of global grain g (grains of `grain` samples, in order within the batch): *first is the
 * place in the epoch; returns their number, 0..grain. The padding is therefore at the end of the
 * last batch of an epoch, in its last grains. */
int64_t tri_sampler_grain(const struct tri_batch_position *p, int64_t grain, int64_t g,
                          int64_t *first);

#endif
