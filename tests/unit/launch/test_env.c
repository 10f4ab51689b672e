/* What the launcher left in the environment against what MPI says. */
#include "launch/env.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct tri_env_launcher none = {-1, -1, -1, -1, -1, -1};

Test(env, a_clean_environment_is_good)
{
    bool stale;

    cr_assert_eq(tri_env_check_launcher(&none, 0, 1, &stale), TRI_OK);
    cr_assert_not(stale);
}

Test(env, a_task_that_mpi_does_not_know_is_refused)
{
    struct tri_env_launcher l = none;
    bool stale;

    l.slurm_ntasks = 4;
    l.slurm_procid = 2;
    cr_assert_eq(tri_env_check_launcher(&l, 0, 1, &stale), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "expected 4, got 1"));
    l = none;
    l.pmi_size = 8;
    cr_assert_eq(tri_env_check_launcher(&l, 0, 1, &stale), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "expected 8, got 1"));
}

Test(env, mpirun_inside_an_allocation_may_use_fewer_ranks)
{
    struct tri_env_launcher l = none;
    bool stale;

    l.ompi_size = 2;
    l.slurm_ntasks = 4;
    l.slurm_procid = 0;
    cr_assert_eq(tri_env_check_launcher(&l, 1, 2, &stale), TRI_OK);
    cr_assert_not(stale);
}

Test(env, stale_variables_are_noticed)
{
    struct tri_env_launcher l = {.ompi_size = 2,
                                 .pmi_size = -1,
                                 .slurm_ntasks = -1,
                                 .slurm_procid = 5,
                                 .rank = 7,
                                 .world_size = 64};
    bool stale;

    cr_assert_eq(tri_env_check_launcher(&l, 1, 2, &stale), TRI_OK);
    cr_assert(stale);
}

Test(env, settings_come_from_variables)
{
    struct tri_env_settings s;

    setenv("TRI_LOG", "debug", 1);
    setenv("OMP_NUM_THREADS", "3", 1);
    tri_env_read_settings(&s);
    cr_assert_eq(s.log_level, TRI_LOG_DEBUG);
    cr_assert_eq(s.threads, 3);
    setenv("TRI_LOG", "loud", 1);
    setenv("OMP_NUM_THREADS", "3,2", 1);
    tri_env_read_settings(&s);
    cr_assert_eq(s.log_level, TRI_LOG_INFO);
    cr_assert_eq(s.threads, 0);
}
