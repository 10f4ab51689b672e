/* The run folder: created, locked against a second job, cleared of interrupted saves. */
#ifndef TRI_RUNTIME_CHECKPOINT_RUNDIR_H
#define TRI_RUNTIME_CHECKPOINT_RUNDIR_H

#include "runtime/core/status.h"
#include "runtime/exec/comm.h"

TRI_BEGIN_DECLS

struct tri_rundir; /* holds the lock; the kernel drops it with the process, however it ends */

/* Creates `path` with its parents and checkpoints/ in it, and takes its lock on rank 0.
 * TRI_ERR_USAGE when another process holds it (host and process are named), TRI_ERR_IO when the
 * folder cannot be made or written. Collective. Same on all ranks: path. */
tri_status tri_rundir_open(struct tri_comm *comm, const char *path,
                           struct tri_rundir **out) TRI_CHECKED;
/* Releases the lock. What tri_rundir_open has made goes again if nothing was put into it: a job
 * that was refused leaves no folder behind. Local. */
void tri_rundir_close(struct tri_rundir *r);

TRI_END_DECLS
#endif
