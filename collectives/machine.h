/* What a node is made of, as far as it matters to ranks: cores, NUMA domains, the network. */
#ifndef TRI_COLLECTIVES_MACHINE_H
#define TRI_COLLECTIVES_MACHINE_H

#include "collectives/topology.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"
#include "runtime/exec/comm.h"

enum { TRI_LINK_NAME_BYTES = 16 };

/* Numbers of this process's node; what cannot be found out is 0. */
struct tri_machine {
    int32_t cores;
    int32_t numa_domains;
    int32_t numa; /* domain that holds all CPUs of this process; -1: more than one, or unknown */
    int32_t link_mbit; /* the link's rate as its driver states it */
    char
        link[TRI_LINK_NAME_BYTES]; /* an InfiniBand device, or the interface of the default route */
};

/* Asks hwloc, /sys/class and /proc/net/route; where /sys is missing, the C library for the number
 * of CPUs. Never fails and prints nothing. Local. */
void tri_machine_read(struct tri_machine *out);

/* Appends one line without a newline: ranks, nodes, cores, NUMA domains, link. control NULL: one
 * process that stands for all ranks of t. TRI_ERR_NOMEM. Collective; *out is equal on all ranks. */
tri_status tri_machine_describe(const struct tri_topology *t, struct tri_comm *control,
                                struct tri_text *out) TRI_CHECKED;
/* The same text from the machines of all ranks, machine[t->size]. Local. */
void tri_machine_print(const struct tri_topology *t, const struct tri_machine *machine,
                       struct tri_text *out);

#endif
