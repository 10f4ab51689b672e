/* The CUDA device as its own files, the CUDA kernels and the NCCL transport see it. */
#ifndef TRI_RUNTIME_DEVICE_CUDA_DEVICE_H
#define TRI_RUNTIME_DEVICE_CUDA_DEVICE_H

#include "runtime/device/device.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

TRI_BEGIN_DECLS

struct tri_cuda_device {
    struct tri_device base;
    int ordinal;
    int sm_count;
    int sm_version;            /* 80, 90, ... */
    size_t shared_bytes;       /* shared memory that a block may opt in to */
    size_t l2_bytes;           /* second-level cache */
    cublasLtHandle_t cublaslt; /* owned */
    cudnnHandle_t cudnn;       /* owned; its stream is set at each use, by one thread at a time */
    char name[256], uuid[64], bus[32];
};

/* As tri_device_cuda_count and tri_device_cuda_open (device.h), inside the backend. */
int tri_cuda_count(void);
tri_status tri_cuda_open(int ordinal, struct tri_device **out) TRI_CHECKED;

/* The device of a kernel's descriptor. */
static inline struct tri_cuda_device *tri_cuda_device(struct tri_device *d)
{
    return (struct tri_cuda_device *)(void *)d;
}

/* Writes the message of a failed call ("cudaMalloc: out of memory (2)") and returns its code:
 * TRI_ERR_NOMEM or TRI_ERR_INTERNAL. Local. */
tri_status tri_cuda_fail(const char *call, cudaError_t e);
tri_status tri_cublas_fail(const char *call, cublasStatus_t s);
tri_status tri_cudnn_fail(const char *call, cudnnStatus_t s);

/* Returns from the calling function when a CUDA call fails. */
#define TRI_CUDA(call)                                                                             \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess)                                                                     \
            return tri_cuda_fail(#call, e_);                                                       \
    } while (0)
#define TRI_CUBLAS(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t s_ = (call);                                                                \
        if (s_ != CUBLAS_STATUS_SUCCESS)                                                           \
            return tri_cublas_fail(#call, s_);                                                     \
    } while (0)
#define TRI_CUDNN(call)                                                                            \
    do {                                                                                           \
        cudnnStatus_t s_ = (call);                                                                 \
        if (s_ != CUDNN_STATUS_SUCCESS)                                                            \
            return tri_cudnn_fail(#call, s_);                                                      \
    } while (0)

TRI_END_DECLS
#endif
