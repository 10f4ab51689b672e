/* A step on a device. What the main thread issues is ordered by events alone; where it waits for an
 * engine, or an engine for it, a counter first tells that the event has been recorded. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/log.h"

#include <string.h>

enum {
    SPIN_NS = 200000,      /* polls before it sleeps: a step of a small model */
    NAP_NS = 50000,        /* between polls */
    POLL_COMM_NS = 2000000 /* between looks at communicators */
};

static bool failed_here(struct tri_exec *x, tri_status st)
{
    if (st != TRI_OK)
        tri_exec_fail(x, st);
    return tri_exec_failed(x);
}

/* The stream waits for the events of what `it` waits for. segment: the one that is being captured
 * with it, which as a whole comes after all others; -1: none, as always for an engine. */
static tri_status wait_for_events(struct tri_exec *x, const struct tri_exec_item *it, int segment)
{
    struct tri_exec_device *xd = x->device;

    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        const struct tri_exec_item *other;

        if (it->wait[t] == 0 || t == it->stream)
            continue;
        other = &x->stream[t].item[it->wait[t] - 1];
        if (segment >= 0 && (xd->engine[t] || other->segment != segment))
            continue;
        TRI_TRY(xd->d->ops->event_wait(xd->d, other->event, xd->stream[it->stream]));
    }
    return TRI_OK;
}

static tri_status mark_span(struct tri_exec *x, const struct tri_exec_item *it, int end)
{
    struct tri_exec_device *xd = x->device;

    if (x->span == NULL || xd->capturing >= 0)
        return TRI_OK;
    return xd->d->ops->event_record(xd->d, xd->span[2 * it->instr + end], xd->stream[it->stream]);
}

/* A collective that only enqueues, or one of a single rank. */
static tri_status enqueue_collective(struct tri_exec *x, const struct tri_exec_item *it)
{
    struct tri_device *d = x->device->d;
    size_t bytes = (size_t)it->count * tri_dtype_bytes(it->dtype);

    if (it->comm != NULL) {
        it->comm->stream = x->device->stream[it->stream];
        return tri_engine_collective(it, it->buf, it->gathered);
    }
    if (it->gathered == NULL)
        return TRI_OK;
    return d->ops->copy(d, it->gathered, it->buf, bytes, x->device->stream[it->stream]);
}

static tri_status enqueue(struct tri_exec *x, const struct tri_exec_item *it)
{
    TRI_TRY(mark_span(x, it, 0));
    if (it->kernel != NULL)
        TRI_TRY(it->kernel->ops->run(it->kernel, &it->args));
    else
        TRI_TRY(enqueue_collective(x, it));
    return mark_span(x, it, 1);
}

/* The first n that work on a stream. */
static tri_status poll_comms(const struct tri_exec_device *xd, int n)
{
    for (int i = 0; i < n; i++)
        if (xd->polled[i]->ops->poll != NULL)
            TRI_TRY(xd->polled[i]->ops->poll(xd->polled[i]));
    return TRI_OK;
}

/* The engine may wait for work of a stream whose peer is lost, which only a poll tells. */
static tri_status await_engine(struct tri_exec *x, int t, uint32_t seq)
{
    const struct tri_exec_device *xd = x->device;
    uint32_t mark = tri_exec_mark(x, t, x->steps, seq);
    tri_status st;

    if (xd->nfree == 0)
        return tri_counter_wait(&x->stream[t].done, mark, -1);
    while ((st = tri_counter_wait(&x->stream[t].done, mark, POLL_COMM_NS / 1000000)) ==
           TRI_ERR_TIMEOUT)
        TRI_TRY(poll_comms(xd, xd->nfree));
    return st;
}

tri_status tri_exec_device_await_engines(struct tri_exec *x, const struct tri_exec_item *it)
{
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (x->device->engine[t] && it->wait[t] != 0)
            TRI_TRY(await_engine(x, t, it->wait[t]));
    return TRI_OK;
}

