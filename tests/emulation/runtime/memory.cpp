/* Memory: allocations with guard bytes, poisoned when fresh; copies that check where they point. */
#include "memory.h"
#include "fail.h"
#include "stream.h"

#include <map>
#include <memory>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace
{

constexpr size_t ALIGN = 512; /* as the real allocator; also the bytes on guard on either side */
constexpr unsigned char GUARD = 0xa5, FRESH = 0xff; /* FRESH: not a number in every float type */

struct Block {
    size_t bytes;
    int device;
    cudaMemoryType type;
    bool ours; /* with guard bytes; else registered memory of the program */
};

std::map<uintptr_t, Block> blocks; /* by address */
std::map<int, size_t> used;        /* bytes by device */

uintptr_t address(const void *p)
{
    return reinterpret_cast<uintptr_t>(p);
}

/* The block that holds p; nullptr: none, memory of the program. */
std::pair<const uintptr_t, Block> *find(const void *p)
{
    auto after = blocks.upper_bound(address(p));

    if (after == blocks.begin())
        return nullptr;
    auto b = std::prev(after);
    return address(p) < b->first + std::max(b->second.bytes, static_cast<size_t>(1)) ? &*b
                                                                                     : nullptr;
}

size_t capacity()
{
    return static_cast<size_t>(emu::setting("EMULATE_DEVICE_MB", 8192)) << 20;
}

void *allocate(size_t bytes, int device, cudaMemoryType type)
{
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    unsigned char *p = static_cast<unsigned char *>(aligned_alloc(ALIGN, rounded + 2 * ALIGN));

    if (p == nullptr)
        return nullptr;
    memset(p, GUARD, ALIGN);
    memset(p + ALIGN, FRESH, bytes);
    memset(p + ALIGN + bytes, GUARD, rounded - bytes + ALIGN);
    blocks[address(p + ALIGN)] = {bytes, device, type, true};
    return p + ALIGN;
}

void check_guards(const void *p, size_t bytes)
{
    const unsigned char *c = static_cast<const unsigned char *>(p);
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;

    for (size_t i = 0; i < ALIGN; i++)
        if (c[i - ALIGN] != GUARD)
            emu::fail("something wrote %zu bytes before the allocation %p of %zu bytes", ALIGN - i,
                      p, bytes);
    for (size_t i = bytes; i < rounded + ALIGN; i++)
        if (c[i] != GUARD)
            emu::fail("something wrote %zu bytes behind the allocation %p of %zu bytes",
                      i - bytes + 1, p, bytes);
}

cudaError_t release(void *p, cudaMemoryType type)
{
    if (p == nullptr)
        return cudaSuccess;
    if (emu::current_device() < 0)
        return emu::error(cudaErrorInvalidDevice);
    if (cudaError_t e = emu::forbid_in_capture(); e != cudaSuccess)
        return e;
    emu::drain(emu::current_device()); /* cudaFree waits for the device */

    emu::Guard g(emu::program);
    auto b = blocks.find(address(p));
    if (b == blocks.end() || b->second.type != type || !b->second.ours)
        return emu::error(cudaErrorInvalidValue);
    check_guards(p, b->second.bytes);
    if (type == cudaMemoryTypeDevice)
        used[b->second.device] -= b->second.bytes;
    blocks.erase(b);
    free(static_cast<char *>(p) - ALIGN);
    return cudaSuccess;
}

/* Type of the memory at p, of which bytes are used; false: they reach beyond the allocation. */
bool look_up(const void *p, size_t bytes, cudaMemoryType *type)
{
    emu::Guard g(emu::program);
    auto *b = find(p);

    *type = b == nullptr ? cudaMemoryTypeUnregistered : b->second.type;
    return b == nullptr || address(p) + bytes <= b->first + b->second.bytes;
}

bool is_device(cudaMemoryType type)
{
    return type == cudaMemoryTypeDevice;
}

/* Whether the direction that the caller names is that of the pointers. */
bool agrees(cudaMemcpyKind kind, cudaMemoryType dst, cudaMemoryType src)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !is_device(dst) && !is_device(src);
    case cudaMemcpyHostToDevice:
        return is_device(dst) && !is_device(src);
    case cudaMemcpyDeviceToHost:
        return !is_device(dst) && is_device(src);
    case cudaMemcpyDeviceToDevice:
        return is_device(dst) && is_device(src);
    default:
        return true;
    }
}

bool is_capturing(cudaStream_t stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

} // namespace

void *emu::device_alloc(size_t bytes)
{
    Guard g(program);
    int device = current_device();

    if (bytes > capacity() - std::min(capacity(), used[device]))
        return nullptr;
    void *p = allocate(bytes, device, cudaMemoryTypeDevice);
    if (p != nullptr)
        used[device] += bytes;
    return p;
}

