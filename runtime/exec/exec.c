/* The executor: everything is resolved at creation, so that a step is a loop of waits, kernels and
 * signals. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <stdio.h>
#include <string.h>

void *tri_exec_address(const struct tri_exec *x, tri_vid v)
{
    const struct tri_place *place;

    if (v == TRI_NONE)
        return NULL;
    place = &x->program->place[v];
    if (place->storage < 0 || x->memory->base[place->arena] == NULL)
        return NULL;
    return x->memory->base[place->arena] + place->offset;
}

static size_t count_arguments(const struct tri_program *p)
{
    size_t n = 0;

    for (int i = 0; i < p->ninstr; i++)
        n += (size_t)p->graph->op[p->instr[i].op].nin + (size_t)p->graph->op[p->instr[i].op].nout;
    return n;
}

static void resolve_collective(const struct tri_exec *x, const struct tri_op *op,
                               struct tri_comm *comm, struct tri_exec_item *it)
{
    const struct tri_value *v = &x->program->graph->value[op->in[0]];
    const struct tri_attr_comm *attr = &op->attrs.comm;
    unsigned char *buf = tri_exec_address(x, op->in[0]);

    it->comm = tri_comm_size(comm) > 1 ? comm : NULL;
    it->collective = op->kind;
    it->dtype = v->dtype;
    it->buf = buf != NULL ? buf + (size_t)attr->first * tri_dtype_bytes(v->dtype) : NULL;
    it->count = attr->count > 0 ? attr->count : tri_shape_count(&v->shape);
    it->gathered = op->kind == TRI_OP_GATHER ? tri_exec_address(x, op->out[0]) : NULL;
    it->slices = attr->slices;
    it->fixed_tree = attr->fixed_tree;
}

/* Resolves instruction i into `it`; its arguments go to *pointers, which moves behind them. */
static void resolve(struct tri_exec *x, int32_t i,
                    struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT],
                    struct tri_exec_item *it, void ***pointers)
{
    const struct tri_program *p = x->program;
    const struct tri_instr *in = &p->instr[i];
    const struct tri_op *op = &p->graph->op[in->op];
    void **args = *pointers;

    it->instr = i;
    it->stream = in->stream;
    it->seq = in->seq;
    it->signal = in->signal;
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        it->wait[t] = in->wait[t];
        it->waits = it->waits || in->wait[t] != 0;
    }
    for (int k = 0; k < op->nin; k++)
        args[k] = tri_exec_address(x, op->in[k]);
    for (int k = 0; k < op->nout; k++)
        args[op->nin + k] = tri_exec_address(x, op->out[k]);
    *pointers = args + op->nin + op->nout;
    if (in->kernel != TRI_NONE) {
        it->kernel = p->kernel[in->kernel];
        it->args = (struct tri_kernel_args){.in = args, .out = args + op->nin};
        it->args.grain = op->grain == TRI_NONE ? 0 : op->grain;
        if (it->kernel->scratch_bytes > 0)
            it->args.scratch = x->memory->base[TRI_ARENA_STEP] + in->scratch_offset;
        return;
    }
    resolve_collective(x, op, comms[op->attrs.comm.axis][op->attrs.comm.level], it);
}

static void resolve_all(struct tri_exec *x, struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT])
{
    const struct tri_program *p = x->program;
    struct tri_exec_item *item = x->items;
    void **pointers = x->pointers;

    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        x->stream[t].x = x;
        x->stream[t].item = item;
        x->stream[t].count = p->stream_count[t];
        item += p->stream_count[t];
    }
    for (int32_t i = 0; i < p->ninstr; i++)
        resolve(x, i, comms, &x->stream[p->instr[i].stream].item[p->instr[i].seq - 1], &pointers);
}

