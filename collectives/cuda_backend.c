/* The exported table of the CUDA backend. */
#include "runtime/device/cuda_backend.h"

#include "collectives/nccl.h"
#include "runtime/device/cuda_device.h"

extern const struct tri_cuda_backend tri_cuda_backend;

const struct tri_cuda_backend tri_cuda_backend = {
    .count = tri_cuda_count,
    .open = tri_cuda_open,
    .comm_create = tri_nccl_create,
    .comm_split = tri_nccl_split,
};
