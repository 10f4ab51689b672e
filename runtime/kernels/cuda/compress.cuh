/* What the kernels of COMPRESS and DECOMPRESS share (runtime/kernels/compress.h has the arithmetic,
 * optim/compressors/ the payloads).
 *
 * Payloads, residuals and velocities have the bits of those files: every product and sum is rounded
 * on its own (__fmul_rn and the like are never contracted) and in the same order. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_COMPRESS_CUH
#define TRI_RUNTIME_KERNELS_CUDA_COMPRESS_CUH

#include "runtime/graph/ops.h"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/philox.cuh"

#define TRI_COMPRESS_THREADS 256

struct tri_encoding {
    float *x; /* what is to be sent; the encoder leaves the rest */
    float *v; /* new velocity; NULL without momentum correction */
    void *payload;
    const int64_t *counters;
    const int *bad;             /* not 0: x has values that are not finite, encoders do nothing */
    uint32_t own[2], shared[2]; /* keys of this contributor, of the parameter */
    int64_t n, k;               /* elements; those that a sparse compressor sends */
};

struct tri_decoding {
    const unsigned char *payload; /* of contributor 0 */
    int64_t stride;               /* bytes to the next */
    int ranks;
    float *out;
    const int64_t *counters;
    uint32_t shared[2];
    int64_t n, k;
};

/* Bytes of scratch that the encoder of topk needs beside the flag. Local. */
size_t tri_cuda_topk_scratch(int64_t n);
/* Sparse compressors; scratch: of tri_cuda_topk_scratch bytes, zeroed. Enqueue on the stream. */
tri_status tri_cuda_topk_encode(const struct cuda_kernel *k, const struct tri_encoding *c,
                                void *scratch, void *stream);
tri_status tri_cuda_topk_decode(const struct cuda_kernel *k, const struct tri_decoding *d,
                                void *stream);
tri_status tri_cuda_randk_encode(const struct cuda_kernel *k, const struct tri_encoding *c,
                                 void *stream);
tri_status tri_cuda_randk_decode(const struct cuda_kernel *k, const struct tri_decoding *d,
                                 void *stream);

static __device__ inline int64_t tri_thread_index()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t tri_thread_count()
{
    return (int64_t)gridDim.x * blockDim.x;
}

static __device__ inline uint64_t tri_step_of(const int64_t *counters)
{
    return (uint64_t)counters[TRI_COUNTER_STEP];
}

#endif
