/* Sampler: a format-preserving permutation and some division. */
#include "data/sampler.h"

#include "runtime/core/rng.h"

#include <stddef.h>

enum { ROUNDS = 8 };

int64_t tri_sampler_steps_per_epoch(const struct tri_sampler *s)
{
    return s->samples / s->batch + (s->samples % s->batch != 0);
}

struct tri_batch_position tri_sampler_at(const struct tri_sampler *s, int64_t step)
{
    int64_t per_epoch = tri_sampler_steps_per_epoch(s);
    struct tri_batch_position p = {.epoch = (step - 1) / per_epoch,
                                   .index = (step - 1) % per_epoch};

    p.first = p.index * s->batch;
    p.count = s->samples - p.first < s->batch ? s->samples - p.first : s->batch;
    return p;
}

int64_t tri_sampler_used(const struct tri_sampler *s, int64_t step)
{
    struct tri_batch_position p;

    if (step < 1)
        return 0;
    p = tri_sampler_at(s, step);
    return p.epoch * s->samples + p.first + p.count;
}

/* One pass through the network: a permutation of [0, 4^half_bits). */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1, left = x >> half_bits, right = x & mask;

    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint64_t t = left ^ (tri_mix64(key ^ tri_mix64(right + (r << 56))) & mask);

        left = right;
        right = t;
    }
    return left << half_bits | right;
}

int64_t tri_sampler_id(const struct tri_sampler *s, int64_t epoch, int64_t k)
{
    uint64_t key = tri_mix64(tri_mix64(s->seed) ^ tri_mix64((uint64_t)epoch + UINT64_C(0x5a17)));
    uint64_t x = (uint64_t)k;
    int half_bits = 1;

    if (!s->shuffle)
        return k;
    while ((UINT64_C(1) << 2 * half_bits) < (uint64_t)s->samples)
        half_bits++;
    do /* at most 4 passes on average, as the domain is less than 4 times the samples */
        x = feistel(key, half_bits, x);
    while (x >= (uint64_t)s->samples);
    return (int64_t)x;
}

int64_t tri_sampler_grain(const struct tri_batch_position *p, int64_t grain, int64_t g,
                          int64_t *first)
{
    int64_t skip = g * grain, left = p->count - skip;

    *first = p->first + skip;
    if (left <= 0)
        return 0;
    return left < grain ? left : grain;
}
