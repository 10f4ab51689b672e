/* The prepared form that the CUDA kernels of this folder share, and what their launches need of
 * it. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_CUDA_KERNEL_H
#define TRI_RUNTIME_KERNELS_CUDA_CUDA_KERNEL_H

#include "runtime/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct cuda_kernel {
    struct tri_kernel base;
    struct tri_attrs attrs;
    enum tri_dtype from, to; /* of in[0] and out[0] */
    int64_t count;           /* elements of in[0] */
    int64_t rows, cols;      /* in[0] as a matrix */
    int64_t dim[12];         /* what the kernel puts there */
    int sm_count;
    size_t shared_bytes; /* that a block may opt in to */
};

/* Allocates a kernel of `ops` for d with the fields above filled, dim zero. Local. */
tri_status tri_cuda_kernel_create(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  size_t scratch_bytes, struct cuda_kernel **out) TRI_CHECKED;
/* The same for a kernel without scratch that needs no more than these fields. Local. */
tri_status tri_cuda_prepare_plain(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                  struct tri_kernel **out) TRI_CHECKED;
void tri_cuda_kernel_destroy(struct tri_kernel *k);
/* Pointers that a kernel may move 16 bytes at a time. */
static inline bool tri_cuda_aligned(const void *a, const void *b, const void *c)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15u) == 0;
}

/* Blocks of a grid-stride loop over n items: all items at once up to 16 blocks a multiprocessor,
 * enough to fill it. At least 1. */
static inline unsigned tri_cuda_grid(const struct cuda_kernel *k, int64_t n, int threads)
{
    int64_t want = (n + threads - 1) / threads, most = (int64_t)k->sm_count * 16;

    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

TRI_END_DECLS
#endif
