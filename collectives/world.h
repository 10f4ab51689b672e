/* The communicators of a job, one for each purpose and thread, and its topology. */
#ifndef TRI_COLLECTIVES_WORLD_H
#define TRI_COLLECTIVES_WORLD_H

#include "collectives/topology.h"
#include "runtime/device/device.h"
#include "runtime/exec/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_world {
    struct tri_topology topology;
    struct tri_comm *control;   /* main thread: agreements, metrics */
    struct tri_comm *exchange;  /* engine thread: gradients */
    struct tri_comm *intra;     /* engine thread: gradients inside the node; NULL: no levels */
    struct tri_comm *inter;     /* the same, between ranks of one local rank; NULL: owns no slice */
    struct tri_comm *io;        /* thread of the saver: checkpoints */
    struct tri_comm *beside[3]; /* MPI's, under those of a device: exchange, intra, inter */
};

/* What gradients travel by between nodes, where ranks have devices. */
enum tri_across { TRI_ACROSS_AUTO, TRI_ACROSS_NCCL, TRI_ACROSS_MPI };

/* Ranks that have one device, which NCCL refuses in one communicator. */
enum tri_sharing {
    TRI_SHARING_NONE,
    TRI_SHARING_ACROSS, /* only ranks of different nodes do */
    TRI_SHARING_INSIDE
};

/* The transports between devices. */
struct tri_device_links {
    bool inside, across; /* NCCL: between the ranks of a node, of different nodes */
    bool refused;        /* NCCL was tried across nodes, and could not be made */
};

struct tri_world_cfg {
    int64_t timeout_ms;   /* deadline of each call; < 0: none */
    bool no_shared;       /* never shared memory */
    size_t staging_bytes; /* per rank, of a shared-memory communicator; 0: 4 MiB */
};

/* *mpi_comm: the ranks of the job, an MPI_Comm; duplicated, stays the caller's. cfg NULL: 600 s,
 * shared memory where possible. Collective. */
tri_status tri_world_create(const void *mpi_comm, const struct tri_world_cfg *cfg,
                            struct tri_world **out) TRI_CHECKED;
/* The communicators of this rank's node and of its local rank over all nodes (*inter NULL: this
 * rank owns no slice). cfg NULL: defaults. Collective. */
tri_status tri_world_connect_levels(const void *mpi_comm, const struct tri_topology *topology,
                                    const struct tri_world_cfg *cfg, struct tri_comm **intra,
                                    struct tri_comm **inter) TRI_CHECKED;
/* Connects the levels of the topology (w->intra, w->inter), from the same mpi_comm and with the
 * deadline of w->exchange. At most once. Collective. */
tri_status tri_world_add_levels(struct tri_world *w, const void *mpi_comm) TRI_CHECKED;
/* Disconnects them again. Collective. */
void tri_world_drop_levels(struct tri_world *w);
/* Lets gradients travel between devices by the communicators of `device`'s backend (NCCL): inside
 * nodes where the ranks there have devices of their own, across nodes where all have. across, an
 * enum tri_across: auto takes MPI across nodes where NCCL refuses, with a message of rank 0; nccl
 * makes that an error; mpi never tries. A communicator of both levels at once (flat sums) counts as
 * across where there are several nodes. After the levels are settled, before the memory of a run.
 * *links: what is used; nothing where the backend has no communicators. Collective; a failure is
 * shared. Same on all ranks: across, sharing. */
tri_status tri_world_use_device(struct tri_world *w, struct tri_device *device, int across,
                                enum tri_sharing sharing,
                                struct tri_device_links *links) TRI_CHECKED;
/* The communicator between nodes for data of the process, also where gradients travel between
 * devices; NULL: this rank has none. Local. */
struct tri_comm *tri_world_inter(const struct tri_world *w);
/* Gives those communicators back, before the device is closed. Collective. */
void tri_world_leave_device(struct tri_world *w);
/* Bytes that this rank has sent for gradients, over all levels. Local. */
uint64_t tri_world_exchange_bytes(const struct tri_world *w);
/* A new deadline for all communicators. Local. */
void tri_world_set_timeout(struct tri_world *w, int64_t timeout_ms);
/* Collective. Accepts NULL. */
void tri_world_destroy(struct tri_world *w);

/* One communicator of the transport that suits: self for one rank, shared memory when all ranks are
 * on one node and /dev/shm has room, else MPI. Collective. */
tri_status tri_world_connect(const void *mpi_comm, const struct tri_topology *topology,
                             const char *name, const struct tri_world_cfg *cfg,
                             struct tri_comm **out) TRI_CHECKED;

#endif
