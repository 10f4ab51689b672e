/* Launches the cases of mp_exchange.c and mp_compress.c, with all MPI threads and with none. */
#include "launch.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_case(const char *kind, const char *name, int ranks, const char *threads)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "%s %s_%s %s", MP_WORKER, kind, name, threads);
    cr_expect_eq(launch_ranks("", ranks, command), 0, "%s on %d ranks, %s", name, ranks, threads);
}

static void expect_good(const char *name, int ranks, const char *threads)
{
    expect_case("exchange", name, ranks, threads);
}

Test(exchange, accumulated_gradients_are_averaged_once)
{
    expect_good("accumulated", 2, "multiple");
    expect_good("accumulated", 2, "serialized");
}

Test(exchange, sixteen_bits_neither_overflow_nor_vanish)
{
    expect_good("half_range", 8, "multiple");
}

Test(exchange, bucket_sizes_do_not_change_bits)
{
    expect_good("bucket_sizes", 2, "multiple");
    expect_good("bucket_sizes", 4, "single");
}

Test(exchange, orders_of_readiness_do_not_change_bits)
{
    expect_good("orders", 2, "multiple");
    expect_good("orders", 3, "multiple");
}

Test(exchange, missing_gradients_count_as_zero)
{
    expect_good("missing", 2, "multiple");
    expect_good("missing", 2, "single");
}

Test(exchange, differences_between_ranks_are_named)
{
    expect_good("mismatch", 2, "multiple");
    expect_good("mismatch", 3, "multiple");
}

Test(exchange, wrong_calls_are_refused)
{
    expect_good("usage", 1, "multiple");
    expect_good("usage", 2, "multiple");
}

Test(exchange, program_and_exchange_do_not_mix)
{
    expect_good("beside", 2, "multiple");
    expect_good("beside", 2, "serialized");
}

Test(exchange, compression_by_hand)
{
    expect_case("compress", "by_hand", 1, "multiple");
    expect_case("compress", "by_hand", 2, "multiple");
}

Test(exchange, a_round_that_is_not_finite_leaves_residuals_alone)
{
    expect_case("compress", "skipped", 1, "multiple");
    expect_case("compress", "skipped", 2, "multiple");
}

Test(exchange, compression_loses_nothing)
{
    expect_case("compress", "sums", 2, "multiple");
    expect_case("compress", "sums", 3, "single");
}

Test(exchange, compression_is_left_out_where_it_does_not_pay)
{
    expect_case("compress", "left_out", 2, "multiple");
}

Test(exchange, settings_of_compression_without_meaning_are_refused)
{
    expect_case("compress", "refused", 2, "multiple");
}
