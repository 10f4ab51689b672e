/* NCCL between processes of one machine.
 *
 * A call, or all calls of a group on one communicator and stream, is one piece of work of the
 * stream: messages between all ranks, then reductions in the order of ranks, so that all ranks get
 * equal bits. What the real library refuses is refused: two ranks on one device, calls on a
 * communicator that is not ready, memory that is not on the device. A communicator that does not
 * block does what it was asked when it is polled for the second time: before that its stream has
 * nothing, and calls are refused. bf16 and f16 are summed in f32
 * and rounded once, where the real library rounds at each step. */
#include "nccl.h"

#include "../runtime/fail.h"
#include "../runtime/memory.h"
#include "../runtime/stream.h"
#include "element.h"
#include "nccl_shared.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string.h>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace
{

/* Outlives the handle while work of it is in a queue or in a graph. */
struct State {
    int size = 0, rank = 0;
    std::string name;
    std::unique_ptr<emu::Shared> shared;
    std::atomic<bool> abort{false}, died{false}, busy{false};
    std::atomic<int> result{ncclInProgress}; /* of the initialisation */
    std::thread setup;
    int splits = 0;
    bool blocking = true;
    int polls = 0;                                      /* that `pending` still takes */
    std::vector<std::function<ncclResult_t()>> pending; /* of a communicator that does not block */

    ~State()
    {
        if (setup.joinable())
            setup.join();
    }
};

} // namespace

struct ncclComm {
    std::shared_ptr<State> state;
};

namespace
{

enum class Kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };

struct Call {
    Kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* root, or the other side */
};

/* What a group has collected for one communicator and stream. */
struct Batch {
    std::shared_ptr<State> state;
    cudaStream_t stream;
    std::vector<Call> calls;
};

thread_local int group_depth = 0;
thread_local std::vector<Batch> group;
thread_local ncclResult_t group_result = ncclSuccess;

size_t bytes_of(ncclDataType_t type)
{
    const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return bytes[type];
}

template <class T> T combine(T a, T b, ncclRedOp_t op)
{
    return op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : a + b;
}

/* to[i] = op over the ranks' parts, which lie one after another. */
template <class T>
void reduce_plain(char *to, const char *parts, size_t count, int size, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        T v;

        memcpy(&v, parts + i * sizeof(T), sizeof(T));
        for (int r = 1; r < size; r++) {
            T w;

            memcpy(&w, parts + (static_cast<size_t>(r) * count + i) * sizeof(T), sizeof(T));
            v = combine(v, w, op);
        }
        memcpy(to + i * sizeof(T), &v, sizeof(T));
    }
}

void reduce_half(char *to, const char *parts, size_t count, int size, ncclRedOp_t op,
                 tri_dtype type)
{
    for (size_t i = 0; i < count; i++) {
        float v = emu::load(type, parts, static_cast<int64_t>(i));

        for (int r = 1; r < size; r++)
            v = combine(
                v, emu::load(type, parts, static_cast<int64_t>(static_cast<size_t>(r) * count + i)),
                op);
        emu::store(type, to, static_cast<int64_t>(i), v);
    }
}

void reduce(char *to, const char *parts, size_t count, int size, const Call &c)
{
    switch (c.type) {
    case ncclFloat32:
        return reduce_plain<float>(to, parts, count, size, c.op);
    case ncclFloat64:
        return reduce_plain<double>(to, parts, count, size, c.op);
    case ncclInt32:
        return reduce_plain<int32_t>(to, parts, count, size, c.op);
    case ncclInt64:
        return reduce_plain<int64_t>(to, parts, count, size, c.op);
    case ncclUint8:
        return reduce_plain<uint8_t>(to, parts, count, size, c.op);
    case ncclBfloat16:
        return reduce_half(to, parts, count, size, c.op, TRI_BF16);
    case ncclFloat16:
        return reduce_half(to, parts, count, size, c.op, TRI_F16);
    default:
        emu::fail("NCCL: type %d is not emulated", c.type);
    }
}

