/* The emulated runtime: order of streams, staged copies, guards, captures.
 *
 * Usage: test_runtime [CASE]: without a case all that pass; the others end the process with a
 * message or, under the thread sanitizer, with a report. */
#include "tests/emulation/check.h"

#include <stdint.h>
#include <string.h>
#include <thread>
#include <time.h>

static const int N = 1000;

static __global__ void scale(float *x, float factor)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < N)
        x[i] *= factor;
}

static __global__ void add(float *x, const float *y)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < N)
        x[i] += y[i];
}

static __global__ void count_up(float *x)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < N)
        x[i] = static_cast<float>(i);
}

static void pause_ms(void *ms)
{
    timespec t = {0, static_cast<long>(reinterpret_cast<intptr_t>(ms)) * 1000000};

    nanosleep(&t, nullptr);
}

struct Fixture {
    cudaStream_t a, b;
    cudaEvent_t event, back;
    float *x, *y;
};

static Fixture set_up(void)
{
    Fixture f;

    CHECK_CUDA(cudaStreamCreateWithFlags(&f.a, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithPriority(&f.b, cudaStreamNonBlocking, -5));
    CHECK_CUDA(cudaEventCreateWithFlags(&f.event, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&f.back, cudaEventDisableTiming));
    CHECK_CUDA(cudaMalloc(&f.x, N * sizeof(float)));
    CHECK_CUDA(cudaMalloc(&f.y, N * sizeof(float)));
    return f;
}

static void tear_down(const Fixture &f)
{
    CHECK_CUDA(cudaFree(f.x));
    CHECK_CUDA(cudaFree(f.y));
    CHECK_CUDA(cudaEventDestroy(f.event));
    CHECK_CUDA(cudaEventDestroy(f.back));
    CHECK_CUDA(cudaStreamDestroy(f.a));
    CHECK_CUDA(cudaStreamDestroy(f.b));
}

/* a writes x late; b reads it after the event, or too early without one. */
static void two_streams(const Fixture &f, bool ordered, float *out)
{
    CHECK_CUDA(cudaMemsetAsync(f.x, 0, N * sizeof(float), f.a));
    CHECK_CUDA(cudaMemsetAsync(f.y, 0, N * sizeof(float), f.b));
    CHECK_CUDA(cudaStreamSynchronize(f.a));
    CHECK_CUDA(cudaLaunchHostFunc(f.a, pause_ms, reinterpret_cast<void *>(20)));
    CHECK_CUDA(start(f.a, count_up, 4, 256, 0, f.x));
    if (ordered) {
        CHECK_CUDA(cudaEventRecord(f.event, f.a));
        CHECK_CUDA(cudaStreamWaitEvent(f.b, f.event));
    }
    CHECK_CUDA(start(f.b, add, 4, 256, 0, f.y, f.x));
    CHECK_CUDA(cudaMemcpyAsync(out, f.y, N * sizeof(float), cudaMemcpyDeviceToHost, f.b));
    CHECK_CUDA(cudaStreamSynchronize(f.a));
}

static void test_events_order_streams(void)
{
    Fixture f = set_up();
    static float out[N];

    two_streams(f, true, out);
    for (int i = 0; i < N; i++)
        CHECK(out[i] == static_cast<float>(i));
    tear_down(f);
}

/* Fresh memory is not a number. A pageable source may change once the copy has returned. */
static void test_copies(void)
{
    Fixture f = set_up();
    static float in[N], out[N];

    CHECK_CUDA(cudaMemcpy(out, f.x, sizeof(out), cudaMemcpyDeviceToHost));
    CHECK(isnan(out[0]) && isnan(out[N - 1]));
    for (int i = 0; i < N; i++)
        in[i] = 2;
    CHECK_CUDA(cudaLaunchHostFunc(f.a, pause_ms, reinterpret_cast<void *>(20)));
    CHECK_CUDA(cudaMemcpyAsync(f.x, in, sizeof(in), cudaMemcpyHostToDevice, f.a));
    memset(in, 0, sizeof(in));
    CHECK_CUDA(cudaMemcpyAsync(out, f.x, sizeof(out), cudaMemcpyDefault, f.a));
    CHECK(out[0] == 2 && out[N - 1] == 2);
    CHECK(cudaMemcpyAsync(f.x, in, sizeof(in) + 4, cudaMemcpyDefault, f.a) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(f.x, in, sizeof(in), cudaMemcpyDeviceToHost, f.a) ==
          cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    tear_down(f);
}

static void test_limits(void)
{
    size_t free, total;
    void *p;

    CHECK_CUDA(cudaMemGetInfo(&free, &total));
    CHECK(cudaMalloc(&p, total + 1) == cudaErrorMemoryAllocation);
    CHECK(run(scale, 1, 1025, 0, nullptr, 1.0f) == cudaErrorInvalidConfiguration);
    CHECK(run(scale, 0, 32, 0, nullptr, 1.0f) == cudaErrorInvalidConfiguration);
    CHECK(run(count_up, 1, 32, 49 << 10, nullptr) == cudaErrorInvalidValue);
    CHECK_CUDA(
        cudaFuncSetAttribute(count_up, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    Fixture f = set_up();
    CHECK_CUDA(run(count_up, 1, 32, 49 << 10, f.x));
    tear_down(f);
}

/* x = (x * 2 + y * 3) with y on a forked stream, launched three times. */
static void test_capture(void)
{
    Fixture f = set_up();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    static float out[N];

    CHECK_CUDA(start(f.a, count_up, 4, 256, 0, f.x));
    CHECK_CUDA(start(f.a, count_up, 4, 256, 0, f.y));
    CHECK_CUDA(cudaStreamSynchronize(f.a));
    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaEventRecord(f.event, f.a));
    CHECK_CUDA(cudaStreamWaitEvent(f.b, f.event));
    CHECK_CUDA(start(f.b, scale, 4, 256, 0, f.y, 3.0f));
    CHECK_CUDA(cudaEventRecord(f.back, f.b));
    CHECK_CUDA(start(f.a, scale, 4, 256, 0, f.x, 2.0f));
    CHECK_CUDA(cudaStreamWaitEvent(f.a, f.back));
    CHECK_CUDA(start(f.a, add, 4, 256, 0, f.x, f.y));
    CHECK_CUDA(cudaStreamEndCapture(f.a, &graph));
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(nodes == 3);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        CHECK_CUDA(cudaGraphLaunch(exec, f.a));
    CHECK_CUDA(cudaMemcpyAsync(out, f.x, sizeof(out), cudaMemcpyDefault, f.a));
    for (int i = 0; i < N; i++) { /* x -> 2x + 3^k i: 5, 19, 65 */
        CHECK(out[i] == 65.0f * static_cast<float>(i));
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    tear_down(f);
}

static cudaError_t end_capture(cudaStream_t s)
{
    cudaGraph_t graph = nullptr;
    cudaError_t e = cudaStreamEndCapture(s, &graph);

    if (graph != nullptr)
        CHECK_CUDA(cudaGraphDestroy(graph));
    return e;
}

/* What the real runtime forbids while it captures. */
static void test_capture_forbids(void)
{
    Fixture f = set_up();
    void *p;

    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamSynchronize(f.a) == cudaErrorStreamCaptureUnsupported);
    CHECK(start(f.a, count_up, 4, 256, 0, f.x) == cudaErrorStreamCaptureInvalidated);
    CHECK(end_capture(f.a) == cudaErrorStreamCaptureInvalidated);

    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMalloc(&p, 16) == cudaErrorStreamCaptureUnsupported);
    CHECK(end_capture(f.a) == cudaErrorStreamCaptureInvalidated);

    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMalloc(&p, 16));
    CHECK_CUDA(cudaMemset(p, 0, 16));
    CHECK_CUDA(cudaStreamSynchronize(nullptr));
    CHECK_CUDA(cudaFree(p));
    CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
    CHECK(end_capture(f.a) == cudaErrorStreamCaptureInvalidated);

    CHECK_CUDA(cudaEventRecord(f.event, f.b));
    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamWaitEvent(f.a, f.event) == cudaErrorStreamCaptureIsolation);
    CHECK(end_capture(f.a) == cudaErrorStreamCaptureInvalidated);

    CHECK_CUDA(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaEventRecord(f.event, f.a));
    CHECK(cudaEventSynchronize(f.event) == cudaErrorCapturedEvent);
    CHECK_CUDA(cudaStreamWaitEvent(f.b, f.event));
    CHECK_CUDA(start(f.b, count_up, 4, 256, 0, f.x));
    CHECK(end_capture(f.b) == cudaErrorStreamCaptureUnmatched);
    CHECK(end_capture(f.a) == cudaErrorStreamCaptureUnjoined ||
          cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    CHECK_CUDA(start(f.b, count_up, 4, 256, 0, f.x)); /* both streams are as before */
    CHECK_CUDA(cudaStreamSynchronize(f.b));
    tear_down(f);
}

/* Another thread says which device it means. */
static void test_threads_choose(void)
{
    Fixture f = set_up();

    std::thread([&f] {
        CHECK(start(f.a, count_up, 4, 256, 0, f.x) == cudaErrorInvalidResourceHandle);
        CHECK_CUDA(cudaSetDevice(0));
        CHECK_CUDA(start(f.a, count_up, 4, 256, 0, f.x));
        CHECK_CUDA(cudaStreamSynchronize(f.a));
    }).join();
    tear_down(f);
}

/* --- cases that must end the process --- */

static __global__ void overrun(float *x)
{
    x[N + threadIdx.x] = 1;
}

static int fail(const char *what)
{
    Fixture f = set_up();
    static float out[N];

    if (strcmp(what, "overrun") == 0) {
        CHECK_CUDA(run(overrun, 1, 1, 0, f.x));
        tear_down(f);
    } else if (strcmp(what, "pageable") == 0) {
        std::thread([&f] {
            CHECK_CUDA(cudaSetDevice(0));
            CHECK_CUDA(cudaMemcpyAsync(out, f.x, sizeof(out), cudaMemcpyDefault, f.a));
        }).join();
    } else if (strcmp(what, "missing_event") == 0) {
        two_streams(f, false, out);
        for (int i = 0; i < N; i++)
            CHECK(out[i] == static_cast<float>(i));
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return fail(argv[1]);
    test_events_order_streams();
    test_copies();
    test_limits();
    test_capture();
    test_capture_forbids();
    test_threads_choose();
    return 0;
}
