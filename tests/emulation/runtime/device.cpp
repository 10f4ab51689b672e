/* Devices, errors, and what a kernel may ask of a device. */
#include "cuda_runtime.h"
#include "fail.h"
#include "stream.h"

#include <algorithm>
#include <map>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace
{

constexpr int MAX_DEVICES = 8, SM_COUNT = 4;
constexpr size_t SHARED_PLAIN = 48 << 10, SHARED_OPT_IN = 227 << 10;

thread_local cudaError_t last_error = cudaSuccess;
/* CUDA gives every thread device 0, which hides that a thread of the program did not choose. */
thread_local int chosen_device = gettid() == getpid() ? 0 : -1;
std::map<const void *, int> shared_limits; /* of kernels, set by cudaFuncSetAttribute */

/* EMULATE_DEVICES, 1 without it; 0 stands for a machine without a GPU. */
int device_count()
{
    return static_cast<int>(std::clamp(emu::setting("EMULATE_DEVICES", 1), 0L, 1L * MAX_DEVICES));
}

/* Every process has devices of its own, unless EMULATE_SHARED is set: then processes that choose
 * one number share a device. */
cudaUUID_t uuid_of(int device)
{
    cudaUUID_t u = {};
    int pid = emu::setting("EMULATE_SHARED", 0) != 0 ? 0 : static_cast<int>(getpid());

    memcpy(u.bytes, "EMU", 3);
    memcpy(u.bytes + 4, &pid, sizeof(pid));
    u.bytes[15] = static_cast<char>(device + 1);
    return u;
}

size_t shared_limit(const void *kernel)
{
    emu::Guard g(emu::program);
    auto found = shared_limits.find(kernel);

    return found == shared_limits.end() ? SHARED_PLAIN : static_cast<size_t>(found->second);
}

} // namespace

cudaError_t emu::error(cudaError_t e)
{
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

int emu::current_device()
{
    return chosen_device;
}

cudaError_t emu::launch(const Grid &grid, cudaStream_t stream)
{
    uint64_t threads = uint64_t(grid.block.x) * grid.block.y * grid.block.z;

    if (threads < 1 || threads > 1024 || grid.block.z > 64 || grid.grid.x == 0 ||
        grid.grid.y == 0 || grid.grid.z == 0 || grid.grid.x > INT32_MAX || grid.grid.y > 65535 ||
        grid.grid.z > 65535)
        return error(cudaErrorInvalidConfiguration);
    if (grid.shared > shared_limit(grid.kernel))
        return error(cudaErrorInvalidValue);
    return enqueue(stream, [grid] { run_grid(grid); });
}

cudaError_t cudaGetDeviceCount(int *count)
{
    int n = device_count();

    if (n == 0)
        return emu::error(cudaErrorNoDevice);
    *count = n;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return emu::error(device_count() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice);
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int)
{
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int)
{
    return device < 0 || device >= device_count() ? emu::error(cudaErrorInvalidDevice)
                                                  : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    size_t free;

    if (device < 0 || device >= device_count())
        return emu::error(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof(p->name), "emulated GPU");
    p->uuid = uuid_of(device);
    cudaMemGetInfo(&free, &p->totalGlobalMem);
    p->sharedMemPerBlock = SHARED_PLAIN;
    p->sharedMemPerBlockOptin = SHARED_OPT_IN;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = 9;
    p->multiProcessorCount = SM_COUNT;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = 1;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 3;
    p->memoryBusWidth = 6144;
    p->l2CacheSize = 50 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->streamPrioritiesSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaDeviceProp p;

    if (cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess)
        return e;
    const std::map<cudaDeviceAttr, int> values = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrClockRate, 1000000},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrPciBusId, p.pciBusID},
        {cudaDevAttrPciDeviceId, p.pciDeviceID},
        {cudaDevAttrMemoryClockRate, 1000000},
        {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrPciDomainId, p.pciDomainID},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor,
         static_cast<int>(p.sharedMemPerMultiprocessor)},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(p.sharedMemPerBlockOptin)},
        {cudaDevAttrMemoryPoolsSupported, 1},
    };
    auto found = values.find(attr);
    if (found == values.end())
        return emu::error(cudaErrorInvalidValue);
    *value = found->second;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    snprintf(pciBusId, static_cast<size_t>(len), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    *leastPriority = 0;
    *greatestPriority = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int)
{
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* --- errors --- */

cudaError_t cudaGetLastError(void)
{
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

namespace
{

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

#define ERROR(e, text)                                                                             \
    {                                                                                              \
        e, #e, text                                                                                \
    }
const ErrorText ERRORS[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is already registered"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered region"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous capture error"),
    ERROR(cudaErrorStreamCaptureMerge, "operation would merge two capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the stream it began in"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capture has forked and not joined streams"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in capture"),
    ERROR(cudaErrorStreamCaptureWrongThread, "capture was begun by another thread"),
};
#undef ERROR

const ErrorText *find_error(cudaError_t e)
{
    for (const ErrorText &t : ERRORS)
        if (t.error == e)
            return &t;
    return nullptr;
}

} // namespace

const char *cudaGetErrorName(cudaError_t error)
{
    const ErrorText *t = find_error(error);

    return t == nullptr ? "unrecognized error code" : t->name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    const ErrorText *t = find_error(error);

    return t == nullptr ? "unrecognized error code" : t->text;
}

/* --- kernels --- */

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    emu::Guard g(emu::program);

    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) > SHARED_OPT_IN)
        return emu::error(cudaErrorInvalidValue);
    /* Allowed, but whoever set the limit before has lost it. */
    if (shared_limits.count(func) != 0 && shared_limits[func] > value)
        emu::fail("kernel %s: its limit of dynamic shared memory sinks from %d to %d bytes",
                  emu::symbol(func).c_str(), shared_limits[func], value);
    shared_limits[func] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    *attr = {};
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->ptxVersion = attr->binaryVersion = 90;
    attr->maxDynamicSharedSizeBytes = static_cast<int>(shared_limit(func));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *,
                                                          int blockSize, size_t dynamicSMemSize)
{
    size_t by_shared = dynamicSMemSize == 0 ? 32 : (228 << 10) / (dynamicSMemSize + 1024);

    *numBlocks = std::min(2048 / std::max(blockSize, 1), static_cast<int>(by_shared));
    return cudaSuccess;
}
