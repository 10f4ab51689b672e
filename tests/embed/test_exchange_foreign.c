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

Test(embed, foreign_model_trains_with_few_elements)
{
    static const char few[] = EXCHANGE_FOREIGN " multiple \"compress.name=topk compress.ratio=0.3 "
                                               "compress.force=true compress.level=all\"";

    cr_expect_eq(launch_ranks("", 1, few), 0);
    cr_expect_eq(launch_ranks("", 4, few), 0);
}
