/* Products with cuBLASLt. Class: 4 ulp of the sum of |a||b|, f32; tf32 rounds operands to 10 bits;
 * 16-bit operands are summed in f32 and rounded once (partial sums are never kept in 16 bits). The
 * order of a sum is that of the algorithm, which is chosen when the kernel is prepared, by shape
 * alone, so that a run repeats (by time where the device has `tune`).
 *
 * cuBLASLt has matrices by columns: our row-major y [m,n] is its y^T [n,m], so that it gets b as
 * its first operand and a as its second, and our bias along n is its bias along rows. The library
 * wants the bias in the type of y: for a 16-bit y it is rounded first, which adds half a unit in
 * the last place of the bias.
 *
 * Rows of 16-bit elements that are no multiple of 16 bytes keep the tensor cores' fast loads away
 * (a vocabulary of 50257, say). In a large product such matrices are copied to and from rows with a
 * gap in scratch, which costs less.
 *
 * GELU and its gradient are epilogues where the library has an algorithm for them; else the product
 * is stored (rounded once more) and elementwise.cu's kernel follows. A product that it has no
 * algorithm for at all is done by product.cu.
 *
 * So is the gradient of a bias: an epilogue of the weight's gradient sums an operand over the depth
 * (BGRADA, BGRADB), in the type of y, f32; else column_sum.cu's kernel follows. The epilogue never
 * adds to what is there: a running total goes through scratch. Its order is the algorithm's, like
 * that of the product: cuBLAS promises equal bits in every run of one version on one kind of GPU,
 * and also beside other streams where cublasLtMatmul gets a workspace of the caller's (its manual,
 * "Results reproducibility"). DGELU_BGRAD, the same sum of a product's result, would round the sum
 * to 16 bits and save nothing: that result is an operand of the next weight's gradient. */
#include "runtime/device/cuda_device.h"
#include "runtime/kernels/cuda/column_sum.cuh"
#include "runtime/kernels/cuda/convert.h"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/product.h"
#include "runtime/kernels/cuda/tune.h"

#define MAX_VARIANTS    8                    /* algorithms that are timed */
#define ROW_ELEMENTS    8                    /* of 16 bits in 16 bytes */
#define MIN_COPIED      128                  /* least side of a product whose rows are copied */
#define WORKSPACE_BYTES ((uint64_t)32 << 20) /* what the library advises for sm_90 */

/* Inputs: a, b, then the bias and acc of FORM_PLAIN, the bias of FORM_GELU, x of FORM_GRAD, acc and
 * the acc of the bias of FORM_BGRAD. */
enum form { FORM_PLAIN, FORM_GELU, FORM_GRAD, FORM_BGRAD };
enum { BGRAD_ACC = 2, BGRAD_BIAS_ACC };

/* A matrix as it is stored, and its rows with a gap. */
struct matrix {
    int64_t rows, cols, ld;
    size_t bytes; /* of the copy in scratch; 0: there is none, ld is cols */
};

enum { A, B, Y, NMATRICES };

struct matmul_kernel {
    struct tri_kernel base;
    enum form form;
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t op;        /* bias pointer unset */
    cublasLtMatrixLayoutOpaque_t a, b, y; /* in the library's order: a is our b */
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulHeuristicResult_t *found; /* nfound, while the kernel is prepared */
    int nfound;
    size_t workspace_bytes;
    size_t bias_bytes;  /* in scratch, before the workspace: the rounded bias, or its gradient */
    size_t after_bytes; /* in scratch, behind it: x that nobody asked for, or that of `after` */
    struct matrix matrix[NMATRICES]; /* copies lie behind that in scratch, in this order */
    int64_t m, n;
    enum tri_dtype out;
    bool plain; /* the library has no algorithm: done as `product` */
    struct tri_cuda_product product;
    bool bias, acc;
    bool saved;               /* FORM_GELU: x is an output */
    bool bias_after;          /* no algorithm adds the bias: a kernel of ours does */
    bool bgrad_a, bgrad_acc;  /* FORM_BGRAD: of a, else b; adds to what is there */
    int64_t bgrad_count;      /* elements of a bias's gradient */
    struct tri_kernel *after; /* the rest of a form that no algorithm has, else NULL; owned */
};

/* The product y[m][n] = op(a) op(b) over `depth` terms. */
struct product {
    int64_t m, n, depth, acols, arows, bcols, brows;
    bool ta, tb;
};

