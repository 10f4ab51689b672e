/* Sampler: permutations, batches, grains. */
#include "data/sampler.h"

#include <criterion/criterion.h>
#include <string.h>

static void check_permutation(const struct tri_sampler *s, int64_t epoch)
{
    static char seen[5000];

    memset(seen, 0, sizeof(seen));
    for (int64_t k = 0; k < s->samples; k++) {
        int64_t id = tri_sampler_id(s, epoch, k);

        cr_assert(id >= 0 && id < s->samples);
        cr_assert_eq(seen[id]++, 0, "sample %lld twice", (long long)id);
    }
}

Test(sampler, each_epoch_is_a_permutation)
{
    const int64_t sizes[] = {1, 2, 3, 4, 5, 17, 64, 65, 1000, 4999};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int64_t epoch = 0; epoch < 3; epoch++)
            check_permutation(&(struct tri_sampler){sizes[i], 4, 7, true}, epoch);
}

static int64_t differing(const struct tri_sampler *a, int64_t ea, const struct tri_sampler *b,
                         int64_t eb)
{
    int64_t n = 0;

    for (int64_t k = 0; k < a->samples; k++)
        n += tri_sampler_id(a, ea, k) != tri_sampler_id(b, eb, k);
    return n;
}

Test(sampler, epochs_and_seeds_give_other_orders)
{
    struct tri_sampler a = {1000, 4, 7, true}, b = {1000, 4, 8, true}, small = {20, 2, 1, true};

    cr_assert_gt(differing(&a, 0, &a, 1), 900);
    cr_assert_gt(differing(&a, 0, &b, 0), 900);
    cr_assert_gt(differing(&small, 0, &small, 1), 10);
}

/* Mean place of the first tenth of the ids: near the middle when shuffled. The standard deviation
 * of a mean of 1000 uniform places out of 10000 is 10000 / sqrt(12 * 1000) = 91; 5 of them are
 * allowed. */
Test(sampler, order_has_no_trend)
{
    struct tri_sampler s = {10000, 4, 3, true};

    for (int64_t epoch = 0; epoch < 5; epoch++) {
        double sum = 0;

        for (int64_t k = 0; k < 1000; k++)
            sum += (double)tri_sampler_id(&s, epoch, k);
        cr_assert_float_eq(sum / 1000, 5000, 456);
    }
}

Test(sampler, no_shuffle_keeps_file_order)
{
    struct tri_sampler s = {11, 4, 7, false};

    for (int64_t k = 0; k < 11; k++)
        cr_assert_eq(tri_sampler_id(&s, 2, k), k);
}

/* F01 b: 10 samples, batch 4, 4 grains of 1: the last batch has 2 samples, grains 2 and 3 are
 * empty. */
Test(sampler, last_batch_is_the_rest)
{
    struct tri_sampler s = {10, 4, 7, true};
    struct tri_batch_position p = tri_sampler_at(&s, 3);
    int64_t first;

    cr_assert_eq(tri_sampler_steps_per_epoch(&s), 3);
    cr_assert_eq(p.epoch, 0);
    cr_assert_eq(p.index, 2);
    cr_assert_eq(p.count, 2);
    for (int64_t g = 0; g < 4; g++)
        cr_assert_eq(tri_sampler_grain(&p, 1, g, &first), g < 2 ? 1 : 0);
    p = tri_sampler_at(&s, 4);
    cr_assert_eq(p.epoch, 1);
    cr_assert_eq(p.count, 4);
    cr_assert_eq(tri_sampler_used(&s, 0), 0);
    cr_assert_eq(tri_sampler_used(&s, 3), 10);
    cr_assert_eq(tri_sampler_used(&s, 4), 14);
}

/* F01 a and c: fewer samples than ranks, one sample for a batch of 8. */
Test(sampler, fewer_samples_than_ranks)
{
    struct tri_sampler three = {3, 7, 1, true}, one = {1, 8, 1, true};
    struct tri_batch_position p = tri_sampler_at(&three, 1);
    int64_t first, n = 0;

    for (int64_t g = 0; g < 7; g++)
        n += tri_sampler_grain(&p, 1, g, &first);
    cr_assert_eq(n, 3);
    cr_assert_eq(tri_sampler_steps_per_epoch(&one), 1);
    cr_assert_eq(tri_sampler_at(&one, 5).epoch, 4);
    cr_assert_eq(tri_sampler_at(&one, 5).count, 1);
}

Test(sampler, grain_with_a_partial_tail)
{
    struct tri_sampler s = {11, 8, 1, false};
    struct tri_batch_position p = tri_sampler_at(&s, 2);
    int64_t first;

    cr_assert_eq(p.count, 3);
    cr_assert_eq(tri_sampler_grain(&p, 2, 0, &first), 2);
    cr_assert_eq(first, 8);
    cr_assert_eq(tri_sampler_grain(&p, 2, 1, &first), 1);
    cr_assert_eq(first, 10);
    cr_assert_eq(tri_sampler_grain(&p, 2, 2, &first), 0);
}
