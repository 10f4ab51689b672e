/* Runs grids: fibers, barriers, operations of a warp (emulation/kernel.h). */
#include "fiber.h"
#include "fail.h"
#include "cuda_runtime.h"

#include <algorithm>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

constinit thread_local uint3 threadIdx = {};
constinit thread_local uint3 blockIdx = {};
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;
constinit thread_local int emu::lane_id = 0;

namespace
{

constexpr int WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t STACK = 256 << 10;
#else
constexpr size_t STACK = 64 << 10;
#endif
constexpr size_t GUARD = 4096; /* no access: a page below each stack */
constexpr size_t TAIL = 64;    /* bytes beyond the shared memory that must stay as they were */

struct Fiber {
    void *top;   /* of the stack, while it waits */
    char *stack; /* what it waits on */
    uint3 index; /* threadIdx */
};

/* Lanes that wait for others with the same mask. */
struct Group {
    unsigned mask, arrived;
    emu::Together together;
    emu::Site site;
};

struct Warp {
    unsigned fresh, ready; /* lanes that have not begun; that may go on */
    unsigned living;       /* that have not left the kernel */
    unsigned in_barrier;   /* that wait for the block */
    int ngroups;
    Group group[WARP];
    void *operand[WARP];
};

/* The block that a thread of the process runs, and what it keeps for the next one. */
struct Block {
    const emu::Grid *grid = nullptr;
    void *scheduler = nullptr; /* top of the stack of run_block */
    int current = 0;           /* thread that runs */
    int nthreads = 0, living = 0;
    unsigned runnable = 0; /* warps with a fresh or ready lane */
    int in_barrier = 0, predicates = 0, result = 0;
    emu::Site barrier;
    dim3 shape = dim3(0, 0, 0); /* of the indices in fiber[] */
    bool backwards = false;     /* the last lane and warp go first: finds a forgotten barrier */
    char *shared = nullptr;
    size_t shared_bytes = 0;
    std::vector<char *> stacks; /* free ones */
    unsigned nstacks = 0;
    Fiber fiber[MAX_THREADS];
    Warp warp[MAX_WARPS];

    ~Block()
    {
        for (char *s : stacks)
            munmap(s - GUARD, STACK + GUARD);
        free(shared);
    }
};

constinit thread_local Block *block = nullptr;

int bit_of(const Block &b, unsigned bits)
{
    return b.backwards ? 31 - __builtin_clz(bits) : __builtin_ctz(bits);
}

[[noreturn]] void die(const Block &b, const std::string &what, emu::Site site)
{
    emu::fail("kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s (%s:%u in %s)",
              emu::symbol(b.grid->kernel).c_str(), blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
              threadIdx.y, threadIdx.z, what.c_str(), site.file_name(), site.line(),
              site.function_name());
}

/* Nobody can go on though some have not left: says who waits where. */
[[noreturn]] void deadlock(const Block &b)
{
    std::string text = "the block is stuck:";
    emu::Site site = b.barrier;

    if (b.in_barrier > 0)
        text += " " + std::to_string(b.in_barrier) + " of " + std::to_string(b.living) +
                " threads wait in __syncthreads (line " + std::to_string(b.barrier.line()) + ")";
    for (int w = 0; w * WARP < b.nthreads; w++) {
        for (int g = 0; g < b.warp[w].ngroups; g++) {
            const Group &group = b.warp[w].group[g];
            char mask[64];

            snprintf(mask, sizeof(mask), "mask %08x, came %08x", group.mask, group.arrived);
            text += "; warp " + std::to_string(w) + " waits for lanes that never come (" + mask +
                    ", line " + std::to_string(group.site.line()) + ")";
            site = group.site;
        }
    }
    die(b, text, site);
}

char *take_stack(Block &b)
{
    if (!b.stacks.empty()) {
        char *s = b.stacks.back();

        b.stacks.pop_back();
        return s;
    }
    void *p = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE) != 0)
        emu::fail("no memory for the stack of a thread of a kernel");
    b.nstacks++;
    return static_cast<char *>(p) + GUARD;
}