cudaError_t emu::device_free(void *p)
{
    return release(p, cudaMemoryTypeDevice);
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    if (cudaError_t e = emu::forbid_in_capture(); e != cudaSuccess)
        return e;
    if (devPtr == nullptr)
        return emu::error(cudaErrorInvalidValue);
    if (emu::current_device() < 0)
        return emu::error(cudaErrorInvalidDevice);
    *devPtr = size == 0 ? nullptr : emu::device_alloc(size);
    return *devPtr == nullptr && size > 0 ? emu::error(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void *devPtr)
{
    return emu::device_free(devPtr);
}

cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int)
{
    if (cudaError_t e = emu::forbid_in_capture(); e != cudaSuccess)
        return e;
    emu::Guard g(emu::program);
    *ptr = allocate(size, emu::current_device(), cudaMemoryTypeHost);
    return *ptr == nullptr ? emu::error(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return release(ptr, cudaMemoryTypeHost);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int)
{
    emu::Guard g(emu::program);

    if (ptr == nullptr || size == 0)
        return emu::error(cudaErrorInvalidValue);
    if (find(ptr) != nullptr)
        return emu::error(cudaErrorHostMemoryAlreadyRegistered);
    blocks[address(ptr)] = {size, emu::current_device(), cudaMemoryTypeHost, false};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *ptr)
{
    emu::drain(emu::current_device());

    emu::Guard g(emu::program);
    auto b = blocks.find(address(ptr));
    if (b == blocks.end() || b->second.ours)
        return emu::error(cudaErrorHostMemoryNotRegistered);
    blocks.erase(b);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int)
{
    *pDevice = pHost;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    emu::Guard g(emu::program);
    auto *b = find(ptr);
    void *p = const_cast<void *>(ptr);

    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, p};
    if (b != nullptr)
        *attributes = {b->second.type, b->second.device, p,
                       is_device(b->second.type) ? nullptr : p};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    emu::Guard g(emu::program);

    *total = capacity();
    *free = *total - std::min(*total, used[emu::current_device()]);
    return cudaSuccess;
}

/* Copies from memory of the program have read it when the call returns, copies to it are done then.
 */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaMemoryType to, from;

    if (width == 0 || height == 0)
        return cudaSuccess;
    if (dst == nullptr || src == nullptr || dpitch < width || spitch < width ||
        !look_up(dst, (height - 1) * dpitch + width, &to) ||
        !look_up(src, (height - 1) * spitch + width, &from) || !agrees(kind, to, from))
        return emu::error(cudaErrorInvalidValue);
    bool paged = to == cudaMemoryTypeUnregistered || from == cudaMemoryTypeUnregistered;
    if (paged && is_capturing(stream))
        return emu::forbid_in_capture(emu::find_stream(stream));
    if (paged && gettid() != getpid())
        emu::fail(
            "a thread beside the main one copies %zu bytes of pageable memory, which makes it "
            "wait for the stream",
            width * height);

    std::shared_ptr<char[]> staged;
    if (from == cudaMemoryTypeUnregistered) {
        staged = std::make_unique<char[]>((height - 1) * spitch + width);
        memcpy(staged.get(), src, (height - 1) * spitch + width);
        src = staged.get();
    }
    cudaError_t e = emu::enqueue(stream, [=] {
        const char *s = static_cast<const char *>(staged ? staged.get() : src);

        for (size_t i = 0; i < height; i++)
            memmove(static_cast<char *>(dst) + i * dpitch, s + i * spitch, width);
    });
    if (e == cudaSuccess && to == cudaMemoryTypeUnregistered)
        e = cudaStreamSynchronize(stream);
    return e;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cudaMemcpy2DAsync(dst, count, src, count, count, 1, kind, stream);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    if (cudaError_t e = emu::forbid_in_capture(); e != cudaSuccess)
        return e;
    cudaError_t e = cudaMemcpyAsync(dst, src, count, kind, nullptr);
    return e == cudaSuccess ? cudaStreamSynchronize(nullptr) : e;
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    cudaMemoryType type;

    if (count == 0)
        return cudaSuccess;
    if (!look_up(devPtr, count, &type) || type == cudaMemoryTypeUnregistered)
        return emu::error(cudaErrorInvalidValue);
    return emu::enqueue(stream, [=] { memset(devPtr, value, count); });
}

/* On memory of the device it only enqueues, as the real one. */
cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    if (cudaError_t e = emu::forbid_in_capture(); e != cudaSuccess)
        return e;
    return cudaMemsetAsync(devPtr, value, count, nullptr);
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t)
{
    return cudaMalloc(devPtr, size);
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t)
{
    return cudaFree(devPtr);
}
