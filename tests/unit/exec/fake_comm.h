/* Ranks as threads of one process: a transport for tests that must not start MPI. */
#ifndef TRI_TESTS_UNIT_EXEC_FAKE_COMM_H
#define TRI_TESTS_UNIT_EXEC_FAKE_COMM_H

#include "runtime/exec/comm.h"

#include <pthread.h>

enum { FAKE_MAX_RANKS = 4 };

struct fake_comm {
    struct tri_comm base;
    struct fake_world *world;
    int calls; /* allreduce calls so far */
};

struct fake_world {
    int size;
    int fail_call; /* this allreduce (from 1) fails on all ranks; 0: none */
    pthread_barrier_t barrier;
    void *buf[FAKE_MAX_RANKS];
    struct fake_comm comm[FAKE_MAX_RANKS];
};

void fake_world_init(struct fake_world *w, int size);
void fake_world_finish(struct fake_world *w);
/* Runs body(rank, arg) on one thread a rank; fails the test where an answer is not 0. */
void fake_world_run(struct fake_world *w, int (*body)(struct tri_comm *comm, void *arg), void *arg);

#endif
