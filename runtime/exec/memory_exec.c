/* The arenas of a run. */
#include "runtime/exec/exec.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const char *const arena_name[TRI_ARENA_COUNT] = {"persistent", "step", "exchange"};

static tri_status allocate(struct tri_memory *m, enum tri_arena arena)
{
    void *base = NULL;

    if (m->bytes[arena] == 0)
        return TRI_OK;
    if (!m->device->host) {
        TRI_TRY(m->device->ops->alloc(m->device, m->bytes[arena], &base));
        m->base[arena] = base;
        return TRI_OK;
    }
    m->base[arena] = m->mirror[arena] = tri_alloc_aligned(m->bytes[arena], arena_name[arena]);
    if (m->base[arena] == NULL)
        return tri_fail(TRI_ERR_NOMEM, "memory: cannot allocate %zu bytes for the %s arena",
                        m->bytes[arena], arena_name[arena]);
    return TRI_OK;
}

/* Pages are touched where something is kept only. */
static tri_status mirror_persistent(struct tri_memory *m)
{
    size_t bytes = m->bytes[TRI_ARENA_PERSISTENT];
    void *p;

    if (m->device->host || bytes == 0)
        return TRI_OK;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        return tri_fail(TRI_ERR_NOMEM, "memory: cannot map %zu bytes of the process", bytes);
    m->mirror[TRI_ARENA_PERSISTENT] = p;
    return TRI_OK;
}

/* Pages of the transport that copies of the device may use as they are. */
static void pin_mirror(struct tri_memory *m, size_t bytes)
{
    const struct tri_device_ops *ops = m->device->ops;

    if (ops->pin == NULL)
        return;
    m->pinned = ops->pin(m->device, m->mirror[TRI_ARENA_EXCHANGE], bytes) == TRI_OK;
    if (!m->pinned)
        tri_debug("copies of exchange memory are staged: %s", tri_error_text());
}

/* The exchange arena comes from the transport where that has memory of its own; on a device, only
 * from one that works there, and one that blocks gives the mirror. */
static tri_status allocate_exchange(struct tri_memory *m, struct tri_comm *comm)
{
    const enum tri_arena a = TRI_ARENA_EXCHANGE;
    bool own = comm != NULL && comm->size > 1 && comm->ops->alloc != NULL && m->bytes[a] > 0;
    bool mirror = !m->device->host && comm != NULL && !comm->ops->on_stream;
    void *p = NULL;

    if (own) {
        TRI_TRY(comm->ops->alloc(comm, m->bytes[a], &p));
        m->exchange_comm = comm;
        if (!mirror)
            m->base[a] = p;
        if (mirror || m->device->host)
            m->mirror[a] = p;
        if (mirror)
            pin_mirror(m, m->bytes[a]);
    }
    return m->base[a] == NULL ? allocate(m, a) : TRI_OK;
}

/* Adds the sizes of all arenas to a message about memory. */
static tri_status explain(const struct tri_memory *m, tri_status st)
{
    char text[512];

    if (st != TRI_ERR_NOMEM)
        return st;
    snprintf(text, sizeof(text), "%s", tri_error_text());
    return tri_fail(st,
                    "%s; the run needs %.1f MB for parameters, states and inputs, %.1f MB for the "
                    "values of a step and %.1f MB for exchange: a smaller data.grain makes the "
                    "second smaller",
                    text, (double)m->bytes[TRI_ARENA_PERSISTENT] / 1e6,
                    (double)m->bytes[TRI_ARENA_STEP] / 1e6,
                    (double)m->bytes[TRI_ARENA_EXCHANGE] / 1e6);
}

/* Sizes for all programs; that of the exchange arena is the same on all ranks, though ranks that
 * own unlike slices need unlike sizes. */
static tri_status find_sizes(struct tri_memory *m, const struct tri_layout *layout,
                             struct tri_program *const *programs, int n, struct tri_comm *control)
{
    int64_t most;

    m->bytes[TRI_ARENA_PERSISTENT] = tri_layout_bytes(layout);
    for (int i = 0; i < n; i++)
        for (int a = TRI_ARENA_STEP; a < TRI_ARENA_COUNT; a++)
            if (programs[i]->arena_bytes[a] > m->bytes[a])
                m->bytes[a] = programs[i]->arena_bytes[a];
    most = (int64_t)m->bytes[TRI_ARENA_EXCHANGE];
    TRI_TRY(tri_comm_allreduce(control, &most, 1, TRI_I64, TRI_REDUCE_MAX, false));
    m->bytes[TRI_ARENA_EXCHANGE] = (size_t)most;
    return TRI_OK;
}

/* Gaps between the parts of a bucket are summed with them and must be zero; no kernel writes them
 * later. */
static tri_status clear(const struct tri_memory *m)
{
    for (int a = 0; a < TRI_ARENA_COUNT; a++)
        if (a != TRI_ARENA_STEP && m->base[a] != NULL)
            TRI_TRY(m->device->ops->fill(m->device, m->base[a], 0, m->bytes[a], NULL));
    return m->device->ops->stream_sync(m->device, NULL);
}

tri_status tri_memory_create(struct tri_memory *m, struct tri_device *device,
                             const struct tri_layout *layout, struct tri_program *const *programs,
                             int n, struct tri_comm *control, struct tri_comm *exchange)
{
    tri_status st;

    *m = (struct tri_memory){.device = device};
    TRI_TRY_GOTO(st, find_sizes(m, layout, programs, n, control), destroy);
    st = allocate(m, TRI_ARENA_PERSISTENT);
    if (st == TRI_OK)
        st = allocate(m, TRI_ARENA_STEP);
    if (st == TRI_OK)
        st = mirror_persistent(m);
    /* No rank may enter the transport's collective allocation when another one cannot. */
    TRI_TRY_GOTO(st, tri_comm_agree(control, explain(m, st)), destroy);
    st = explain(m, allocate_exchange(m, exchange));
    if (st == TRI_OK)
        st = clear(m);
    TRI_TRY_GOTO(st, tri_comm_agree(control, st), destroy);
    return TRI_OK;

destroy:
    tri_memory_destroy(m);
    return st;
}

void tri_memory_destroy(struct tri_memory *m)
{
    struct tri_comm *comm = m->exchange_comm;
    struct tri_device *d = m->device;

    if (d == NULL)
        return;
    if (comm != NULL) {
        unsigned char **own =
            d->host || comm->ops->on_stream ? m->base : m->mirror; /* what came from it */

        if (m->pinned)
            d->ops->unpin(d, m->mirror[TRI_ARENA_EXCHANGE]);
        comm->ops->free(comm, own[TRI_ARENA_EXCHANGE]);
        own[TRI_ARENA_EXCHANGE] = NULL;
    }
    for (int a = 0; a < TRI_ARENA_COUNT; a++)
        d->ops->free(d, m->base[a]);
    if (!d->host && m->mirror[TRI_ARENA_PERSISTENT] != NULL)
        (void)munmap(m->mirror[TRI_ARENA_PERSISTENT], m->bytes[TRI_ARENA_PERSISTENT]);
    *m = (struct tri_memory){0};
}
