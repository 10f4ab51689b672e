/* A communicator between ranks of one node over MPI-3 shared windows.
 *
 * A buffer that alloc() gave lies in a window: each rank reduces its own slice of everybody's
 * buffer and writes the result to all, between two barriers. Other buffers go through a staging
 * window in pieces; there a few kilobytes are reduced by each rank, behind one barrier, if the
 * ranks share cores. All sums follow the tree of reduce.h, so that for a power of two of ranks they
 * have the bits of the fixed tree. Barriers are flags in shared memory, polled for some
 * microseconds and then slept on in a futex. No call but create, alloc, free and destroy enters
 * MPI. */
#ifndef TRI_COLLECTIVES_COMM_SHM_H
#define TRI_COLLECTIVES_COMM_SHM_H

#include "runtime/exec/comm.h"

/* *mpi_comm (a pointer to an MPI_Comm whose ranks share memory) is duplicated. name is copied.
 * staging_bytes: per rank. When there is too little free shared memory *out is NULL on all ranks
 * and rank 0 logs the reason. Collective. */
tri_status tri_comm_shm_create(const void *mpi_comm, const char *name, size_t staging_bytes,
                               int64_t timeout_ms, struct tri_comm **out) TRI_CHECKED;
/* The place in the memory of `rank` that belongs to buf, which lies in memory of alloc(); NULL: in
 * none that is shared. Local. */
void *tri_comm_shm_part(const struct tri_comm *c, const void *buf, int rank);

#endif
