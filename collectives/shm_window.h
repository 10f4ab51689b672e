/* Memory that the ranks of one node share: MPI-3 windows, of which each rank owns a part, and the
 * staging area made of one. */
#ifndef TRI_COLLECTIVES_SHM_WINDOW_H
#define TRI_COLLECTIVES_SHM_WINDOW_H

#include "runtime/exec/comm.h"

#include <mpi.h>

/* Memory of all ranks, mapped here. */
struct tri_shm_window {
    struct tri_shm_window *next;
    MPI_Win win;
    unsigned char **part; /* of each rank; of a plain window only this rank's is set */
    size_t bytes;         /* per rank, whole pages */
    int rank;
    bool plain; /* no window: ordinary memory of this rank alone, for want of shared memory */
};

/* A window of `bytes` per rank, zeroed, between the ranks of `comm`. `setup` has the same ranks and
 * messages that do not need windows; its name is the one of error texts. When the shared memory
 * does not suffice rank 0 logs it, and *out is ordinary memory with `plain_ok`, else NULL.
 * Collective. */
tri_status tri_shm_window_create(MPI_Comm comm, struct tri_comm *setup, size_t bytes, bool plain_ok,
                                 struct tri_shm_window **out) TRI_CHECKED;
/* NULL does nothing. Collective. */
void tri_shm_window_destroy(struct tri_shm_window *w);

/* This rank's part. Local. */
unsigned char *tri_shm_window_mine(const struct tri_shm_window *w);
/* The window of the list that holds [buf, buf + bytes) in this rank's part and is shared, or NULL.
 * Local. */
const struct tri_shm_window *tri_shm_window_find(const struct tri_shm_window *list, const void *buf,
                                                 size_t bytes);

/* Two halves, used in turn: a half is written by its owner again only after a barrier that every
 * reader of its last contents has entered, so that no piece needs a barrier behind it. */
struct tri_shm_staging {
    struct tri_shm_window *window; /* NULL: no room for it */
    size_t half_bytes;
    int half; /* the next one to use */
};

/* `bytes` per rank, rounded up to whole pages. s->window is NULL when there is no room. `comm` and
 * `setup` as above. Collective. */
tri_status tri_shm_staging_init(struct tri_shm_staging *s, MPI_Comm comm, struct tri_comm *setup,
                                size_t bytes) TRI_CHECKED;
/* Start of the next half, in bytes behind the start of everybody's part. Same order on all ranks.
 * Local. */
size_t tri_shm_staging_next(struct tri_shm_staging *s);

#endif
