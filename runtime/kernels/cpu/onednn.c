/* Lists of oneDNN primitives: building, binding, running. */
#include "runtime/kernels/cpu/onednn.h"

#include "runtime/core/memory.h"

#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

static void engine_init(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

dnnl_engine_t tri_onednn_engine(void)
{
    pthread_once(&engine_once, engine_init);
    return engine;
}

/* Remembers the first failure; true while there is none. */
static bool good(struct tri_onednn_kernel *k, dnnl_status_t st)
{
    if (k->status == dnnl_success)
        k->status = st;
    return k->status == dnnl_success;
}

tri_status tri_onednn_begin(const struct tri_kernel_ops *ops, int nthreads,
                            struct tri_onednn_kernel **out)
{
    struct tri_onednn_kernel *k = tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"%s\": out of memory", ops->name);
    k->base.ops = ops;
    k->nthreads = nthreads > 0 ? nthreads : 1;
    k->caller_threads = omp_get_max_threads();
    omp_set_num_threads(k->nthreads);
    if (tri_onednn_engine() == NULL)
        k->status = dnnl_runtime_error;
    else
        good(k, dnnl_stream_create(&k->stream, engine, dnnl_stream_default_flags));
    *out = k;
    return TRI_OK;
}

tri_status tri_onednn_finish(struct tri_onednn_kernel *k, struct tri_kernel **out)
{
    dnnl_status_t st = k->status;

    omp_set_num_threads(k->caller_threads);
    if (st == dnnl_success) {
        *out = &k->base;
        return TRI_OK;
    }
    tri_onednn_destroy(&k->base);
    return st == dnnl_out_of_memory ? tri_fail(TRI_ERR_NOMEM, "onednn: out of memory")
                                    : TRI_ERR_UNSUPPORTED;
}

int tri_onednn_add_memory(struct tri_onednn_kernel *k, enum tri_onednn_place place, int index,
                          const dnnl_memory_desc_t *md)
{
    struct tri_onednn_memory *m = &k->memory[k->nmemory];

    if (k->status != dnnl_success)
        return 0;
    TRI_ASSERT(k->nmemory < TRI_ONEDNN_MEMORIES);
    m->place = place;
    m->at = (size_t)index;
    if (place == TRI_ONEDNN_SCRATCH) {
        m->at = k->base.scratch_bytes;
        k->base.scratch_bytes += tri_round_up(dnnl_memory_desc_get_size(md), TRI_ALIGN_BYTES);
    }
    if (!good(k, dnnl_memory_create(&m->memory, md, engine, DNNL_MEMORY_NONE)))
        return 0;
    return k->nmemory++;
}

