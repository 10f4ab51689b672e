/* cuBLASLt on the CPU: products summed in double, one rounding. Arguments are checked where the
 * real library would fail or compute nonsense: shapes, leading dimensions, types, alignments that
 * were promised to the heuristic, workspace, and that an algorithm is run on the problem that it
 * was chosen for. */
#include "cublasLt.h"

#include "element.h"

#include <cmath>
#include <vector>

namespace
{

constexpr uint64_t MAGIC = 0x7472692d656d7530; /* in every object that was initialised */
constexpr size_t WORKSPACE_ALIGN = 256;
constexpr size_t WORKSPACE = 16 << 10; /* asked for where the caller allows it */

struct Layout {
    uint64_t magic;
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct Desc {
    uint64_t magic;
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t transa, transb;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;

    bool adds_bias() const
    {
        return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    }

    /* A bias's gradient, the sum of an operand over the depth. */
    bool has_bgrad() const
    {
        return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
    }

    bool has_aux() const
    {
        return (epilogue & 128) != 0;
    }
};

struct Pref {
    uint64_t magic, workspace;
    uint32_t schemes, align[4]; /* of a, b, c, d */
};

struct Algo {
    uint64_t magic, problem; /* hash of what it was chosen for */
    uint64_t workspace;
    uint32_t align[4];
};

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "desc");
static_assert(sizeof(Pref) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

template <class T, class O> bool open(const O *opaque, T *out)
{
    if (opaque == nullptr)
        return false;
    memcpy(out, opaque->data, sizeof(T));
    return out->magic == MAGIC;
}

template <class T, class O> void close(O *opaque, const T &value)
{
    memset(opaque->data, 0, sizeof(opaque->data));
    memcpy(opaque->data, &value, sizeof(T));
}

/* A whole product. */
struct Problem {
    Desc op;
    Layout a, b, c, d;
    uint64_t m, n, k;
};

bool known(cudaDataType t)
{
    return t == CUDA_R_32F || t == CUDA_R_16BF || t == CUDA_R_16F;
}

tri_dtype type_of(cudaDataType t)
{
    return t == CUDA_R_16BF ? TRI_BF16 : t == CUDA_R_16F ? TRI_F16 : TRI_F32;
}

/* The rows of the library's table of types that have real inputs and f32 sums. 16-bit rows of odd
 * length are refused: whether the library has an algorithm for them is up to it. */
bool types_supported(const Problem &p)
{
    if (!known(p.a.type) || p.a.type != p.b.type || p.c.type != p.d.type || !known(p.d.type))
        return false;
    if (p.op.scale != CUDA_R_32F || (p.a.type != CUDA_R_32F && p.a.ld % 2 + p.b.ld % 2 != 0))
        return false;
    if (p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
    if (p.op.compute != CUBLAS_COMPUTE_32F && p.op.compute != CUBLAS_COMPUTE_32F_PEDANTIC)
        return false;
    return p.d.type == p.a.type || p.d.type == CUDA_R_32F;
}

/* GELU for 16-bit results. Gradients of biases unless both sides are odd (our choice: which
 * the library has is up to it, and both ways must be tried). */
bool epilogue_supported(const Problem &p)
{
    if (p.op.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.op.epilogue == CUBLASLT_EPILOGUE_BIAS)
        return true;
    if (p.op.has_bgrad())
        return p.m % 2 == 0 || p.n % 2 == 0;
    if ((p.op.epilogue &
         ~(CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_DGELU | CUBLASLT_EPILOGUE_BIAS)) != 0 ||
        p.d.type == CUDA_R_32F)
        return false;
    return !p.op.has_aux() || p.op.aux_ld >= static_cast<int64_t>(p.d.rows);
}

cublasStatus_t open_problem(Problem *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t d)
{
    if (!open(desc, &p->op) || !open(a, &p->a) || !open(b, &p->b) || !open(c, &p->c) ||
        !open(d, &p->d))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool ta = p->op.transa == CUBLAS_OP_T, tb = p->op.transb == CUBLAS_OP_T;

    p->m = ta ? p->a.cols : p->a.rows;
    p->k = ta ? p->a.rows : p->a.cols;
    p->n = tb ? p->b.rows : p->b.cols;
    if (p->k != (tb ? p->b.cols : p->b.rows) || p->m != p->d.rows || p->n != p->d.cols ||
        p->c.rows != p->d.rows || p->c.cols != p->d.cols)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->op.has_aux() && p->op.aux_ld % 8 != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    return types_supported(*p) && epilogue_supported(*p) ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_NOT_SUPPORTED;
}

uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * 0x9e3779b97f4a7c15u;
}

uint64_t hash(const Problem &p)
{
    uint64_t h = mix(mix(mix(1, p.m), p.n), p.k);

    for (const Layout *l : {&p.a, &p.b, &p.c, &p.d})
        h = mix(mix(h, l->type), static_cast<uint64_t>(l->ld));
    return mix(mix(mix(h, p.op.transa), p.op.transb), mix(p.op.epilogue, p.op.compute));
}

/* One product on its way through a stream. */
struct Job {
    Problem p;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

/* Element (row, col) of op(x): x by columns. */
float at(const Job &j, const Layout &l, cublasOperation_t op, const void *x, uint64_t row,
         uint64_t col)
{
    uint64_t r = op == CUBLAS_OP_T ? col : row, c = op == CUBLAS_OP_T ? row : col;
    float v =
        emu::load(type_of(l.type), x, static_cast<int64_t>(r + c * static_cast<uint64_t>(l.ld)));

    return j.p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? emu::tf32(v) : v;
}

/* The tanh form. */
double gelu(double x)
{
    return x / 2 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x)
{
    double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));

    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

/* Element (i, n) of d from that of alpha a b + beta c. */
double apply_epilogue(const Job &j, double x, uint64_t i, uint64_t n)
{
    const Desc &op = j.p.op;
    tri_dtype type = type_of(j.p.d.type);
    int64_t aux = static_cast<int64_t>(i + n * static_cast<uint64_t>(op.aux_ld));

    if (op.adds_bias())
        x += emu::load(type, op.bias, static_cast<int64_t>(i));
    if ((op.epilogue & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
        return x * gelu_slope(emu::load(type, op.aux, aux));
    if ((op.epilogue & CUBLASLT_EPILOGUE_GELU) == 0)
        return x;
    if (op.has_aux())
        emu::store(type, op.aux, aux, x);
    return gelu(x);
}

/* Sums a [k x m], columns together, or op(b) over k into the bias. */
void sum_operand(const Job &j, const std::vector<float> &a)
{
    const Problem &p = j.p;
    bool of_a = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    void *to = const_cast<void *>(p.op.bias);

    for (uint64_t i = 0; i < (of_a ? p.m : p.n); i++) {
        double sum = 0;

        for (uint64_t k = 0; k < p.k; k++)
            sum += of_a ? a[k * p.m + i] : at(j, p.b, p.op.transb, j.b, k, i);
        emu::store(type_of(p.d.type), to, static_cast<int64_t>(i), sum);
    }
}

void product(Job j)
{
    const Problem &p = j.p;
    std::vector<float> a(p.k * p.m);
    std::vector<double> sum(p.m);

    if (j.workspace_bytes > 0)
        memset(j.workspace, 0xa5, j.workspace_bytes);
    for (uint64_t k = 0; k < p.k; k++)
        for (uint64_t i = 0; i < p.m; i++)
            a[k * p.m + i] = at(j, p.a, p.op.transa, j.a, i, k);
    if (p.op.has_bgrad())
        sum_operand(j, a);
    for (uint64_t n = 0; n < p.n; n++) {
        for (uint64_t i = 0; i < p.m; i++)
            sum[i] = 0;
        for (uint64_t k = 0; k < p.k; k++) {
            const float *column = &a[k * p.m];
            double b = at(j, p.b, p.op.transb, j.b, k, n);

            for (uint64_t i = 0; i < p.m; i++)
                sum[i] += column[i] * b;
        }
        for (uint64_t i = 0; i < p.m; i++) {
            int64_t to = static_cast<int64_t>(i + n * static_cast<uint64_t>(p.d.ld));
            double x = j.alpha * sum[i];

            if (j.beta != 0)
                x += j.beta * static_cast<double>(emu::load(
                                  type_of(p.c.type), j.c,
                                  static_cast<int64_t>(i + n * static_cast<uint64_t>(p.c.ld))));
            emu::store(type_of(p.d.type), j.d, to, apply_epilogue(j, x, i, n));
        }
    }
}

/* A vector or saved input of an epilogue. */
bool usable(const void *p)
{
    return p != nullptr && emu::aligned(p, 16) && emu::on_device(p);
}

/* What the library cannot see, but a GPU would trip over. */
bool buffers_fit(const Job &j, const Algo &algo)
{
    const void *p[] = {j.a, j.b, j.beta != 0 ? j.c : j.d, j.d};

    for (int i = 0; i < 4; i++)
        if (p[i] == nullptr || !emu::aligned(p[i], algo.align[i]) || !emu::on_device(p[i]))
            return false;
    if ((j.p.op.adds_bias() || j.p.op.has_bgrad()) && !usable(j.p.op.bias))
        return false;
    if (j.p.op.has_aux() && !usable(j.p.op.aux))
        return false;
    if (algo.workspace > j.workspace_bytes)
        return false;
    return j.workspace_bytes == 0 ||
           (emu::aligned(j.workspace, WORKSPACE_ALIGN) && emu::on_device(j.workspace));
}

} // namespace

struct cublasLtContext {
    uint64_t magic;
};

static bool valid(cublasLtHandle_t handle)
{
    return handle != nullptr && handle->magic == MAGIC;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (handle == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasLtContext{MAGIC};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!valid(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void)
{
    return 130100;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        uint64_t rows, uint64_t cols, int64_t ld)
{
    if (layout == nullptr || rows == 0 || cols == 0 || ld < static_cast<int64_t>(rows))
        return CUBLAS_STATUS_INVALID_VALUE;
    close(layout, Layout{MAGIC, type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute,
                                      cudaDataType_t scale)
{
    if (desc == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    close(desc, Desc{MAGIC, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                     nullptr, nullptr, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t bytes)
{
    Desc d;
    bool wide = attr == CUBLASLT_MATMUL_DESC_BIAS_POINTER ||
                attr == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ||
                attr == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
    size_t size = wide ? sizeof(int64_t) : sizeof(int32_t);

    if (!open(desc, &d) || buf == nullptr || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        memcpy(&d.transa, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        memcpy(&d.transb, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        memcpy(&d.epilogue, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        memcpy(&d.bias, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        memcpy(&d.aux, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        memcpy(&d.aux_ld, buf, bytes);
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    close(desc, d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t pref)
{
    if (pref == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    close(pref, Pref{MAGIC, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t bytes)
{
    Pref p;
    bool workspace = attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;

    if (!open(pref, &p) || buf == nullptr ||
        bytes != (workspace ? sizeof(p.workspace) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace)
        memcpy(&p.workspace, buf, bytes);
    else if (attr == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&p.schemes, buf, bytes);
    else if (attr >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attr <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        memcpy(&p.align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], buf, bytes);
    else
        return CUBLAS_STATUS_NOT_SUPPORTED;
    close(pref, p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned)
{
    Problem p;
    Pref want;

    if (!valid(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested < 1 || results == nullptr || returned == nullptr || !open(pref, &want))
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    cublasStatus_t st = open_problem(&p, desc, a, b, c, d);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    /* With a workspace and without. */
    for (int i = 0; i < 2 && i < requested; i++) {
        uint64_t workspace = want.workspace < WORKSPACE ? want.workspace : WORKSPACE;
        Algo algo = {MAGIC, hash(p), i == 0 ? workspace : 0, {}};

        memcpy(algo.align, want.align, sizeof(algo.align));
        results[i] = cublasLtMatmulHeuristicResult_t{};
        close(&results[i].algo, algo);
        results[i].workspaceSize = algo.workspace;
        results[i].state = CUBLAS_STATUS_SUCCESS;
        results[i].wavesCount = 1;
        *returned = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    Algo chosen;
    Job j = {};

    if (!valid(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t st = open_problem(&j.p, desc, la, lb, lc, ld);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    if (alpha == nullptr || beta == nullptr || !open(algo, &chosen) || chosen.problem != hash(j.p))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&j.alpha, alpha, sizeof(j.alpha));
    memcpy(&j.beta, beta, sizeof(j.beta));
    j.a = a;
    j.b = b;
    j.c = c;
    j.d = d;
    j.workspace = workspace;
    j.workspace_bytes = workspace_bytes;
    if (!buffers_fit(j, chosen))
        return CUBLAS_STATUS_INVALID_VALUE;
    return emu::enqueue(product, j, stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                           : CUBLAS_STATUS_EXECUTION_FAILED;
}
