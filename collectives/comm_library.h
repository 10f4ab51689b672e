/* The MPI library's own all-reduce and barrier behind the communicator's table: what our transports
 * are measured against. */
#ifndef TRI_COLLECTIVES_COMM_LIBRARY_H
#define TRI_COLLECTIVES_COMM_LIBRARY_H

#include "runtime/exec/comm.h"

/* Duplicates *mpi_comm (a pointer to an MPI_Comm). name is borrowed. Sums f32, f64 and i64 with
 * MPI_Allreduce, in place; other types, and counts beyond 2^31 - 1, are TRI_ERR_UNSUPPORTED, as the
 * library has no 16-bit floats. broadcast and allgather are not there. Collective. */
tri_status tri_comm_library_create(const void *mpi_comm, const char *name,
                                   struct tri_comm **out) TRI_CHECKED;

#endif
