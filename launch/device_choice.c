/* See device_choice.h. */
#include "launch/device_choice.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/device/cuda_backend.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>

enum { UUID_BYTES = 64 };

/* Binds the process to those of its CPUs that are beside the PCI device, if any are. */
static void bind_beside(const char *bus)
{
    hwloc_topology_t t;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    hwloc_obj_t pci, beside;

    if (bus[0] == '\0' || cpus == NULL || hwloc_topology_init(&t) != 0) {
        hwloc_bitmap_free(cpus);
        return;
    }
    (void)hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(t) == 0 && (pci = hwloc_get_pcidev_by_busidstring(t, bus)) != NULL &&
        (beside = hwloc_get_non_io_ancestor_obj(t, pci)) != NULL &&
        hwloc_get_cpubind(t, cpus, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_bitmap_and(cpus, cpus, beside->cpuset);
        if (!hwloc_bitmap_iszero(cpus))
            (void)hwloc_set_cpubind(t, cpus, HWLOC_CPUBIND_PROCESS);
    }
    hwloc_topology_destroy(t);
    hwloc_bitmap_free(cpus);
}

/* auto: CUDA where all ranks have a device. Collective. */
static tri_status settle(int kind, struct tri_comm *comm, bool *cuda)
{
    int64_t all = kind == TRI_DEVICE_CUDA || (kind == TRI_DEVICE_AUTO && tri_device_cuda_count());

    TRI_TRY(tri_comm_allreduce(comm, &all, 1, TRI_I64, TRI_REDUCE_MIN, false));
    *cuda = all != 0;
    return TRI_OK;
}

/* The visible devices in turn; without one the message of opening the first. */
static tri_status open_own(const struct tri_world *world, struct tri_device **out)
{
    const struct tri_cuda_backend *backend;
    int n, local = world != NULL ? world->topology.local_rank : 0;

    TRI_TRY(tri_cuda_backend_load(&backend));
    n = backend->count();
    return backend->open(n > 0 ? local % n : 0, out);
}

/* Names the option whose wish cannot be granted. */
static tri_status explain(tri_status st)
{
    char *text = st != TRI_OK ? tri_strdup(tri_error_text()) : NULL;

    if (text != NULL)
        (void)tri_fail(st, "'device.kind' cuda: %s", text);
    tri_free(text);
    return st;
}

tri_status tri_device_choose(const struct tri_device_options *o, const struct tri_world *world,
                             struct tri_device **out)
{
    struct tri_comm *comm = world != NULL ? world->control : NULL;
    struct tri_device *d = NULL;
    tri_status st;
    bool cuda;

    TRI_TRY(settle(o->kind, comm, &cuda));
    if (!cuda) {
        *out = tri_device_cpu();
        return TRI_OK;
    }
    TRI_TRY_GOTO(st, tri_comm_agree(comm, explain(open_own(world, &d))), destroy);
    d->tune = o->tune;
    bind_beside(d->bus);
    *out = d;
    return TRI_OK;

destroy:
    tri_device_destroy(d);
    return st;
}

/* The first two ranks with one device, of one node or of different ones; none: false. */
static bool find_shared(const char *uuid, const struct tri_topology *t, bool inside, int *first,
                        int *second)
{
    for (int b = 1; b < t->size; b++)
        for (int a = 0; a < b; a++)
            if ((t->node_of[a] == t->node_of[b]) == inside &&
                strncmp(uuid + a * UUID_BYTES, uuid + b * UUID_BYTES, UUID_BYTES) == 0) {
                *first = a;
                *second = b;
                return true;
            }
    return false;
}

tri_status tri_device_compare(const struct tri_device *d, const struct tri_world *world,
                              enum tri_sharing *out)
{
    const struct tri_topology *t = &world->topology;
    enum tri_sharing sharing = TRI_SHARING_NONE;
    int first = 0, second = 0;
    char mine[UUID_BYTES] = {0};
    char *all = tri_calloc((size_t)t->size, UUID_BYTES, "devices of all ranks");
    tri_status st = TRI_OK;

    if (all == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot compare the devices of %d ranks", t->size);
    TRI_TRY_GOTO(st, tri_comm_agree(world->control, st), free_all);
    snprintf(mine, sizeof(mine), "%s", tri_device_uuid(d));
    TRI_TRY_GOTO(st, tri_comm_allgather(world->control, mine, sizeof(mine), all), free_all);
    if (find_shared(all, t, true, &first, &second))
        sharing = TRI_SHARING_INSIDE;
    else if (find_shared(all, t, false, &first, &second))
        sharing = TRI_SHARING_ACROSS;
    if (sharing != TRI_SHARING_NONE && t->rank == 0)
        tri_info("ranks %d and %d share the device %s: gradients are exchanged by MPI%s, since "
                 "NCCL takes one rank a device",
                 first, second, all + first * UUID_BYTES,
                 sharing == TRI_SHARING_ACROSS ? " between nodes" : "");
    *out = sharing;

free_all:
    tri_free(all);
    return st;
}
