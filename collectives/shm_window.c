/* See shm_window.h. */
#include "collectives/shm_window.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <string.h>
#include <sys/statvfs.h>

enum {
    SPARE_BYTES = 16 << 20, /* of shared memory that stays free for others */
    PAGE_BYTES = 4096
};

/* *enough: every rank sees room for windows of `bytes` per rank. If not, rank 0 logs what is taken
 * `instead`. */
static tri_status agree_room(struct tri_comm *setup, size_t bytes, const char *instead,
                             bool *enough)
{
    struct statvfs fs;
    uint64_t need = ((uint64_t)bytes + PAGE_BYTES) * (uint64_t)setup->size + SPARE_BYTES;
    int64_t room = 0;

    if (statvfs("/dev/shm", &fs) == 0)
        room = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize);
    TRI_TRY(tri_comm_allreduce(setup, &room, 1, TRI_I64, TRI_REDUCE_MIN, false));
    *enough = (uint64_t)room >= need;
    if (!*enough && setup->rank == 0)
        tri_warn("communicator '%s': /dev/shm has %lld MB free, %llu MB are needed: using %s",
                 setup->name, (long long)(room >> 20), (unsigned long long)(need >> 20), instead);
    return TRI_OK;
}

void tri_shm_window_destroy(struct tri_shm_window *w)
{
    if (w == NULL)
        return;
    if (w->plain && w->part != NULL)
        tri_free(w->part[w->rank]);
    if (!w->plain && w->win != MPI_WIN_NULL)
        (void)MPI_Win_free(&w->win);
    tri_free(w->part);
    tri_free(w);
}

/* Maps everybody's part. Pages are touched by their owner: near its memory, and taken now. */
static tri_status map_window(MPI_Comm comm, const struct tri_comm *setup, struct tri_shm_window *w)
{
    void *mine = NULL;

    if (MPI_Win_allocate_shared((MPI_Aint)w->bytes, 1, MPI_INFO_NULL, comm, &mine, &w->win) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM,
                        "rank %d: communicator '%s': cannot make a window of %zu bytes",
                        setup->rank, setup->name, w->bytes);
    for (int r = 0; r < setup->size; r++) {
        MPI_Aint bytes;
        int unit;

        if (MPI_Win_shared_query(w->win, r, &bytes, &unit, &w->part[r]) != MPI_SUCCESS)
            return tri_fail(TRI_ERR_COMM,
                            "rank %d: communicator '%s': cannot map the memory of rank %d",
                            setup->rank, setup->name, r);
    }
    memset(mine, 0, w->bytes);
    return TRI_OK;
}

tri_status tri_shm_window_create(MPI_Comm comm, struct tri_comm *setup, size_t bytes, bool plain_ok,
                                 struct tri_shm_window **out)
{
    struct tri_shm_window *w = tri_calloc(1, sizeof(*w), "shared window");
    tri_status st = TRI_OK;
    bool enough = false;

    if (w != NULL) {
        w->win = MPI_WIN_NULL;
        w->rank = setup->rank;
        w->bytes = tri_round_up(bytes > 0 ? bytes : 1, PAGE_BYTES);
        w->part = tri_calloc((size_t)setup->size, sizeof(*w->part), "parts of a shared window");
    }
    if (w == NULL || w->part == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate a window", setup->name);
    TRI_TRY_GOTO(st, tri_comm_agree(setup, st), fail);
    TRI_TRY_GOTO(
        st, agree_room(setup, w->bytes, plain_ok ? "ordinary memory" : "MPI messages", &enough),
        fail);
    if (!enough && !plain_ok) {
        tri_shm_window_destroy(w);
        *out = NULL;
        return TRI_OK;
    }
    if (enough) {
        st = map_window(comm, setup, w);
    } else {
        w->plain = true;
        w->part[w->rank] = tri_alloc_aligned(w->bytes, "exchange memory");
        if (w->part[w->rank] == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes",
                          setup->name, w->bytes);
    }
    TRI_TRY_GOTO(st, tri_comm_agree(setup, st), fail);
    *out = w;
    return TRI_OK;

fail:
    tri_shm_window_destroy(w);
    return st;
}

unsigned char *tri_shm_window_mine(const struct tri_shm_window *w)
{
    return w->part[w->rank];
}

const struct tri_shm_window *tri_shm_window_find(const struct tri_shm_window *list, const void *buf,
                                                 size_t bytes)
{
    const unsigned char *at = buf;

    for (const struct tri_shm_window *w = list; w != NULL; w = w->next) {
        const unsigned char *mine = tri_shm_window_mine(w);

        if (!w->plain && at >= mine && at + bytes <= mine + w->bytes)
            return w;
    }
    return NULL;
}

tri_status tri_shm_staging_init(struct tri_shm_staging *s, MPI_Comm comm, struct tri_comm *setup,
                                size_t bytes)
{
    *s = (struct tri_shm_staging){.half_bytes = tri_round_up(bytes / 2, PAGE_BYTES)};
    return tri_shm_window_create(comm, setup, 2 * s->half_bytes, false, &s->window);
}

size_t tri_shm_staging_next(struct tri_shm_staging *s)
{
    size_t at = (size_t)s->half * s->half_bytes;

    s->half = 1 - s->half;
    return at;
}
