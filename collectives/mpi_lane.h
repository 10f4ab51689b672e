/* What one running plan needs of MPI: its messages under a tag of its own, and its scratch. Lanes
 * of one port run side by side; one thread at a time uses a port. */
#ifndef TRI_COLLECTIVES_MPI_LANE_H
#define TRI_COLLECTIVES_MPI_LANE_H

#include "collectives/rounds.h"
#include "collectives/wait.h"
#include "runtime/core/dtype.h"

#include <mpi.h>

enum { TRI_PORT_CHUNK = 1 << 30 }; /* bytes: below 2^31, the limit of an MPI count */

/* A communicator of MPI as its lanes see it. */
struct tri_mpi_port {
    MPI_Comm comm;
    const char *name; /* borrowed; for messages */
    int rank, size;
    size_t chunk;  /* largest message, bytes */
    uint64_t sent; /* bytes so far, of all lanes */
};

struct tri_mpi_lane {
    struct tri_link link; /* first: the lane is found by it */
    struct tri_mpi_port *port;
    int tag;
    MPI_Request *request; /* under way; completed ones are MPI_REQUEST_NULL */
    int *request_peer;
    int *finished; /* work array of MPI_Testsome */
    int nrequests, request_cap;
    int nopen; /* requests that are not complete */
    unsigned char *scratch;
    size_t scratch_bytes;
    float *wide; /* widened operand of a 16-bit reduction */
    size_t wide_bytes;
};

/* The error for a failed call `what` of MPI. */
tri_status tri_mpi_port_fail(const struct tri_mpi_port *p, int code, const char *what) TRI_CHECKED;

/* Leaves the function with an error unless the call of MPI succeeded. */
#define TRI_MPI(port, call)                                                                        \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MPI_SUCCESS)                                                                  \
            return tri_mpi_port_fail(port, code_, #call);                                          \
    } while (0)

/* Borrows port. Local. */
void tri_mpi_lane_init(struct tri_mpi_lane *l, struct tri_mpi_port *port, int tag);
/* After its last message is complete. Local. */
void tri_mpi_lane_finish(struct tri_mpi_lane *l);

/* Starts `plan` over `data`, of elements of `elem` bytes; reduce as in tri_run. Borrows both until
 * the plan is complete. TRI_ERR_NOMEM. Local. */
tri_status tri_mpi_lane_begin(struct tri_mpi_lane *l, const struct tri_rounds *plan, void *data,
                              size_t elem, tri_reduce_fn *reduce, struct tri_run *run) TRI_CHECKED;
/* Goes on without waiting; progress starts a new wait. *done: the plan is complete. Local. */
tri_status tri_mpi_lane_poll(struct tri_mpi_lane *l, struct tri_run *run, struct tri_wait *wait,
                             bool *done) TRI_CHECKED;
/* *out: the operand of a sum: `at`, or its widened copy where the type is summed in a wider one.
 * The copy is valid until the next call. TRI_ERR_NOMEM. Local. */
tri_status tri_mpi_lane_widen(struct tri_mpi_lane *l, void *at, int64_t count, enum tri_dtype dtype,
                              void **out) TRI_CHECKED;
/* A peer whose message is not complete; -1: none. Local. */
int tri_mpi_lane_awaited(const struct tri_mpi_lane *l);

#endif