tri_status tri_exec_device_issue(struct tri_exec *x, struct tri_exec_item *it)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops = xd->d->ops;
    void *stream = xd->stream[it->stream];
    struct tri_exec_gap *gap = xd->capturing < 0 ? it->gap : NULL;

    if (gap != NULL)
        TRI_TRY(ops->event_record(xd->d, gap->begin, stream));
    TRI_TRY(wait_for_events(x, it, xd->capturing));
    if (gap != NULL)
        TRI_TRY(ops->event_record(xd->d, gap->end, stream));
    tri_exec_shake(&x->stream[it->stream].jitter);
    TRI_TRY(enqueue(x, it));
    if (it->event == NULL)
        return TRI_OK;
    TRI_TRY(ops->event_record(xd->d, it->event, stream));
    if (xd->capturing < 0 && it->wakes_engine)
        tri_counter_set(&x->stream[it->stream].done,
                        tri_exec_mark(x, it->stream, x->steps, it->seq));
    return TRI_OK;
}

tri_status tri_exec_device_engine(struct tri_exec_stream *s, struct tri_exec_item *it,
                                  uint32_t step)
{
    struct tri_exec *x = s->x;
    struct tri_exec_device *xd = x->device;

    if (it->seq == 1)
        TRI_TRY(xd->d->ops->event_wait(xd->d, xd->fork, xd->stream[it->stream]));
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (it->wait[t] != 0 && t != it->stream)
            TRI_TRY(
                tri_counter_wait(&x->stream[t].done, tri_exec_mark(x, t, step, it->wait[t]), -1));
    if (tri_exec_failed(x))
        return TRI_OK;
    TRI_TRY(wait_for_events(x, it, -1));
    tri_exec_shake(&s->jitter);
    TRI_TRY(it->staging != NULL ? tri_exec_carry(x, it) : enqueue(x, it));
    tri_exec_shake(&s->jitter);
    if (it->event != NULL)
        TRI_TRY(xd->d->ops->event_record(xd->d, it->event, xd->stream[it->stream]));
    return TRI_OK;
}

/* Inputs to the device; what every stream waits for first. */
static tri_status begin_step(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops = xd->d->ops;
    void *compute = xd->stream[TRI_STREAM_COMPUTE];

    TRI_TRY(ops->event_record(xd->d, xd->begin, compute));
    TRI_TRY(tri_exec_io_copy(x, false));
    TRI_TRY(ops->event_record(xd->d, xd->fork, compute));
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (t != TRI_STREAM_COMPUTE && !xd->engine[t] && x->stream[t].count > 0)
            TRI_TRY(ops->event_wait(xd->d, xd->fork, xd->stream[t]));
    return TRI_OK;
}

static tri_status issue_all(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    /* The first step makes what libraries make once; a trace needs every instruction. */
    bool graphs = xd->graph != NULL && x->steps > 1 && x->span == NULL;

    for (int s = 0; graphs && s < xd->nsegment && !tri_exec_failed(x); s++)
        TRI_TRY(tri_exec_device_segment(x, s));
    for (int i = 0; !graphs && i < xd->nissue && !tri_exec_failed(x); i++) {
        TRI_TRY(tri_exec_device_await_engines(x, xd->issue[i]));
        if (!tri_exec_failed(x))
            TRI_TRY(tri_exec_device_issue(x, xd->issue[i]));
    }
    return TRI_OK;
}

/* All streams join the compute stream, and outputs go to the process. */
static tri_status join_streams(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    const struct tri_device_ops *ops = xd->d->ops;
    void *compute = xd->stream[TRI_STREAM_COMPUTE];
    struct tri_exec_gap *last = &xd->gap[xd->ngap - 1];

    TRI_TRY(ops->event_record(xd->d, last->begin, compute));
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        if (t == TRI_STREAM_COMPUTE || x->stream[t].count == 0)
            continue;
        TRI_TRY(ops->event_record(xd->d, xd->join[t], xd->stream[t]));
        TRI_TRY(ops->event_wait(xd->d, xd->join[t], compute));
    }
    TRI_TRY(ops->event_record(xd->d, last->end, compute));
    TRI_TRY(tri_exec_io_copy(x, true));
    return ops->event_record(xd->d, xd->end, compute);
}

/* Collectives on a stream have no deadline of their own: a rank that is lost shows in the
 * communicator, one that is late by the time. */
