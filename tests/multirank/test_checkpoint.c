/* Launches the cases of mp_checkpoint.c. */
#include "launch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[64];

static void set_up(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/tri-mp-checkpoint-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    setenv("TRI_TEST_DIR", folder, 1);
}

static void tear_down(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(checkpoint, .init = set_up, .fini = tear_down);

static void expect_good(const char *name, int ranks)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "%s %s", MP_WORKER, name);
    cr_expect_eq(launch_ranks("", ranks, command), 0, "%s on %d ranks", name, ranks);
}

Test(checkpoint, moves_between_numbers_of_ranks)
{
    static const int ranks[] = {4, 3, 5, 1};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        expect_good("checkpoint_go_on", ranks[i]);
}

Test(checkpoint, a_failure_of_one_rank_is_known_to_all)
{
    expect_good("checkpoint_one_fails", 3);
}

Test(checkpoint, a_folder_that_not_all_ranks_see_stops_all)
{
    expect_good("checkpoint_hidden", 2);
}

Test(checkpoint, a_locked_folder_is_refused_on_all_ranks)
{
    expect_good("checkpoint_locked", 2);
}
