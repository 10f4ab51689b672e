/* Who sits where: hosts and ranks of a job. */
#ifndef TRI_COLLECTIVES_TOPOLOGY_H
#define TRI_COLLECTIVES_TOPOLOGY_H

#include "runtime/core/host.h"
#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nodes are numbered in the order of their lowest rank; a node is what shares memory. */
struct tri_topology {
    int rank, size;
    int node, nodes;
    bool pretended;               /* by tri_topology_pretend */
    int slices;                   /* smallest number of ranks on a node */
    int local_rank, local_size;   /* among the ranks of this rank's node, in rank order */
    char (*host)[TRI_HOST_BYTES]; /* owned: host name of each rank */
    int *node_of;                 /* owned: node of each rank */
};

/* *mpi_comm: an MPI_Comm, borrowed for the call. Collective. */
tri_status tri_topology_init(struct tri_topology *t, const void *mpi_comm) TRI_CHECKED;
/* All `size` ranks on this node, without MPI. TRI_ERR_NOMEM. Local. */
tri_status tri_topology_alone(struct tri_topology *t, int size) TRI_CHECKED;
/* Puts the ranks, in order, on nodes of ranks[0], ranks[1], ... ranks. TRI_ERR_USAGE: their sum is
 * not the number of ranks. Local. Same on all ranks: ranks. */
tri_status tri_topology_pretend(struct tri_topology *t, const int64_t *ranks,
                                size_t nodes) TRI_CHECKED;
/* Nodes hold equal powers of two of consecutive ranks, and are a power of two: sums by levels then
 * follow the binary tree over all ranks. Local. */
bool tri_topology_regular(const struct tri_topology *t);
void tri_topology_finish(struct tri_topology *t);

/* MPI is initialised, and not finalised; with MPI_THREAD_MULTIPLE. Local. */
bool tri_mpi_started(void);
bool tri_mpi_thread_multiple(void);
/* Name and version of the MPI library, such as "Open MPI v4.1.4". Local. */
void tri_mpi_library(char *out, size_t bytes);

#endif