static tri_status wait_for_end(const struct tri_exec_device *xd)
{
    int64_t begin = tri_now_ns(), polled = begin, now;
    bool ended = false;

    if (xd->npolled == 0)
        return xd->d->ops->event_sync(xd->d, xd->end);
    for (;;) {
        TRI_TRY(xd->d->ops->event_query(xd->d, xd->end, &ended));
        if (ended)
            return poll_comms(xd, xd->npolled);
        now = tri_now_ns();
        if (now - polled > POLL_COMM_NS) {
            TRI_TRY(poll_comms(xd, xd->npolled));
            polled = now;
        }
        if (xd->polled[0]->timeout_ms >= 0 && now - begin > xd->polled[0]->timeout_ms * 1000000)
            return tri_fail(TRI_ERR_TIMEOUT,
                            "communicator \"%s\": a step's collectives did not end within %lld ms",
                            xd->polled[0]->name, (long long)xd->polled[0]->timeout_ms);
        if (now - begin > SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* Nanoseconds between two events that have happened. */
static int64_t elapsed(const struct tri_exec_device *xd, void *begin, void *end)
{
    float ms = 0;

    return xd->d->ops->event_elapsed(xd->d, begin, end, &ms) == TRI_OK ? (int64_t)(ms * 1e6f) : 0;
}

/* Times of events in the process's clock: the step has just ended. */
static void read_times(struct tri_exec *x, bool graphs)
{
    struct tri_exec_device *xd = x->device;
    int64_t begin = tri_now_ns() - elapsed(xd, xd->begin, xd->end);

    for (int i = graphs ? xd->ngap - 1 : 0; i < xd->ngap; i++)
        x->times.wait_ns += elapsed(xd, xd->gap[i].begin, xd->gap[i].end);
    for (int32_t i = 0; x->span != NULL && i < x->program->ninstr; i++) {
        const struct tri_instr *in = &x->program->instr[i];

        if (x->stream[in->stream].item[in->seq - 1].staging != NULL)
            continue;
        x->span[i].begin_ns = begin + elapsed(xd, xd->begin, xd->span[2 * i]);
        x->span[i].end_ns = begin + elapsed(xd, xd->begin, xd->span[2 * i + 1]);
    }
}

static tri_status end_step(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;

    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (xd->engine[t])
            TRI_TRY(await_engine(x, t, x->stream[t].count));
    if (tri_exec_failed(x))
        return TRI_OK;
    TRI_TRY(join_streams(x));
    return wait_for_end(xd);
}

tri_status tri_exec_device_run(struct tri_exec *x)
{
    struct tri_exec_device *xd = x->device;
    int64_t begin = tri_now_ns();

    if (tri_exec_failed(x))
        return tri_exec_take_failure(x);
    x->times = (struct tri_exec_times){0};
    x->steps++;
    (void)failed_here(x, begin_step(x));
    tri_counter_set(&x->go, x->steps);
    if (!tri_exec_failed(x))
        (void)failed_here(x, issue_all(x));
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (!xd->engine[t])
            tri_counter_set(&x->stream[t].done, tri_exec_mark(x, t, x->steps, x->stream[t].count));
    if (tri_exec_failed(x) || failed_here(x, end_step(x)))
        return tri_exec_take_failure(x);
    x->times.total_ns = tri_now_ns() - begin;
    read_times(x, xd->graph != NULL && x->steps > 1 && x->span == NULL);
    x->times.compute_ns = x->times.total_ns - x->times.wait_ns;
    return x->poison ? tri_exec_device_poison(x) : TRI_OK;
}

tri_status tri_exec_device_poison(struct tri_exec *x)
{
    const struct tri_program *p = x->program;
    struct tri_device *d = x->device->d;
    void *compute = x->device->stream[TRI_STREAM_COMPUTE];

    if (p->arena_bytes[TRI_ARENA_STEP] > 0)
        TRI_TRY(d->ops->fill(d, x->memory->base[TRI_ARENA_STEP], 0xff,
                             p->arena_bytes[TRI_ARENA_STEP], compute));
    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_op *op = &p->graph->op[p->instr[i].op];

        for (int o = 0; p->instr[i].kernel != TRI_NONE && o < op->nout; o++)
            if (op->out[o] != TRI_NONE && p->place[op->out[o]].arena == TRI_ARENA_EXCHANGE)
                TRI_TRY(d->ops->fill(d, tri_exec_address(x, op->out[o]), 0xff,
                                     tri_value_bytes(&p->graph->value[op->out[o]]), compute));
    }
    return d->ops->stream_sync(d, compute);
}
