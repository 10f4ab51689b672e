/* Launches the cases of mp_exchange.c, with all MPI threads and with none. */
#include "launch.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_good(const char *name, int ranks, const char *threads)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "%s exchange_%s %s", MP_WORKER, name, threads);
    cr_expect_eq(launch_ranks("", ranks, command), 0, "%s on %d ranks, %s", name, ranks, threads);
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
