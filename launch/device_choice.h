/* Which device a rank computes on. */
#ifndef TRI_LAUNCH_DEVICE_CHOICE_H
#define TRI_LAUNCH_DEVICE_CHOICE_H

#include "collectives/world.h"
#include "launch/options_run.h"
#include "runtime/device/device.h"

/* The device of this rank by o->kind: auto takes CUDA where every rank sees a device. Ranks of a
 * node take the visible devices in turn, and are bound to the CPUs beside theirs where the system
 * tells which those are. world NULL: this process alone. The caller destroys *out. Collective. Same
 * on all ranks: o. */
tri_status tri_device_choose(const struct tri_device_options *o, const struct tri_world *world,
                             struct tri_device **out) TRI_CHECKED;

/* Whether ranks share a device, by the nodes of the world's topology; rank 0 names two that do.
 * Collective. */
tri_status tri_device_compare(const struct tri_device *d, const struct tri_world *world,
                              enum tri_sharing *out) TRI_CHECKED;

#endif
