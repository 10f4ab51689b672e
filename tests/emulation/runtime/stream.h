/* Streams, events and captures, as the files of the runtime see them.
 *
 * Each stream is a thread that takes work from its own queue. Nothing orders two streams but a
 * Record, which one completes and the other waits for. To keep it so in the eyes of the thread
 * sanitizer as well, the side that gives work never acquires from the side that does it: there is
 * no lock between them, and a Record is never freed. The lock below is for the threads of the
 * program alone. */
#ifndef TRI_EMULATION_STREAM_H
#define TRI_EMULATION_STREAM_H

#include "cuda_runtime_api.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <stdint.h>
#include <vector>

namespace emu
{

using Work = std::function<void()>;

/* Something that happens once. */
struct Record {
    std::atomic<uint32_t> done{0};
    int64_t time_ns = 0; /* when; set before done */

    void complete();
    void wait(); /* the calling thread */
    bool is_complete() const
    {
        return done.load(std::memory_order_acquire) != 0;
    }
};

Record *new_record();

struct Capture; /* one in progress */

/* Where the next node of a stream in capture hangs. */
struct Frontier {
    Capture *capture = nullptr;
    std::vector<int> nodes;
};

/* The last error of the calling thread, for cudaGetLastError; returns e. */
cudaError_t error(cudaError_t e);

/* The lock of everything that calls of the program change: streams, events, captures, memory. */
extern std::recursive_mutex program;
using Guard = std::lock_guard<std::recursive_mutex>;

/* The stream of a handle: NULL is the default stream of the current device. nullptr: there is none.
 * The legacy default stream of CUDA also waits for blocking streams; ours is ordered by nothing. */
cudaStream_t find_stream(cudaStream_t handle);
int device_of(cudaStream_t stream);
int current_device();

/* Gives work to a stream, or, while it is captured, to its graph. */
cudaError_t enqueue(cudaStream_t handle, Work work);
/* Gives work to a stream that is not captured. */
void push(cudaStream_t stream, Work work);
/* Waits until all streams of the device have done all that they were given. */
void drain(int device);

/* A call that may not happen while a capture is going on: TRUE makes it fail and ends the capture.
 */
cudaError_t forbid_in_capture();
cudaError_t forbid_in_capture(cudaStream_t stream); /* of a stream in capture only */
cudaError_t forbid_in_capture(int device);          /* of any stream of the device, in any mode */

} // namespace emu

struct CUstream_st {
    int device, priority;
    unsigned flags;
    emu::Frontier frontier; /* while it is captured */
    struct Node {
        std::atomic<Node *> next{nullptr};
        emu::Work work;
    };
    std::atomic<Node *> tail;       /* where work is added */
    Node *head;                     /* whose successor is next; the thread's */
    std::atomic<uint32_t> given{0}; /* counts work, to sleep on; orders nothing, `next` does */
};

struct CUevent_st {
    unsigned flags;
    emu::Record *record = nullptr; /* the last one; nullptr: never recorded, counts as complete */
    emu::Frontier captured;        /* what it stands for within a capture */
};

#endif