static tri_status check_memory(const struct tri_program *p, const struct tri_memory *m)
{
    if (p->place == NULL)
        return tri_fail(TRI_ERR_INTERNAL, "exec: the program has no memory plan");
    if (p->device != m->device)
        return tri_fail(TRI_ERR_INTERNAL, "exec: a program for \"%s\" with memory on \"%s\"",
                        p->device->name, m->device->name);
    for (int a = 0; a < TRI_ARENA_COUNT; a++)
        if (p->arena_bytes[a] > m->bytes[a])
            return tri_fail(TRI_ERR_INTERNAL,
                            "exec: the program needs %zu bytes of arena %d, there are %zu",
                            p->arena_bytes[a], a, m->bytes[a]);
    return TRI_OK;
}

tri_status tri_exec_create(struct tri_program *program, struct tri_memory *memory,
                           struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT],
                           struct tri_exec **out)
{
    tri_status st = TRI_OK;
    struct tri_exec *x;

    TRI_TRY(check_memory(program, memory));
    x = tri_calloc(1, sizeof(*x), "executor");
    if (x == NULL)
        return tri_fail(TRI_ERR_NOMEM, "exec: cannot allocate an executor");
    x->program = program;
    x->memory = memory;
    x->items = tri_calloc((size_t)program->ninstr + 1, sizeof(*x->items), "executor");
    x->pointers = tri_calloc(count_arguments(program) + 1, sizeof(*x->pointers), "executor");
    if (x->items == NULL || x->pointers == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "exec: cannot allocate %d instructions", program->ninstr);
        goto destroy;
    }
    resolve_all(x, comms);
    if (!memory->device->host)
        TRI_TRY_GOTO(st, tri_exec_device_create(x), destroy);
    for (int t = TRI_STREAM_INTRA; t < TRI_STREAM_COUNT; t++)
        if (x->device != NULL ? x->device->engine[t] : x->stream[t].count > 0)
            TRI_TRY_GOTO(st, tri_engine_start(&x->stream[t]), destroy);
    *out = x;
    return TRI_OK;

destroy:
    tri_exec_destroy(x);
    return st;
}

void tri_exec_destroy(struct tri_exec *x)
{
    if (x == NULL)
        return;
    atomic_store(&x->stop, true);
    tri_counter_set(&x->go, x->steps + 1);
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        tri_engine_join(&x->stream[t]);
    tri_exec_device_destroy(x);
    tri_free(x->items);
    tri_free(x->pointers);
    tri_free(x);
}

void tri_exec_fail(struct tri_exec *x, tri_status st)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&x->failing, &none, 1))
        return;
    x->failure = st;
    snprintf(x->failure_text, sizeof(x->failure_text), "%s", tri_error_text());
    atomic_store(&x->failing, 2);
}

void tri_exec_shake(struct tri_exec_jitter *j)
{
    struct timespec t = {0};

    if (j->max_us == 0)
        return;
    j->state = tri_mix64(j->state + UINT64_C(0x9e3779b97f4a7c15));
    t.tv_nsec = (long)(j->state % (uint64_t)j->max_us) * 1000;
    nanosleep(&t, NULL);
}

/* Waits for a mark of stream t; the time counts as exposed communication. */
static tri_status wait_for(struct tri_exec *x, int t, uint32_t seq)
{
    uint32_t mark = tri_exec_mark(x, t, x->steps, seq);
    int64_t begin;

    if (tri_counter_reached(&x->stream[t].done, mark))
        return TRI_OK;
    begin = tri_now_ns();
    TRI_TRY(
        tri_counter_wait(&x->stream[t].done, mark, -1)); /* bounded: collectives have deadlines */
    x->times.wait_ns += tri_now_ns() - begin;
    return TRI_OK;
}

