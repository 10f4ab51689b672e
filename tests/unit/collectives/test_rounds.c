/* Every algorithm for 1..33 ranks in one process: sums are exact, each send meets its receive, bits
 * are equal on all ranks. */
#include "collectives/reduce.h"
#include "collectives/rounds.h"
#include "collectives/simulate.h"
#include "runtime/core/memory.h"
#include "runtime/exec/comm.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_RANKS = 33 };

/* The buffers of all ranks; element i of rank r starts as r * 3 + i % 1000. */
struct field {
    int size;
    int64_t count;
    int64_t *data[MAX_RANKS];
    struct tri_rounds plan[MAX_RANKS];
};

static void open_field(struct field *f, int size, int64_t count)
{
    *f = (struct field){.size = size, .count = count};
    for (int r = 0; r < size; r++) {
        f->data[r] = tri_calloc((size_t)count + 1, sizeof(int64_t), "test");
        cr_assert_not_null(f->data[r]);
        for (int64_t i = 0; i < count; i++)
            f->data[r][i] = r * 3 + i % 1000;
    }
}

static void close_field(struct field *f)
{
    for (int r = 0; r < f->size; r++) {
        tri_free(f->data[r]);
        tri_rounds_finish(&f->plan[r]);
    }
}

static void run_field(struct field *f)
{
    tri_reduce_fn *sum;
    void *data[MAX_RANKS];

    cr_assert_eq(tri_reduce_find(TRI_I64, TRI_REDUCE_SUM, &sum), TRI_OK);
    for (int r = 0; r < f->size; r++)
        data[r] = f->data[r];
    cr_assert_eq(tri_simulate(f->size, f->plan, data, sizeof(int64_t), sum), TRI_OK,
                 "size %d count %lld: %s", f->size, (long long)f->count, tri_error_text());
}

static int64_t total(int size, int64_t i)
{
    return 3 * (int64_t)size * (size - 1) / 2 + size * (i % 1000);
}

static void check_allreduce(tri_rounds_make *make, int size, int64_t count)
{
    struct field f;
    int64_t wrong = 0;

    open_field(&f, size, count);
    for (int r = 0; r < size; r++)
        cr_assert_eq(make(r, size, count, &f.plan[r]), TRI_OK);
    run_field(&f);
    for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < count; i++)
            wrong += f.data[r][i] != total(size, i);
    cr_assert_eq(wrong, 0, "size %d count %lld: %lld elements", size, (long long)count,
                 (long long)wrong);
    close_field(&f);
}

static const int64_t counts[] = {0, 1, 2, 3, 7, 97, 1000};

static void check_sizes(tri_rounds_make *make, bool only_powers)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            if (!only_powers || (size & (size - 1)) == 0)
                check_allreduce(make, size, counts[k]);
}

Test(rounds, ring_sums_exactly)
{
    check_sizes(tri_rounds_ring, false);
    check_allreduce(tri_rounds_ring, 5, 1000003);
}

Test(rounds, halving_sums_exactly)
{
    check_sizes(tri_rounds_halving, true);
    check_allreduce(tri_rounds_halving, 8, 1000003);
}

Test(rounds, doubling_sums_exactly)
{
    check_sizes(tri_rounds_doubling, false);
    check_allreduce(tri_rounds_doubling, 3, 1000003);
}

Test(rounds, reduce_scatter_leaves_block_r_on_rank_r)
{
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct field f;

        open_field(&f, size, 97);
        for (int r = 0; r < size; r++)
            cr_assert_eq(tri_rounds_reduce_scatter(r, size, 97, &f.plan[r]), TRI_OK);
        run_field(&f);
        for (int r = 0; r < size; r++) {
            int64_t first;
            int64_t n;

            tri_rounds_block(97, size, r, &first, &n);
            for (int64_t i = first; i < first + n; i++)
                cr_assert_eq(f.data[r][i], total(size, i), "size %d rank %d element %lld", size, r,
                             (long long)i);
        }
        close_field(&f);
    }
}

