/* See comm_nccl.h: the library's side, which asks the CUDA backend. */
#include "collectives/comm_nccl.h"

#include "runtime/device/cuda_backend.h"

tri_status tri_comm_nccl_create(struct tri_comm *control, struct tri_device *device,
                                const char *name, int64_t timeout_ms, struct tri_comm **out)
{
    const struct tri_cuda_backend *b;

    TRI_TRY(tri_cuda_backend_load(&b));
    return b->comm_create(control, device, name, timeout_ms, out);
}

tri_status tri_comm_nccl_split(struct tri_comm *parent, struct tri_comm *control, int color,
                               int key, const char *name, struct tri_comm **out)
{
    const struct tri_cuda_backend *b;

    TRI_TRY(tri_cuda_backend_load(&b));
    return b->comm_split(parent, control, color, key, name, out);
}
