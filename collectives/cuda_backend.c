/* The exported table of the CUDA backend. */
#include "runtime/device/cuda_backend.h"

#include "runtime/device/cuda_device.h"

extern const struct tri_cuda_backend tri_cuda_backend;

const struct tri_cuda_backend tri_cuda_backend = {
    .count = tri_cuda_count,
    .open = tri_cuda_open,
};
