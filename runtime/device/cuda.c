/* A CUDA device. The runtime keeps a current device for each thread, so every call that creates or
 * enqueues says which one it means. */
#include "runtime/device/cuda_device.h"

#include "runtime/core/memory.h"
#include "runtime/kernels/kernels.h"

#include <stdio.h>
#include <string.h>

static tri_status select_device(struct tri_device *d)
{
    TRI_CUDA(cudaSetDevice(tri_cuda_device(d)->ordinal));
    return TRI_OK;
}

/* The name of a failed call without its arguments. */
static int name_length(const char *call)
{
    return (int)strcspn(call, "(");
}

tri_status tri_cuda_fail(const char *call, cudaError_t e)
{
    (void)cudaGetLastError(); /* else the next check of a launch would report it again */
    return tri_fail(e == cudaErrorMemoryAllocation ? TRI_ERR_NOMEM : TRI_ERR_INTERNAL,
                    "%.*s: %s (%d)", name_length(call), call, cudaGetErrorString(e), (int)e);
}

tri_status tri_cublas_fail(const char *call, cublasStatus_t s)
{
    return tri_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? TRI_ERR_NOMEM : TRI_ERR_INTERNAL,
                    "%.*s: %s (%d)", name_length(call), call, cublasLtGetStatusString(s), (int)s);
}

tri_status tri_cudnn_fail(const char *call, cudnnStatus_t s)
{
    return tri_fail(s == CUDNN_STATUS_ALLOC_FAILED ? TRI_ERR_NOMEM : TRI_ERR_INTERNAL,
                    "%.*s: %s (%d)", name_length(call), call, cudnnGetErrorString(s), (int)s);
}

static tri_status alloc_cuda(struct tri_device *d, size_t bytes, void **out)
{
    void *p = NULL;
    size_t free_bytes = 0, total = 0;
    cudaError_t e;

    TRI_TRY(select_device(d));
    e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total);
        return tri_fail(TRI_ERR_NOMEM, "%s has no room for %.1f MB: %.1f of its %.1f MB are free",
                        d->name, (double)bytes / 1e6, (double)free_bytes / 1e6,
                        (double)total / 1e6);
    }
    if (e != cudaSuccess)
        return tri_cuda_fail("cudaMalloc", e);
    e = cudaMemset(p, 0, bytes);
    /* Our streams do not wait for the default one, and the device as a whole may be captured. */
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(NULL);
    if (e != cudaSuccess) {
        (void)cudaFree(p);
        return tri_cuda_fail("cudaMemset", e);
    }
    *out = p;
    return TRI_OK;
}

static void free_cuda(struct tri_device *d, void *p)
{
    if (p != NULL && select_device(d) == TRI_OK)
        (void)cudaFree(p);
}

static tri_status alloc_host_cuda(struct tri_device *d, size_t bytes, void **out)
{
    void *p = NULL;

    TRI_TRY(select_device(d));
    TRI_CUDA(cudaHostAlloc(&p, bytes, cudaHostAllocDefault));
    memset(p, 0, bytes);
    *out = p;
    return TRI_OK;
}

static void free_host_cuda(struct tri_device *d, void *p)
{
    if (p != NULL && select_device(d) == TRI_OK)
        (void)cudaFreeHost(p);
}

static tri_status pin_cuda(struct tri_device *d, void *p, size_t bytes)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaHostRegister(p, bytes, cudaHostRegisterDefault));
    return TRI_OK;
}

static void unpin_cuda(struct tri_device *d, void *p)
{
    if (select_device(d) == TRI_OK)
        (void)cudaHostUnregister(p);
}

static tri_status stream_create_cuda(struct tri_device *d, bool urgent, void **out)
{
    int least = 0, greatest = 0;
    cudaStream_t s;

    TRI_TRY(select_device(d));
    TRI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TRI_CUDA(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, urgent ? greatest : least));
    *out = s;
    return TRI_OK;
}

static void stream_destroy_cuda(struct tri_device *d, void *stream)
{
    if (stream != NULL && select_device(d) == TRI_OK)
        (void)cudaStreamDestroy(stream);
}

static tri_status stream_sync_cuda(struct tri_device *d, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaStreamSynchronize(stream));
    return TRI_OK;
}

static tri_status copy_cuda(struct tri_device *d, void *dst, const void *src, size_t bytes,
                            void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    return TRI_OK;
}

static tri_status fill_cuda(struct tri_device *d, void *dst, int byte, size_t bytes, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaMemsetAsync(dst, byte, bytes, stream));
    return TRI_OK;
}

static tri_status event_create_cuda(struct tri_device *d, bool timed, void **out)
{
    cudaEvent_t event;

    TRI_TRY(select_device(d));
    TRI_CUDA(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
    *out = event;
    return TRI_OK;
}

static void event_destroy_cuda(struct tri_device *d, void *event)
{
    if (event != NULL && select_device(d) == TRI_OK)
        (void)cudaEventDestroy(event);
}

static tri_status event_record_cuda(struct tri_device *d, void *event, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaEventRecord(event, stream));
    return TRI_OK;
}

static tri_status event_wait_cuda(struct tri_device *d, void *event, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaStreamWaitEvent(stream, event, 0));
    return TRI_OK;
}

static tri_status event_sync_cuda(struct tri_device *d, void *event)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaEventSynchronize(event));
    return TRI_OK;
}

static tri_status event_query_cuda(struct tri_device *d, void *event, bool *happened)
{
    cudaError_t e;

    TRI_TRY(select_device(d));
    e = cudaEventQuery(event);
    if (e == cudaErrorNotReady)
        (void)cudaGetLastError(); /* no failure, but kept as one */
    else if (e != cudaSuccess)
        return tri_cuda_fail("cudaEventQuery", e);
    *happened = e == cudaSuccess;
    return TRI_OK;
}