dnnl_primitive_desc_t tri_onednn_describe(struct tri_onednn_kernel *k, const_dnnl_op_desc_t op,
                                          const_dnnl_primitive_desc_t hint,
                                          dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t pd = NULL;

    if (attr == NULL)
        good(k, dnnl_primitive_attr_create(&attr));
    if (k->status == dnnl_success)
        good(k, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (k->status == dnnl_success)
        good(k, dnnl_primitive_desc_create(&pd, op, attr, engine, hint));
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static void add_arg(struct tri_onednn_kernel *k, struct tri_onednn_step *s, int arg, int memory)
{
    TRI_ASSERT(s->narg < TRI_ONEDNN_ARGS);
    s->arg[s->narg].arg = arg;
    s->arg[s->narg++].memory = k->memory[memory].memory;
}

void tri_onednn_add_step(struct tri_onednn_kernel *k, dnnl_primitive_desc_t pd,
                         const struct tri_onednn_arg *args, int n)
{
    struct tri_onednn_step *s = &k->step[k->nstep];
    const dnnl_memory_desc_t *pad;

    if (k->status != dnnl_success || pd == NULL) {
        dnnl_primitive_desc_destroy(pd);
        return;
    }
    TRI_ASSERT(k->nstep < TRI_ONEDNN_STEPS);
    for (int i = 0; i < n; i++)
        add_arg(k, s, args[i].arg, args[i].memory);
    pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (pad != NULL && dnnl_memory_desc_get_size(pad) > 0)
        add_arg(k, s, DNNL_ARG_SCRATCHPAD, tri_onednn_add_memory(k, TRI_ONEDNN_SCRATCH, 0, pad));
    if (good(k, dnnl_primitive_create(&s->primitive, pd)))
        k->nstep++;
    dnnl_primitive_desc_destroy(pd);
}

static const dnnl_memory_desc_t *md_of(const struct tri_onednn_kernel *k, int memory)
{
    const dnnl_memory_desc_t *md = NULL;

    dnnl_memory_get_memory_desc(k->memory[memory].memory, &md);
    return md;
}

void tri_onednn_add_reorder(struct tri_onednn_kernel *k, int from, int to, bool accumulate)
{
    const struct tri_onednn_arg args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_post_ops_t post = NULL;

    if (k->status != dnnl_success)
        return;
    good(k, dnnl_primitive_attr_create(&attr));
    good(k, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (accumulate) {
        good(k, dnnl_post_ops_create(&post));
        good(k, dnnl_post_ops_append_sum(post, 1.0f));
        good(k, dnnl_primitive_attr_set_post_ops(attr, post));
        dnnl_post_ops_destroy(post);
    }
    good(k, dnnl_reorder_primitive_desc_create(&pd, md_of(k, from), engine, md_of(k, to), engine,
                                               attr));
    dnnl_primitive_attr_destroy(attr);
    tri_onednn_add_step(k, pd, args, 2);
}

int tri_onednn_add_converted(struct tri_onednn_kernel *k, int plain, const dnnl_memory_desc_t *want)
{
    int converted;

    if (k->status != dnnl_success || dnnl_memory_desc_equal(md_of(k, plain), want))
        return plain;
    converted = tri_onednn_add_memory(k, TRI_ONEDNN_SCRATCH, 0, want);
    tri_onednn_add_reorder(k, plain, converted, false);
    return converted;
}

static void *address(const struct tri_onednn_memory *m, const struct tri_kernel_args *a)
{
    switch (m->place) {
    case TRI_ONEDNN_IN:
        return a->in[m->at];
    case TRI_ONEDNN_OUT:
        return a->out[m->at];
    case TRI_ONEDNN_SCRATCH:
        break;
    }
    return (unsigned char *)a->scratch + m->at;
}

tri_status tri_onednn_run(const struct tri_kernel *kernel, const struct tri_kernel_args *a)
{
    const struct tri_onednn_kernel *k = (const struct tri_onednn_kernel *)kernel;
    dnnl_status_t st = dnnl_success;
    int caller_threads = omp_get_max_threads();

    omp_set_num_threads(k->nthreads);
    for (int i = 0; i < k->nmemory && st == dnnl_success; i++)
        st = dnnl_memory_set_data_handle(k->memory[i].memory, address(&k->memory[i], a));
    for (int i = 0; i < k->nstep && st == dnnl_success; i++)
        st = dnnl_primitive_execute(k->step[i].primitive, k->stream, k->step[i].narg,
                                    k->step[i].arg);
    if (st == dnnl_success)
        st = dnnl_stream_wait(k->stream);
    omp_set_num_threads(caller_threads);
    return st == dnnl_success ? TRI_OK
                              : tri_fail(TRI_ERR_INTERNAL, "onednn: \"%s\" failed with code %d",
                                         k->base.ops->name, (int)st);
}

void tri_onednn_destroy(struct tri_kernel *kernel)
{
    struct tri_onednn_kernel *k = (struct tri_onednn_kernel *)kernel;

    if (k == NULL)
        return;
    for (int i = 0; i < k->nstep; i++)
        dnnl_primitive_destroy(k->step[i].primitive);
    for (int i = 0; i < k->nmemory; i++)
        dnnl_memory_destroy(k->memory[i].memory);
    if (k->stream != NULL)
        dnnl_stream_destroy(k->stream);
    tri_free(k);
}

dnnl_memory_desc_t tri_onednn_md(int ndim, const int64_t *dim, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims;

    for (int i = 0; i < ndim; i++)
        dims[i] = dim[i];
    if (dnnl_memory_desc_init_by_tag(&md, ndim, dims, dnnl_f32, tag) != dnnl_success)
        memset(&md, 0, sizeof(md));
    return md;
}

void tri_onednn_nchw(const struct tri_shape *nhwc, int64_t dim[4])
{
    dim[0] = nhwc->dim[0];
    dim[1] = nhwc->dim[3];
    dim[2] = nhwc->dim[1];
    dim[3] = nhwc->dim[2];
}

void tri_kernels_cpu_library(char *out, size_t bytes)
{
    const dnnl_version_t *v = dnnl_version();

    (void)snprintf(out, bytes, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}
