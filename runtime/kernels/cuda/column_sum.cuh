/* Sums over rows, shared by the gradients of biases, norms and scales. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_COLUMN_SUM_CUH
#define TRI_RUNTIME_KERNELS_CUDA_COLUMN_SUM_CUH

#include "runtime/core/status.h"

#include <stdint.h>

TRI_BEGIN_DECLS

/* Number of blocks that `rows` rows are cut into: of `least` rows or more, at most `most`. A
 * function of the shape alone, so that sums have the same bits on every device. */
static inline int64_t tri_cuda_row_blocks(int64_t rows, int64_t least, int64_t most)
{
    int64_t n = (rows + least - 1) / least;

    return n < 1 ? 1 : n < most ? n : most;
}

/* first[c] = acc[c] + sum over r of part[r][c] for columns [0, split), second[c - split] likewise
 * for [split, cols), without acc. acc, first, second may be NULL (nothing added, not wanted); acc
 * may be first. Order: every 32nd row, then these 32 sums in order. Enqueues on the stream. */
tri_status tri_cuda_add_rows(const float *part, int64_t rows, int64_t cols, const float *acc,
                             float *first, int64_t split, float *second, void *stream);

TRI_END_DECLS
#endif