/* The messages of one call; `parts` is where reductions collect what all ranks sent. */
void add_transfers(const State &s, const Call &c, std::vector<emu::Transfer> &t,
                   std::vector<char> &parts)
{
    size_t n = c.count * bytes_of(c.type);
    auto part = [&](int r) { return parts.data() + static_cast<size_t>(r) * n; };
    bool to_all = c.kind == Kind::ALL_REDUCE || c.kind == Kind::ALL_GATHER ||
                  c.kind == Kind::REDUCE_SCATTER || (c.kind == Kind::BROADCAST && c.peer == s.rank);
    bool from_all = c.kind == Kind::ALL_REDUCE || c.kind == Kind::REDUCE_SCATTER ||
                    c.kind == Kind::ALL_GATHER || (c.kind == Kind::REDUCE && c.peer == s.rank);

    if (from_all && c.kind != Kind::ALL_GATHER)
        parts.resize(n * static_cast<size_t>(s.size));
    for (int r = 0; r < s.size; r++) {
        const char *mine =
            c.kind == Kind::REDUCE_SCATTER ? c.send + static_cast<size_t>(r) * n : c.send;
        bool one = c.peer == r && (c.kind == Kind::REDUCE || c.kind == Kind::SEND);
        bool one_in = c.peer == r && (c.kind == Kind::BROADCAST || c.kind == Kind::RECV);

        if (to_all || one)
            t.push_back({r, nullptr, mine, n});
        if (from_all || one_in)
            t.push_back({r,
                         c.kind == Kind::ALL_GATHER ? c.recv + static_cast<size_t>(r) * n
                         : from_all                 ? part(r)
                                                    : c.recv,
                         nullptr, n});
    }
}

void finish(const State &s, const Call &c, const std::vector<char> &parts)
{
    if (!parts.empty())
        reduce(c.recv, parts.data(), c.count, s.size, c);
}

/* On the thread of the stream. */
void run(State &s, const std::vector<Call> &calls)
{
    std::vector<emu::Transfer> transfers;
    std::vector<std::vector<char>> parts(calls.size());

    if (s.abort)
        return;
    if (s.busy.exchange(true))
        emu::fail("NCCL: communicator '%s' runs on two streams at once", s.name.c_str());
    for (size_t i = 0; i < calls.size(); i++)
        add_transfers(s, calls[i], transfers, parts[i]);
    if (s.shared->run(transfers, s.abort, &s.died) == emu::Shared::DONE)
        for (size_t i = 0; i < calls.size(); i++)
            finish(s, calls[i], parts[i]);
    s.busy = false;
}

