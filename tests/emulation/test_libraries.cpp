/* The emulated cuBLASLt and cuDNN: a result by hand, and that each misuse which a GPU would answer
 * with a failure (or with nonsense) is a failure here. */
#include "tests/emulation/check.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <cuda_runtime.h>

#include <string.h>
#include <vector>

namespace
{

/* n floats on the device. */
float *upload(const std::vector<float> &v, size_t extra = 0)
{
    float *p;

    CHECK_CUDA(cudaMalloc(&p, (v.size() + extra) * sizeof(float)));
    CHECK_CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(float), cudaMemcpyHostToDevice));
    return p;
}

std::vector<float> download(const float *p, size_t n)
{
    std::vector<float> v(n);

    CHECK_CUDA(cudaStreamSynchronize(nullptr));
    CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost));
    return v;
}

/* d [2,3] = a [2,2] b [2,3] by columns, f32. */
struct Product {
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t found;
    float *pa, *pb, *pd;
    void *workspace;
    float one = 1, zero = 0;

    Product()
    {
        uint64_t limit = 1 << 20;
        uint32_t align = 16;

        CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        CHECK(cublasLtMatmulDescInit(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0);
        CHECK(cublasLtMatrixLayoutInit(&a, CUDA_R_32F, 2, 2, 2) == 0);
        CHECK(cublasLtMatrixLayoutInit(&b, CUDA_R_32F, 2, 3, 2) == 0);
        CHECK(cublasLtMatrixLayoutInit(&d, CUDA_R_32F, 2, 3, 2) == 0);
        CHECK(cublasLtMatmulPreferenceInit(&pref) == 0);
        CHECK(cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &limit, sizeof(limit)) == 0);
        for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
             i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
            CHECK(cublasLtMatmulPreferenceSetAttribute(
                      &pref, static_cast<cublasLtMatmulPreferenceAttributes_t>(i), &align,
                      sizeof(align)) == 0);
        pa = upload({1, 2, 3, 4}, 4);
        pb = upload({1, 0, 0, 1, 1, 1}, 4);
        pd = upload({9, 9, 9, 9, 9, 9}, 4);
    }

    cublasStatus_t choose()
    {
        int n = 0;
        cublasStatus_t st =
            cublasLtMatmulAlgoGetHeuristic(handle, &op, &a, &b, &d, &d, &pref, 1, &found, &n);

        CHECK(st != CUBLAS_STATUS_SUCCESS || n == 1);
        if (st == CUBLAS_STATUS_SUCCESS)
            CHECK_CUDA(cudaMalloc(&workspace, found.workspaceSize));
        return st;
    }

    cublasStatus_t multiply(const void *from, size_t workspace_bytes)
    {
        return cublasLtMatmul(handle, &op, &one, from, &a, pb, &b, &zero, pd, &d, pd, &d,
                              &found.algo, workspace, workspace_bytes, nullptr);
    }
};

void test_product()
{
    Product p;

    CHECK(p.choose() == CUBLAS_STATUS_SUCCESS);
    CHECK(p.multiply(p.pa, p.found.workspaceSize) == CUBLAS_STATUS_SUCCESS);
    CHECK(download(p.pd, 6) == (std::vector<float>{1, 2, 3, 4, 4, 6}));
}

/* Beside the product, the sums of an operand over the depth: a is [1 3; 2 4], b [1 0 1; 0 1 1]. */
void test_bias_gradient()
{
    for (cublasLtEpilogue_t e : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
        Product p;
        bool of_a = e == CUBLASLT_EPILOGUE_BGRADA;
        float *sums = upload({9, 9, 9});

        CHECK(cublasLtMatmulDescSetAttribute(&p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof(e)) ==
              CUBLAS_STATUS_SUCCESS);
        CHECK(p.choose() == CUBLAS_STATUS_SUCCESS);
        CHECK(p.multiply(p.pa, p.found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
        CHECK(cublasLtMatmulDescSetAttribute(&p.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &sums,
                                             sizeof(sums)) == CUBLAS_STATUS_SUCCESS);
        CHECK(p.multiply(p.pa, p.found.workspaceSize) == CUBLAS_STATUS_SUCCESS);
        CHECK(download(p.pd, 6) == (std::vector<float>{1, 2, 3, 4, 4, 6}));
        CHECK(download(sums, 3) ==
              (of_a ? std::vector<float>{4, 6, 9} : std::vector<float>{1, 1, 2}));
    }
}

void test_product_refuses()
{
    Product p;
    cublasLtMatrixLayoutOpaque_t wrong;
    cublasOperation_t turned = CUBLAS_OP_T;
    float host[4];

    CHECK(cublasLtMatrixLayoutInit(&wrong, CUDA_R_32F, 3, 2, 2) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(p.choose() == CUBLAS_STATUS_SUCCESS);
    CHECK(p.multiply(p.pa + 1, p.found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(p.multiply(host, p.found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(p.multiply(p.pa, p.found.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatmulDescSetAttribute(&p.op, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                         sizeof(turned)) == CUBLAS_STATUS_SUCCESS);
    CHECK(p.multiply(p.pa, p.found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatrixLayoutInit(&p.b, CUDA_R_32F, 3, 3, 3) == CUBLAS_STATUS_SUCCESS);
    CHECK(p.choose() == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatrixLayoutInit(&p.b, CUDA_R_16F, 2, 3, 2) == CUBLAS_STATUS_SUCCESS);
    CHECK(p.choose() == CUBLAS_STATUS_NOT_SUPPORTED);
}

template <class T>
cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const std::vector<T> &v)
{
    return cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(v.size()), v.data());
}

cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d;

    CHECK(cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS);
    return d;
}

cudnnBackendDescriptor_t tensor(int64_t uid, const std::vector<int64_t> &dim,
                                const std::vector<int64_t> &stride)
{
    cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    CHECK(cudnnBackendFinalize(d) == CUDNN_STATUS_BAD_PARAM);
    CHECK(set<int>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT}) == 0);
    CHECK(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dim) == 0);
    CHECK(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, stride) == 0);
    CHECK(set<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {uid}) == 0);
    CHECK(set<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_FLOAT, {16}) ==
          CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK(set<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16}) == 0);
    CHECK(cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS);
    CHECK(set<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {uid}) ==
          CUDNN_STATUS_BAD_PARAM);
    return d;
}

