/* Values between device and process. */
#include "runtime/exec/exec_device.h"

#include "runtime/core/memory.h"

#include <stdlib.h>

struct entry {
    tri_vid v;
    bool output;
    size_t offset, bytes;
};

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->output != y->output)
        return x->output ? 1 : -1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int list_values(const struct tri_program *p, struct entry *e)
{
    int n = 0;

    for (tri_vid v = 0; v < p->graph->nvalue; v++) {
        enum tri_role role = p->graph->value[v].role;

        if ((role != TRI_ROLE_INPUT && role != TRI_ROLE_OUTPUT) || p->place[v].storage < 0 ||
            p->place[v].arena != TRI_ARENA_PERSISTENT)
            continue;
        e[n++] = (struct entry){.v = v,
                                .output = role == TRI_ROLE_OUTPUT,
                                .offset = p->place[v].offset,
                                .bytes = tri_value_bytes(&p->graph->value[v])};
    }
    qsort(e, (size_t)n, sizeof(*e), compare);
    return n;
}

/* Lays out blocks: a value joins the block before it when only padding lies between. Addresses are
 * offsets from `pinned`, which NULL counts bytes only. */
static size_t lay_out(struct tri_exec *x, const struct entry *e, int n, unsigned char *pinned)
{
    struct tri_exec_io *io = &x->device->io;
    unsigned char *arena = x->memory->base[TRI_ARENA_PERSISTENT];
    size_t used = 0, start = 0, end = 0; /* of the block in the arena */

    io->blocks = io->inputs = 0;
    for (int i = 0; i < n; i++) {
        struct tri_exec_block *b = &io->block[io->blocks - 1];
        bool joins = i > 0 && e[i].output == e[i - 1].output &&
                     e[i].offset < end + TRI_ALIGN_BYTES; /* places are so aligned */

        if (!joins) {
            b = &io->block[io->blocks++];
            io->inputs += !e[i].output;
            start = e[i].offset;
            used = tri_round_up(used, TRI_ALIGN_BYTES);
            b->device = arena + start;
            b->process = pinned + used;
            b->bytes = 0;
        }
        if (e[i].offset + e[i].bytes - start > b->bytes) {
            used += e[i].offset + e[i].bytes - start - b->bytes;
            b->bytes = e[i].offset + e[i].bytes - start;
        }
        end = start + b->bytes;
        io->address[e[i].v] = b->process + (e[i].offset - start);
    }
    return used;
}

tri_status tri_exec_io_create(struct tri_exec *x)
{
    struct tri_exec_io *io = &x->device->io;
    struct tri_device *d = x->device->d;
    size_t nvalue = (size_t)x->program->graph->nvalue, bytes;
    struct entry *e = tri_calloc(nvalue + 1, sizeof(*e), "inputs and outputs");
    static unsigned char nowhere[1];
    void *pinned = NULL;
    tri_status st = TRI_OK;
    int n;

    io->address = tri_calloc(nvalue + 1, sizeof(*io->address), "inputs and outputs");
    io->block = tri_calloc(nvalue + 1, sizeof(*io->block), "inputs and outputs");
    if (e == NULL || io->address == NULL || io->block == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "exec: cannot list %zu values", nvalue);
        goto free_entries;
    }
    n = list_values(x->program, e);
    bytes = lay_out(x, e, n, nowhere);
    if (n > 0)
        TRI_TRY_GOTO(st, d->ops->alloc_host(d, bytes, &pinned), free_entries);
    io->pinned = pinned;
    if (n > 0)
        (void)lay_out(x, e, n, io->pinned);

free_entries:
    tri_free(e);
    return st;
}

void tri_exec_io_destroy(struct tri_exec *x)
{
    struct tri_exec_io *io = &x->device->io;

    x->device->d->ops->free_host(x->device->d, io->pinned);
    tri_free(io->address);
    tri_free(io->block);
}

tri_status tri_exec_io_copy(const struct tri_exec *x, bool outputs)
{
    const struct tri_exec_device *xd = x->device;
    int end = outputs ? xd->io.blocks : xd->io.inputs;

    for (int i = outputs ? xd->io.inputs : 0; i < end; i++) {
        const struct tri_exec_block *b = &xd->io.block[i];
        void *to = outputs ? b->process : b->device, *from = outputs ? b->device : b->process;

        TRI_TRY(xd->d->ops->copy(xd->d, to, from, b->bytes, xd->stream[TRI_STREAM_COMPUTE]));
    }
    return TRI_OK;
}

void *tri_exec_value(const struct tri_exec *x, tri_vid v)
{
    const struct tri_place *place;

    if (x->device == NULL)
        return tri_exec_address(x, v);
    if (tri_exec_address(x, v) == NULL)
        return NULL;
    if (x->device->io.address[v] != NULL)
        return x->device->io.address[v];
    place = &x->program->place[v];
    return place->arena == TRI_ARENA_PERSISTENT ? x->memory->mirror[place->arena] + place->offset
                                                : NULL;
}

static tri_status copy_now(const struct tri_exec *x, void *to, const void *from, size_t bytes)
{
    const struct tri_exec_device *xd = x->device;

    TRI_TRY(xd->d->ops->copy(xd->d, to, from, bytes, xd->stream[TRI_STREAM_COMPUTE]));
    return xd->d->ops->stream_sync(xd->d, xd->stream[TRI_STREAM_COMPUTE]);
}

/* A parameter or a state that the program holds. */
static bool is_mirrored(const struct tri_exec *x, tri_vid v)
{
    return x->device != NULL && x->device->io.address[v] == NULL && tri_exec_value(x, v) != NULL;
}

tri_status tri_exec_pull(const struct tri_exec *x, tri_vid v)
{
    if (!is_mirrored(x, v))
        return TRI_OK;
    return copy_now(x, tri_exec_value(x, v), tri_exec_address(x, v),
                    tri_value_bytes(&x->program->graph->value[v]));
}

tri_status tri_exec_push(const struct tri_exec *x, tri_vid v)
{
    if (!is_mirrored(x, v))
        return TRI_OK;
    return copy_now(x, tri_exec_address(x, v), tri_exec_value(x, v),
                    tri_value_bytes(&x->program->graph->value[v]));
}

tri_status tri_exec_read(const struct tri_exec *x, tri_vid v, void *to)
{
    size_t bytes = tri_value_bytes(&x->program->graph->value[v]);
    struct tri_device *d = x->memory->device;

    if (x->device != NULL)
        return copy_now(x, to, tri_exec_address(x, v), bytes);
    return d->ops->copy(d, to, tri_exec_address(x, v), bytes, NULL);
}
