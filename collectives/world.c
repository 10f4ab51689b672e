/* Choice of transports. Sequence of creations is the same on all ranks, as each is collective. */
#include "collectives/world.h"

#include "collectives/comm_mpi.h"
#include "collectives/comm_self.h"
#include "collectives/comm_shm.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/device/cuda_backend.h"

#include <mpi.h>

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

/* The communicator of the ranks of equal colour (< 0: of none); `topology` is that of the group. */
static tri_status connect_group(MPI_Comm world, int colour, const struct tri_topology *topology,
                                const char *name, const struct tri_world_cfg *cfg,
                                struct tri_comm **out)
{
    MPI_Comm group = MPI_COMM_NULL;
    tri_status st;

    if (MPI_Comm_split(world, colour < 0 ? MPI_UNDEFINED : colour, topology->rank, &group) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "communicator '%s': MPI_Comm_split failed", name);
    if (group == MPI_COMM_NULL)
        return TRI_OK;
    st = tri_world_connect(&group, topology, name, cfg, out);
    (void)MPI_Comm_free(&group);
    return st;
}

tri_status tri_world_connect_levels(const void *mpi_comm, const struct tri_topology *t,
                                    const struct tri_world_cfg *cfg, struct tri_comm **intra,
                                    struct tri_comm **inter)
{
    const MPI_Comm ranks = *(const MPI_Comm *)mpi_comm;
    const struct tri_topology node = {.rank = t->local_rank, .size = t->local_size, .nodes = 1};
    const struct tri_topology rail = {.rank = t->node, .size = t->nodes, .nodes = t->nodes};
    bool owner = t->local_rank < t->slices;

    *intra = *inter = NULL;
    TRI_TRY(connect_group(ranks, t->node, &node, "exchange in a node", cfg, intra));
    return connect_group(ranks, owner ? t->local_rank : -1, &rail, "exchange between nodes", cfg,
                         inter);
}

tri_status tri_world_add_levels(struct tri_world *w, const void *mpi_comm)
{
    const struct tri_world_cfg cfg = {.timeout_ms = w->exchange->timeout_ms};

    TRI_ASSERT(w->intra == NULL);
    return tri_world_connect_levels(mpi_comm, &w->topology, &cfg, &w->intra, &w->inter);
}

void tri_world_drop_levels(struct tri_world *w)
{
    tri_comm_destroy(w->inter);
    tri_comm_destroy(w->intra);
    w->inter = w->intra = NULL;
}

/* The world's communicators that may lie under those of a device, in the order of `beside`. */
static struct tri_comm **place_of(struct tri_world *w, size_t i)
{
    struct tri_comm **place[] = {&w->exchange, &w->intra, &w->inter};

    return place[i];
}

enum { PLACES = 3, PLACE_INTRA = 1 };

static void give_back(struct tri_world *w, size_t i)
{
    if (w->beside[i] == NULL)
        return;
    tri_comm_destroy(*place_of(w, i));
    *place_of(w, i) = w->beside[i];
    w->beside[i] = NULL;
}

static tri_status take(struct tri_world *w, struct tri_device *device,
                       const struct tri_cuda_backend *backend, size_t i)
{
    struct tri_comm *host = *place_of(w, i), *own = NULL;
    tri_status st = TRI_OK;

    if (tri_comm_size(host) > 1)
        st = backend->comm_create(host, device, host->name, host->timeout_ms, &own);
    if (own != NULL) {
        w->beside[i] = host;
        *place_of(w, i) = own;
    }
    return tri_comm_agree(w->control, st);
}

/* NCCL cannot join nodes: nothing across them stays with it. MPI must still work. */
static tri_status fall_back(struct tri_world *w)
{
    if (w->topology.rank == 0)
        tri_info("NCCL cannot join the nodes: %s", tri_error_text());
    for (size_t i = PLACES; i-- > 0;)
        if (i != PLACE_INTRA)
            give_back(w, i);
    return tri_comm_agree(w->control, TRI_OK);
}

tri_status tri_world_use_device(struct tri_world *w, struct tri_device *device, int across,
                                enum tri_sharing sharing, struct tri_device_links *links)
{
    const struct tri_cuda_backend *backend = NULL;
    int64_t able = tri_cuda_backend_load(&backend) == TRI_OK && backend->comm_create != NULL;
    bool nodes = w->topology.nodes > 1;

    *links = (struct tri_device_links){0};
    TRI_TRY(tri_comm_allreduce(w->control, &able, 1, TRI_I64, TRI_REDUCE_MIN, false));
    if (nodes && across == TRI_ACROSS_NCCL && (able == 0 || sharing != TRI_SHARING_NONE))
        return tri_fail(TRI_ERR_USAGE, "'device.across' nccl: %s",
                        able == 0 ? "this build has no NCCL" : "ranks share a device");
    if (able == 0 || sharing == TRI_SHARING_INSIDE)
        return TRI_OK;
    links->across = nodes && sharing == TRI_SHARING_NONE && across != TRI_ACROSS_MPI;
    for (size_t i = 0; i < PLACES; i++) {
        bool joins = nodes && i != PLACE_INTRA;
        tri_status st;

        if (joins && !links->across)
            continue;
        st = take(w, device, backend, i);
        if (st == TRI_OK || !joins || across == TRI_ACROSS_NCCL) {
            TRI_TRY(st);
            continue;
        }
        TRI_TRY(fall_back(w));
        links->across = false;
        links->refused = true;
    }
    links->inside = !nodes || links->across || w->intra != NULL;
    return TRI_OK;
}

struct tri_comm *tri_world_inter(const struct tri_world *w)
{
    return w->beside[2] != NULL ? w->beside[2] : w->inter;
}

void tri_world_leave_device(struct tri_world *w)
{
    for (size_t i = PLACES; i-- > 0;)
        give_back(w, i);
}

uint64_t tri_world_exchange_bytes(const struct tri_world *w)
{
    const struct tri_comm *comms[] = {w->exchange, w->intra, w->inter};
    uint64_t bytes = 0;

    for (size_t i = 0; i < sizeof(comms) / sizeof(comms[0]); i++)
        bytes += tri_comm_bytes_sent(comms[i]);
    return bytes;
}

void tri_world_set_timeout(struct tri_world *w, int64_t timeout_ms)
{
    struct tri_comm *comms[] = {w->control, w->exchange, w->intra, w->inter, w->io};

    for (size_t i = 0; i < sizeof(comms) / sizeof(comms[0]); i++)
        if (comms[i] != NULL)
            comms[i]->timeout_ms = timeout_ms;
}

void tri_world_destroy(struct tri_world *w)
{
    if (w == NULL)
        return;
    tri_comm_destroy(w->io);
    tri_world_leave_device(w);
    tri_world_drop_levels(w);
    tri_comm_destroy(w->exchange);
    tri_comm_destroy(w->control);
    tri_topology_finish(&w->topology);
    tri_free(w);
}
