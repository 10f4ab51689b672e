/* Who sits where: hosts and ranks of a job. */
#ifndef TRI_COLLECTIVES_TOPOLOGY_H
#define TRI_COLLECTIVES_TOPOLOGY_H

#include "runtime/core/status.h"

#include <stdbool.h>

enum { TRI_HOST_BYTES = 64 };

/* Nodes are numbered in the order of their lowest rank; a node is what shares memory. */
struct tri_topology {
    int rank, size;
    int node, nodes;
    int local_rank, local_size;   /* among the ranks of this rank's node, in rank order */
    char (*host)[TRI_HOST_BYTES]; /* owned: host name of each rank */
    int *node_of;                 /* owned: node of each rank */
};

/* *mpi_comm: an MPI_Comm, borrowed for the call. Collective. */
tri_status tri_topology_init(struct tri_topology *t, const void *mpi_comm) TRI_CHECKED;
void tri_topology_finish(struct tri_topology *t);

/* MPI is initialised, and not finalised; with MPI_THREAD_MULTIPLE. Local. */
bool tri_mpi_started(void);
bool tri_mpi_thread_multiple(void);

#endif
