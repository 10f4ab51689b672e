/* The launch environment: processes without a launcher, and variables of another one. */
#include "launch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Exit code of a shell line; `out` gets its standard error. */
static int run_line(const char *line, char *out, size_t bytes)
{
    char with[1024];
    FILE *f;
    size_t n;
    int status;

    (void)snprintf(with, sizeof(with), "(%s) 2>&1", line);
    f = popen(with, "r");
    cr_assert_not_null(f);
    n = fread(out, 1, bytes - 1, f);
    out[n] = '\0';
    status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int lines_with(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word))
        n++;
    return n;
}

Test(env, a_task_without_its_process_manager_is_refused)
{
    char out[4096];

    cr_assert_eq(
        run_line("SLURM_NTASKS=4 SLURM_PROCID=2 OMPI_ALLOW_RUN_AS_ROOT=1 timeout 60 " MP_ENV, out,
                 sizeof(out)),
        2, "%s", out);
    cr_assert_not_null(strstr(out, "expected 4, got 1"), "%s", out);
}

Test(env, stale_variables_give_one_warning)
{
    char out[4096];

    cr_assert_eq(
        run_line(
            "RANK=7 WORLD_SIZE=64 SLURM_PROCID=5 OMPI_COMM_WORLD_RANK=3 OMPI_ALLOW_RUN_AS_ROOT=1 "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 timeout 60 "
            "mpirun -n 2 --bind-to none " MP_ENV,
            out, sizeof(out)),
        0, "%s", out);
    cr_assert_eq(lines_with(out, "another launcher"), 1, "%s", out);
    cr_assert_not_null(strstr(out, "rank 0 of 2"), "%s", out);
}
