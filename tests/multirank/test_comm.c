/* Launches the cases of mp_comm.c. */
#include "launch.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_good(const char *name, int ranks)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "%s %s", MP_WORKER, name);
    cr_expect_eq(launch_ranks("", ranks, command), 0, "%s on %d ranks", name, ranks);
}

Test(comm, sums_are_exact)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 8};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        expect_good("allreduce", ranks[i]);
}

Test(comm, trees_have_equal_bits_on_every_transport)
{
    for (int n = 1; n <= 8; n *= 2)
        expect_good("tree", n);
    expect_good("tree_refused", 3);
}

Test(comm, cut_messages_change_nothing)
{
    expect_good("chunks", 2);
    expect_good("chunks", 3);
}

Test(comm, two_threads_with_two_communicators_do_not_mix)
{
    expect_good("threads", 2);
    expect_good("threads", 4);
}

Test(comm, data_moves_to_everybody)
{
    expect_good("moves", 1);
    expect_good("moves", 5);
}

Test(comm, failures_and_differences_are_shared)
{
    expect_good("agree", 1);
    expect_good("agree", 3);
}

Test(comm, deadlines_name_the_late_rank)
{
    expect_good("deadline", 2);
    expect_good("deadline", 4);
}

Test(comm, too_little_shared_memory_means_messages)
{
    expect_good("no_room", 2);
    expect_good("no_room", 3);
}

Test(comm, slices_are_summed_and_spread)
{
    static const int ranks[] = {1, 2, 3, 4};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        expect_good("slices", ranks[i]);
}

Test(comm, sums_by_levels_are_those_over_all_ranks)
{
    expect_good("topology", 5);
    expect_good("levels", 5);
    expect_good("levels", 4);
    expect_good("levels", 1);
}

Test(comm, world_has_its_communicators)
{
    expect_good("world", 1);
    expect_good("world", 2);
}
