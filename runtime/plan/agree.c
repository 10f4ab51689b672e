/* Agreement of ranks about the order of their collectives, before the first step: a difference
 * would hang or sum unlike tensors. */
#include "runtime/plan/program.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <string.h>

enum { SHOWN_BYTES = 80 };

/* What must be equal; no padding, so that records can travel as bytes. */
struct record {
    int32_t kind, axis, dtype, tree, level, slices;
    int64_t count, slice_first, slice_count;
    uint64_t name_hash;
    char name[SHOWN_BYTES]; /* for messages, cut where longer */
};

static void fill_record(const struct tri_program *p, const struct tri_instr *in, struct record *r)
{
    const struct tri_op *op = &p->graph->op[in->op];
    const struct tri_value *x = &p->graph->value[op->in[0]];
    const char *name = op->name != NULL ? op->name : "";

    r->kind = (int32_t)op->kind;
    r->axis = (int32_t)op->attrs.comm.axis;
    r->tree = op->attrs.comm.fixed_tree;
    r->level = (int32_t)op->attrs.comm.level;
    r->slices = op->attrs.comm.slices;
    r->slice_first = op->attrs.comm.first;
    r->slice_count = op->attrs.comm.count;
    r->dtype = (int32_t)x->dtype;
    r->count = tri_shape_count(&x->shape);
    r->name_hash = tri_hash_name(name);
    strncpy(r->name, name, SHOWN_BYTES - 1);
}

static tri_status compare_records(const struct record *mine, const struct record *first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const struct record *a = &mine[i], *b = &first[i];

        if (memcmp(a, b, sizeof(*a)) == 0)
            continue;
        return tri_fail(TRI_ERR_USAGE,
                        "collective %lld is \"%s\" (%lld of %s), but \"%s\" (%lld of %s) on rank 0",
                        (long long)i + 1, a->name, (long long)a->count,
                        tri_dtype_name((enum tri_dtype)a->dtype), b->name, (long long)b->count,
                        tri_dtype_name((enum tri_dtype)b->dtype));
    }
    return TRI_OK;
}

/* Compares the collectives between nodes, or all others. */
static tri_status agree(const struct tri_program *p, struct tri_comm *comm, bool inter)
{
    tri_status st = TRI_OK;
    int64_t n = 0, count;
    struct record *mine = tri_calloc((size_t)p->ninstr + 1, sizeof(*mine), "agreement");
    struct record *first = NULL;

    if (mine == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "agree: cannot allocate %d records", p->ninstr);
    for (int i = 0; st == TRI_OK && i < p->ninstr; i++)
        if (p->instr[i].kernel == TRI_NONE && (p->instr[i].stream == TRI_STREAM_INTER) == inter)
            fill_record(p, &p->instr[i], &mine[n++]);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_records);
    count = n;
    TRI_TRY_GOTO(st, tri_comm_broadcast(comm, &count, sizeof(count), 0), free_records);
    if (count != n)
        st = tri_fail(TRI_ERR_USAGE, "%lld collectives in a step, but %lld on rank 0", (long long)n,
                      (long long)count);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_records);
    first = tri_calloc((size_t)n + 1, sizeof(*first), "agreement");
    st = first == NULL
             ? tri_fail(TRI_ERR_NOMEM, "agree: cannot allocate %lld records", (long long)n)
             : TRI_OK;
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_records);
    memcpy(first, mine, (size_t)n * sizeof(*first));
    TRI_TRY_GOTO(st, tri_comm_broadcast(comm, first, (size_t)n * sizeof(*first), 0), free_records);
    st = tri_comm_agree(comm, compare_records(mine, first, n));
free_records:
    tri_free(mine);
    tri_free(first);
    return st;
}

tri_status tri_plan_agree(const struct tri_program *p, struct tri_comm *comm,
                          struct tri_comm *inter)
{
    TRI_TRY(agree(p, comm, false));
    return tri_comm_agree(comm, agree(p, inter, true));
}