ncclResult_t flush(const Batch &b)
{
    std::shared_ptr<State> s = b.state;
    std::vector<Call> calls = b.calls;

    return emu::enqueue(b.stream, [s, calls] { run(*s, calls); }) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

/* Whether the communicator has nothing in progress. */
ncclResult_t ready(ncclComm_t comm)
{
    if (comm == nullptr || comm->state->polls > 0)
        return ncclInvalidArgument;
    return comm->state->result == ncclInProgress
               ? ncclInvalidUsage
               : static_cast<ncclResult_t>(comm->state->result.load());
}

/* Does `what`, now or in the background. */
ncclResult_t begin(State &s, std::function<ncclResult_t()> what)
{
    if (s.blocking)
        return what();
    s.pending.push_back(std::move(what));
    s.polls = 2;
    return ncclInProgress;
}

ncclResult_t begin(const Batch &b)
{
    return begin(*b.state, [b] { return flush(b); });
}

ncclResult_t check(ncclComm_t comm, const Call &c)
{
    size_t n = c.count * bytes_of(c.type);

    if (ncclResult_t e = ready(comm); e != ncclSuccess)
        return e;
    if (c.peer >= comm->state->size || c.peer < 0)
        return ncclInvalidArgument;
    if (n > 0 && ((c.send != nullptr && !emu::on_device(c.send)) ||
                  (c.recv != nullptr && !emu::on_device(c.recv))))
        return ncclInvalidArgument;
    return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const Call &c)
{
    ncclResult_t e = check(comm, c);

    if (e != ncclSuccess) {
        group_result = e;
        return e;
    }
    if (c.count == 0)
        return ncclSuccess;
    if (group_depth == 0)
        return begin({comm->state, stream, {c}});
    for (Batch &b : group) {
        if (b.state == comm->state && b.stream == stream) {
            b.calls.push_back(c);
            return ncclSuccess;
        }
    }
    group.push_back({comm->state, stream, {c}});
    return ncclSuccess;
}

/* Connects all ranks; two on one device are refused. */
void set_up(State *s, cudaUUID_t device)
{
    char about[64] = {};
    int result = ncclSuccess;

    memcpy(about, device.bytes, sizeof(device.bytes));
    gethostname(about + sizeof(device.bytes), sizeof(about) - sizeof(device.bytes) - 1);
    switch (s->shared->connect(about, s->abort)) {
    case emu::Shared::DONE:
        break;
    case emu::Shared::ABORTED:
        result = ncclInternalError;
        break;
    case emu::Shared::PEER_DIED:
        result = ncclRemoteError;
        break;
    }
    for (int r = 0; result == ncclSuccess && r < s->size; r++)
        for (int q = 0; q < r; q++)
            if (memcmp(s->shared->about(r), s->shared->about(q), sizeof(about)) == 0)
                result = ncclInvalidUsage;
    s->result = result;
}

ncclResult_t start(const std::string &name, int size, int rank, const ncclConfig_t *config,
                   ncclComm_t *out)
{
    cudaDeviceProp prop;
    ncclComm_t c = new ncclComm{std::make_shared<State>()};
    State *s = c->state.get();

    if (cudaGetDeviceProperties(&prop, emu::current_device()) != cudaSuccess) {
        delete c;
        return ncclUnhandledCudaError;
    }
    s->size = size;
    s->rank = rank;
    s->name = name;
    s->blocking = config == nullptr || config->blocking != 0;
    s->shared = std::make_unique<emu::Shared>(name, size, rank);
    s->setup = std::thread(set_up, s, prop.uuid);
    *out = c;
    if (!s->blocking)
        return ncclInProgress;
    s->setup.join();
    return static_cast<ncclResult_t>(s->result.load());
}

} // namespace

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    *ptr = emu::device_alloc(size);
    return *ptr == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr)
{
    return emu::device_free(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<int> count{0};
    timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    *id = {};
    snprintf(id->internal, sizeof(id->internal), "/emulated-nccl-%d-%d-%lld", (int)getpid(),
             count++, t.tv_sec * 1000000000LL + t.tv_nsec);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return ncclInvalidArgument;
    if (nranks > emu::setting("EMULATE_NCCL_RANKS", nranks))
        return ncclSystemError;
    return start(commId.internal, nranks, rank, config, comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    State &s = *comm->state;
    std::vector<int> colors, keys;
    std::vector<std::pair<int, int>> members; /* key, rank in the parent */
    std::string name = s.name + "-" + std::to_string(s.splits++) + "-" + std::to_string(color);

    if (ncclResult_t e = ready(comm); e != ncclSuccess)
        return e;
    if (s.shared->swap_numbers(color, key, &colors, &keys, s.abort) != emu::Shared::DONE)
        return ncclRemoteError;
    *newcomm = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR)
        return begin(s, [] { return ncclSuccess; });
    for (int r = 0; r < s.size; r++)
        if (colors[static_cast<size_t>(r)] == color)
            members.push_back({keys[static_cast<size_t>(r)], r});
    std::sort(members.begin(), members.end());
    auto me = std::find(members.begin(), members.end(), std::make_pair(key, s.rank));
    int size = static_cast<int>(members.size()), rank = static_cast<int>(me - members.begin());
    ncclConfig_t how = config != nullptr ? *config : ncclConfig_t(NCCL_CONFIG_INITIALIZER);
    return begin(s, [=]() mutable {
        ncclResult_t e = start(name, size, rank, &how, newcomm);

        return e == ncclInProgress ? ncclSuccess : e; /* the child's own affair */
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t e = ready(comm);

    return e == ncclSuccess ? begin(*comm->state, [] { return ncclSuccess; }) : e;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    emu::drain(emu::current_device());
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->state->abort = true;
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (comm == nullptr)
        return ncclInvalidArgument;
    State &s = *comm->state;

    if (s.polls > 0 && --s.polls == 0) {
        for (const auto &what : std::exchange(s.pending, {}))
            if (ncclResult_t e = what(); e != ncclSuccess)
                s.result = e;
    }
    if (s.polls > 0) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    *asyncError = s.died ? ncclRemoteError : static_cast<ncclResult_t>(s.result.load());
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->state->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->state->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t, void **handle)
{
    if (ncclResult_t e = ready(comm); e != ncclSuccess)
        return e;
    *handle = buff;
    return emu::on_device(buff) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void *)
{
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    const char *text[] = {"no error",
                          "unhandled cuda error",
                          "unhandled system error",
                          "internal error",
                          "invalid argument",
                          "invalid usage",
                          "remote process exited or there was a network error",
                          "NCCL operation in progress"};

    return result < ncclNumResults ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

/* --- calls on a stream --- */

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return add(
        comm, stream,
        {Kind::ALL_REDUCE, (const char *)sendbuff, (char *)recvbuff, count, datatype, op, 0});
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::REDUCE, (const char *)sendbuff, (char *)recvbuff, count, datatype, op, root});
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::REDUCE_SCATTER, (const char *)sendbuff, (char *)recvbuff, recvcount, datatype,
                op, 0});
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::ALL_GATHER, (const char *)sendbuff, (char *)recvbuff, sendcount, datatype,
                ncclSum, 0});
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::BROADCAST, (const char *)sendbuff, (char *)recvbuff, count, datatype, ncclSum,
                root});
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::SEND, (const char *)sendbuff, nullptr, count, datatype, ncclSum, peer});
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               {Kind::RECV, nullptr, (char *)recvbuff, count, datatype, ncclSum, peer});
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t e = group_result;

    if (group_depth == 0)
        return ncclInvalidUsage;
    if (--group_depth > 0)
        return ncclSuccess;
    for (const Batch &b : group)
        if (e == ncclSuccess || e == ncclInProgress)
            e = begin(b);
    group.clear();
    group_result = ncclSuccess;
    return e;
}
