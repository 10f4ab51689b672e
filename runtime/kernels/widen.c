/* See widen.h. Scratch holds one f32 copy of each 16-bit argument and then the scratch of the inner
 * kernel; a running sum and the output that it must share memory with share one copy. */
#include "runtime/kernels/widen.h"

#include "runtime/core/memory.h"

#define MAX_ARGS 16
#define DIRECT   SIZE_MAX /* offset of an argument that is handed on as it is */

struct side {
    int n;
    size_t offset[MAX_ARGS];           /* of the f32 copy in scratch, or DIRECT */
    struct tri_kernel *cast[MAX_ARGS]; /* widens an input, narrows an output */
};

struct widened {
    struct tri_kernel base;
    struct tri_kernel *inner;
    struct side in, out;
    size_t inner_scratch;
};

static bool is_half(const struct tri_arg *a)
{
    return a->shape.ndim >= 0 && tri_dtype_is_half(a->dtype);
}

bool tri_kernel_needs_widening(const struct tri_kernel_desc *d)
{
    if (d->kind == TRI_OP_ADD || d->kind == TRI_OP_CAST || d->kind == TRI_OP_SUMSQ ||
        d->kind == TRI_OP_INJECT || d->kind == TRI_OP_MULTI_SGD || d->kind == TRI_OP_MULTI_ADAMW)
        return false;
    for (int i = 0; i < d->nin; i++)
        if (is_half(&d->in[i]))
            return true;
    for (int o = 0; o < d->nout; o++)
        if (is_half(&d->out[o]))
            return true;
    return false;
}

static void destroy_widened(struct tri_kernel *kernel)
{
    struct widened *k = (struct widened *)kernel;

    if (k == NULL)
        return;
    for (int i = 0; i < MAX_ARGS; i++) {
        if (k->in.cast[i] != NULL)
            k->in.cast[i]->ops->destroy(k->in.cast[i]);
        if (k->out.cast[i] != NULL)
            k->out.cast[i]->ops->destroy(k->out.cast[i]);
    }
    if (k->inner != NULL)
        k->inner->ops->destroy(k->inner);
    tri_free(k);
}

static tri_status run_cast(const struct tri_kernel *cast, void *from, void *to, void *stream)
{
    struct tri_kernel_args args = {.in = &from, .out = &to, .stream = stream};

    return cast->ops->run(cast, &args);
}

static tri_status run_widened(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct widened *k = (const struct widened *)kernel;
    unsigned char *scratch = args->scratch;
    void *in[MAX_ARGS], *out[MAX_ARGS];
    struct tri_kernel_args inner = {
        .in = in, .out = out, .grain = args->grain, .stream = args->stream};

    for (int i = 0; i < k->in.n; i++) {
        in[i] = k->in.offset[i] == DIRECT ? args->in[i] : scratch + k->in.offset[i];
        if (k->in.cast[i] != NULL)
            TRI_TRY(run_cast(k->in.cast[i], args->in[i], in[i], args->stream));
    }
    for (int o = 0; o < k->out.n; o++)
        out[o] = k->out.offset[o] == DIRECT ? args->out[o] : scratch + k->out.offset[o];
    inner.scratch = scratch == NULL ? NULL : scratch + k->inner_scratch;
    TRI_TRY(k->inner->ops->run(k->inner, &inner));
    for (int o = 0; o < k->out.n; o++)
        if (k->out.cast[o] != NULL)
            TRI_TRY(run_cast(k->out.cast[o], out[o], args->out[o], args->stream));
    return TRI_OK;
}

static tri_status prepare_widened(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return tri_kernel_prepare_widened(tri_kernels_ref, d, out);
}

static const struct tri_kernel_ops ops_widened = {
    .name = "widened", .prepare = prepare_widened, .run = run_widened, .destroy = destroy_widened};

/* of: the kernel around which arguments are cast. */
static tri_status prepare_cast(const struct tri_kernel_ops *const *table,
                               const struct tri_kernel_desc *of, const struct tri_arg *from,
                               enum tri_dtype to, struct tri_kernel **out)
{
    struct tri_arg result = {.dtype = to, .shape = from->shape};
    struct tri_kernel_desc d = {.kind = TRI_OP_CAST,
                                .nin = 1,
                                .nout = 1,
                                .in = from,
                                .out = &result,
                                .nthreads = of->nthreads,
                                .device = of->device};

    d.attrs.cast.to = to;
    return tri_kernel_prepare(table, &d, out);
}

static size_t reserve(struct widened *k, const struct tri_arg *a)
{
    size_t at = k->base.scratch_bytes;

    k->base.scratch_bytes +=
        tri_round_up((size_t)tri_shape_count(&a->shape) * sizeof(float), TRI_ALIGN_BYTES);
    return at;
}

/* Copies of the arguments with f32 for each 16-bit one, and what leads to and from them. */
static tri_status plan_arguments(const struct tri_kernel_ops *const *table,
                                 const struct tri_kernel_desc *d, struct widened *k,
                                 struct tri_arg *in, struct tri_arg *out)
{
    int acc = tri_op_info(d->kind)->acc_in;

    k->in.n = d->nin;
    k->out.n = d->nout;
    for (int i = 0; i < d->nin; i++) {
        in[i] = d->in[i];
        k->in.offset[i] = DIRECT;
        if (!is_half(&d->in[i]))
            continue;
        in[i].dtype = TRI_F32;
        k->in.offset[i] = reserve(k, &in[i]);
        TRI_TRY(prepare_cast(table, d, &d->in[i], TRI_F32, &k->in.cast[i]));
    }
    for (int o = 0; o < d->nout; o++) {
        bool summed = o == 0 && acc > 0 && acc < d->nin && d->in[acc].shape.ndim >= 0;

        out[o] = d->out[o];
        k->out.offset[o] = DIRECT;
        if (!is_half(&d->out[o]))
            continue;
        out[o].dtype = TRI_F32;
        k->out.offset[o] = summed ? k->in.offset[acc] : reserve(k, &out[o]);
        TRI_TRY(prepare_cast(table, d, &out[o], d->out[o].dtype, &k->out.cast[o]));
    }
    return TRI_OK;
}

tri_status tri_kernel_prepare_widened(const struct tri_kernel_ops *const *table,
                                      const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct widened *k = tri_calloc(1, sizeof(*k), "kernel");
    struct tri_arg in[MAX_ARGS], result[MAX_ARGS];
    struct tri_kernel_desc inner = *d;
    tri_status st;

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", tri_op_name(d->kind));
    TRI_ASSERT(d->nin <= MAX_ARGS && d->nout <= MAX_ARGS);
    k->base.ops = &ops_widened;
    TRI_TRY_GOTO(st, plan_arguments(table, d, k, in, result), destroy);
    inner.in = in;
    inner.out = result;
    TRI_TRY_GOTO(st, tri_kernel_prepare(table, &inner, &k->inner), destroy);
    k->inner_scratch = k->base.scratch_bytes;
    k->base.scratch_bytes += k->inner->scratch_bytes;
    *out = &k->base;
    return TRI_OK;

destroy:
    destroy_widened(&k->base);
    return st;
}