static tri_status event_elapsed_cuda(struct tri_device *d, void *begin, void *end, float *ms)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaEventElapsedTime(ms, begin, end));
    return TRI_OK;
}

/* Relaxed: engine threads go on with calls of their own meanwhile. */
static tri_status capture_begin_cuda(struct tri_device *d, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    return TRI_OK;
}

static tri_status capture_end_cuda(struct tri_device *d, void *stream, void **graph)
{
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t e;

    TRI_TRY(select_device(d));
    TRI_CUDA(cudaStreamEndCapture(stream, &recorded));
    /* Else every node has the priority of the stream that the graph is launched in. */
    e = cudaGraphInstantiate(&ready, recorded, cudaGraphInstantiateFlagUseNodePriority);
    (void)cudaGraphDestroy(recorded);
    if (e != cudaSuccess)
        return tri_cuda_fail("cudaGraphInstantiate", e);
    *graph = ready;
    return TRI_OK;
}

static tri_status graph_launch_cuda(struct tri_device *d, void *graph, void *stream)
{
    TRI_TRY(select_device(d));
    TRI_CUDA(cudaGraphLaunch(graph, stream));
    return TRI_OK;
}

static void graph_destroy_cuda(struct tri_device *d, void *graph)
{
    if (graph != NULL && select_device(d) == TRI_OK)
        (void)cudaGraphExecDestroy(graph);
}

static void destroy_cuda(struct tri_device *d)
{
    struct tri_cuda_device *c = tri_cuda_device(d);

    (void)cudaSetDevice(c->ordinal);
    if (c->cudnn != NULL)
        (void)cudnnDestroy(c->cudnn);
    if (c->cublaslt != NULL)
        (void)cublasLtDestroy(c->cublaslt);
    tri_free(c);
}

static const struct tri_device_ops cuda_ops = {
    .alloc = alloc_cuda,
    .free = free_cuda,
    .alloc_host = alloc_host_cuda,
    .free_host = free_host_cuda,
    .pin = pin_cuda,
    .unpin = unpin_cuda,
    .stream_create = stream_create_cuda,
    .stream_destroy = stream_destroy_cuda,
    .stream_sync = stream_sync_cuda,
    .copy = copy_cuda,
    .fill = fill_cuda,
    .event_create = event_create_cuda,
    .event_destroy = event_destroy_cuda,
    .event_record = event_record_cuda,
    .event_wait = event_wait_cuda,
    .event_sync = event_sync_cuda,
    .event_query = event_query_cuda,
    .event_elapsed = event_elapsed_cuda,
    .capture_begin = capture_begin_cuda,
    .capture_end = capture_end_cuda,
    .graph_launch = graph_launch_cuda,
    .graph_destroy = graph_destroy_cuda,
    .destroy = destroy_cuda,
};

/* "GPU-" and the identifier as the driver prints it. A MIG slice is a device of its own with its
 * own identifier. */
static void write_uuid(const cudaUUID_t *u, char *text, size_t bytes)
{
    int at = snprintf(text, bytes, "GPU-");

    for (size_t i = 0; i < sizeof(u->bytes); i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       (unsigned)(unsigned char)u->bytes[i]);
}

static tri_status describe(struct tri_cuda_device *c, int ordinal)
{
    struct cudaDeviceProp prop;

    TRI_CUDA(cudaGetDeviceProperties(&prop, ordinal));
    c->ordinal = ordinal;
    c->sm_count = prop.multiProcessorCount;
    c->sm_version = prop.major * 10 + prop.minor;
    c->shared_bytes = prop.sharedMemPerBlockOptin;
    c->l2_bytes = (size_t)prop.l2CacheSize;
    snprintf(c->name, sizeof(c->name), "%s", prop.name);
    write_uuid(&prop.uuid, c->uuid, sizeof(c->uuid));
    snprintf(c->bus, sizeof(c->bus), "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID,
             (unsigned)prop.pciBusID, (unsigned)prop.pciDeviceID);
    c->base = (struct tri_device){.ops = &cuda_ops,
                                  .kernels = tri_kernels_cuda,
                                  .name = c->name,
                                  .uuid = c->uuid,
                                  .bus = c->bus};
    return TRI_OK;
}

int tri_cuda_count(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) == cudaSuccess)
        return n;
    (void)cudaGetLastError();
    return 0;
}

static tri_status start(struct tri_cuda_device *c, int ordinal)
{
    TRI_TRY(describe(c, ordinal));
    TRI_TRY(select_device(&c->base));
    TRI_CUBLAS(cublasLtCreate(&c->cublaslt));
    TRI_CUDNN(cudnnCreate(&c->cudnn));
    return TRI_OK;
}

tri_status tri_cuda_open(int ordinal, struct tri_device **out)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    struct tri_cuda_device *c;
    tri_status st;

    if (e != cudaSuccess)
        return tri_fail(TRI_ERR_USAGE, "no CUDA device: %s", cudaGetErrorString(e));
    if (ordinal < 0 || ordinal >= n)
        return tri_fail(TRI_ERR_USAGE, "CUDA device %d is asked for, %d are visible", ordinal, n);
    c = tri_calloc(1, sizeof(*c), "CUDA device");
    if (c == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a CUDA device");
    TRI_TRY_GOTO(st, start(c, ordinal), destroy);
    *out = &c->base;
    return TRI_OK;

destroy:
    destroy_cuda(&c->base);
    return st;
}