/* y [1,1,2,2] = x [1,1,3,3] * w [1,1,2,2] with y of height `h`. */
cudnnBackendDescriptor_t convolution(int64_t h)
{
    cudnnBackendDescriptor_t win = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnBackendDescriptor_t op = create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);

    CHECK(set<int>(win, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                   {CUDNN_DATA_FLOAT}) == 0);
    CHECK(set<int>(win, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                   {CUDNN_CROSS_CORRELATION}) == 0);
    CHECK(set<int64_t>(win, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2}) == 0);
    for (cudnnBackendAttributeName_t name :
         {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES})
        CHECK(set<int64_t>(win, name, CUDNN_TYPE_INT64, {1, 1}) == 0);
    for (cudnnBackendAttributeName_t name :
         {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
        CHECK(set<int64_t>(win, name, CUDNN_TYPE_INT64, {0, 0}) == 0);
    CHECK(set<void *>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, {win}) == 0);
    CHECK(set<void *>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      {tensor(0, {1, 1, 3, 3}, {9, 9, 3, 1})}) == 0);
    CHECK(set<void *>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      {tensor(1, {1, 1, 2, 2}, {4, 4, 2, 1})}) == 0);
    CHECK(set<void *>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      {tensor(2, {1, 1, h, 2}, {2 * h, 2 * h, 2, 1})}) == 0);
    CHECK(set<float>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, {1}) ==
          0);
    CHECK(set<float>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, {0}) ==
          0);
    CHECK(cudnnBackendFinalize(op) == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    CHECK(cudnnBackendFinalize(win) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendFinalize(op) == CUDNN_STATUS_SUCCESS);
    return op;
}

cudnnBackendDescriptor_t graph_of(cudnnHandle_t handle, cudnnBackendDescriptor_t op)
{
    cudnnBackendDescriptor_t g = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    CHECK(set<void *>(g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {handle}) == 0);
    CHECK(set<void *>(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, {op}) == 0);
    return g;
}

/* The plan of the second engine of mode A, which multiplies in tf32. */
cudnnBackendDescriptor_t plan_of(cudnnHandle_t handle, cudnnBackendDescriptor_t graph)
{
    cudnnBackendDescriptor_t heur = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t config[] = {create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                                         create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t n = 0;

    CHECK(set<void *>(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      {graph}) == 0);
    CHECK(set<int>(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {CUDNN_HEUR_MODE_A}) ==
          0);
    CHECK(cudnnBackendFinalize(heur) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, &n, config) == 0);
    CHECK(n == 3);
    CHECK(set<void *>(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {handle}) == 0);
    CHECK(set<void *>(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      {config[1]}) == 0);
    CHECK(cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS);
    return plan;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      const std::vector<int64_t> &uid, const std::vector<void *> &pointer,
                      void *workspace)
{
    cudnnBackendDescriptor_t pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

    CHECK(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uid) == 0);
    CHECK(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointer) == 0);
    CHECK(set<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace}) ==
          0);
    CHECK(cudnnBackendFinalize(pack) == CUDNN_STATUS_SUCCESS);
    cudnnStatus_t st = cudnnBackendExecute(handle, plan, pack);
    cudnnBackendDestroyDescriptor(pack);
    return st;
}

void test_convolution()
{
    cudnnHandle_t handle;

    CHECK(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t wrong = graph_of(handle, convolution(3));
    cudnnBackendDescriptor_t graph = graph_of(handle, convolution(2));
    int64_t bytes = 0, n = 0;
    void *workspace;

    CHECK(cudnnBackendFinalize(wrong) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    CHECK(cudnnBackendFinalize(graph) == CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t plan = plan_of(handle, graph);
    CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                   1, &n, &bytes) == 0);
    CHECK_CUDA(cudaMalloc(&workspace, static_cast<size_t>(bytes)));
    float *x = upload({1, 2, 3, 4, 5, 6, 7, 8, 9}, 4), *w = upload({1, 0, 0, -1}, 4);
    float *y = upload({0, 0, 0, 0}, 4);

    CHECK(execute(handle, plan, {0, 1, 2}, {x, w, y}, workspace) == CUDNN_STATUS_SUCCESS);
    CHECK(download(y, 4) == (std::vector<float>{-4, -4, -4, -4}));
    CHECK(execute(handle, plan, {0, 1}, {x, w}, workspace) == CUDNN_STATUS_BAD_PARAM);
    CHECK(execute(handle, plan, {0, 1, 7}, {x, w, y}, workspace) == CUDNN_STATUS_BAD_PARAM);
    CHECK(execute(handle, plan, {0, 1, 2}, {x + 1, w, y}, workspace) ==
          CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    CHECK(execute(handle, plan, {0, 1, 2}, {x, w, y}, nullptr) ==
          CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    alignas(16) float host[4] = {};
    CHECK(execute(handle, plan, {0, 1, 2}, {x, w, host}, workspace) ==
          CUDNN_STATUS_EXECUTION_FAILED);
}

} // namespace

int main()
{
    test_product();
    test_bias_gradient();
    test_product_refuses();
    test_convolution();
    return 0;
}
