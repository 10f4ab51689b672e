/* Products with oneDNN. Class: 4 ulp of the sum of |a||b|, f32; the order of a sum is oneDNN's,
 * fixed for a shape and a number of threads.
 *
 * Two forms, each where it was measured faster (GPT-2 124M, 1024 rows, 2 threads): the matmul
 * primitive fuses the bias and is ahead for y = x w^T of plain x; dnnl_sgemm is ahead for weight
 * gradients (transposed a, running sum) and for the gradient of the logits (50257 terms a sum).
 * bf16 operands take the primitive where the processor has AVX-512 (f32 sums, one rounding), else,
 * and f16 always, matmul_tiled.c. */
#include "runtime/kernels/cpu/cpu_kernels.h"
#include "runtime/kernels/cpu/onednn.h"

#include "runtime/core/memory.h"

#include <omp.h>
#include <string.h>

/* The product y[m][n] = op(a) op(b) over `depth` terms. */
struct product {
    int64_t m, n, depth, lda, ldb;
    bool ta, tb, bias, acc;
    dnnl_data_type_t in, out; /* of a and b; of y and acc */
    int nthreads;
};

static bool present(const struct tri_arg *arg, int i, int n)
{
    return i < n && arg[i].shape.ndim >= 0;
}

static struct product product_of(const struct tri_kernel_desc *d)
{
    int64_t ar = tri_shape_rows(&d->in[0].shape), ac = tri_shape_cols(&d->in[0].shape);
    int64_t br = tri_shape_rows(&d->in[1].shape), bc = tri_shape_cols(&d->in[1].shape);
    struct product p = {.lda = ac, .ldb = bc, .ta = d->attrs.matmul.ta, .tb = d->attrs.matmul.tb};

    p.nthreads = d->nthreads > 0 ? d->nthreads : 1;
    p.m = p.ta ? ac : ar;
    p.depth = p.ta ? ar : ac;
    p.n = p.tb ? br : bc;
    p.bias = present(d->in, 2, d->nin);
    p.acc = present(d->in, 3, d->nin);
    p.in = d->in[0].dtype == TRI_BF16 ? dnnl_bf16 : dnnl_f32;
    p.out = d->out[0].dtype == TRI_BF16 ? dnnl_bf16 : dnnl_f32;
    return p;
}

/* Row-major matrix, or its transpose, as a strided descriptor of rows x cols. */
static dnnl_memory_desc_t matrix_md(dnnl_data_type_t type, int64_t rows, int64_t cols, int64_t ld,
                                    bool transposed)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : ld, transposed ? ld : 1};

    if (dnnl_memory_desc_init_by_strides(&md, 2, dims, type, strides) != dnnl_success)
        memset(&md, 0, sizeof(md));
    return md;
}

static tri_status prepare_primitive(const struct product *p, struct tri_kernel **out)
{
    dnnl_memory_desc_t a = matrix_md(p->in, p->m, p->depth, p->lda, p->ta);
    dnnl_memory_desc_t b = matrix_md(p->in, p->depth, p->n, p->ldb, p->tb);
    dnnl_memory_desc_t c = matrix_md(p->out, p->m, p->n, p->n, false);
    dnnl_memory_desc_t bias = matrix_md(dnnl_f32, 1, p->n, p->n, false);
    struct tri_onednn_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 1}, {DNNL_ARG_DST, 2}};
    struct tri_onednn_kernel *k;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_post_ops_t post;

    TRI_TRY(tri_onednn_begin(&tri_kernel_matmul_onednn, p->nthreads, &k));
    args[0].memory = tri_onednn_add_memory(k, TRI_ONEDNN_IN, 0, &a);
    args[1].memory = tri_onednn_add_memory(k, TRI_ONEDNN_IN, 1, &b);
    args[2].memory = tri_onednn_add_memory(k, TRI_ONEDNN_OUT, 0, &c);
    if (p->bias) {
        args[3].arg = DNNL_ARG_BIAS;
        args[3].memory = tri_onednn_add_memory(k, TRI_ONEDNN_IN, 2, &bias);
    }
    if (p->acc && dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_post_ops_create(&post) == dnnl_success) {
        dnnl_post_ops_append_sum(post, 1.0f);
        dnnl_primitive_attr_set_post_ops(attr, post);
        dnnl_post_ops_destroy(post);
    }
    if (dnnl_matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c) != dnnl_success)
        k->status = dnnl_unimplemented;
    tri_onednn_add_step(k, tri_onednn_describe(k, &desc, NULL, attr), args, p->bias ? 4 : 3);
    return tri_onednn_finish(k, out);
}

struct sgemm_kernel {
    struct tri_kernel base;
    struct product p;
};

static tri_status run_sgemm(const struct tri_kernel *k, const struct tri_kernel_args *args)
{
    const struct product *p = &((const struct sgemm_kernel *)k)->p;
    int caller_threads = omp_get_max_threads();
    dnnl_status_t st;

    omp_set_num_threads(p->nthreads);
    st = dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->depth, 1.0f, args->in[0],
                    p->lda, args->in[1], p->ldb, p->acc ? 1.0f : 0.0f, args->out[0], p->n);
    omp_set_num_threads(caller_threads);
    if (st != dnnl_success)
        return tri_fail(TRI_ERR_INTERNAL, "onednn: sgemm failed with code %d", (int)st);
    return TRI_OK;
}

static void destroy_sgemm(struct tri_kernel *k)
{
    tri_free(k);
}

static tri_status prepare_matmul(const struct tri_kernel_desc *d, struct tri_kernel **out);

static const struct tri_kernel_ops ops_sgemm = {
    .name = "matmul_sgemm", .prepare = prepare_matmul, .run = run_sgemm, .destroy = destroy_sgemm};

static tri_status prepare_sgemm(const struct product *p, struct tri_kernel **out)
{
    struct sgemm_kernel *k = tri_calloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"matmul_sgemm\": out of memory");
    k->base.ops = &ops_sgemm;
    k->p = *p;
    *out = &k->base;
    return TRI_OK;
}

static tri_status prepare_matmul(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct product p = product_of(d);

    if (p.m == 0 || p.n == 0 || p.depth == 0)
        return TRI_ERR_UNSUPPORTED;
    if (tri_dtype_is_half(d->in[0].dtype)) {
        tri_status st = TRI_ERR_UNSUPPORTED;

        if (d->in[0].dtype == TRI_BF16 && tri_cpu_isa() == TRI_ISA_AVX512)
            st = prepare_primitive(&p, out);
        return st == TRI_ERR_UNSUPPORTED ? tri_matmul_tiled_prepare(d, out) : st;
    }
    if (p.bias || (!p.ta && p.tb))
        return prepare_primitive(&p, out);
    return prepare_sgemm(&p, out);
}

const struct tri_kernel_ops tri_kernel_matmul_onednn = {.name = "matmul_onednn",
                                                        .prepare = prepare_matmul,
                                                        .run = tri_onednn_run,
                                                        .destroy = tri_onednn_destroy};
