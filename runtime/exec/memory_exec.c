/* The arenas of a run. */
#include "runtime/exec/exec.h"

#include "runtime/core/memory.h"

#include <string.h>

static tri_status allocate(struct tri_memory *m, enum tri_arena arena, const char *what)
{
    m->base[arena] = NULL;
    if (m->bytes[arena] == 0)
        return TRI_OK;
    m->base[arena] = tri_alloc_aligned(m->bytes[arena], what);
    if (m->base[arena] == NULL)
        return tri_fail(TRI_ERR_NOMEM, "memory: cannot allocate %zu bytes for %s", m->bytes[arena],
                        what);
    return TRI_OK;
}

/* The exchange arena comes from the transport where it has memory of its own. */
static tri_status allocate_exchange(struct tri_memory *m, struct tri_comm *comm)
{
    void *base = NULL;
    int64_t most = (int64_t)m->bytes[TRI_ARENA_EXCHANGE];

    /* ranks that own unlike slices need unlike sizes */
    TRI_TRY(tri_comm_allreduce(comm, &most, 1, TRI_I64, TRI_REDUCE_MAX, false));
    m->bytes[TRI_ARENA_EXCHANGE] = (size_t)most;
    if (comm == NULL || comm->size == 1 || comm->ops->alloc == NULL ||
        m->bytes[TRI_ARENA_EXCHANGE] == 0)
        return allocate(m, TRI_ARENA_EXCHANGE, "the exchange arena");
    TRI_TRY(comm->ops->alloc(comm, m->bytes[TRI_ARENA_EXCHANGE], &base));
    m->base[TRI_ARENA_EXCHANGE] = base;
    m->exchange_comm = comm;
    return TRI_OK;
}

tri_status tri_memory_create(struct tri_memory *m, const struct tri_layout *layout,
                             struct tri_program *const *programs, int n,
                             struct tri_comm *exchange_comm)
{
    tri_status st;

    *m = (struct tri_memory){0};
    m->bytes[TRI_ARENA_PERSISTENT] = tri_layout_bytes(layout);
    for (int i = 0; i < n; i++)
        for (int a = TRI_ARENA_STEP; a < TRI_ARENA_COUNT; a++)
            if (programs[i]->arena_bytes[a] > m->bytes[a])
                m->bytes[a] = programs[i]->arena_bytes[a];
    st = allocate(m, TRI_ARENA_PERSISTENT, "the persistent arena");
    if (st == TRI_OK)
        st = allocate(m, TRI_ARENA_STEP, "the step arena");
    /* No rank may enter the transport's collective allocation when another one cannot. */
    if (exchange_comm != NULL)
        st = tri_comm_agree(exchange_comm, st);
    if (st != TRI_OK)
        goto destroy;
    TRI_TRY_GOTO(st, allocate_exchange(m, exchange_comm), destroy);
    /* Gaps between the parts of a bucket are summed with them and must be zero; no kernel writes
     * them later. */
    if (m->base[TRI_ARENA_EXCHANGE] != NULL)
        memset(m->base[TRI_ARENA_EXCHANGE], 0, m->bytes[TRI_ARENA_EXCHANGE]);
    if (m->base[TRI_ARENA_PERSISTENT] != NULL)
        memset(m->base[TRI_ARENA_PERSISTENT], 0, m->bytes[TRI_ARENA_PERSISTENT]);
    return TRI_OK;

destroy:
    tri_memory_destroy(m);
    return st;
}

void tri_memory_destroy(struct tri_memory *m)
{
    struct tri_comm *comm = m->exchange_comm;

    if (comm != NULL)
        comm->ops->free(comm, m->base[TRI_ARENA_EXCHANGE]);
    else
        tri_free(m->base[TRI_ARENA_EXCHANGE]);
    tri_free(m->base[TRI_ARENA_STEP]);
    tri_free(m->base[TRI_ARENA_PERSISTENT]);
    *m = (struct tri_memory){0};
}
