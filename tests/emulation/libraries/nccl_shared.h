/* Messages between the processes of an emulated NCCL communicator, through shared memory.
 *
 * Each ordered pair of ranks has one box, which holds one piece of a message. Messages of a pair
 * arrive in the order of their sending. */
#ifndef TRI_EMULATION_NCCL_SHARED_H
#define TRI_EMULATION_NCCL_SHARED_H

#include <atomic>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <sys/types.h>
#include <vector>

namespace emu
{

struct Transfer {
    int peer;
    char *to;         /* receives; or nullptr */
    const char *from; /* sends */
    size_t bytes;
    size_t done = 0;
};

class Shared
{
  public:
    enum Outcome { DONE, ABORTED, PEER_DIED };

    /* Every rank of the communicator passes the same name. */
    Shared(const std::string &name, int size, int rank);
    ~Shared();
    Shared(const Shared &) = delete;
    void operator=(const Shared &) = delete;

    /* Announces this rank with 64 bytes about it, and waits for all others. */
    Outcome connect(const char (&about)[64], const std::atomic<bool> &abort);
    const char *about(int rank) const;

    /* Gives two numbers to every rank and takes theirs: for splits, in equal order on all ranks. */
    Outcome swap_numbers(int a, int b, std::vector<int> *all_a, std::vector<int> *all_b,
                         const std::atomic<bool> &abort);

    /* Does all transfers, those of one direction and peer in order. After the death of a peer it
     * sets *died and goes on to wait for `abort`, as the kernels of the real library do. */
    Outcome run(std::vector<Transfer> &transfers, const std::atomic<bool> &abort,
                std::atomic<bool> *died);

  private:
    struct Rank;
    struct Header;
    struct Box;

    Box *box(int from, int to) const;
    bool step(Transfer &t);
    bool peer_died() const;
    template <class F>
    Outcome wait(F ready, const std::atomic<bool> &abort, std::atomic<bool> *died);

    std::string name_;
    int size_, rank_;
    uint32_t swaps_ = 0;
    size_t bytes_;
    Header *header_;
};

} // namespace emu

#endif