/* Next thread to go on, of the same warp if there is one; -1: all have left. */
int choose(Block &b)
{
    unsigned here = b.current / WARP;
    const Warp *w = &b.warp[here];

    if ((w->fresh | w->ready) == 0) {
        b.runnable &= ~(1u << here);
        if (b.runnable == 0) {
            if (b.living > 0)
                deadlock(b);
            return -1;
        }
        here = static_cast<unsigned>(bit_of(b, b.runnable));
        w = &b.warp[here];
    }
    return static_cast<int>(here) * WARP + bit_of(b, w->fresh | w->ready);
}

/* Makes `next` the thread that runs; returns whether it begins. */
bool make_current(Block &b, int next)
{
    Warp &w = b.warp[next / WARP];
    unsigned lane = 1u << (next % WARP);
    bool begins = (w.fresh & lane) != 0;

    w.fresh &= ~lane;
    w.ready &= ~lane;
    b.current = next;
    threadIdx = b.fiber[next].index;
    emu::lane_id = next % WARP;
    return begins;
}

void run_fibers();

/* The current thread waits: another goes on. Returns when this one may. */
void wait(Block &b)
{
    Fiber &self = b.fiber[b.current];
    int next = choose(b);

    if (make_current(b, next)) {
        Fiber &f = b.fiber[next];

        f.stack = take_stack(b);
        /* Tops at different distances from a page's border keep to different cache sets. */
        f.top =
            emu::fiber_prepare(f.stack, STACK - (static_cast<size_t>(next) % 61) * 64, run_fibers);
    }
    emu_fiber_switch(&self.top, b.fiber[next].top);
}

void release(Block &b, Group &g)
{
    Warp &w = b.warp[b.current / WARP];

    g.together(g.arrived, w.operand);
    w.ready |= g.arrived;
    g = w.group[--w.ngroups];
}

void release_barrier(Block &b)
{
    b.result = b.predicates;
    b.predicates = 0;
    b.in_barrier = 0;
    for (int i = 0; i * WARP < b.nthreads; i++) {
        Warp &w = b.warp[i];

        w.ready |= w.in_barrier;
        if (w.in_barrier != 0)
            b.runnable |= 1u << i;
        w.in_barrier = 0;
    }
}

/* The current thread has left the kernel: others may have waited for nobody else. */
void leave(Block &b)
{
    Warp &w = b.warp[b.current / WARP];

    w.living &= ~(1u << emu::lane_id);
    b.living--;
    for (int i = 0; i < w.ngroups; i++)
        if (w.group[i].arrived == (w.group[i].mask & w.living))
            release(b, w.group[i--]);
    if (b.in_barrier > 0 && b.in_barrier == b.living)
        release_barrier(b);
}

/* Body of a fiber: runs threads from their beginning, until one is next that waits elsewhere. It
 * never returns: its frame must leave no marks of the address sanitizer on the stack. */
__attribute__((no_sanitize("address"))) void run_fibers()
{
    Block &b = *block;
    char *stack = b.fiber[b.current].stack;
    void *unused;

    for (;;) {
        b.grid->run(b.grid->call.get());
        leave(b);

        int next = choose(b);
        bool begins = next >= 0 && make_current(b, next);

        if (begins) {
            b.fiber[next].stack = stack;
            continue;
        }
        b.stacks.push_back(stack); /* nobody takes it before this fiber has left it */
        emu_fiber_switch(&unused, next < 0 ? b.scheduler : b.fiber[next].top);
    }
}

void number_threads(Block &b, dim3 shape)
{
    int n = 0;

    for (unsigned z = 0; z < shape.z; z++)
        for (unsigned y = 0; y < shape.y; y++)
            for (unsigned x = 0; x < shape.x; x++)
                b.fiber[n++].index = {x, y, z};
    b.shape = shape;
}

