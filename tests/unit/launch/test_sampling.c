/* The choice of tokens against one made by sorting the whole vocabulary. */
#include "launch/sampling.h"

#include "runtime/core/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define VOCAB 300

static int by_logit(const void *pa, const void *pb)
{
    const struct tri_candidate *a = pa, *b = pb;

    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id - b->id;
}

static int32_t draw_sorted(const struct tri_sampling *s, const float *logits, int64_t position)
{
    struct tri_rng_key key = tri_rng_key_make(s->seed, tri_hash_name("generate"), 0);
    int64_t k = s->top_k > 0 && s->top_k < VOCAB ? s->top_k : VOCAB;
    struct tri_candidate c[VOCAB];
    uint32_t words[4];
    double sum = 0, u;

    for (int32_t i = 0; i < VOCAB; i++)
        c[i] = (struct tri_candidate){.logit = logits[i], .id = i};
    qsort(c, VOCAB, sizeof(c[0]), by_logit);
    if (s->temperature == 0)
        return c[0].id;
    tri_philox4x32(&key, (uint64_t)position, words);
    for (int64_t i = 0; i < k; i++)
        sum += exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
    u = (double)tri_rng_uniform(words[0]) * sum;
    for (int64_t i = 0; i < k; i++) {
        u -= exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
        if (u < 0)
            return c[i].id;
    }
    return c[k - 1].id;
}

/* Few different values, so that there are many ties, also at the edge of the top k. */
static void fill(float *logits, int round)
{
    struct tri_rng_key key = tri_rng_key_make(7, tri_hash_name("logits"), 0);
    uint32_t words[4];

    for (int i = 0; i < VOCAB; i++) {
        tri_philox4x32(&key, (uint64_t)(round * VOCAB + i), words);
        logits[i] = (float)(words[0] % (round % 2 == 0 ? 5 : 1000)) / 100;
    }
}

Test(sampling, every_choice_is_that_of_the_whole_order)
{
    const int64_t top_k[] = {0, 1, 2, 3, 40, VOCAB - 1, VOCAB, 2 * VOCAB};
    const double temperature[] = {0, 0.1, 1, 30};
    struct tri_candidate work[VOCAB];
    float logits[VOCAB];

    for (int round = 0; round < 20; round++) {
        fill(logits, round);
        for (size_t i = 0; i < 8 * 4; i++) {
            struct tri_sampling s = {
                .temperature = temperature[i / 8], .top_k = top_k[i % 8], .seed = 3};

            cr_assert_eq(tri_sampling_draw(&s, logits, VOCAB, round, work),
                         draw_sorted(&s, logits, round), "round %d, top_k %lld, temperature %g",
                         round, (long long)s.top_k, s.temperature);
        }
    }
}

Test(sampling, one_candidate_is_the_most_likely)
{
    struct tri_candidate work[VOCAB];
    float logits[VOCAB];

    for (int round = 0; round < 20; round++) {
        struct tri_sampling one = {.temperature = 2, .top_k = 1, .seed = 1}, greedy = {0};

        fill(logits, round);
        cr_assert_eq(tri_sampling_draw(&one, logits, VOCAB, round, work),
                     tri_sampling_draw(&greedy, logits, VOCAB, round, work));
    }
}