static tri_status run_item(struct tri_exec *x, const struct tri_exec_item *it)
{
    struct tri_exec_stream *s = &x->stream[TRI_STREAM_COMPUTE];

    if (it->waits) {
        for (int t = 0; t < TRI_STREAM_COUNT; t++)
            if (it->wait[t] != 0)
                TRI_TRY(wait_for(x, t, it->wait[t]));
        if (tri_exec_failed(x))
            return TRI_OK;
    }
    tri_exec_shake(&s->jitter);
    if (x->span != NULL)
        x->span[it->instr].begin_ns = tri_now_ns();
    TRI_TRY(it->kernel->ops->run(it->kernel, &it->args));
    if (x->span != NULL)
        x->span[it->instr].end_ns = tri_now_ns();
    if (it->signal)
        tri_counter_set(&s->done, tri_exec_mark(x, TRI_STREAM_COMPUTE, x->steps, it->seq));
    return TRI_OK;
}

tri_status tri_exec_take_failure(struct tri_exec *x)
{
    while (atomic_load(&x->failing) != 2)
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    tri_error_set(x->failure_text);
    return x->failure;
}

/* Fills with NaN what no later step may read: temporaries, and the parts of buckets (not the gaps
 * between them). */
static void poison_memory(struct tri_exec *x)
{
    const struct tri_program *p = x->program;

    if (p->arena_bytes[TRI_ARENA_STEP] > 0)
        memset(x->memory->base[TRI_ARENA_STEP], 0xff, p->arena_bytes[TRI_ARENA_STEP]);
    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_op *op = &p->graph->op[p->instr[i].op];

        if (p->instr[i].kernel == TRI_NONE)
            continue;
        for (int o = 0; o < op->nout; o++)
            if (op->out[o] != TRI_NONE && p->place[op->out[o]].arena == TRI_ARENA_EXCHANGE)
                memset(tri_exec_address(x, op->out[o]), 0xff,
                       tri_value_bytes(&p->graph->value[op->out[o]]));
    }
}

tri_status tri_exec_run(struct tri_exec *x)
{
    struct tri_exec_stream *s = &x->stream[TRI_STREAM_COMPUTE];
    int64_t begin = tri_now_ns();

    if (x->device != NULL)
        return tri_exec_device_run(x);
    if (tri_exec_failed(x))
        return tri_exec_take_failure(x);
    x->times = (struct tri_exec_times){0};
    x->steps++;
    tri_counter_set(&x->go, x->steps);
    for (uint32_t i = 0; i < s->count && !tri_exec_failed(x); i++) {
        tri_status st = run_item(x, &s->item[i]);

        if (st != TRI_OK)
            tri_exec_fail(x, st);
    }
    tri_counter_set(&s->done, tri_exec_mark(x, TRI_STREAM_COMPUTE, x->steps, s->count));
    for (int t = TRI_STREAM_INTRA; t < TRI_STREAM_COUNT && !tri_exec_failed(x); t++) {
        tri_status st = wait_for(x, t, x->stream[t].count);

        if (st != TRI_OK)
            tri_exec_fail(x, st);
    }
    x->times.total_ns = tri_now_ns() - begin;
    x->times.compute_ns = x->times.total_ns - x->times.wait_ns;
    if (tri_exec_failed(x))
        return tri_exec_take_failure(x);
    if (x->poison)
        poison_memory(x);
    return TRI_OK;
}

void tri_exec_times(const struct tri_exec *x, struct tri_exec_times *out)
{
    *out = x->times;
}

void tri_exec_trace(struct tri_exec *x, struct tri_exec_span *span)
{
    x->span = span;
    for (int32_t i = 0; span != NULL && i < x->program->ninstr; i++)
        span[i] = (struct tri_exec_span){.instr = i};
    if (span != NULL && x->device != NULL)
        tri_exec_device_trace(x);
}

void tri_exec_jitter(struct tri_exec *x, uint64_t seed, int max_us)
{
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        x->stream[t].jitter =
            (struct tri_exec_jitter){.state = tri_mix64(seed + (uint64_t)t), .max_us = max_us};
}

void tri_exec_poison(struct tri_exec *x, bool on)
{
    x->poison = on;
}