void run_block(Block &b)
{
    int nwarps = (b.nthreads + WARP - 1) / WARP;
    int first = b.backwards ? b.nthreads - 1 : 0;
    Fiber &f = b.fiber[first];

    for (int i = 0; i < nwarps; i++) {
        int lanes = std::min(WARP, b.nthreads - i * WARP);
        Warp &w = b.warp[i];

        w.fresh = w.living = lanes == WARP ? ~0u : (1u << lanes) - 1;
        w.ready = w.in_barrier = 0;
        w.ngroups = 0;
    }
    b.runnable = nwarps == WARP ? ~0u : (1u << nwarps) - 1;
    b.living = b.nthreads;
    b.in_barrier = b.predicates = 0;
    memset(b.shared, 0xff, b.grid->shared + TAIL);
    make_current(b, first);
    if (b.nthreads == 1) { /* it never waits: the stack of the stream's thread will do */
        b.grid->run(b.grid->call.get());
    } else {
        f.stack = take_stack(b);
        f.top = emu::fiber_prepare(f.stack, STACK, run_fibers);
        emu_fiber_switch(&b.scheduler, f.top);
    }
    for (size_t i = b.grid->shared; i < b.grid->shared + TAIL; i++)
        if (b.shared[i] != static_cast<char>(0xff))
            die(b, "it wrote beyond its dynamic shared memory", emu::Site());
}

void prepare_shared(Block &b, size_t bytes)
{
    size_t need = (bytes + TAIL + 127) & ~static_cast<size_t>(127);

    if (need <= b.shared_bytes)
        return;
    free(b.shared);
    b.shared = static_cast<char *>(aligned_alloc(128, need));
    b.shared_bytes = need;
    if (b.shared == nullptr)
        emu::fail("no memory for %zu bytes of shared memory", bytes);
}

} // namespace

void emu::meet(unsigned mask, void *operand, Together together, Site site)
{
    Block &b = *block;
    Warp &w = b.warp[b.current / WARP];
    unsigned lane = 1u << lane_id;
    int i = 0;

    if ((mask & lane) == 0)
        die(b, "a lane calls an operation of its warp whose mask leaves it out", site);
    while (i < w.ngroups && w.group[i].mask != mask)
        i++;
    Group &g = w.group[i];
    if (i == w.ngroups) {
        g = {mask, 0, together, site};
        w.ngroups++;
    } else if (g.together != together) {
        die(b, "lanes of one warp are in different operations", site);
    }
    w.operand[lane_id] = operand;
    g.arrived |= lane;
    if (g.arrived != (mask & w.living)) {
        wait(b);
    } else {
        release(b, g);
        w.ready &= ~lane;
    }
}

int emu::meet_block(bool predicate, Site site)
{
    Block &b = *block;
    Warp &w = b.warp[b.current / WARP];

    if (b.in_barrier == 0)
        b.barrier = site;
    else if (b.barrier.line() != site.line())
        die(b,
            "threads of the block are in different barriers, the others in line " +
                std::to_string(b.barrier.line()),
            site);
    b.predicates += predicate;
    b.in_barrier++;
    w.in_barrier |= 1u << lane_id;
    if (b.in_barrier != b.living) {
        wait(b);
    } else {
        release_barrier(b);
        w.ready &= ~(1u << lane_id);
    }
    return b.result;
}

unsigned emu::living_lanes()
{
    return block->warp[block->current / WARP].living;
}

void *emu::dynamic_shared()
{
    return block->shared;
}

int emu::block_threads()
{
    return block->nthreads;
}

void emu::check_aligned(const void *p, size_t bytes, Site site)
{
    char text[96];

    if (reinterpret_cast<uintptr_t>(p) % bytes == 0)
        return;
    snprintf(text, sizeof(text), "the address %p is no multiple of %zu bytes", p, bytes);
    die(*block, text, site);
}

void emu::run_grid(const Grid &grid)
{
    static thread_local std::unique_ptr<Block> mine;

    if (mine == nullptr)
        mine = std::make_unique<Block>();
    Block &b = *mine;

    block = &b;
    b.grid = &grid;
    b.backwards = emu::setting("EMULATE_BACKWARDS", 0) != 0;
    b.nthreads = static_cast<int>(grid.block.x * grid.block.y * grid.block.z);
    prepare_shared(b, grid.shared);
    if (b.shape.x != grid.block.x || b.shape.y != grid.block.y || b.shape.z != grid.block.z)
        number_threads(b, grid.block);
    blockDim = grid.block;
    gridDim = grid.grid;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                run_block(b);
}
