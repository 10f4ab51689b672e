/* Places of gradients in buckets: order, limits, alignment, sizes above 2^31. */
#include "optim/exchange_layout.h"

#include <criterion/criterion.h>

enum { MB = 1 << 20 };

Test(exchange_layout, packs_in_reverse_order)
{
    static const int64_t count[] = {10, 20, 30};
    struct tri_exchange_layout l;

    cr_assert_eq(tri_exchange_layout_make(count, 3, MB, MB, &l), TRI_OK);
    cr_assert_eq(l.nbuckets, 1);
    cr_assert(l.at[2] == 0 && l.at[1] == 32 && l.at[0] == 52);
    cr_assert(l.bucket[0].first == 0 && l.bucket[0].end == 3 && l.bucket[0].count == 62);
    cr_assert_eq(l.elements, 62);
    tri_exchange_layout_finish(&l);
}

Test(exchange_layout, every_gradient_starts_at_16_bytes_whatever_the_bucket)
{
    static const int64_t count[] = {1, 3, 5, 7, 16, 1000, 0, 1000};
    static const int64_t bytes[] = {4, 3996, 4000, 4004, 8192, MB};

    for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
        struct tri_exchange_layout l;
        int next = 0;

        cr_assert_eq(tri_exchange_layout_make(count, 8, MB, bytes[k], &l), TRI_OK);
        for (int b = 0; b < l.nbuckets; b++) {
            cr_assert_eq(l.bucket[b].first, next);
            cr_assert_eq(l.bucket[b].at % TRI_BUCKET_ALIGN, 0);
            cr_assert(l.bucket[b].count * 4 <= bytes[k] ||
                      l.bucket[b].end - l.bucket[b].first <= 2);
            next = l.bucket[b].end;
            for (int j = l.bucket[b].first; j < next; j++) {
                int i = 7 - j;

                cr_assert_eq(l.at[i] % TRI_PART_ALIGN, 0);
                cr_assert(l.at[i] >= l.bucket[b].at &&
                          l.at[i] + count[i] <= l.bucket[b].at + l.bucket[b].count);
            }
        }
        cr_assert_eq(next, 8);
        tri_exchange_layout_finish(&l);
    }
}

Test(exchange_layout, the_first_bucket_is_small)
{
    static const int64_t count[] = {100000, 100000, 100000, 100000};
    struct tri_exchange_layout l;

    cr_assert_eq(tri_exchange_layout_make(count, 4, 400000, 4 * MB, &l), TRI_OK);
    cr_assert_eq(l.nbuckets, 2);
    cr_assert(l.bucket[0].end == 1 && l.bucket[1].end == 4);
    tri_exchange_layout_finish(&l);
}

Test(exchange_layout, offsets_above_two_to_the_31_stay_whole)
{
    static const int64_t count[] = {600000000, 600000000, 600000000, 600000000, 600000000};
    struct tri_exchange_layout l;

    cr_assert_eq(tri_exchange_layout_make(count, 5, INT64_C(1) << 40, INT64_C(1) << 40, &l),
                 TRI_OK);
    cr_assert_eq(l.nbuckets, 1);
    cr_assert_eq(l.bucket[0].count, 3000000000);
    cr_assert_eq(l.at[0], 2400000000);
    cr_assert_eq(l.elements, 3000000000);
    tri_exchange_layout_finish(&l);
}

Test(exchange_layout, nothing_registered_is_no_bucket)
{
    struct tri_exchange_layout l;

    cr_assert_eq(tri_exchange_layout_make(NULL, 0, MB, MB, &l), TRI_OK);
    cr_assert(l.nbuckets == 0 && l.elements == 0);
    tri_exchange_layout_finish(&l);
}
