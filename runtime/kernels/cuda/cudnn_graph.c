/* See cudnn_graph.h. */
#include "runtime/kernels/cuda/cudnn_graph.h"

#include "runtime/core/memory.h"
#include "runtime/device/cuda_device.h"

#define MAX_CONFIGS 32 /* engine configurations asked of a heuristic */

cudnnDataType_t tri_cudnn_type(enum tri_dtype t)
{
    return t == TRI_BF16 ? CUDNN_DATA_BFLOAT16 : t == TRI_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static void note(struct tri_cudnn_graph *g, cudnnStatus_t st, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS && st != CUDNN_STATUS_SUCCESS) {
        g->status = st;
        g->failed = what;
    }
}

static tri_cudnn_desc add(struct tri_cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    tri_cudnn_desc d = NULL;

    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    TRI_ASSERT(g->ndesc < TRI_CUDNN_MAX_DESCS);
    note(g, cudnnBackendCreateDescriptor(type, &d), "create descriptor");
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->desc[g->ndesc++] = d;
    return d;
}

static void set(struct tri_cudnn_graph *g, tri_cudnn_desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendSetAttribute(d, name, type, n, values), "set attribute");
}

static void set_desc(struct tri_cudnn_graph *g, tri_cudnn_desc d, cudnnBackendAttributeName_t name,
                     tri_cudnn_desc value)
{
    if (value != NULL)
        set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct tri_cudnn_graph *g, tri_cudnn_desc d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type)
{
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void finalize(struct tri_cudnn_graph *g, tri_cudnn_desc d, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendFinalize(d), what);
}

static void add_op(struct tri_cudnn_graph *g, tri_cudnn_desc op, const char *what)
{
    finalize(g, op, what);
    TRI_ASSERT(g->nop < TRI_CUDNN_MAX_OPS);
    g->op[g->nop++] = op;
}

