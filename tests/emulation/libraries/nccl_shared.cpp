/* See nccl_shared.h. */
#include "nccl_shared.h"

#include "../runtime/fail.h"

#include <algorithm>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace
{

constexpr int MAX_RANKS = 64;
constexpr size_t PIECE = 64 << 10;

/* Whether the process is gone, or waits to be buried. */
bool is_dead(pid_t pid)
{
    char path[64], state = 'X';

    snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
    FILE *f = fopen(path, "r");
    if (f == nullptr)
        return true;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    fclose(f);
    return state == 'X' || state == 'Z';
}

} // namespace

struct emu::Shared::Rank {
    std::atomic<uint32_t> here; /* 1: pid and about are set */
    pid_t pid;
    char about[64];
    std::atomic<uint32_t> given, taken; /* swaps of numbers */
    int numbers[2];
};

struct alignas(64) emu::Shared::Header {
    std::atomic<uint32_t> connected;
    Rank rank[MAX_RANKS];
};

struct alignas(64) emu::Shared::Box {
    std::atomic<uint32_t> written, read; /* pieces */
    size_t bytes;                        /* of the piece */
    char piece[PIECE];
};

emu::Shared::Shared(const std::string &name, int size, int rank)
    : name_(name), size_(size), rank_(rank)
{
    size_t boxes = static_cast<size_t>(size) * static_cast<size_t>(size);
    int fd = size > MAX_RANKS ? -1 : shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);

    bytes_ = sizeof(Header) + boxes * sizeof(Box);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0)
        fail("NCCL: no shared memory '%s' for %d ranks", name.c_str(), size);
    void *p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        fail("NCCL: cannot map '%s'", name.c_str());
    close(fd);
    header_ = static_cast<Header *>(p);
}

emu::Shared::~Shared()
{
    munmap(header_, bytes_);
    shm_unlink(name_.c_str()); /* where not all have come */
}

emu::Shared::Box *emu::Shared::box(int from, int to) const
{
    return reinterpret_cast<Box *>(header_ + 1) + from * size_ + to;
}

bool emu::Shared::peer_died() const
{
    for (int r = 0; r < size_; r++)
        if (header_->rank[r].here.load(std::memory_order_acquire) != 0 &&
            is_dead(header_->rank[r].pid))
            return true;
    return false;
}

template <class F>
emu::Shared::Outcome emu::Shared::wait(F ready, const std::atomic<bool> &abort,
                                       std::atomic<bool> *died)
{
    for (int turn = 0; !ready(); turn++) {
        timespec pause = {0, turn < 1000 ? 50000 : 2000000};

        if (abort.load())
            return ABORTED;
        if (turn % 1000 == 999 && peer_died()) {
            if (died == nullptr)
                return PEER_DIED;
            died->store(true);
        }
        if (turn > 100)
            nanosleep(&pause, nullptr);
        else
            sched_yield();
    }
    return DONE;
}

emu::Shared::Outcome emu::Shared::connect(const char (&about)[64], const std::atomic<bool> &abort)
{
    Rank &me = header_->rank[rank_];

    me.pid = getpid();
    memcpy(me.about, about, sizeof(me.about));
    me.here.store(1, std::memory_order_release);
    header_->connected.fetch_add(1);
    Outcome o = wait([this] { return header_->connected.load() >= static_cast<uint32_t>(size_); },
                     abort, nullptr);
    if (o == DONE)
        shm_unlink(name_.c_str());
    return o;
}

const char *emu::Shared::about(int rank) const
{
    return header_->rank[rank].about;
}

emu::Shared::Outcome emu::Shared::swap_numbers(int a, int b, std::vector<int> *all_a,
                                               std::vector<int> *all_b,
                                               const std::atomic<bool> &abort)
{
    Rank &me = header_->rank[rank_];
    uint32_t n = ++swaps_;
    auto all = [this](std::atomic<uint32_t> Rank::*counter, uint32_t at_least) {
        for (int r = 0; r < size_; r++)
            if ((header_->rank[r].*counter).load(std::memory_order_acquire) < at_least)
                return false;
        return true;
    };

    Outcome o = wait([&] { return all(&Rank::taken, n - 1); }, abort, nullptr);
    if (o != DONE)
        return o;
    me.numbers[0] = a;
    me.numbers[1] = b;
    me.given.store(n, std::memory_order_release);
    o = wait([&] { return all(&Rank::given, n); }, abort, nullptr);
    if (o != DONE)
        return o;
    for (int r = 0; r < size_; r++) {
        all_a->push_back(header_->rank[r].numbers[0]);
        all_b->push_back(header_->rank[r].numbers[1]);
    }
    me.taken.store(n, std::memory_order_release);
    return DONE;
}

/* A piece of the transfer if its box allows; returns whether one was moved. */
bool emu::Shared::step(Transfer &t)
{
    Box *b = t.to != nullptr ? box(t.peer, rank_) : box(rank_, t.peer);
    uint32_t written = b->written.load(std::memory_order_acquire);
    uint32_t read = b->read.load(std::memory_order_acquire);

    if (t.to != nullptr) {
        if (written == read)
            return false;
        if (b->bytes > t.bytes - t.done)
            fail("NCCL: rank %d sends more than rank %d takes", t.peer, rank_);
        memcpy(t.to + t.done, b->piece, b->bytes);
        t.done += b->bytes;
        b->read.store(read + 1, std::memory_order_release);
        return true;
    }
    if (written != read)
        return false;
    b->bytes = std::min(PIECE, t.bytes - t.done);
    memcpy(b->piece, t.from + t.done, b->bytes);
    t.done += b->bytes;
    b->written.store(written + 1, std::memory_order_release);
    return true;
}

emu::Shared::Outcome emu::Shared::run(std::vector<Transfer> &transfers,
                                      const std::atomic<bool> &abort, std::atomic<bool> *died)
{
    bool left = true;
    /* Moves what can be moved; true when something was, or nothing is left to move. */
    auto sweep = [&] {
        std::vector<char> busy(static_cast<size_t>(size_) * 2, 0);
        bool moved = false;

        left = false;
        for (Transfer &t : transfers) {
            size_t lane = static_cast<size_t>(t.peer) * 2 + (t.to != nullptr);

            if (t.done == t.bytes || busy[lane])
                continue;
            moved = step(t) || moved;
            if (t.done < t.bytes) {
                busy[lane] = 1;
                left = true;
            }
        }
        return moved || !left;
    };

    while (left)
        if (Outcome o = wait(sweep, abort, died); o != DONE)
            return o;
    return DONE;
}
