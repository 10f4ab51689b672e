#include "tests/unit/kernels/interp.h"

#include "runtime/core/memory.h"
#include "runtime/kernels/kernels.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX_ARGS 16

void interp_init(struct interp *x, const struct tri_graph *g)
{
    x->g = g;
    x->buf = tri_calloc((size_t)g->nvalue, sizeof(*x->buf), "test");
    cr_assert_not_null(x->buf);
    for (int i = 0; i < g->nvalue; i++) {
        size_t bytes = tri_value_bytes(&g->value[i]);

        x->buf[i] = tri_alloc_aligned(bytes + 1, "test");
        cr_assert_not_null(x->buf[i]);
        memset(x->buf[i], 0, bytes);
    }
}

void interp_finish(struct interp *x)
{
    for (int i = 0; i < x->g->nvalue; i++)
        tri_free(x->buf[i]);
    tri_free(x->buf);
}

/* Arguments of an op. An output that must lie in an input's memory begins as a copy of it, and the
 * kernel sees that copy as the input too. */
static void gather(struct interp *x, const struct tri_op *op, struct tri_arg *arg_in,
                   struct tri_arg *arg_out, void **in, void **out)
{
    const struct tri_op_info *info = tri_op_info(op->kind);

    for (int i = 0; i < op->nin; i++) {
        arg_in[i].shape.ndim = TRI_ARG_ABSENT;
        if (op->in[i] == TRI_NONE)
            continue;
        arg_in[i] = (struct tri_arg){x->g->value[op->in[i]].dtype, x->g->value[op->in[i]].shape};
        in[i] = x->buf[op->in[i]];
    }
    for (int o = 0; o < op->nout; o++) {
        int from = 0;

        arg_out[o].shape.ndim = TRI_ARG_ABSENT;
        if (op->out[o] == TRI_NONE)
            continue;
        arg_out[o] = (struct tri_arg){x->g->value[op->out[o]].dtype, x->g->value[op->out[o]].shape};
        out[o] = x->buf[op->out[o]];
        if (info->alias && info->alias(x->g, op, o, &from) == TRI_ALIAS_MUST) {
            memcpy(out[o], in[from], tri_value_bytes(&x->g->value[op->out[o]]));
            in[from] = out[o];
        }
    }
}

static void run_op(struct interp *x, const struct tri_op *op)
{
    struct tri_arg arg_in[MAX_ARGS] = {0}, arg_out[MAX_ARGS] = {0};
    void *in[MAX_ARGS] = {0}, *out[MAX_ARGS] = {0};
    struct tri_kernel_desc d = {.kind = op->kind, .attrs = op->attrs, .nthreads = 1};
    struct tri_kernel_args args = {.in = in, .out = out};
    struct tri_kernel *k;

    cr_assert(op->nin <= MAX_ARGS && op->nout <= MAX_ARGS);
    cr_assert(op->kind != TRI_OP_PACK && op->kind != TRI_OP_VIEW && op->kind != TRI_OP_ALLREDUCE);
    gather(x, op, arg_in, arg_out, in, out);
    if (op->kind == TRI_OP_RESHAPE) /* the copy made above is all */
        return;
    d.nin = op->nin;
    d.nout = op->nout;
    d.in = arg_in;
    d.out = arg_out;
    cr_assert_eq(tri_kernels_ref[op->kind]->prepare(&d, &k), TRI_OK);
    args.scratch = tri_alloc_aligned(k->scratch_bytes + 1, "test");
    cr_assert_eq(k->ops->run(k, &args), TRI_OK, "%s: %s", k->ops->name, tri_error_text());
    tri_free(args.scratch);
    k->ops->destroy(k);
}

void interp_run(struct interp *x, int first, int last)
{
    for (int i = first; i < last; i++)
        run_op(x, &x->g->op[i]);
}
