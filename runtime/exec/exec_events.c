/* What a step on a device needs: streams, events, staging, the order of issue. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

static bool blocks(const struct tri_exec_item *it)
{
    return it->kernel == NULL && it->comm != NULL && !it->comm->ops->on_stream;
}

static struct tri_exec_item *item_of(struct tri_exec *x, int32_t i)
{
    const struct tri_instr *in = &x->program->instr[i];

    return &x->stream[in->stream].item[in->seq - 1];
}

/* Events of items, their order, and who needs an engine. */
static tri_status list_items(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    struct tri_device *d = xd->d;

    for (int32_t i = 0; i < x->program->ninstr; i++) {
        struct tri_exec_item *it = item_of(x, i);

        it->args.stream = xd->stream[it->stream];
        if (it->signal)
            TRI_TRY(d->ops->event_create(d, false, &it->event));
        xd->engine[it->stream] = xd->engine[it->stream] || blocks(it);
    }
    for (int32_t i = 0; i < x->program->ninstr; i++) {
        struct tri_exec_item *it = item_of(x, i);

        if (!xd->engine[it->stream]) {
            xd->issue[xd->nissue++] = it;
            continue;
        }
        for (int t = 0; t < TRI_STREAM_COUNT; t++)
            if (it->wait[t] != 0)
                x->stream[t].item[it->wait[t] - 1].wakes_engine = true;
    }
    return TRI_OK;
}

static tri_status create_gap(struct tri_exec_device *xd, struct tri_exec_gap **out)
{
    struct tri_exec_gap *gap = &xd->gap[xd->ngap];

    TRI_TRY(xd->d->ops->event_create(xd->d, true, &gap->begin));
    TRI_TRY(xd->d->ops->event_create(xd->d, true, &gap->end));
    xd->ngap++;
    if (out != NULL)
        *out = gap;
    return TRI_OK;
}

static bool waits_for_others(const struct tri_exec_item *it)
{
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (t != it->stream && it->wait[t] != 0)
            return true;
    return false;
}

static tri_status create_gaps(struct tri_exec *x)
{
    for (uint32_t i = 0; i < x->stream[TRI_STREAM_COMPUTE].count; i++) {
        struct tri_exec_item *it = &x->stream[TRI_STREAM_COMPUTE].item[i];

        if (waits_for_others(it))
            TRI_TRY(create_gap(x->device, &it->gap));
    }
    return create_gap(x->device, NULL);
}

static bool in_mirror(const struct tri_exec *x, const struct tri_exec_item *it)
{
    const unsigned char *base = x->memory->base[TRI_ARENA_EXCHANGE], *buf = it->buf;

    return x->memory->mirror[TRI_ARENA_EXCHANGE] != NULL && it->gathered == NULL && buf >= base &&
           buf < base + x->memory->bytes[TRI_ARENA_EXCHANGE];
}

/* Buckets have a place in the mirror; for the rest, one staging buffer a stream. */
static tri_status create_staging(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    unsigned char *mirror = x->memory->mirror[TRI_ARENA_EXCHANGE];
    size_t most[TRI_STREAM_COUNT] = {0};

    for (int32_t i = 0; i < x->program->ninstr; i++) {
        struct tri_exec_item *it = item_of(x, i);

        if (!blocks(it))
            continue;
        tri_exec_carry_plan(it);
        if (in_mirror(x, it))
            it->staging = mirror + ((unsigned char *)it->buf - x->memory->base[TRI_ARENA_EXCHANGE]);
        else if (tri_exec_carry_bytes(it) > most[it->stream])
            most[it->stream] = tri_exec_carry_bytes(it);
    }
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (most[t] > 0)
            TRI_TRY(xd->d->ops->alloc_host(xd->d, most[t], &xd->staging[t]));
    for (int32_t i = 0; i < x->program->ninstr; i++) {
        struct tri_exec_item *it = item_of(x, i);

        if (blocks(it) && it->staging == NULL)
            it->staging = xd->staging[it->stream];
    }
    return TRI_OK;
}

static void list_polled(struct tri_exec *x, bool engine)
{
    struct tri_exec_device *xd = x->device;

    for (int32_t i = 0; i < x->program->ninstr; i++) {
        const struct tri_exec_item *it = item_of(x, i);
        int at = 0;

        if (it->comm == NULL || !it->comm->ops->on_stream || xd->engine[it->stream] != engine)
            continue;
        while (at < xd->npolled && xd->polled[at] != it->comm)
            at++;
        if (at == xd->npolled)
            xd->polled[xd->npolled++] = it->comm;
    }
}

