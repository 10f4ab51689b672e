/* See launch.h. More ranks than cores are allowed, and being root. */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int launch_ranks(const char *before, int ranks, const char *command)
{
    char line[1024];
    int status;

    (void)snprintf(line, sizeof(line),
                   "%s OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                   "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 "
                   "timeout -k 5 60 mpirun -n %d --bind-to none %s",
                   before, ranks, command);
    status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
