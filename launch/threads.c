/* Ranks that may run on the same CPUs share them. */
#include "launch/threads.h"

#include "runtime/core/memory.h"

#include <sched.h>

struct place {
    int node;
    cpu_set_t mask;
};

tri_status tri_threads_choose(int64_t wanted, int64_t env, const struct tri_world *world,
                              int *threads)
{
    struct tri_comm *comm = world != NULL ? world->control : NULL;
    int size = tri_comm_size(comm), sharing = 0;
    struct place mine = {.node = world != NULL ? world->topology.node : 0};
    struct place *all = tri_calloc((size_t)size, sizeof(*all), "affinity masks");
    tri_status st;

    if (all == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot list the affinity of %d ranks", size);
    CPU_ZERO(&mine.mask);
    if (sched_getaffinity(0, sizeof(mine.mask), &mine.mask) != 0)
        CPU_SET(0, &mine.mask);
    TRI_TRY_GOTO(st, tri_comm_allgather(comm, &mine, sizeof(mine), all), free_all);
    for (int r = 0; r < size; r++)
        sharing += all[r].node == mine.node && CPU_EQUAL(&all[r].mask, &mine.mask);
    *threads = CPU_COUNT(&mine.mask) / (sharing > 0 ? sharing : 1);
    if (*threads < 1)
        *threads = 1;
    if (env > 0)
        *threads = (int)env;
    if (wanted > 0)
        *threads = (int)wanted;

free_all:
    tri_free(all);
    return st;
}
