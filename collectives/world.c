/* Choice of transports. Sequence of creations is the same on all ranks, as each is collective. */
#include "collectives/world.h"

#include "collectives/comm_mpi.h"
#include "collectives/comm_self.h"
#include "collectives/comm_shm.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

enum {
    STAGING_BYTES = 4 << 20, /* per rank: pieces of 2 MB stay in the cache */
    CONTROL_BYTES = 1 << 16, /* agreements are small */
    TIMEOUT_MS = 600000
};

static const struct tri_world_cfg defaults = {.timeout_ms = TIMEOUT_MS};

tri_status tri_world_connect(const void *mpi_comm, const struct tri_topology *topology,
                             const char *name, const struct tri_world_cfg *cfg,
                             struct tri_comm **out)
{
    struct tri_comm *c = NULL;

    cfg = cfg != NULL ? cfg : &defaults;
    if (topology->size == 1)
        return tri_comm_self_create(name, out);
    if (topology->nodes == 1 && !cfg->no_shared)
        TRI_TRY(tri_comm_shm_create(mpi_comm, name,
                                    cfg->staging_bytes > 0 ? cfg->staging_bytes : STAGING_BYTES,
                                    cfg->timeout_ms, &c));
    if (c == NULL)
        TRI_TRY(tri_comm_mpi_create(mpi_comm, name, cfg->timeout_ms, &c));
    if (topology->rank == 0)
        tri_debug("communicator '%s': %d ranks over %s", name, topology->size, c->ops->name);
    *out = c;
    return TRI_OK;
}

tri_status tri_world_create(const void *mpi_comm, const struct tri_world_cfg *cfg,
                            struct tri_world **out)
{
    struct tri_world *w = tri_calloc(1, sizeof(*w), "world");
    struct tri_world_cfg io = cfg != NULL ? *cfg : defaults;
    struct tri_world_cfg control = io;
    tri_status st;

    if (w == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the communicators of the job");
    control.staging_bytes = CONTROL_BYTES;
    io.no_shared = true; /* rare small calls, and few threads that poll the same memory */
    TRI_TRY_GOTO(st, tri_topology_init(&w->topology, mpi_comm), fail);
    TRI_TRY_GOTO(st, tri_world_connect(mpi_comm, &w->topology, "control", &control, &w->control),
                 fail);
    TRI_TRY_GOTO(st, tri_world_connect(mpi_comm, &w->topology, "exchange", cfg, &w->exchange),
                 fail);
    TRI_TRY_GOTO(st, tri_world_connect(mpi_comm, &w->topology, "io", &io, &w->io), fail);
    *out = w;
    return TRI_OK;

fail:
    tri_world_destroy(w);
    return st;
}

void tri_world_set_timeout(struct tri_world *w, int64_t timeout_ms)
{
    w->control->timeout_ms = w->exchange->timeout_ms = w->io->timeout_ms = timeout_ms;
}

void tri_world_destroy(struct tri_world *w)
{
    if (w == NULL)
        return;
    tri_comm_destroy(w->io);
    tri_comm_destroy(w->exchange);
    tri_comm_destroy(w->control);
    tri_topology_finish(&w->topology);
    tri_free(w);
}
