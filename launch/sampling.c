/* Only the k candidates are put in order: the sum of their weights, and so the token drawn, depends
 * on it. */
#include "launch/sampling.h"

#include "runtime/core/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Most likely first; equal ones by id, so that the order is total. */
static bool before(const struct tri_candidate *a, const struct tri_candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static int by_likelihood(const void *a, const void *b)
{
    return before(a, b) ? -1 : before(b, a);
}

/* Restores the heap h[n], the least likely on top, where only h[at] may be out of place. */
static void sift_down(struct tri_candidate *h, int64_t n, int64_t at)
{
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        struct tri_candidate moved = h[at];

        if (child + 1 < n && before(&h[child], &h[child + 1]))
            child++;
        if (!before(&moved, &h[child]))
            return;
        h[at] = h[child];
        h[child] = moved;
        at = child;
    }
}

/* top[0..k): the k most likely of all, in order. */
static void select_top(const float *logits, int64_t vocab, int64_t k, struct tri_candidate *top)
{
    for (int64_t i = 0; i < k; i++)
        top[i] = (struct tri_candidate){.logit = logits[i], .id = (int32_t)i};
    for (int64_t at = k < vocab ? k / 2 : 0; at-- > 0;)
        sift_down(top, k, at);
    for (int64_t i = k; i < vocab; i++) {
        struct tri_candidate c = {.logit = logits[i], .id = (int32_t)i};

        if (!before(&c, &top[0]))
            continue;
        top[0] = c;
        sift_down(top, k, 0);
    }
    qsort(top, (size_t)k, sizeof(*top), by_likelihood);
}

static int32_t most_likely(const float *logits, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

int32_t tri_sampling_draw(const struct tri_sampling *s, const float *logits, int64_t vocab,
                          int64_t position, struct tri_candidate *work)
{
    int64_t k = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
    struct tri_rng_key key = tri_rng_key_make(s->seed, tri_hash_name("generate"), 0);
    double sum = 0, u;
    uint32_t words[4];

    if (s->temperature == 0)
        return most_likely(logits, vocab);
    select_top(logits, vocab, k, work);
    tri_philox4x32(&key, (uint64_t)position, words);
    for (int64_t i = 0; i < k; i++)
        sum += exp(((double)work[i].logit - (double)work[0].logit) / s->temperature);
    u = (double)tri_rng_uniform(words[0]) * sum;
    for (int64_t i = 0; i < k; i++) {
        u -= exp(((double)work[i].logit - (double)work[0].logit) / s->temperature);
        if (u < 0)
            return work[i].id;
    }
    return work[k - 1].id;
}