static struct product product_of(const struct tri_kernel_desc *d)
{
    struct product p = {.arows = tri_shape_rows(&d->in[0].shape),
                        .acols = tri_shape_cols(&d->in[0].shape),
                        .brows = tri_shape_rows(&d->in[1].shape),
                        .bcols = tri_shape_cols(&d->in[1].shape),
                        .ta = d->attrs.matmul.ta,
                        .tb = d->attrs.matmul.tb};

    p.m = p.ta ? p.acols : p.arows;
    p.depth = p.ta ? p.arows : p.acols;
    p.n = p.tb ? p.brows : p.bcols;
    return p;
}

static cudaDataType_t data_type(enum tri_dtype t)
{
    return t == TRI_BF16 ? CUDA_R_16BF : t == TRI_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* A row-major matrix, which the library sees as its transpose. */
static cublasStatus_t layout_init(cublasLtMatrixLayoutOpaque_t *l, enum tri_dtype t,
                                  const struct matrix *x)
{
    return cublasLtMatrixLayoutInit(l, data_type(t), (uint64_t)x->cols, (uint64_t)x->rows, x->ld);
}

static struct matrix matrix_make(enum tri_dtype t, int64_t rows, int64_t cols, bool copied)
{
    struct matrix x = {.rows = rows, .cols = cols, .ld = cols};

    if (copied && tri_dtype_is_half(t) && cols % ROW_ELEMENTS != 0) {
        x.ld = (int64_t)tri_round_up((size_t)cols, ROW_ELEMENTS);
        x.bytes = tri_round_up((size_t)(rows * x.ld) * sizeof(uint16_t), TRI_CUDA_ALIGN);
    }
    return x;
}

static void make_matrices(struct matmul_kernel *k, const struct tri_kernel_desc *d,
                          const struct product *p)
{
    bool large = p->m >= MIN_COPIED && p->n >= MIN_COPIED && p->depth >= MIN_COPIED;

    k->matrix[A] = matrix_make(d->in[0].dtype, p->arows, p->acols, large);
    k->matrix[B] = matrix_make(d->in[1].dtype, p->brows, p->bcols, large);
    k->matrix[Y] = matrix_make(k->out, p->m, p->n, large && k->form == FORM_PLAIN && !k->acc);
}

static cublasStatus_t set(cublasLtMatmulDescOpaque_t *op, cublasLtMatmulDescAttributes_t what,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(op, what, value, bytes);
}

static cublasLtEpilogue_t epilogue_of(const struct matmul_kernel *k)
{
    bool bias = k->bias && !k->bias_after;

    if (k->after != NULL || k->form == FORM_PLAIN)
        return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (k->form == FORM_GRAD)
        return CUBLASLT_EPILOGUE_DGELU;
    if (k->form == FORM_BGRAD) /* the library's A is our b */
        return k->bgrad_a ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
    if (k->saved)
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

/* The epilogue reads or writes x. */
static bool has_aux(const struct matmul_kernel *k)
{
    return k->after == NULL && (k->form == FORM_GRAD || (k->form == FORM_GELU && k->saved));
}

/* The epilogue writes the gradient of a bias. */
static bool has_bgrad(const struct matmul_kernel *k)
{
    return k->after == NULL && k->form == FORM_BGRAD;
}

static tri_status describe(struct matmul_kernel *k, const struct tri_kernel_desc *d,
                           const struct product *p)
{
    cublasOperation_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(k);
    const void *like = (const void *)(uintptr_t)TRI_ALIGN_BYTES; /* tells the alignment to come */
    bool tf32 = d->in[0].dtype == TRI_F32 && d->attrs.matmul.tf32;

    TRI_CUBLAS(cublasLtMatmulDescInit(
        &k->op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
    TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    if ((k->bias && !k->bias_after) || has_bgrad(k))
        TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &like, sizeof(like)));
    if (has_aux(k)) {
        TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &like, sizeof(like)));
        TRI_CUBLAS(set(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof(p->n)));
    }
    TRI_CUBLAS(layout_init(&k->a, d->in[1].dtype, &k->matrix[B]));
    TRI_CUBLAS(layout_init(&k->b, d->in[0].dtype, &k->matrix[A]));
    TRI_CUBLAS(layout_init(&k->y, d->out[0].dtype, &k->matrix[Y]));
    return TRI_OK;
}

static tri_status prefer(cublasLtMatmulPreferenceOpaque_t *pref, enum tri_dtype out)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t align = TRI_ALIGN_BYTES;
    /* The other schemes add partial sums up in the type of y. */
    uint32_t schemes = tri_dtype_is_half(out) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                              : CUBLASLT_REDUCTION_SCHEME_MASK;

    TRI_CUBLAS(cublasLtMatmulPreferenceInit(pref));
    TRI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace, sizeof(workspace)));
    TRI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)));
    for (size_t i = 0; i < sizeof(alignment) / sizeof(alignment[0]); i++)
        TRI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(pref, alignment[i], &align, sizeof(align)));
    return TRI_OK;
}

