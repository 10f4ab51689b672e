/* What our cuDNN kernels ask of the real library, planned for devices that are only described: each
 * convolution and attention must find an engine that we may take. The linker sends the calls that
 * would name a device here (--wrap), where they name the description instead. */
#include "runtime/device/cuda_device.h"
#include "runtime/kernels/cuda/cuda_kernels.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* As cuDNN writes the properties of a device down: NVIDIA A100 and H200. */
static const char a100[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":800,\"driverVer\":13000,\"deviceName\":\"A100\","
    "\"totalGlobalMem\":85000000000,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":108,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":166912,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1410000,\"memClockRateKHz\":1593000,"
    "\"l2CacheSize\":41943040}";
static const char h200[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"H200\","
    "\"totalGlobalMem\":150000000000,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560}";

static cudnnBackendDescriptor_t properties;
static struct tri_cuda_device device;

#define SET_ATTRIBUTE_ARGS                                                                         \
    cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,                                  \
        cudnnBackendAttributeType_t type, int64_t n, const void *values
cudnnStatus_t __real_cudnnBackendSetAttribute(SET_ATTRIBUTE_ARGS);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(SET_ATTRIBUTE_ARGS);

cudnnStatus_t __wrap_cudnnBackendSetAttribute(SET_ATTRIBUTE_ARGS)
{
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;

    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return st;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return __real_cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
        st = __real_cudnnBackendSetAttribute(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    return st == CUDNN_STATUS_SUCCESS ? __real_cudnnBackendSetAttribute(d, name, type, n, values)
                                      : st;
}

static void describe(const char *json)
{
    cr_assert_eq(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties), 0);
    cr_assert_eq(__real_cudnnBackendSetAttribute(properties,
                                                 CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                 CUDNN_TYPE_CHAR, (int64_t)strlen(json), json),
                 0);
    cr_assert_eq(cudnnBackendFinalize(properties), 0);
}

static void plans(const struct tri_kernel_ops *ops, struct tri_kernel_desc *d, const char *what)
{
    struct tri_kernel *k = NULL;
    tri_status st;

    d->device = &device.base;
    st = ops->prepare(d, &k);
    cr_expect_eq(st, TRI_OK, "%s for %s: %s", ops->name, what, tri_status_name(st));
    if (st == TRI_OK)
        k->ops->destroy(k);
}

/* b, h, w, i, o, kernel, stride, pad: odd sizes, and layers of ResNet-50 and of small models. */
static const int64_t images[][8] = {
    {1, 1, 1, 1, 1, 1, 1, 0},      {2, 5, 6, 3, 4, 3, 1, 1},       {2, 9, 8, 5, 7, 3, 2, 1},
    {4, 7, 7, 17, 33, 5, 1, 2},    {64, 28, 28, 1, 32, 3, 1, 1},   {32, 224, 224, 3, 64, 7, 2, 3},
    {32, 56, 56, 64, 64, 3, 1, 1}, {32, 56, 56, 64, 256, 1, 1, 0}, {32, 56, 56, 256, 512, 1, 2, 0}};

/* type TRI_DTYPE_COUNT: tf32. */
static void convolutions(const int64_t *s, enum tri_dtype type)
{
    enum tri_dtype t = type == TRI_DTYPE_COUNT ? TRI_F32 : type;
    int64_t oh = (s[1] + 2 * s[7] - s[5]) / s[6] + 1, ow = (s[2] + 2 * s[7] - s[5]) / s[6] + 1;
    struct tri_arg x = {t, {4, {s[0], s[1], s[2], s[3]}}}, y = {t, {4, {s[0], oh, ow, s[4]}}};
    struct tri_arg w = {t, {4, {s[4], s[3], s[5], s[5]}}}, dw = {TRI_F32, w.shape};
    struct tri_kernel_desc d = {.kind = TRI_OP_CONV2D, .nin = 2, .nout = 1};
    char what[96];

    d.attrs.window = (struct tri_attr_window){.kh = s[5],
                                              .kw = s[5],
                                              .stride = s[6],
                                              .pad = s[7],
                                              .h = s[1],
                                              .w = s[2],
                                              .tf32 = type == TRI_DTYPE_COUNT};
    snprintf(what, sizeof(what), "%lldx%lldx%lldx%lld k %lld %s", (long long)s[0], (long long)s[1],
             (long long)s[2], (long long)s[3], (long long)s[5], tri_dtype_name(t));
    d.in = (struct tri_arg[]){x, w};
    d.out = &y;
    plans(&tri_kernel_conv2d_cudnn, &d, what);
    d.in = (struct tri_arg[]){y, w};
    d.out = &x;
    plans(&tri_kernel_conv2d_dx_cudnn, &d, what);
    d.in = (struct tri_arg[]){x, y};
    d.out = &dw;
    plans(&tri_kernel_conv2d_dw_cudnn, &d, what);
}

/* b, t, heads, width */
static const int64_t texts[][4] = {{2, 70, 2, 64}, {1, 130, 1, 24}, {8, 1024, 12, 64}};

static void attention(const int64_t *s, enum tri_dtype type, bool causal)
{
    int64_t c = s[2] * s[3];
    struct tri_arg qkv = {type, {3, {s[0], s[1], 3 * c}}}, out = {type, {3, {s[0], s[1], c}}};
    struct tri_arg lse = {TRI_F32, {3, {s[0], s[2], s[1]}}};
    struct tri_kernel_desc d = {.kind = TRI_OP_ATTENTION, .nin = 1, .nout = 2};
    char what[96];

    d.attrs.attention = (struct tri_attr_attention){.heads = s[2], .causal = causal};
    snprintf(what, sizeof(what), "%lldx%lld, %lld heads of %lld, %s", (long long)s[0],
             (long long)s[1], (long long)s[2], (long long)s[3], tri_dtype_name(type));
    d.in = &qkv;
    d.out = (struct tri_arg[]){out, lse};
    plans(&tri_kernel_attention_cudnn, &d, what);
    d.kind = TRI_OP_ATTENTION_GRAD;
    d.nin = 4;
    d.nout = 1;
    d.in = (struct tri_arg[]){out, qkv, out, lse};
    d.out = &qkv;
    plans(&tri_kernel_attention_grad_cudnn, &d, what);
}

static void all(const char *json)
{
    static const enum tri_dtype types[] = {TRI_F32, TRI_DTYPE_COUNT, TRI_BF16, TRI_F16};

    describe(json);
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
        for (int t = 0; t < 4; t++)
            convolutions(images[i], types[t]);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        attention(texts[i], i % 2 ? TRI_F16 : TRI_BF16, i != 1);
}

Test(cudnn_plans, every_graph_has_an_engine_on_sm_80)
{
    all(a100);
}

Test(cudnn_plans, every_graph_has_an_engine_on_sm_90)
{
    all(h200);
}
