/* A communicator over MPI point-to-point messages: rounds (rounds.h) of MPI_Isend and MPI_Irecv.
 * Calls make no allocation once each count has been seen. */
#ifndef TRI_COLLECTIVES_COMM_MPI_H
#define TRI_COLLECTIVES_COMM_MPI_H

#include "collectives/rounds.h"
#include "runtime/exec/comm.h"

/* Duplicates *mpi_comm (a pointer to an MPI_Comm, which stays the caller's). name is copied;
 * timeout_ms < 0: no deadline. Collective. */
tri_status tri_comm_mpi_create(const void *mpi_comm, const char *name, int64_t timeout_ms,
                               struct tri_comm **out) TRI_CHECKED;

/* Largest message in bytes, at most 2^30 (the default); longer ones are cut. Same on all ranks:
 * bytes. */
void tri_comm_mpi_set_chunk(struct tri_comm *c, size_t bytes);
/* Sums follow this algorithm whatever their size, for measurements; NULL: chosen by size, as at the
 * start. Same on all ranks: make. */
void tri_comm_mpi_set_algorithm(struct tri_comm *c, tri_rounds_make *make);

#endif