static tri_cudnn_desc add_tensor(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t,
                                 int64_t number, int64_t alignment, bool between, bool by_value)
{
    tri_cudnn_desc d = add(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, t->ndim, t->dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, t->ndim, t->stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(g, d, "tensor");
    return d;
}

tri_cudnn_desc tri_cudnn_bound_at(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t,
                                  int64_t alignment)
{
    TRI_ASSERT(g->bound < TRI_CUDNN_MAX_BOUND);
    return add_tensor(g, t, g->bound++, alignment, false, false);
}

tri_cudnn_desc tri_cudnn_bound(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t)
{
    return tri_cudnn_bound_at(g, t, TRI_ALIGN_BYTES);
}

tri_cudnn_desc tri_cudnn_number(struct tri_cudnn_graph *g, int ndim)
{
    struct tri_cudnn_tensor one = {CUDNN_DATA_FLOAT, ndim, {1, 1, 1, 1}, {1, 1, 1, 1}};

    TRI_ASSERT(g->bound < TRI_CUDNN_MAX_BOUND);
    return add_tensor(g, &one, g->bound++, (int64_t)sizeof(float), false, true);
}

tri_cudnn_desc tri_cudnn_between(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t)
{
    /* Numbers behind those of the tensors in memory. */
    return add_tensor(g, t, TRI_CUDNN_MAX_BOUND + g->ndesc, TRI_ALIGN_BYTES, true, false);
}

static tri_cudnn_desc add_window(struct tri_cudnn_graph *g, const struct tri_cudnn_window *win)
{
    tri_cudnn_desc d = add(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t spatial = 2, stride[] = {win->stride, win->stride}, pad[] = {win->pad, win->pad};
    int64_t dilation[] = {1, 1};

    set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    finalize(g, d, "window");
    return d;
}

void tri_cudnn_convolution(struct tri_cudnn_graph *g, cudnnBackendDescriptorType_t kind,
                           const struct tri_cudnn_window *win, tri_cudnn_desc x, tri_cudnn_desc w,
                           tri_cudnn_desc y)
{
    enum { WINDOW, X, W, Y, ALPHA, BETA, NNAMES };
    static const cudnnBackendAttributeName_t forward[NNAMES] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    static const cudnnBackendAttributeName_t data[NNAMES] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    static const cudnnBackendAttributeName_t filter[NNAMES] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    const cudnnBackendAttributeName_t *name =
        kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? forward
        : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? data
                                                                               : filter;
    tri_cudnn_desc window = add_window(g, win), op = add(g, kind);
    float alpha = 1, beta = 0;

    set_desc(g, op, name[WINDOW], window);
    set_desc(g, op, name[X], x);
    set_desc(g, op, name[W], w);
    set_desc(g, op, name[Y], y);
    set(g, op, name[ALPHA], CUDNN_TYPE_FLOAT, 1, &alpha);
    set(g, op, name[BETA], CUDNN_TYPE_FLOAT, 1, &beta);
    add_op(g, op, "convolution");
}

void tri_cudnn_matmul(struct tri_cudnn_graph *g, tri_cudnn_desc a, tri_cudnn_desc b,
                      tri_cudnn_desc c)
{
    tri_cudnn_desc d = add(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

    set_type(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(g, d, "product");
    op = add(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_op(g, op, "product");
}

void tri_cudnn_pointwise(struct tri_cudnn_graph *g, cudnnPointwiseMode_t mode, tri_cudnn_desc x,
                         tri_cudnn_desc b, tri_cudnn_desc t, tri_cudnn_desc y, int64_t axis)
{
    tri_cudnn_desc d = add(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC,
             mode == CUDNN_POINTWISE_GEN_INDEX ? CUDNN_DATA_INT32
             : mode == CUDNN_POINTWISE_CMP_GE  ? CUDNN_DATA_BOOLEAN
                                               : CUDNN_DATA_FLOAT);
    if (axis >= 0)
        set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, d, "pointwise");
    op = add(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op, "pointwise");
}

void tri_cudnn_reduce(struct tri_cudnn_graph *g, cudnnReduceTensorOp_t what, tri_cudnn_desc x,
                      tri_cudnn_desc y)
{
    tri_cudnn_desc d = add(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;

    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    set_type(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(g, d, "reduction");
    op = add(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(g, op, "reduction");
}

void tri_cudnn_reshape(struct tri_cudnn_graph *g, tri_cudnn_desc x, tri_cudnn_desc y)
{
    tri_cudnn_desc op = add(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "reshape");
}

/* Whether the engine of `config` repeats its bits and, with `exact`, computes in f32. */
static bool acceptable(struct tri_cudnn_graph *g, tri_cudnn_desc config, bool exact)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    tri_cudnn_desc engine = add(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;
    cudnnStatus_t st;

    if (engine == NULL)
        return false;
    st = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                      &n, notes);
    for (int64_t i = 0; st == CUDNN_STATUS_SUCCESS && i < n; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            notes[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13)
            return false;
        if (exact && (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                      notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
            return false;
    }
    return st == CUDNN_STATUS_SUCCESS;
}

/* Makes a plan of config if the library can. */
static void try_config(struct tri_cudnn_graph *g, tri_cudnn_desc config, size_t workspace_limit)
{
    tri_cudnn_desc plan = add(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, n = 0;

    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (g->status != CUDNN_STATUS_SUCCESS)
        return;
    if (cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &n, &bytes) == CUDNN_STATUS_SUCCESS &&
        (size_t)bytes <= workspace_limit) {
        g->plan[g->nplan] = plan;
        g->plan_bytes[g->nplan] = (size_t)bytes;
        g->nplan++;
    }
}

/* Destroys the descriptors from number `first` on. */
static void drop(struct tri_cudnn_graph *g, int first)
{
    while (g->ndesc > first)
        cudnnBackendDestroyDescriptor(g->desc[--g->ndesc]);
}

/* Asks one heuristic and tries what it offers, best first. */
static void try_mode(struct tri_cudnn_graph *g, tri_cudnn_desc graph, cudnnBackendHeurMode_t mode,
                     bool exact, size_t workspace_limit, int most)
{
    int first = g->ndesc;
    tri_cudnn_desc heur = add(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    tri_cudnn_desc config[MAX_CONFIGS] = {NULL};
    int64_t n = 0;

    set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (g->status == CUDNN_STATUS_SUCCESS && cudnnBackendFinalize(heur) == CUDNN_STATUS_SUCCESS) {
        for (int i = 0; i < MAX_CONFIGS; i++)
            config[i] = add(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (g->status != CUDNN_STATUS_SUCCESS ||
            cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n,
                                     config) != CUDNN_STATUS_SUCCESS)
            n = 0;
    }
    for (int64_t i = 0; i < n && g->nplan < most; i++) {
        int before = g->ndesc, plans = g->nplan;

        if (acceptable(g, config[i], exact))
            try_config(g, config[i], workspace_limit);
        if (g->nplan == plans)
            drop(g, before);
    }
    if (g->nplan == 0)
        drop(g, first);
}

tri_status tri_cudnn_plans(struct tri_cudnn_graph *g, bool exact, size_t workspace_limit, int most)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    tri_cudnn_desc graph = add(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnStatus_t st;

    TRI_ASSERT(most <= TRI_CUDNN_MAX_PLANS);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nop, g->op);
    if (g->status == CUDNN_STATUS_SUCCESS) {
        st = cudnnBackendFinalize(graph);
        if (st >= CUDNN_STATUS_NOT_SUPPORTED && st < CUDNN_STATUS_INTERNAL_ERROR)
            return TRI_ERR_UNSUPPORTED;
        note(g, st, "operation graph");
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]) && g->nplan == 0; i++)
        try_mode(g, graph, modes[i], exact, workspace_limit, most);
    if (g->status != CUDNN_STATUS_SUCCESS)
        return tri_cudnn_fail(g->failed, g->status);
    if (g->nplan == 0)
        return TRI_ERR_UNSUPPORTED;
    tri_cudnn_choose(g, 0);
    return TRI_OK;
}

tri_status tri_cudnn_plan(struct tri_cudnn_graph *g, bool exact, size_t workspace_limit)
{
    return tri_cudnn_plans(g, exact, workspace_limit, 1);
}

void tri_cudnn_choose(struct tri_cudnn_graph *g, int i)
{
    g->chosen = i;
    g->workspace_bytes = g->plan_bytes[i];
}

static cudnnStatus_t set_run(tri_cudnn_desc pack, void *const *ptr, int n, void *workspace)
{
    int64_t number[TRI_CUDNN_MAX_BOUND];
    cudnnStatus_t st;

    for (int i = 0; i < n; i++)
        number[i] = i;
    st = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n,
                                  number);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                      CUDNN_TYPE_VOID_PTR, n, ptr);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                      1, &workspace);
    return st == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(pack) : st;
}

tri_status tri_cudnn_run(const struct tri_cudnn_graph *g, void *const *ptr, int n, void *workspace,
                         void *stream)
{
    tri_cudnn_desc pack;
    cudnnStatus_t st;

    TRI_ASSERT(n == g->bound);
    TRI_CUDNN(cudnnSetStream(g->handle, stream));
    /* The library keeps the pointers of a run in a descriptor that cannot be set twice. */
    TRI_CUDNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    st = set_run(pack, ptr, n, workspace);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendExecute(g->handle, g->plan[g->chosen], pack);
    cudnnBackendDestroyDescriptor(pack);
    return st == CUDNN_STATUS_SUCCESS ? TRI_OK : tri_cudnn_fail("cudnnBackendExecute", st);
}

void tri_cudnn_finish(struct tri_cudnn_graph *g)
{
    drop(g, 0);
}
