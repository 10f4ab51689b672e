/* Captures and graphs: what is given to streams in capture becomes nodes; a launch gives the nodes
 * to streams again, one for each that was captured. */
#include "stream.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

namespace
{

enum class Kind { WORK, RECORD, WAIT }; /* the latter two: of an external event */

struct Node {
    Kind kind;
    emu::Work work;
    cudaEvent_t event;
    std::vector<int> after; /* nodes that come first; all have lower numbers */
    int lane;               /* number of the captured stream */
};

/* The mode of the calls of this thread, see cudaThreadExchangeStreamCaptureMode. */
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

} // namespace

struct emu::Capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool valid = true;
    std::vector<Node> nodes;
    std::map<cudaStream_t, int> lanes;
    std::vector<cudaEvent_t> events; /* that stand for nodes of it */
};

struct CUgraph_st {
    std::vector<Node> nodes;
    int nlanes; /* lane 0 is the stream where the capture began */
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<char> is_awaited; /* nodes that another lane waits for */
    std::vector<cudaStream_t> lanes;
};

namespace
{

std::vector<std::unique_ptr<emu::Capture>> captures; /* in progress */

cudaError_t invalidate(emu::Capture *c)
{
    c->valid = false;
    return emu::error(cudaErrorStreamCaptureUnsupported);
}

void add_node(cudaStream_t s, Kind kind, emu::Work work, cudaEvent_t event)
{
    emu::Capture *c = s->frontier.capture;
    int lane = c->lanes.emplace(s, static_cast<int>(c->lanes.size())).first->second;

    c->nodes.push_back({kind, std::move(work), event, s->frontier.nodes, lane});
    s->frontier.nodes = {static_cast<int>(c->nodes.size()) - 1};
}

/* Every node must lead to the stream where the capture began. */
bool all_joined(const emu::Capture &c)
{
    std::vector<char> leads(c.nodes.size(), 0);

    for (int n : c.origin->frontier.nodes)
        leads[static_cast<size_t>(n)] = 1;
    for (size_t n = c.nodes.size(); n-- > 0;)
        if (leads[n])
            for (int before : c.nodes[n].after)
                leads[static_cast<size_t>(before)] = 1;
    return std::find(leads.begin(), leads.end(), 0) == leads.end();
}

/* Ends the capture and gives its streams and events back. */
std::unique_ptr<emu::Capture> end(emu::Capture *c)
{
    auto found = std::find_if(captures.begin(), captures.end(),
                              [c](const auto &other) { return other.get() == c; });
    std::unique_ptr<emu::Capture> mine = std::move(*found);

    captures.erase(found);
    for (auto &entry : c->lanes)
        entry.first->frontier = {};
    c->origin->frontier = {};
    for (cudaEvent_t e : c->events)
        e->captured = {};
    return mine;
}

} // namespace

cudaError_t emu::enqueue(cudaStream_t handle, Work work)
{
    cudaStream_t s = find_stream(handle);
    Guard g(program);

    if (s == nullptr || s->device != current_device())
        return error(cudaErrorInvalidResourceHandle);
    if (s->frontier.capture == nullptr)
        push(s, std::move(work));
    else if (!s->frontier.capture->valid)
        return error(cudaErrorStreamCaptureInvalidated);
    else
        add_node(s, Kind::WORK, std::move(work), nullptr);
    return cudaSuccess;
}

cudaError_t emu::forbid_in_capture()
{
    Guard g(program);

    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (auto &c : captures)
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id()))
            return invalidate(c.get());
    return cudaSuccess;
}

cudaError_t emu::forbid_in_capture(cudaStream_t stream)
{
    Guard g(program);

    return stream->frontier.capture == nullptr ? cudaSuccess : invalidate(stream->frontier.capture);
}

