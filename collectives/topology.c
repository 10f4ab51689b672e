/* Topology from MPI_Comm_split_type(SHARED): what MPI itself takes for a node. */
#include "collectives/topology.h"

#include "runtime/core/memory.h"

#include <mpi.h>
#include <unistd.h>

#define TRI_MPI(call)                                                                              \
    do {                                                                                           \
        if ((call) != MPI_SUCCESS)                                                                 \
            return tri_fail(TRI_ERR_COMM, "rank %d: %s failed", t->rank, #call);                   \
    } while (0)

/* Everybody's lowest rank of its node becomes node numbers. */
static void number_nodes(struct tri_topology *t)
{
    t->nodes = 0;
    for (int r = 0; r < t->size; r++) {
        int leader = t->node_of[r];

        t->node_of[r] = leader == r ? t->nodes++ : t->node_of[leader];
    }
    t->node = t->node_of[t->rank];
}

static tri_status gather(struct tri_topology *t, MPI_Comm comm)
{
    char host[TRI_HOST_BYTES] = "";
    MPI_Comm local;
    int leader = t->rank;

    (void)gethostname(host, sizeof(host) - 1);
    TRI_MPI(MPI_Allgather(host, TRI_HOST_BYTES, MPI_CHAR, t->host, TRI_HOST_BYTES, MPI_CHAR, comm));
    TRI_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, t->rank, MPI_INFO_NULL, &local));
    TRI_MPI(MPI_Comm_rank(local, &t->local_rank));
    TRI_MPI(MPI_Comm_size(local, &t->local_size));
    TRI_MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, local));
    TRI_MPI(MPI_Comm_free(&local));
    TRI_MPI(MPI_Allgather(&leader, 1, MPI_INT, t->node_of, 1, MPI_INT, comm));
    number_nodes(t);
    return TRI_OK;
}

tri_status tri_topology_init(struct tri_topology *t, const void *mpi_comm)
{
    MPI_Comm comm = *(const MPI_Comm *)mpi_comm;
    tri_status st;

    *t = (struct tri_topology){0};
    TRI_MPI(MPI_Comm_rank(comm, &t->rank));
    TRI_MPI(MPI_Comm_size(comm, &t->size));
    t->host = tri_calloc((size_t)t->size, sizeof(*t->host), "host names");
    t->node_of = tri_calloc((size_t)t->size, sizeof(*t->node_of), "nodes of ranks");
    if (t->host == NULL || t->node_of == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the host names of %d ranks", t->size);
    else
        st = gather(t, comm);
    if (st != TRI_OK)
        tri_topology_finish(t);
    return st;
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
