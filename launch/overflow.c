#include "launch/overflow.h"

#include "amp/overflow_pass.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <string.h>

#define FIRST   (-24) /* below it f16 has nothing */
#define LAST    16    /* from it on f16 is infinite */
#define WIDTH   8     /* powers of two in a bin */
#define NBINS   ((LAST - FIRST) / WIDTH + 2)
#define NOTHING INT64_MAX

struct histogram {
    int64_t zero, bad;  /* bad: infinite or NaN */
    int64_t bin[NBINS]; /* below 2^FIRST, WIDTH powers each, from 2^LAST on */
};

static void count(struct histogram *h, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int e, at;

        if (!isfinite(x[i])) {
            h->bad++;
            continue;
        }
        if (x[i] == 0) {
            h->zero++;
            continue;
        }
        (void)frexpf(x[i], &e); /* 2^(e-1) <= |x| < 2^e */
        e--;
        at = e < FIRST ? 0 : 1 + (e - FIRST) / WIDTH;
        h->bin[at < NBINS ? at : NBINS - 1]++;
    }
}

static void print(const struct histogram *h, struct tri_text *out)
{
    tri_text_printf(out, "; its elements: %lld not finite, %lld zero", (long long)h->bad,
                    (long long)h->zero);
    for (int i = 0; i < NBINS; i++) {
        int from = FIRST + (i - 1) * WIDTH;

        if (h->bin[i] == 0)
            continue;
        if (i == 0)
            tri_text_printf(out, ", %lld below 2^%d", (long long)h->bin[i], FIRST);
        else if (i == NBINS - 1)
            tri_text_printf(out, ", %lld from 2^%d on", (long long)h->bin[i], LAST);
        else
            tri_text_printf(out, ", %lld in 2^[%d, %d)", (long long)h->bin[i], from, from + WIDTH);
    }
}

/* Parameter of the n-th check in the order of the program, or NULL; *sumsq: its value here. */
static const char *check_at(const struct tri_session *s, int64_t n, double *sumsq)
{
    const struct tri_graph *g = s->now->graph;
    size_t prefix = strlen(TRI_OVERFLOW_PREFIX);

    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];
        const struct tri_value *v = op->kind == TRI_OP_SUMSQ ? &g->value[op->out[0]] : NULL;

        if (v == NULL || v->role != TRI_ROLE_OUTPUT ||
            strncmp(v->name, TRI_OVERFLOW_PREFIX, prefix) != 0 || n-- > 0)
            continue;
        *sumsq = *(const double *)tri_exec_value(s->now_exec, op->out[0]);
        return v->name + prefix;
    }
    return NULL;
}

static tri_status print_elements(const struct tri_session *s, tri_vid v, struct tri_text *out)
{
    const struct tri_value *value = &s->now->graph->value[v];
    struct histogram h = {0};
    float *x = tri_alloc_aligned(tri_value_bytes(value), "a gradient");
    tri_status st;

    if (x == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot copy a gradient of %zu bytes",
                        tri_value_bytes(value));
    st = tri_exec_read(s->now_exec, v, x);
    if (st == TRI_OK) {
        count(&h, x, tri_shape_count(&value->shape));
        print(&h, out);
    }
    tri_free(x);
    return st;
}

/* Inputs of an optimizer's op from one parameter to its gradient; 0: it is another op. */
static int gradient_distance(const struct tri_op *op)
{
    bool multi = op->kind == TRI_OP_MULTI_SGD || op->kind == TRI_OP_MULTI_ADAMW;

    if (multi)
        return op->attrs.optimizer.tensors;
    return op->kind == TRI_OP_SGD || op->kind == TRI_OP_ADAMW ? 1 : 0;
}

/* The summed gradient is where the optimizer read it: after a step nothing has been put there. */
static tri_status print_gradient(const struct tri_session *s, const char *param,
                                 struct tri_text *out)
{
    const struct tri_graph *g = s->now->graph;
    tri_vid v = tri_graph_find(g, param);

    for (int i = 0; i < g->nop; i++) {
        const struct tri_op *op = &g->op[i];
        int distance = gradient_distance(op);

        for (int k = 0; distance > 0 && k + distance < op->nin; k++)
            if (op->in[k] == v)
                return print_elements(s, op->in[k + distance], out);
    }
    return TRI_OK;
}

tri_status tri_overflow_report(const struct tri_session *s, struct tri_comm *comm,
                               struct tri_text *out)
{
    int64_t size = tri_comm_size(comm), first = NOTHING;
    const char *name;
    double sumsq = 0;

    for (int64_t n = 0; first == NOTHING && (name = check_at(s, n, &sumsq)) != NULL; n++)
        if (!isfinite(sumsq))
            first = n * size + tri_comm_rank(comm);
    TRI_TRY(tri_comm_allreduce(comm, &first, 1, TRI_I64, TRI_REDUCE_MIN, false));
    if (first == NOTHING) {
        tri_text_printf(out, "the loss or the sum of the gradients over ranks is not finite");
        return TRI_OK;
    }
    name = check_at(s, first / size, &sumsq);
    tri_text_printf(out, "the gradient of '%s' on rank %lld is not finite", name,
                    (long long)(first % size));
    return print_gradient(s, name, out);
}
