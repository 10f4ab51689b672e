/* Sharing of prepared kernels: an unrolled step repeats each signature once a grain, and preparing
 * is slow. */
#include "runtime/plan/signature.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <string.h>

struct tri_signature_slot {
    const unsigned char *bytes; /* NULL: free */
    size_t length;
    int32_t kernel;
};

/* dtype, ndim and up to TRI_MAX_DIMS sizes of an argument. */
enum { ARG_BYTES = 8 + 8 * TRI_MAX_DIMS, HEAD_BYTES = 16 };

static size_t signature_capacity(const struct tri_signatures *s)
{
    return tri_round_up(HEAD_BYTES + sizeof(struct tri_attrs) + (size_t)s->max_args * ARG_BYTES, 8);
}

tri_status tri_signatures_init(struct tri_signatures *s, struct tri_program *program,
                               const struct tri_kernel_ops *const *table, struct tri_device *device,
                               int nthreads)
{
    const struct tri_graph *g = program->graph;

    s->program = program;
    s->table = table;
    s->device = device;
    s->nthreads = nthreads;
    s->cap = 256;
    for (int o = 0; o < g->nop; o++) {
        int n = g->op[o].nin + g->op[o].nout;

        if (!tri_op_info(g->op[o].kind)->no_kernel && n > s->max_args)
            s->max_args = n;
    }
    s->slot = tri_calloc(s->cap, sizeof(*s->slot), "signatures");
    s->buffer = tri_calloc(1, signature_capacity(s), "signatures");
    s->arg = tri_calloc((size_t)s->max_args + 1, sizeof(*s->arg), "signatures");
    if (s->slot == NULL || s->buffer == NULL || s->arg == NULL)
        return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate the table of signatures");
    return TRI_OK;
}

void tri_signatures_finish(struct tri_signatures *s)
{
    tri_pool_finish(&s->pool);
    tri_free(s->slot);
    tri_free(s->buffer);
    tri_free(s->arg);
}

/* Argument of value v, with zeros wherever a shape says nothing. */
static struct tri_arg make_arg(const struct tri_graph *g, tri_vid v)
{
    struct tri_arg a = {0};

    if (v == TRI_NONE) {
        a.shape.ndim = TRI_ARG_ABSENT;
        return a;
    }
    a.dtype = g->value[v].dtype;
    a.shape.ndim = g->value[v].shape.ndim;
    for (int d = 0; d < a.shape.ndim; d++)
        a.shape.dim[d] = g->value[v].shape.dim[d];
    return a;
}

static unsigned char *put(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

/* Fills s->arg and s->buffer for op; returns the length, a multiple of 8. */
static size_t write_signature(struct tri_signatures *s, const struct tri_op *op)
{
    const struct tri_graph *g = s->program->graph;
    int32_t head[HEAD_BYTES / 4] = {(int32_t)op->kind, op->nin, op->nout, 0};
    unsigned char *at = put(s->buffer, head, sizeof(head));
    size_t length;

    at = put(at, &op->attrs, sizeof(op->attrs));
    for (int i = 0; i < op->nin + op->nout; i++) {
        struct tri_arg *a = &s->arg[i];
        int32_t type[2];

        *a = make_arg(g, i < op->nin ? op->in[i] : op->out[i - op->nin]);
        type[0] = (int32_t)a->dtype;
        type[1] = a->shape.ndim;
        at = put(at, type, sizeof(type));
        if (a->shape.ndim > 0)
            at = put(at, a->shape.dim, (size_t)a->shape.ndim * sizeof(a->shape.dim[0]));
    }
    length = tri_round_up((size_t)(at - s->buffer), 8);
    memset(at, 0, length - (size_t)(at - s->buffer));
    return length;
}

static uint64_t hash_bytes(const unsigned char *bytes, size_t length)
{
    uint64_t h = length, word;

    for (size_t i = 0; i < length; i += 8) {
        memcpy(&word, bytes + i, 8);
        h = tri_mix64(h ^ word);
    }
    return h;
}

static struct tri_signature_slot *find_slot(struct tri_signature_slot *slot, size_t cap,
                                            const unsigned char *bytes, size_t length)
{
    size_t i = (size_t)hash_bytes(bytes, length) & (cap - 1);

    while (slot[i].bytes != NULL &&
           (slot[i].length != length || memcmp(slot[i].bytes, bytes, length) != 0))
        i = (i + 1) & (cap - 1);
    return &slot[i];
}

/* Room for one more kernel, in the table of slots and in the program. */
static tri_status reserve(struct tri_signatures *s)
{
    struct tri_program *p = s->program;

    if (p->nkernel == s->kernel_cap) {
        int cap = s->kernel_cap == 0 ? 64 : 2 * s->kernel_cap;
        struct tri_kernel **kernel =
            tri_realloc(p->kernel, (size_t)cap, sizeof(struct tri_kernel *), "kernels");

        if (kernel == NULL)
            return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate %d kernels", cap);
        p->kernel = kernel;
        s->kernel_cap = cap;
    }
    if (2 * ((size_t)p->nkernel + 1) > s->cap) {
        size_t cap = 2 * s->cap;
        struct tri_signature_slot *slot = tri_calloc(cap, sizeof(*slot), "signatures");

        if (slot == NULL)
            return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate the table of signatures");
        for (size_t i = 0; i < s->cap; i++)
            if (s->slot[i].bytes != NULL)
                *find_slot(slot, cap, s->slot[i].bytes, s->slot[i].length) = s->slot[i];
        tri_free(s->slot);
        s->slot = slot;
        s->cap = cap;
    }
    return TRI_OK;
}

static tri_status prepare(struct tri_signatures *s, const struct tri_op *op,
                          struct tri_kernel **out)
{
    struct tri_kernel_desc d = {
        .kind = op->kind,
        .attrs = op->attrs,
        .nin = op->nin,
        .nout = op->nout,
        .in = s->arg,
        .out = s->arg + op->nin,
        .nthreads = tri_op_info(op->kind)->beside_comm ? 1 : s->nthreads,
        .device = s->device,
    };
    tri_status st = tri_kernel_prepare(s->table, &d, out);
    char text[512];

    if (st == TRI_OK)
        return TRI_OK;
    strncpy(text, tri_error_text(), sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return tri_fail(st, "op \"%s\" (%s): %s", op->name != NULL ? op->name : "",
                    tri_op_name(op->kind), text);
}

tri_status tri_signatures_kernel(struct tri_signatures *s, const struct tri_op *op, int32_t *kernel)
{
    size_t length = write_signature(s, op);
    struct tri_signature_slot *slot = find_slot(s->slot, s->cap, s->buffer, length);
    struct tri_program *p = s->program;
    unsigned char *bytes;

    if (slot->bytes == NULL) {
        TRI_TRY(reserve(s));
        bytes = tri_pool_alloc(&s->pool, length);
        if (bytes == NULL)
            return tri_fail(TRI_ERR_NOMEM, "schedule: cannot allocate a signature");
        TRI_TRY(prepare(s, op, &p->kernel[p->nkernel]));
        memcpy(bytes, s->buffer, length);
        slot = find_slot(s->slot, s->cap, bytes, length);
        *slot = (struct tri_signature_slot){.bytes = bytes, .length = length, .kernel = p->nkernel};
        p->nkernel++;
    }
    *kernel = slot->kernel;
    return TRI_OK;
}
