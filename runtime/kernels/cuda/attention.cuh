/* What the attention kernels share: arguments, tiles in shared memory, dropout.
 *
 * A block takes a tile of rows of one head of one sample (FlashAttention-2: Dao, "FlashAttention-2:
 * faster attention with better parallelism and work partitioning", 2023) and walks over the tiles
 * of the other side; tiles that causality hides are left out. Three passes:
 *
 *   FORWARD  rows are queries: out and lse, softmax online over tiles of keys
 *   QUERIES  rows are queries: dq, and delta_i = dout_i . out_i into scratch for the third
 *   KEYS     rows are keys: dk and dv
 *
 * The gradient computes its scores twice and so needs no atomics: every sum has one owner and a
 * fixed order. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_ATTENTION_CUH
#define TRI_RUNTIME_KERNELS_CUDA_ATTENTION_CUH

#include "runtime/graph/ops.h"
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"
#include "runtime/kernels/cuda/mma.cuh"
#include "runtime/kernels/cuda/philox.cuh"

enum tri_attention_pass { TRI_ATTENTION_FORWARD, TRI_ATTENTION_QUERIES, TRI_ATTENTION_KEYS };

/* Row t of head h of sample b of q starts at element (b queries + t) q_row + h width; of k and v at
 * b kv_sample + t kv_row + h width; of out and dout at (b queries + t) heads width + h width. */
struct tri_attention {
    const void *q, *k, *v, *dout, *out_in;
    void *out, *dq, *dk, *dv;
    const float *lse_in;
    float *lse, *delta;      /* [B, heads, queries]; lse may be NULL */
    const int64_t *counters; /* NULL: no dropout */
    const int32_t *offset;   /* position of query 0 in front of the keys; NULL: 0 */
    struct tri_cuda_dropout drop;
    uint64_t first_sample; /* grain B: number of sample 0 in the run */
    int64_t q_row, kv_row, kv_sample;
    int batch, heads, queries, keys, width;
    bool causal;
    bool vectors; /* every row of q, k, v, dout starts at a multiple of 16 bytes */
    float scale;  /* of the scores: 1 / sqrt(width) */
};

/* Kernels for 16-bit operands by tensor cores, and in f32 arithmetic for any float type. `supports`
 * answers for a head of `width`; allow lets the kernels of all passes use their shared memory and
 * is called once before the first run. Local. */
bool tri_attention_half_supports(enum tri_dtype type, int64_t width);
tri_status tri_attention_half_allow(enum tri_dtype type, int64_t width) TRI_CHECKED;
tri_status tri_attention_half_run(enum tri_dtype type, enum tri_attention_pass pass,
                                  const struct tri_attention *a, void *stream) TRI_CHECKED;
bool tri_attention_f32_supports(enum tri_dtype type, int64_t width);
tri_status tri_attention_f32_allow(enum tri_dtype type, int64_t width) TRI_CHECKED;
tri_status tri_attention_f32_run(enum tri_dtype type, enum tri_attention_pass pass,
                                 const struct tri_attention *a, void *stream) TRI_CHECKED;

/* fn<D>(...) for the padded width D of a head. */
#define TRI_CALL_WIDTH(width, fn, ...)                                                             \
    ((width) <= 32   ? fn<32>(__VA_ARGS__)                                                         \
     : (width) <= 64 ? fn<64>(__VA_ARGS__)                                                         \
     : (width) <= 80 ? fn<80>(__VA_ARGS__)                                                         \
     : (width) <= 96 ? fn<96>(__VA_ARGS__)                                                         \
                     : fn<128>(__VA_ARGS__))

/* Where a block stands: head h of sample b, rows from `row` on of the tiled side. */
struct tri_attention_place {
    int b, h, row;
    int first; /* position of query 0 among the keys */
};

/* Under causality the last rows have most to do: they start first. */
static __device__ inline struct tri_attention_place
tri_attention_here(const struct tri_attention &a, int rows, bool last_first)
{
    unsigned tile = last_first ? gridDim.x - 1 - blockIdx.x : blockIdx.x;

    return {(int)blockIdx.z, (int)blockIdx.y, (int)tile * rows, a.offset != NULL ? *a.offset : 0};
}

