/* The one I/O thread of the process: a first-in first-out queue of closures.
 *
 * Debian's HDF5 is not thread-safe, so every HDF5 call of the process is made in a closure that
 * runs here. Long work (a batch, a checkpoint slab) is cut into pieces of at most
 * TRI_IO_PIECE_BYTES: between pieces a closure asks to be called again (tri_io_again) and goes to
 * the end of the queue, so that loader and checkpoint alternate.
 *
 * Posting takes no lock and allocates nothing: the caller owns the job. Before tri_io_start and
 * after tri_io_stop a closure runs at once in the calling thread, which suits tools and tests with
 * a single thread. All calls: Local. */
#ifndef TRI_RUNTIME_CORE_IO_THREAD_H
#define TRI_RUNTIME_CORE_IO_THREAD_H

#include "runtime/core/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TRI_IO_PIECE_BYTES ((size_t)16 << 20)

typedef tri_status (*tri_io_fn)(void *arg);

/* A closure in flight. Zero-initialise; the memory must stay until tri_io_wait has returned. */
struct tri_io_job {
    tri_io_fn fn;
    void *arg; /* borrowed until done */
    struct tri_io_job *next;
    atomic_bool done;
    tri_status status; /* valid when done */
    bool posted;       /* posted and not yet waited for */
    char text[1024];   /* message of a failure */
};

/* Starts the thread. TRI_ERR_INTERNAL when it runs already or cannot be made. */
tri_status tri_io_start(void) TRI_CHECKED;
/* Runs everything that is queued, then ends the thread. Nothing may post meanwhile. Does nothing
 * when not started. */
void tri_io_stop(void);

/* Queues fn(arg). The job must not be in flight. */
void tri_io_post(struct tri_io_job *job, tri_io_fn fn, void *arg);
/* Is a posted job finished? tri_io_wait then returns without waiting. */
bool tri_io_done(const struct tri_io_job *job);
/* Waits for a posted job and returns its status, with its message as this thread's. TRI_OK for a
 * job never posted. */
tri_status tri_io_wait(struct tri_io_job *job) TRI_CHECKED;
/* Posts and waits. Called by a closure on the I/O thread itself it runs fn at once (and again while
 * it asks so). */
tri_status tri_io_call(tri_io_fn fn, void *arg) TRI_CHECKED;

/* For the running closure only: after it has returned TRI_OK, call it again behind everything
 * queued by then. */
void tri_io_again(void);

#endif