static void check_slices(int size, int slices, int64_t count)
{
    struct field f;
    int64_t wrong = 0;

    open_field(&f, size, count);
    for (int r = 0; r < size; r++)
        cr_assert_eq(tri_rounds_scatter_slices(r, size, slices, count, &f.plan[r]), TRI_OK);
    run_field(&f);
    for (int r = 0; r < size; r++) {
        int64_t first, n;

        tri_comm_slice(count, slices, r, &first, &n);
        for (int64_t i = 0; i < count; i++) /* what is not owned may hold anything */
            f.data[r][i] = i >= first && i < first + n ? f.data[r][i] : -1;
        tri_rounds_finish(&f.plan[r]);
        cr_assert_eq(tri_rounds_gather_slices(r, size, slices, count, &f.plan[r]), TRI_OK);
    }
    run_field(&f);
    for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < count; i++)
            wrong += f.data[r][i] != total(size, i);
    cr_assert_eq(wrong, 0, "size %d slices %d count %lld: %lld elements", size, slices,
                 (long long)count, (long long)wrong);
    close_field(&f);
}

Test(rounds, slices_are_summed_and_spread)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (int slices = 1; slices <= size; slices += slices < 4 || slices == size - 1 ? 1 : 7)
            for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
                check_slices(size, slices, counts[k]);
    check_slices(5, 2, 1000003);
}

Test(slices, cover_everything_once_at_cache_lines)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 31, 33, 1000, 1000003, 5000000000};

    for (int slices = 1; slices <= MAX_RANKS; slices++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            int64_t next = 0, first, n, longest;

            tri_comm_slice(sizes[k], slices, 0, &first, &longest);
            for (int i = 0; i < slices; i++) {
                tri_comm_slice(sizes[k], slices, i, &first, &n);
                cr_assert(first == next && n >= 0 && n <= longest);
                cr_assert(n == 0 || first % TRI_SLICE_ALIGN == 0);
                next = first + n;
            }
            cr_assert_eq(next, sizes[k]);
            tri_comm_slice(sizes[k], slices, slices, &first, &n);
            cr_assert(first == sizes[k] && n == 0);
        }
}

Test(rounds, allgather_and_broadcast_reach_everybody)
{
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct field f;

        open_field(&f, size, 7 * size);
        for (int r = 0; r < size; r++)
            cr_assert_eq(tri_rounds_allgather(r, size, 7, &f.plan[r]), TRI_OK);
        run_field(&f);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < 7 * size; i++)
                cr_assert_eq(f.data[r][i], i / 7 * 3 + i);
        close_field(&f);
        for (int root = 0; root < size; root++) {
            open_field(&f, size, 3);
            for (int r = 0; r < size; r++)
                cr_assert_eq(tri_rounds_broadcast(r, size, root, 3, &f.plan[r]), TRI_OK);
            run_field(&f);
            for (int r = 0; r < size; r++)
                cr_assert_eq(f.data[r][2], root * 3 + 2);
            close_field(&f);
        }
    }
}

Test(rounds, barrier_hears_of_everybody)
{
    /* heard[r]: ranks whose arrival reached r, through any number of messages. */
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct field f;
        uint64_t heard[MAX_RANKS];

        open_field(&f, size, 1);
        for (int r = 0; r < size; r++) {
            heard[r] = 1ull << r;
            cr_assert_eq(tri_rounds_barrier(r, size, 0, &f.plan[r]), TRI_OK);
        }
        run_field(&f);
        for (int32_t round = 0; round < f.plan[0].nrounds; round++) {
            uint64_t before[MAX_RANKS];

            memcpy(before, heard, sizeof(before));
            for (int r = 0; r < size; r++)
                for (int32_t i = round > 0 ? f.plan[r].end[round - 1] : 0; i < f.plan[r].end[round];
                     i++)
                    if (f.plan[r].action[i].kind == TRI_ACT_RECV)
                        heard[r] |= before[f.plan[r].action[i].peer];
        }
        for (int r = 0; r < size; r++)
            cr_assert_eq(heard[r], (1ull << size) - 1, "size %d rank %d", size, r);
        close_field(&f);
    }
}

