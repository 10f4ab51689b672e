/* The engine thread of a stream: collectives, and the kernels between them, in program order,
 * beside the compute thread.
 *
 * Between steps it sleeps on the `go` counter. Its waits need no deadline of their own: it waits
 * only for the compute thread of the same process, which ends every step by setting its counter to
 * the end, also when it fails. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/log.h"
#include "runtime/core/turns.h"

#include <string.h>

tri_status tri_engine_collective(const struct tri_exec_item *it, void *buf, void *gathered)
{
    if (it->collective == TRI_OP_REDUCE_SCATTER)
        return tri_comm_reduce_scatter(it->comm, buf, it->count, it->dtype, it->slices,
                                       it->fixed_tree);
    if (it->collective == TRI_OP_ALLGATHER)
        return tri_comm_gather_slices(it->comm, buf, it->count, it->dtype, it->slices);
    if (it->collective == TRI_OP_GATHER)
        return tri_comm_allgather(it->comm, buf, (size_t)it->count * tri_dtype_bytes(it->dtype),
                                  gathered);
    return tri_comm_allreduce(it->comm, buf, it->count, it->dtype, TRI_REDUCE_SUM, it->fixed_tree);
}

static tri_status run_item(struct tri_exec_stream *s, struct tri_exec_item *it, uint32_t step)
{
    struct tri_exec *x = s->x;

    if (x->device != NULL)
        return tri_exec_device_engine(s, it, step);
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (it->wait[t] != 0)
            TRI_TRY(
                tri_counter_wait(&x->stream[t].done, tri_exec_mark(x, t, step, it->wait[t]), -1));
    if (tri_exec_failed(x))
        return TRI_OK;
    tri_exec_shake(&s->jitter);
    if (x->span != NULL)
        x->span[it->instr].begin_ns = tri_now_ns();
    TRI_TRY(it->kernel != NULL ? it->kernel->ops->run(it->kernel, &it->args)
                               : tri_engine_collective(it, it->buf, it->gathered));
    tri_exec_shake(&s->jitter);
    if (x->span != NULL)
        x->span[it->instr].end_ns = tri_now_ns();
    return TRI_OK;
}

static void run_step(struct tri_exec_stream *s, uint32_t step)
{
    struct tri_exec *x = s->x;
    int t = (int)(s - x->stream);

    for (uint32_t i = 0; i < s->count && !tri_exec_failed(x); i++) {
        tri_status st = run_item(s, &s->item[i], step);

        if (st != TRI_OK)
            tri_exec_fail(x, st);
        else if (s->item[i].signal)
            tri_counter_set(&s->done, tri_exec_mark(x, t, step, s->item[i].seq));
    }
    tri_counter_set(&s->done, tri_exec_mark(x, t, step, s->count));
}

static void *engine_main(void *arg)
{
    struct tri_exec_stream *s = arg;
    struct tri_exec *x = s->x;

    tri_thread_short_turns();
    for (uint32_t step = 1;; step++) {
        tri_status st = tri_counter_wait(&x->go, step, -1);

        if (st != TRI_OK || atomic_load(&x->stop))
            return NULL;
        run_step(s, step);
    }
}

tri_status tri_engine_start(struct tri_exec_stream *s)
{
    int err = pthread_create(&s->thread, NULL, engine_main, s);

    if (err != 0)
        return tri_fail(TRI_ERR_NOMEM, "exec: cannot start an engine thread: %s", strerror(err));
    s->started = true;
    return TRI_OK;
}

void tri_engine_join(struct tri_exec_stream *s)
{
    if (s->started)
        pthread_join(s->thread, NULL);
    s->started = false;
}
