/* Launches the foreign program at both ends of MPI's thread levels. */
#include "tests/multirank/launch.h"

#include <criterion/criterion.h>

Test(embed, foreign_model_trains_as_on_one_rank)
{
    cr_expect_eq(launch_ranks("", 1, EXCHANGE_FOREIGN " multiple"), 0);
    cr_expect_eq(launch_ranks("", 2, EXCHANGE_FOREIGN " multiple"), 0);
    cr_expect_eq(launch_ranks("", 4, EXCHANGE_FOREIGN " multiple"), 0);
    cr_expect_eq(launch_ranks("", 2, EXCHANGE_FOREIGN " single"), 0);
    cr_expect_eq(launch_ranks("", 4, EXCHANGE_FOREIGN " single"), 0);
}
