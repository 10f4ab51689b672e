/* A step as graphs of the device. What the calling thread issues is cut where an engine comes
 * between: before an instruction that waits for one, and behind an instruction that one waits for.
 * Inside a segment streams fork from the compute stream and join it again, so that segments follow
 * one another in its order. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/memory.h"

static bool waits_for_engine(const struct tri_exec_device *xd, const struct tri_exec_item *it)
{
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (xd->engine[t] && it->wait[t] != 0)
            return true;
    return false;
}

int tri_exec_graph(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    size_t n = xd != NULL ? (size_t)xd->nissue + 1 : 0;

    if (xd == NULL || xd->nissue == 0)
        return 0;
    xd->segment = tri_calloc(n, sizeof(*xd->segment), "graphs");
    xd->graph = tri_calloc(n, sizeof(*xd->graph), "graphs");
    if (xd->segment == NULL || xd->graph == NULL) {
        tri_free(xd->segment);
        tri_free(xd->graph);
        xd->segment = NULL;
        xd->graph = NULL;
        return 0;
    }
    for (int i = 0; i < xd->nissue; i++) {
        struct tri_exec_item *it = xd->issue[i];

        if (i == 0 || xd->issue[i - 1]->wakes_engine || waits_for_engine(xd, it))
            xd->segment[xd->nsegment++] = i;
        it->segment = xd->nsegment - 1;
    }
    xd->segment[xd->nsegment] = xd->nissue;
    return xd->nsegment;
}

static tri_status fork_streams(struct tri_exec *x, const bool used[TRI_STREAM_COUNT])
{
    struct tri_exec_device *xd = x->device;

    TRI_TRY(xd->d->ops->event_record(xd->d, xd->branch, xd->stream[TRI_STREAM_COMPUTE]));
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (used[t])
            TRI_TRY(xd->d->ops->event_wait(xd->d, xd->branch, xd->stream[t]));
    return TRI_OK;
}

static tri_status join_streams(struct tri_exec *x, const bool used[TRI_STREAM_COUNT])
{
    struct tri_exec_device *xd = x->device;

    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        if (!used[t])
            continue;
        TRI_TRY(xd->d->ops->event_record(xd->d, xd->join[t], xd->stream[t]));
        TRI_TRY(xd->d->ops->event_wait(xd->d, xd->join[t], xd->stream[TRI_STREAM_COMPUTE]));
    }
    return TRI_OK;
}

static tri_status issue_segment(struct tri_exec *x, int segment)
{
    struct tri_exec_device *xd = x->device;
    bool used[TRI_STREAM_COUNT] = {false}; /* beside the compute stream */

    for (int i = xd->segment[segment]; i < xd->segment[segment + 1]; i++)
        used[xd->issue[i]->stream] = xd->issue[i]->stream != TRI_STREAM_COMPUTE;
    TRI_TRY(fork_streams(x, used));
    for (int i = xd->segment[segment]; i < xd->segment[segment + 1]; i++)
        TRI_TRY(tri_exec_device_issue(x, xd->issue[i]));
    return join_streams(x, used);
}

static tri_status capture(struct tri_exec *x, int segment)
{
    struct tri_exec_device *xd = x->device;
    void *compute = xd->stream[TRI_STREAM_COMPUTE];
    tri_status st, ended;
    void *graph = NULL;

    TRI_TRY(xd->d->ops->capture_begin(xd->d, compute));
    xd->capturing = segment;
    st = issue_segment(x, segment);
    xd->capturing = -1;
    if (st != TRI_OK)
        return st;
    ended = xd->d->ops->capture_end(xd->d, compute, &graph);
    if (ended == TRI_OK)
        xd->graph[segment] = graph;
    return ended;
}

/* Events that others recorded, and the last one's for an engine, lie outside the graph. */
tri_status tri_exec_device_segment(struct tri_exec *x, int segment)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops = xd->d->ops;
    void *compute = xd->stream[TRI_STREAM_COMPUTE];
    const struct tri_exec_item *first = xd->issue[xd->segment[segment]];
    const struct tri_exec_item *last = xd->issue[xd->segment[segment + 1] - 1];

    TRI_TRY(tri_exec_device_await_engines(x, first));
    if (tri_exec_failed(x))
        return TRI_OK;
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (xd->engine[t] && first->wait[t] != 0)
            TRI_TRY(ops->event_wait(xd->d, x->stream[t].item[first->wait[t] - 1].event, compute));
    if (xd->graph[segment] == NULL)
        TRI_TRY(capture(x, segment));
    TRI_TRY(ops->graph_launch(xd->d, xd->graph[segment], compute));
    if (!last->wakes_engine)
        return TRI_OK;
    TRI_TRY(ops->event_record(xd->d, last->event, compute));
    tri_counter_set(&x->stream[last->stream].done,
                    tri_exec_mark(x, last->stream, x->steps, last->seq));
    return TRI_OK;
}