/* Takes variant `v` of what the library found. */
static void select_algorithm(struct tri_kernel *kernel, int v)
{
    struct matmul_kernel *k = (struct matmul_kernel *)kernel;
    size_t bytes;

    k->algo = k->found[v].algo;
    k->workspace_bytes = k->found[v].workspaceSize;
    bytes = k->bias_bytes + tri_round_up(k->workspace_bytes, TRI_CUDA_ALIGN) + k->after_bytes;
    for (int i = 0; i < NMATRICES; i++)
        bytes += k->matrix[i].bytes;
    k->base.scratch_bytes = bytes > 0 ? bytes + TRI_CUDA_ALIGN : 0;
}

/* Finds the library's choices, best first. TRI_ERR_UNSUPPORTED without a message: it has none. */
static tri_status choose(struct matmul_kernel *k, const struct tri_kernel_desc *d,
                         const struct product *p)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasStatus_t st;

    TRI_TRY(describe(k, d, p));
    TRI_TRY(prefer(&pref, k->out));
    k->nfound = 0;
    st = cublasLtMatmulAlgoGetHeuristic(k->handle, &k->op, &k->a, &k->b, &k->y, &k->y, &pref,
                                        d->device->tune ? MAX_VARIANTS : 1, k->found, &k->nfound);
    if (st == CUBLAS_STATUS_NOT_SUPPORTED || (st == CUBLAS_STATUS_SUCCESS && k->nfound == 0))
        return TRI_ERR_UNSUPPORTED;
    /* How an epilogue is refused (its rules for x, its types) is not documented. */
    if (st == CUBLAS_STATUS_INVALID_VALUE && k->form != FORM_PLAIN && k->after == NULL)
        return TRI_ERR_UNSUPPORTED;
    TRI_CUBLAS(st);
    TRI_CUBLAS(k->found[0].state);
    while (k->found[k->nfound - 1].state != CUBLAS_STATUS_SUCCESS)
        k->nfound--;
    return TRI_OK;
}

/* GELU of x, or its gradient in place of y, as a kernel of its own. */
static tri_status add_gelu(struct matmul_kernel *k, const struct tri_kernel_desc *d)
{
    struct tri_arg in[] = {d->out[0], d->out[0]};
    struct tri_kernel_desc gelu = *d;

    gelu.kind = k->form == FORM_GELU ? TRI_OP_GELU : TRI_OP_GELU_GRAD;
    gelu.attrs = (struct tri_attrs){0};
    gelu.in = in;
    gelu.nin = k->form == FORM_GELU ? 1 : 2;
    gelu.nout = 1;
    if (k->form == FORM_GELU && !k->saved)
        k->after_bytes =
            tri_round_up((size_t)(k->m * k->n) * tri_dtype_bytes(k->out), TRI_CUDA_ALIGN);
    return (k->form == FORM_GELU ? &tri_cuda_gelu : &tri_cuda_gelu_grad)->prepare(&gelu, &k->after);
}

/* The gradient of the bias as a kernel of its own. */
static tri_status add_column_sum(struct matmul_kernel *k, const struct tri_kernel_desc *d)
{
    struct tri_arg in[] = {d->in[k->bgrad_a ? 0 : 1], d->out[1]};
    struct tri_kernel_desc sum = *d;

    sum.kind = TRI_OP_COLUMN_SUM;
    sum.attrs = (struct tri_attrs){0};
    sum.in = in;
    sum.nin = k->bgrad_acc ? 2 : 1;
    sum.out = &d->out[1];
    sum.nout = 1;
    TRI_TRY(tri_cuda_column_sum.prepare(&sum, &k->after));
    k->after_bytes = tri_round_up(k->after->scratch_bytes, TRI_CUDA_ALIGN);
    return TRI_OK;
}

/* The form with the most in the library that has an algorithm. */
static tri_status choose_form(struct matmul_kernel *k, const struct tri_kernel_desc *d,
                              const struct product *p)
{
    tri_status st = choose(k, d, p);

    if (st == TRI_ERR_UNSUPPORTED && k->form != FORM_PLAIN) {
        TRI_TRY(k->form == FORM_BGRAD ? add_column_sum(k, d) : add_gelu(k, d));
        st = choose(k, d, p);
    }
    if (st == TRI_ERR_UNSUPPORTED && k->bias) {
        k->bias_after = true;
        st = choose(k, d, p);
    }
    if (st != TRI_ERR_UNSUPPORTED)
        return st;
    k->plain = true;
    for (int i = 0; i < NMATRICES; i++)
        k->matrix[i].bytes = 0;
    k->nfound = 1;
    k->found[0] = (cublasLtMatmulHeuristicResult_t){0};
    k->bias_after = false;
    k->product = (struct tri_cuda_product){.m = p->m,
                                           .n = p->n,
                                           .depth = p->depth,
                                           .ta = p->ta,
                                           .tb = p->tb,
                                           .in = d->in[0].dtype,
                                           .out = k->out};
    return TRI_OK;
}

