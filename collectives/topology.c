/* Topology from MPI_Comm_split_type(SHARED): what MPI itself takes for a node. */
#include "collectives/topology.h"

#include "runtime/core/memory.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define TRI_MPI(call)                                                                              \
    do {                                                                                           \
        if ((call) != MPI_SUCCESS)                                                                 \
            return tri_fail(TRI_ERR_COMM, "rank %d: %s failed", t->rank, #call);                   \
    } while (0)

/* From node_of and nodes to what a rank knows of its own node. */
static void place_rank(struct tri_topology *t)
{
    t->node = t->node_of[t->rank];
    t->local_rank = t->local_size = 0;
    t->slices = t->size;
    for (int n = 0; n < t->nodes; n++) {
        int here = 0;

        for (int r = 0; r < t->size; r++)
            here += t->node_of[r] == n;
        t->slices = here < t->slices ? here : t->slices;
    }
    for (int r = 0; r < t->size; r++) {
        t->local_size += t->node_of[r] == t->node;
        t->local_rank += r < t->rank && t->node_of[r] == t->node;
    }
}

/* Everybody's lowest rank of its node becomes node numbers. */
static void number_nodes(struct tri_topology *t)
{
    t->nodes = 0;
    for (int r = 0; r < t->size; r++) {
        int leader = t->node_of[r];

        t->node_of[r] = leader == r ? t->nodes++ : t->node_of[leader];
    }
    place_rank(t);
}

static tri_status gather(struct tri_topology *t, MPI_Comm comm)
{
    char host[TRI_HOST_BYTES] = "";
    MPI_Comm local;
    int leader = t->rank;

    tri_host_name(host, sizeof(host));
    TRI_MPI(MPI_Allgather(host, TRI_HOST_BYTES, MPI_CHAR, t->host, TRI_HOST_BYTES, MPI_CHAR, comm));
    TRI_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, t->rank, MPI_INFO_NULL, &local));
    TRI_MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, local));
    TRI_MPI(MPI_Comm_free(&local));
    TRI_MPI(MPI_Allgather(&leader, 1, MPI_INT, t->node_of, 1, MPI_INT, comm));
    number_nodes(t);
    return TRI_OK;
}

static tri_status allocate(struct tri_topology *t)
{
    t->host = tri_calloc((size_t)t->size, sizeof(*t->host), "host names");
    t->node_of = tri_calloc((size_t)t->size, sizeof(*t->node_of), "nodes of ranks");
    if (t->host != NULL && t->node_of != NULL)
        return TRI_OK;
    return tri_fail(TRI_ERR_NOMEM, "cannot allocate the host names of %d ranks", t->size);
}

tri_status tri_topology_init(struct tri_topology *t, const void *mpi_comm)
{
    MPI_Comm comm = *(const MPI_Comm *)mpi_comm;
    tri_status st;

    *t = (struct tri_topology){0};
    TRI_MPI(MPI_Comm_rank(comm, &t->rank));
    TRI_MPI(MPI_Comm_size(comm, &t->size));
    st = allocate(t);
    if (st == TRI_OK)
        st = gather(t, comm);
    if (st != TRI_OK)
        tri_topology_finish(t);
    return st;
}

tri_status tri_topology_alone(struct tri_topology *t, int size)
{
    tri_status st;

    *t = (struct tri_topology){.size = size, .nodes = 1};
    st = allocate(t);
    if (st != TRI_OK) {
        tri_topology_finish(t);
        return st;
    }
    for (int r = 0; r < size; r++)
        tri_host_name(t->host[r], sizeof(t->host[r]));
    place_rank(t);
    return TRI_OK;
}

tri_status tri_topology_pretend(struct tri_topology *t, const int64_t *ranks, size_t nodes)
{
    int64_t sum = 0;
    int next = 0;

    for (size_t n = 0; n < nodes && sum <= t->size; n++)
        sum += ranks[n] < INT_MAX ? ranks[n] : INT_MAX;
    if (sum != t->size)
        return tri_fail(TRI_ERR_USAGE, "'debug.nodes' holds %lld ranks, there are %d",
                        (long long)sum, t->size);
    t->nodes = (int)nodes;
    t->pretended = true;
    for (int n = 0; n < t->nodes; n++)
        for (int64_t r = 0; r < ranks[n]; r++)
            t->node_of[next++] = n;
    place_rank(t);
    return TRI_OK;
}

static bool is_power(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

bool tri_topology_regular(const struct tri_topology *t)
{
    if (!is_power(t->nodes) || !is_power(t->slices) || t->nodes * t->slices != t->size)
        return false;
    for (int r = 0; r < t->size; r++)
        if (t->node_of[r] != r / t->slices)
            return false;
    return true;
}

void tri_topology_finish(struct tri_topology *t)
{
    tri_free(t->host);
    tri_free(t->node_of);
    *t = (struct tri_topology){0};
}

bool tri_mpi_started(void)
{
    int started = 0;
    int ended = 0;

    (void)MPI_Initialized(&started);
    (void)MPI_Finalized(&ended);
    return started != 0 && ended == 0;
}

bool tri_mpi_thread_multiple(void)
{
    int level = MPI_THREAD_SINGLE;

    if (tri_mpi_started())
        (void)MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}

void tri_mpi_library(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;

    (void)MPI_Get_library_version(text, &len);
    text[strcspn(text, ",\n")] = '\0'; /* behind it: who built it, and where */
    (void)snprintf(out, bytes, "%s", text);
}