cudaError_t emu::forbid_in_capture(int device)
{
    Guard g(program);

    for (auto &c : captures)
        if (c->origin->device == device)
            return invalidate(c.get());
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);

    if (stream == nullptr || stream == cudaStreamLegacy)
        return emu::error(cudaErrorStreamCaptureUnsupported);
    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (s->frontier.capture != nullptr)
        return emu::error(cudaErrorIllegalState);
    captures.push_back(std::make_unique<emu::Capture>());
    emu::Capture *c = captures.back().get();
    c->origin = s;
    c->mode = mode;
    c->thread = std::this_thread::get_id();
    c->lanes[s] = 0;
    s->frontier.capture = c;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    *status = s->frontier.capture == nullptr ? cudaStreamCaptureStatusNone
              : s->frontier.capture->valid   ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);

    *graph = nullptr;
    if (s == nullptr || s->frontier.capture == nullptr)
        return emu::error(cudaErrorIllegalState);
    emu::Capture *c = s->frontier.capture;
    if (c->origin != s) {
        c->valid = false;
        return emu::error(cudaErrorStreamCaptureUnmatched);
    }
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return emu::error(cudaErrorStreamCaptureWrongThread);
    bool joined = all_joined(*c);
    std::unique_ptr<emu::Capture> ended = end(c);
    if (!ended->valid)
        return emu::error(cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return emu::error(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{std::move(ended->nodes), static_cast<int>(ended->lanes.size())};
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);

    if (s == nullptr || event == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    emu::Capture *c = s->frontier.capture;
    if (c == nullptr) {
        emu::Record *r = event->record = emu::new_record();
        event->captured = {};
        emu::push(s, [r] { r->complete(); });
    } else if (!c->valid) {
        return emu::error(cudaErrorStreamCaptureInvalidated);
    } else if ((flags & cudaEventRecordExternal) != 0) {
        add_node(s, Kind::RECORD, emu::Work(), event);
    } else {
        event->captured = s->frontier;
        c->events.push_back(event);
    }
    return cudaSuccess;
}

/* The stream, in capture or not, comes after an event of a capture. */
static cudaError_t wait_captured(cudaStream_t s, cudaEvent_t event)
{
    emu::Capture *c = event->captured.capture;

    if (s->frontier.capture != nullptr && s->frontier.capture != c) {
        s->frontier.capture->valid = c->valid = false;
        return emu::error(cudaErrorStreamCaptureMerge);
    }
    s->frontier.capture = c;
    c->lanes.emplace(s, static_cast<int>(c->lanes.size()));
    for (int n : event->captured.nodes)
        if (std::find(s->frontier.nodes.begin(), s->frontier.nodes.end(), n) ==
            s->frontier.nodes.end())
            s->frontier.nodes.push_back(n);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);

    if (s == nullptr || event == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (event->captured.capture != nullptr)
        return wait_captured(s, event);
    if (s->frontier.capture == nullptr) {
        if (emu::Record *r = event->record; r != nullptr)
            emu::push(s, [r] { r->wait(); });
        return cudaSuccess;
    }
    if ((flags & cudaEventWaitExternal) == 0) {
        s->frontier.capture->valid = false;
        return emu::error(cudaErrorStreamCaptureIsolation);
    }
    add_node(s, Kind::WAIT, emu::Work(), event);
    return cudaSuccess;
}

/* --- graphs --- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    if (nodes != nullptr)
        return emu::error(cudaErrorNotSupported);
    *numNodes = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    CUgraphExec_st *x = new CUgraphExec_st{*graph, {}, {}};

    x->is_awaited.resize(graph->nodes.size());
    for (const Node &n : graph->nodes)
        for (int before : n.after)
            if (graph->nodes[static_cast<size_t>(before)].lane != n.lane)
                x->is_awaited[static_cast<size_t>(before)] = 1;
    for (int i = 1; i < graph->nlanes; i++) {
        cudaStream_t s;

        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        x->lanes.push_back(s);
    }
    *exec = x;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

static void launch_node(const CUgraphExec_st &x, size_t n, cudaStream_t s,
                        std::vector<emu::Record *> &records)
{
    const Node &node = x.graph.nodes[n];

    for (int before : node.after)
        if (emu::Record *r = records[static_cast<size_t>(before)]; r != nullptr)
            if (x.graph.nodes[static_cast<size_t>(before)].lane != node.lane)
                emu::push(s, [r] { r->wait(); });
    if (node.kind == Kind::WORK) {
        emu::push(s, node.work);
    } else if (node.kind == Kind::RECORD) {
        emu::Record *r = node.event->record = emu::new_record();

        emu::push(s, [r] { r->complete(); });
    } else if (emu::Record *r = node.event->record; r != nullptr) {
        emu::push(s, [r] { r->wait(); });
    }
    if (x.is_awaited[n]) {
        emu::Record *r = records[n] = emu::new_record();

        emu::push(s, [r] { r->complete(); });
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaStream_t s = emu::find_stream(stream);
    emu::Guard g(emu::program);
    std::vector<emu::Record *> records(exec->graph.nodes.size(), nullptr);

    if (s == nullptr)
        return emu::error(cudaErrorInvalidResourceHandle);
    if (s->frontier.capture != nullptr)
        return invalidate(s->frontier.capture);
    if (!exec->lanes.empty()) {
        emu::Record *begin = emu::new_record();

        emu::push(s, [begin] { begin->complete(); });
        for (cudaStream_t lane : exec->lanes)
            emu::push(lane, [begin] { begin->wait(); });
    }
    for (size_t n = 0; n < exec->graph.nodes.size(); n++) {
        int lane = exec->graph.nodes[n].lane;

        launch_node(*exec, n, lane == 0 ? s : exec->lanes[static_cast<size_t>(lane) - 1], records);
    }
    for (cudaStream_t lane : exec->lanes) {
        emu::Record *done = emu::new_record();

        emu::push(lane, [done] { done->complete(); });
        emu::push(s, [done] { done->wait(); });
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    for (cudaStream_t lane : exec->lanes)
        cudaStreamDestroy(lane);
    delete exec;
    return cudaSuccess;
}