/* The tree over contiguous ranks, element by element. */
static float tree_sum(float *const *v, int lo, int hi, int64_t i)
{
    int mid = lo + (hi - lo) / 2;

    return hi - lo == 1 ? v[lo][i] : tree_sum(v, lo, mid, i) + tree_sum(v, mid, hi, i);
}

static void check_tree(tri_rounds_make *make, int size, int64_t count)
{
    float *value[MAX_RANKS];
    float *want = tri_calloc((size_t)count, sizeof(float), "test");
    struct tri_rounds plan[MAX_RANKS];
    void *data[MAX_RANKS];
    tri_reduce_fn *sum;

    cr_assert_eq(tri_reduce_find(TRI_F32, TRI_REDUCE_SUM, &sum), TRI_OK);
    for (int r = 0; r < size; r++) {
        data[r] = value[r] = tri_calloc((size_t)count, sizeof(float), "test");
        for (int64_t i = 0; i < count; i++)
            value[r][i] = 1.0f / (float)(r * 31 + i + 1);
        cr_assert_eq(make(r, size, count, &plan[r]), TRI_OK);
    }
    for (int64_t i = 0; i < count; i++)
        want[i] = tree_sum(value, 0, size, i);
    cr_assert_eq(tri_simulate(size, plan, data, sizeof(float), sum), TRI_OK);
    for (int r = 0; r < size; r++) {
        cr_assert_arr_eq(value[r], want, (size_t)count * sizeof(float), "size %d rank %d", size, r);
        tri_free(value[r]);
        tri_rounds_finish(&plan[r]);
    }
    tri_free(want);
}

Test(rounds, powers_of_two_sum_by_the_fixed_tree)
{
    for (int size = 1; size <= 32; size *= 2) {
        check_tree(tri_rounds_halving, size, 97);
        check_tree(tri_rounds_doubling, size, 97);
    }
}

Test(rounds, counts_above_two_to_the_31_stay_whole)
{
    int64_t first;
    int64_t n;
    struct tri_rounds plan;

    tri_rounds_block(3000000000, 5, 4, &first, &n);
    cr_assert_eq(first, 2400000000);
    cr_assert_eq(n, 600000000);
    cr_assert_eq(tri_rounds_allgather(4, 5, 600000000, &plan), TRI_OK);
    cr_assert_eq(plan.action[0].kind, TRI_ACT_SEND);
    cr_assert_eq(plan.action[0].from_at, 2400000000);
    tri_rounds_finish(&plan);
}

Test(simulate, finds_what_does_not_match)
{
    struct field f;
    void *data[2];

    open_field(&f, 2, 8);
    data[0] = f.data[0];
    data[1] = f.data[1];
    cr_assert_eq(tri_rounds_broadcast(0, 2, 0, 8, &f.plan[0]), TRI_OK);
    cr_assert_eq(tri_simulate(2, f.plan, data, 8, NULL), TRI_ERR_INTERNAL);
    cr_assert_not_null(strstr(tri_error_text(), "never received"));
    cr_assert_eq(tri_rounds_broadcast(1, 2, 0, 7, &f.plan[1]), TRI_OK);
    cr_assert_eq(tri_simulate(2, f.plan, data, 8, NULL), TRI_ERR_INTERNAL);
    cr_assert_not_null(strstr(tri_error_text(), "expects 56 bytes"));
    tri_rounds_finish(&f.plan[0]);
    cr_assert_eq(tri_simulate(2, f.plan, data, 8, NULL), TRI_ERR_INTERNAL);
    cr_assert_not_null(strstr(tri_error_text(), "nobody sends"));
    close_field(&f);
}