static tri_status create_streams(struct tri_exec_device *xd)
{
    const struct tri_device_ops *ops = xd->d->ops;

    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        TRI_TRY(ops->stream_create(xd->d, t != TRI_STREAM_COMPUTE, &xd->stream[t]));
        TRI_TRY(ops->event_create(xd->d, false, &xd->join[t]));
        for (int i = 0; i < 2; i++)
            TRI_TRY(ops->event_create(xd->d, false, &xd->arrived[t][i]));
    }
    TRI_TRY(ops->event_create(xd->d, false, &xd->fork));
    TRI_TRY(ops->event_create(xd->d, false, &xd->branch));
    TRI_TRY(ops->event_create(xd->d, true, &xd->begin));
    return ops->event_create(xd->d, true, &xd->end);
}

tri_status tri_exec_device_create(struct tri_exec *x)
{
    struct tri_exec_device *xd = tri_calloc(1, sizeof(*xd), "executor");
    size_t n = (size_t)x->program->ninstr + 1;

    if (xd == NULL)
        return tri_fail(TRI_ERR_NOMEM, "exec: cannot allocate an executor");
    x->device = xd;
    xd->d = x->memory->device;
    xd->capturing = -1;
    xd->issue = tri_calloc(n, sizeof(*xd->issue), "executor");
    xd->gap = tri_calloc(n, sizeof(*xd->gap), "executor");
    xd->polled = tri_calloc(n, sizeof(*xd->polled), "executor");
    if (xd->issue == NULL || xd->gap == NULL || xd->polled == NULL)
        return tri_fail(TRI_ERR_NOMEM, "exec: cannot allocate %zu instructions", n);
    TRI_TRY(create_streams(xd));
    TRI_TRY(list_items(x));
    TRI_TRY(create_gaps(x));
    TRI_TRY(create_staging(x));
    list_polled(x, false);
    xd->nfree = xd->npolled;
    list_polled(x, true);
    return tri_exec_io_create(x);
}

static void destroy_events(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops = xd->d->ops;

    for (int32_t i = 0; i < x->program->ninstr; i++)
        ops->event_destroy(xd->d, x->items[i].event);
    for (int i = 0; xd->gap != NULL && i <= x->program->ninstr; i++) {
        ops->event_destroy(xd->d, xd->gap[i].begin);
        ops->event_destroy(xd->d, xd->gap[i].end);
    }
    for (int i = 0; xd->span != NULL && i < 2 * x->program->ninstr; i++)
        ops->event_destroy(xd->d, xd->span[i]);
    ops->event_destroy(xd->d, xd->fork);
    ops->event_destroy(xd->d, xd->branch);
    ops->event_destroy(xd->d, xd->begin);
    ops->event_destroy(xd->d, xd->end);
}

void tri_exec_device_destroy(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops;

    if (xd == NULL)
        return;
    ops = xd->d->ops;
    for (int i = 0; xd->graph != NULL && i < xd->nsegment; i++)
        ops->graph_destroy(xd->d, xd->graph[i]);
    destroy_events(x);
    tri_exec_io_destroy(x);
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        ops->free_host(xd->d, xd->staging[t]);
        ops->event_destroy(xd->d, xd->join[t]);
        for (int i = 0; i < 2; i++)
            ops->event_destroy(xd->d, xd->arrived[t][i]);
        ops->stream_destroy(xd->d, xd->stream[t]);
    }
    tri_free(xd->graph);
    tri_free(xd->segment);
    tri_free(xd->span);
    tri_free(xd->polled);
    tri_free(xd->gap);
    tri_free(xd->issue);
    tri_free(xd);
    x->device = NULL;
}

void tri_exec_device_trace(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    size_t n = 2 * (size_t)x->program->ninstr;
    tri_status st = TRI_OK;

    if (xd->span != NULL)
        return;
    xd->span = tri_calloc(n + 1, sizeof(*xd->span), "trace");
    if (xd->span == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu events", n);
    for (size_t i = 0; st == TRI_OK && i < n; i++)
        st = xd->d->ops->event_create(xd->d, true, &xd->span[i]);
    if (st == TRI_OK)
        return;
    tri_warn("the step is not traced: %s", tri_error_text());
    x->span = NULL;
}