/* Offsets in elements of the block's head. */
static __device__ inline int64_t tri_attention_q(const struct tri_attention &a,
                                                 const struct tri_attention_place &at)
{
    return (int64_t)at.b * a.queries * a.q_row + (int64_t)at.h * a.width;
}

static __device__ inline int64_t tri_attention_kv(const struct tri_attention &a,
                                                  const struct tri_attention_place &at)
{
    return at.b * a.kv_sample + (int64_t)at.h * a.width;
}

static __device__ inline int64_t tri_attention_out(const struct tri_attention &a,
                                                   const struct tri_attention_place &at)
{
    return ((int64_t)at.b * a.queries * a.heads + at.h) * a.width;
}

/* And of its row statistics. */
static __device__ inline int64_t tri_attention_stat(const struct tri_attention &a,
                                                    const struct tri_attention_place &at)
{
    return ((int64_t)at.b * a.heads + at.h) * a.queries;
}

/* Dropout index of query 0 and key 0. */
static __device__ inline uint64_t tri_attention_index(const struct tri_attention &a,
                                                      const struct tri_attention_place &at)
{
    uint64_t head = (a.first_sample + (uint64_t)at.b) * (uint64_t)a.heads + (uint64_t)at.h;

    return head * (uint64_t)a.queries * (uint64_t)a.queries;
}

/* Keys that the rows [row, row + rows) of queries see: those below this. */
static __device__ inline int tri_attention_keys(const struct tri_attention &a,
                                                const struct tri_attention_place &at, int rows)
{
    int seen = at.first + at.row + rows;

    return a.causal && seen < a.keys ? seen : a.keys;
}

/* Begins to copy rows [first, first + ROWS) of `count` to to[ROWS][LD]; columns from width to D and
 * rows that do not exist are 0. THREADS threads, of which all call. */
template <class T, int THREADS, int ROWS, int D, int LD>
static __device__ inline void tri_attention_copy(T *to, const T *from, int64_t row, int first,
                                                 int count, int width, bool vectors)
{
    constexpr int N = tri_lanes<T>::count;

    if (vectors) {
        for (int i = (int)threadIdx.x; i < ROWS * (D / N); i += THREADS) {
            int r = i / (D / N), c = i % (D / N) * N;
            bool valid = first + r < count && c < width;

            tri_copy_async(to + r * LD + c, valid ? from + (first + r) * row + c : from, valid);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < ROWS * D; i += THREADS) {
        int r = i / D, c = i % D;
        bool valid = first + r < count && c < width;

        to[r * LD + c] = valid ? from[(first + r) * row + c] : tri_narrow<T>(0.0f);
    }
}

template <class K> static inline tri_status tri_attention_allow(K kernel, size_t bytes)
{
    TRI_CUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)bytes));
    return TRI_OK;
}

static __device__ inline uint64_t tri_attention_step(const struct tri_attention &a)
{
    return a.counters != NULL ? (uint64_t)a.counters[TRI_COUNTER_STEP] : 0;
}

/* Bit i: whether word i of the block is kept. */
static __device__ inline unsigned tri_attention_keep4(const struct tri_cuda_dropout &d,
                                                      uint64_t step, uint64_t block)
{
    uint4 w = tri_philox(d.k, step, block);

    return (unsigned)(w.x >> 8 >= d.limit) | (unsigned)(w.y >> 8 >= d.limit) << 1 |
           (unsigned)(w.z >> 8 >= d.limit) << 2 | (unsigned)(w.w >> 8 >= d.limit) << 3;
}

/* Whether element `index` is kept. */
static __device__ inline unsigned tri_attention_keep(const struct tri_cuda_dropout &d,
                                                     uint64_t step, uint64_t index)
{
    return tri_attention_keep4(d, step, index >> 2) >> (index & 3) & 1u;
}

#endif
