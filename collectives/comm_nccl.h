/* A communicator of CUDA devices over NCCL: calls enqueue on comm->stream and may be captured.
 *
 * Sums without fixed_tree are NCCL's own: the same on every call and equal on all ranks; bf16 and
 * f16 are rounded where NCCL rounds, at each of its steps. The fixed tree is ours: slices change
 * hands by grouped sends, a kernel adds them in order (bf16 and f16 in f32, rounded once), the
 * slices are gathered. Its first call allocates a staging buffer, so it must not be captured.
 * bytes_sent() is what a ring sends, counted when a call is enqueued: replays of a captured graph
 * do not count.
 *
 * Errors of NCCL and lost peers show in poll(), which aborts the communicator. The deadline is
 * watched there as well, from the enqueueing of a call on, for calls outside of captures. */
#ifndef TRI_COLLECTIVES_COMM_NCCL_H
#define TRI_COLLECTIVES_COMM_NCCL_H

#include "runtime/device/device.h"
#include "runtime/exec/comm.h"

/* A communicator over the ranks of `control`, each with its own device. control and device are
 * borrowed, the device for the communicator's life; name is copied. TRI_ERR_USAGE: two ranks share
 * a device, or a build without CUDA. Collective over control. */
tri_status tri_comm_nccl_create(struct tri_comm *control, struct tri_device *device,
                                const char *name, int64_t timeout_ms,
                                struct tri_comm **out) TRI_CHECKED;

/* The ranks of `parent`, a communicator of this kind, that pass one color >= 0, in the order of key
 * and then rank; color < 0: none, *out is NULL. Nothing may be in flight on parent. Collective over
 * control, which has the ranks of parent. */
tri_status tri_comm_nccl_split(struct tri_comm *parent, struct tri_comm *control, int color,
                               int key, const char *name, struct tri_comm **out) TRI_CHECKED;

#endif