/* Which optional inputs and outputs there are. */
static void note_arguments(struct matmul_kernel *k, const struct tri_kernel_desc *d)
{
    k->bias = (k->form == FORM_PLAIN || k->form == FORM_GELU) && tri_arg_present(d->in, 2, d->nin);
    k->acc = (k->form == FORM_PLAIN && tri_arg_present(d->in, 3, d->nin)) ||
             (k->form == FORM_BGRAD && tri_arg_present(d->in, BGRAD_ACC, d->nin));
    k->saved = k->form == FORM_GELU && tri_arg_present(d->out, 1, d->nout);
    k->bgrad_a = d->attrs.matmul.bgrad_a;
    k->bgrad_acc = k->form == FORM_BGRAD && tri_arg_present(d->in, BGRAD_BIAS_ACC, d->nin);
    k->bgrad_count = k->bgrad_a ? k->m : k->n;
}

static tri_status configure(struct matmul_kernel *k, const struct tri_kernel_desc *d)
{
    cublasLtMatmulHeuristicResult_t found[MAX_VARIANTS];
    struct product p = product_of(d);

    k->found = found;
    k->handle = tri_cuda_device(d->device)->cublaslt;
    k->form = d->kind == TRI_OP_MATMUL_GELU        ? FORM_GELU
              : d->kind == TRI_OP_MATMUL_GELU_GRAD ? FORM_GRAD
              : d->kind == TRI_OP_MATMUL_BGRAD     ? FORM_BGRAD
                                                   : FORM_PLAIN;
    k->m = p.m;
    k->n = p.n;
    k->out = d->out[0].dtype;
    note_arguments(k, d);
    make_matrices(k, d, &p);
    TRI_TRY(choose_form(k, d, &p));
    if (k->bias && !k->bias_after && !k->plain && tri_dtype_is_half(k->out))
        k->bias_bytes = tri_round_up((size_t)p.n * sizeof(uint16_t), TRI_CUDA_ALIGN);
    if (has_bgrad(k) && !k->plain && k->bgrad_acc)
        k->bias_bytes = tri_round_up((size_t)k->bgrad_count * sizeof(float), TRI_CUDA_ALIGN);
    select_algorithm(&k->base, 0);
    if (k->nfound > 1)
        TRI_TRY(tri_cuda_tune(d, &k->base, k->nfound, select_algorithm));
    k->found = NULL;
    return TRI_OK;
}

static void destroy_matmul(struct tri_kernel *kernel)
{
    struct matmul_kernel *k = (struct matmul_kernel *)kernel;

    if (k != NULL && k->after != NULL)
        k->after->ops->destroy(k->after);
    tri_free(k);
}

static tri_status prepare_matmul(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct matmul_kernel *k = tri_calloc(1, sizeof(*k), "kernel");
    tri_status st;

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"matmul_cublaslt\": out of memory");
    k->base.ops = &tri_kernel_matmul_cublaslt;
    TRI_TRY_GOTO(st, configure(k, d), destroy);
    *out = &k->base;
    return TRI_OK;

destroy:
    destroy_matmul(&k->base);
    return st;
}

