/* Streams and events. */
#include "stream.h"
#include "fail.h"

#include <algorithm>
#include <deque>
#include <linux/futex.h>
#include <set>
#include <sys/syscall.h>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace
{

/* Both in the words of the kernel: the library's forms would order threads that are not. */
void futex_wait(std::atomic<uint32_t> *word, uint32_t value)
{
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT_PRIVATE, value, nullptr,
            nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> *word)
{
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr,
            nullptr, 0);
}

int64_t now_ns()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

std::set<cudaStream_t> streams; /* alive, default ones included */
std::vector<cudaStream_t> default_streams;

void run_stream(cudaStream_t s)
{
    for (uint32_t seen = 0;; seen++) {
        while (s->given.load(std::memory_order_relaxed) == seen)
            futex_wait(&s->given, seen);

        CUstream_st::Node *next = s->head->next.load(std::memory_order_acquire);
        while (next == nullptr) { /* its giver is between two steps */
            std::this_thread::yield();
            next = s->head->next.load(std::memory_order_acquire);
        }
        emu::Work work = std::move(next->work);
        delete s->head;
        s->head = next;
        if (!work)
            break;
        work();
    }
    delete s->head;
    delete s;
}

cudaStream_t start_stream(int device, unsigned flags, int priority)
{
    cudaStream_t s = new CUstream_st;

    s->device = device;
    s->flags = flags;
    s->priority = priority;
    s->head = new CUstream_st::Node;
    s->tail.store(s->head, std::memory_order_relaxed);
    streams.insert(s);
    std::thread(run_stream, s).detach();
    return s;
}

/* Completed when all that the stream has been given so far is done. */
emu::Record *record_on(cudaStream_t s)
{
    emu::Record *r = emu::new_record();

    emu::push(s, [r] { r->complete(); });
    return r;
}

} // namespace

std::recursive_mutex emu::program;

void emu::Record::complete()
{
    time_ns = now_ns();
    done.store(1, std::memory_order_release);
    futex_wake(&done);
}

void emu::Record::wait()
{
    while (!is_complete())
        futex_wait(&done, 0);
}

emu::Record *emu::new_record()
{
    static std::deque<Record> all; /* a deque does not move what it holds */

    Guard g(program);
    return &all.emplace_back();
}

cudaStream_t emu::find_stream(cudaStream_t handle)
{
    Guard g(program);
    int device = current_device();

    if (handle != nullptr && handle != cudaStreamLegacy && handle != cudaStreamPerThread)
        return streams.count(handle) > 0 ? handle : nullptr;
    if (device < 0)
        return nullptr;
    default_streams.resize(std::max(default_streams.size(), static_cast<size_t>(device) + 1));
    cudaStream_t &s = default_streams[static_cast<size_t>(device)];
    if (s == nullptr)
        s = start_stream(device, cudaStreamDefault, 0);
    return s;
}

int emu::device_of(cudaStream_t stream)
{
    return stream->device;
}

void emu::push(cudaStream_t s, Work work)
{
    CUstream_st::Node *n = new CUstream_st::Node;

    n->work = std::move(work);
    s->given.fetch_add(1, std::memory_order_relaxed);
    /* The last touch: after it the thread of the stream may end and free it. */
    s->tail.exchange(n, std::memory_order_acq_rel)->next.store(n, std::memory_order_release);
    futex_wake(&s->given);
}

void emu::drain(int device)
{
    std::vector<Record *> last;

    {
        Guard g(program);
        for (cudaStream_t s : streams)
            if (s->device == device)
                last.push_back(record_on(s));
    }
    for (Record *r : last)
        r->wait();
}

/* --- streams --- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    emu::Guard g(emu::program);

    if (stream == nullptr || flags > cudaStreamNonBlocking)
        return emu::error(cudaErrorInvalidValue);
    if (emu::current_device() < 0)
        return emu::error(cudaErrorNoDevice);
    *stream = start_stream(emu::current_device(), flags, std::clamp(priority, -5, 0));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    cudaStream_t s = emu::find_stream(stream);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    *priority = s->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    cudaStream_t s = emu::find_stream(stream);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    *flags = s->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emu::Guard g(emu::program);

    if (stream == nullptr || streams.erase(stream) == 0)
        return emu::error(cudaErrorInvalidResourceHandle);
    emu::push(stream, emu::Work()); /* its thread ends, after what it was given, and frees it */
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaStream_t s = emu::find_stream(stream);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (cudaError_t e = emu::forbid_in_capture(s); e != cudaSuccess)
        return e;
    record_on(s)->wait();
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaStream_t s = emu::find_stream(stream);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (cudaError_t e = emu::forbid_in_capture(s); e != cudaSuccess)
        return e;
    emu::Record *r = record_on(s);
    for (int i = 0; i < 20 && !r->is_complete(); i++)
        std::this_thread::yield();
    return r->is_complete() ? cudaSuccess : emu::error(cudaErrorNotReady);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    return emu::enqueue(stream, [=] { fn(userData); });
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (cudaError_t e = emu::forbid_in_capture(emu::current_device()); e != cudaSuccess)
        return e;
    emu::drain(emu::current_device());
    return cudaSuccess;
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    *event = new CUevent_st;
    (*event)->flags = flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

/* The record of an event of the program; in capture it has none. */
static cudaError_t record_of(cudaEvent_t event, emu::Record **out)
{
    emu::Guard g(emu::program);

    if (event == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (event->captured.capture != nullptr)
        return emu::error(cudaErrorCapturedEvent);
    *out = event->record;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    emu::Record *r = nullptr;

    if (cudaError_t e = record_of(event, &r); e != cudaSuccess)
        return e;
    return r == nullptr || r->is_complete() ? cudaSuccess : emu::error(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emu::Record *r = nullptr;

    if (cudaError_t e = record_of(event, &r); e != cudaSuccess)
        return e;
    if (r != nullptr)
        r->wait();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    emu::Record *a = nullptr, *b = nullptr;

    if (cudaError_t e = record_of(start, &a); e != cudaSuccess)
        return e;
    if (cudaError_t e = record_of(end, &b); e != cudaSuccess)
        return e;
    if (a == nullptr || b == nullptr || ((start->flags | end->flags) & cudaEventDisableTiming) != 0)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (!a->is_complete() || !b->is_complete())
        return emu::error(cudaErrorNotReady);
    *ms = static_cast<float>(static_cast<double>(b->time_ns - a->time_ns) * 1e-6);
    return cudaSuccess;
}