/* Puts the pointers of this run into the description. */
static tri_status point(const struct matmul_kernel *k, const struct tri_kernel_args *args,
                        unsigned char *scratch, cublasLtMatmulDescOpaque_t *op)
{
    if (k->bias && !k->bias_after) {
        const void *bias = args->in[2];

        if (k->bias_bytes > 0) {
            TRI_TRY(tri_cuda_round(k->out, bias, scratch, k->n, args->stream));
            bias = scratch;
        }
        TRI_CUBLAS(set(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    if (has_bgrad(k)) {
        void *db = k->bgrad_acc ? scratch : args->out[1];

        TRI_CUBLAS(set(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &db, sizeof(db)));
    }
    if (has_aux(k)) {
        const void *x = k->form == FORM_GRAD ? args->in[2] : args->out[1];

        TRI_CUBLAS(set(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x, sizeof(x)));
    }
    return TRI_OK;
}

static unsigned char *after_scratch(const struct matmul_kernel *k, unsigned char *scratch)
{
    return scratch + k->bias_bytes + tri_round_up(k->workspace_bytes, TRI_CUDA_ALIGN);
}

static tri_status run_column_sum(const struct matmul_kernel *k, const struct tri_kernel_args *args,
                                 unsigned char *scratch)
{
    struct tri_kernel_args sum = {.in = (void *[]){args->in[k->bgrad_a ? 0 : 1],
                                                   k->bgrad_acc ? args->in[BGRAD_BIAS_ACC] : NULL},
                                  .out = &args->out[1],
                                  .scratch = after_scratch(k, scratch),
                                  .stream = args->stream};

    return k->after->ops->run(k->after, &sum);
}

/* y: what the product was stored in. */
static tri_status run_gelu(const struct matmul_kernel *k, const struct tri_kernel_args *args,
                           void *y)
{
    struct tri_kernel_args gelu = {.in = (void *[]){y, k->form == FORM_GRAD ? args->in[2] : NULL},
                                   .out = (void *[]){args->out[0]},
                                   .stream = args->stream};

    return k->after->ops->run(k->after, &gelu);
}

/* Copies a and b into rows with a gap where that was planned; x[] holds what the product takes. */
static tri_status copy_in(const struct matmul_kernel *k, const struct tri_kernel_args *args,
                          unsigned char *scratch, void **x)
{
    unsigned char *at = after_scratch(k, scratch) + k->after_bytes;

    for (int i = 0; i < NMATRICES; i++) {
        const struct matrix *m = &k->matrix[i];

        if (m->bytes == 0)
            continue;
        if (i != Y)
            TRI_TRY(tri_cuda_repitch(x[i], m->cols, at, m->ld, m->rows, m->cols, args->stream));
        x[i] = at;
        at += m->bytes;
    }
    return TRI_OK;
}

static tri_status run_library(const struct matmul_kernel *k, const struct tri_kernel_args *args,
                              unsigned char *scratch, void *y)
{
    void *x[NMATRICES] = {[A] = args->in[0], [B] = args->in[1], [Y] = y};
    cublasLtMatmulDescOpaque_t op = k->op; /* other threads may run the same kernel */
    cublasLtMatrixLayoutOpaque_t la = k->a, lb = k->b, ly = k->y;
    void *workspace = k->workspace_bytes > 0 ? scratch + k->bias_bytes : NULL;
    float alpha = 1, beta = k->acc ? 1.0f : 0.0f;

    TRI_TRY(point(k, args, scratch, &op));
    TRI_TRY(copy_in(k, args, scratch, x));
    TRI_CUBLAS(cublasLtMatmul(k->handle, &op, &alpha, x[B], &la, x[A], &lb, &beta, x[Y], &ly, x[Y],
                              &ly, &k->algo, workspace, k->workspace_bytes, args->stream));
    if (k->matrix[Y].bytes > 0)
        TRI_TRY(tri_cuda_repitch(x[Y], k->matrix[Y].ld, y, k->n, k->m, k->n, args->stream));
    if (has_bgrad(k) && k->bgrad_acc)
        return tri_cuda_add_rows((const float *)(void *)scratch, 1, k->bgrad_count,
                                 args->in[BGRAD_BIAS_ACC], args->out[1], k->bgrad_count, NULL,
                                 args->stream);
    if (k->bias_after)
        return tri_cuda_add_bias(k->out, args->in[2], y, k->m, k->n, args->stream);
    return TRI_OK;
}

static tri_status run_matmul(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct matmul_kernel *k = (const struct matmul_kernel *)kernel;
    unsigned char *scratch = tri_cuda_scratch(args->scratch);
    void *y = args->out[0];

    if (k->after != NULL && k->form == FORM_GELU)
        y = k->saved ? args->out[1] : after_scratch(k, scratch);
    if (k->plain)
        TRI_TRY(tri_cuda_product_run(&k->product, args->in[0], args->in[1],
                                     k->bias ? args->in[2] : NULL, k->acc ? y : NULL, y,
                                     args->stream));
    else
        TRI_TRY(run_library(k, args, scratch, y));
    if (k->after == NULL)
        return TRI_OK;
    return k->form == FORM_BGRAD ? run_column_sum(k, args, scratch) : run_gelu(k, args, y);
}

const struct tri_kernel_ops tri_kernel_matmul_cublaslt = {.name = "matmul_cublaslt",
                                                          .prepare = prepare_matmul,
                                                          .run = run_matmul,
                                                          .destroy = destroy_matmul};
