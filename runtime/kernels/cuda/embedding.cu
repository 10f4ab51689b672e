/* EMBEDDING and EMBEDDING_GRAD.
 *
 * EMBEDDING is exact (one addition, rounded once to the table's type). An id or a position outside
 * its table gives a row of NaN, so that the loss is not finite and the step is skipped.
 *
 * The gradient has no atomics: a block owns BUCKET rows of the table, looks through all ids, and
 * lists its tokens in their order (LIST at a time). It sorts the list by row, then adds the rows of
 * dy, the columns shared among the threads. A small table has too few such blocks to fill a device:
 * several then share the columns. Each element is a sum in the order of the tokens, f32; ids
 * outside the table match nothing. */
#include "runtime/kernels/cuda/cuda_kernels.h"
#include "runtime/kernels/cuda/element.cuh"

#include <math.h>

#define THREADS 256
#define WARPS   (THREADS / 32)
#define BUCKET  32   /* rows of the table of a block: one a lane of the sorting warp */
#define DEPTH   4    /* ids that a thread looks at between two barriers */
#define LIST    2048 /* tokens that a block holds */
#define NARROW  8    /* threads that take the columns of one row, at least */

template <class T> struct lookup {
    const int32_t *ids, *offset; /* offset: NULL means 0 */
    const T *table, *positions;  /* positions: NULL where absent */
    T *y;
    int64_t t, rows, width, capacity; /* T, V, C, P */
};

/* Block: one token. N: 1, or the elements of 16 bytes. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) embedding(struct lookup<T> a)
{
    int64_t i = blockIdx.x, id = a.ids[i];
    int64_t at = i % a.t + (a.offset != NULL ? *a.offset : 0);
    bool valid = id >= 0 && id < a.rows && (a.positions == NULL || (at >= 0 && at < a.capacity));

    for (int64_t c = (int64_t)threadIdx.x * N; c < a.width; c += (int64_t)blockDim.x * N) {
        float v[N], p[N];

        for (int j = 0; j < N; j++)
            v[j] = NAN;
        if (N == 1) {
            v[0] = valid ? tri_widen(a.table[id * a.width + c]) : v[0];
            v[0] += valid && a.positions != NULL ? tri_widen(a.positions[at * a.width + c]) : 0.0f;
            a.y[i * a.width + c] = tri_narrow<T>(v[0]);
            continue;
        }
        if (valid)
            tri_load(a.table + id * a.width + c, v);
        if (valid && a.positions != NULL) {
            tri_load(a.positions + at * a.width + c, p);
            for (int j = 0; j < N; j++)
                v[j] += p[j];
        }
        tri_store(a.y + i * a.width + c, v);
    }
}

static tri_status prepare_embedding(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_embedding, 0, &k));
    k->dim[0] = tri_arg_present(d->in, 2, d->nin) ? d->in[2].shape.dim[0] : 0; /* P */
    k->dim[1] = tri_arg_present(d->in, 3, d->nin);                             /* offset */
    k->dim[2] = d->in[1].shape.dim[0];                                         /* V */
    k->dim[3] = d->in[1].shape.dim[1];                                         /* C */
    *out = &k->base;
    return TRI_OK;
}

/* Threads that take the columns of one row. */
static unsigned column_threads(int64_t cols, int per)
{
    int64_t want = (cols + 32 * per - 1) / (32 * per) * 32;

    return (unsigned)(want < THREADS ? want : THREADS);
}

template <class T>
static tri_status run_embedding_of(const struct cuda_kernel *k, const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    struct lookup<T> a = {
    };

    a.ids = (const int32_t *)args->in[0];
    a.table = (const T *)args->in[1];
    a.positions = k->dim[0] > 0 ? (const T *)args->in[2] : NULL;
    a.offset = k->dim[1] != 0 ? (const int32_t *)args->in[3] : NULL;
    a.y = (T *)args->out[0];
    a.t = k->cols;
    a.rows = k->dim[2];
    a.width = k->dim[3];
    a.capacity = k->dim[0];
    if (a.width % N == 0 && tri_cuda_aligned(a.table, a.positions, a.y))
        return tri_launch(embedding<T, N>, (unsigned)k->count, column_threads(a.width, N), 0,
                          args->stream, a);
    return tri_launch(embedding<T, 1>, (unsigned)k->count, column_threads(a.width, 1), 0,
                      args->stream, a);
}

static tri_status run_embedding(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->to, run_embedding_of, k, args);
}

TRI_CUDA_KERNEL(embedding);

template <class T> struct scatter {
    const int32_t *ids;
    const T *dy;
    float *dtable;
    int64_t tokens, rows, width;
    bool added;   /* dtable holds what is added to; else it is written whole */
    int lanes;    /* threads that take the columns of one row */
    int64_t span; /* columns of a block */
};

/* Tokens of a block: list in their order, sorted by row (those of row r of the bucket are
 * [begin[r], begin[r + 1])). */
struct bucket {
    int token[LIST], sorted[LIST], begin[BUCKET + 1];
    unsigned char row[LIST];
    unsigned found[DEPTH][WARPS]; /* lanes of each warp whose id is the block's */
    int count[WARPS][BUCKET];     /* of each row, in the part of the list that a warp sorts */
};

/* Appends the block's tokens among [first, first + DEPTH THREADS) to the list of n; the new n. */
template <class T>
static __device__ int collect(struct bucket *b, const struct scatter<T> &a, int64_t first, int n)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, row[DEPTH];

    for (int q = 0; q < DEPTH; q++) {
        int64_t i = first + q * THREADS + threadIdx.x;
        int64_t id = i < a.tokens ? a.ids[i] - (int64_t)blockIdx.x * BUCKET : -1;
        unsigned mask;

        row[q] = id >= 0 && id < BUCKET ? (int)id : -1;
        mask = __ballot_sync(0xffffffffu, row[q] >= 0);
        if (lane == 0)
            b->found[q][warp] = mask;
    }
    __syncthreads();
    for (int q = 0; q < DEPTH; q++) {
        for (int w = 0; w < WARPS; w++) {
            unsigned mask = b->found[q][w];

            if (w == warp && row[q] >= 0) {
                int at = n + __popc(mask & ((1u << lane) - 1u));

                b->token[at] = (int)(first + q * THREADS + threadIdx.x);
                b->row[at] = (unsigned char)row[q];
            }
            n += __popc(mask);
        }
    }
    __syncthreads();
    return n;
}

/* Warp w has the w-th part of the list; lane r of it finds the tokens of row r in their order. */
static __device__ void sort_bucket(struct bucket *b, int n)
{
    int warp = (int)threadIdx.x / 32, r = (int)threadIdx.x % 32, at = 0, sum = 0;
    int first = n * warp / WARPS, end = n * (warp + 1) / WARPS;

    for (int i = first; i < end; i++)
        sum += b->row[i] == r;
    b->count[warp][r] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < WARPS; w++) {
        at += w < warp ? b->count[w][r] : 0;
        sum += b->count[w][r];
    }
    for (int row = 0; row < BUCKET; row++) {
        int others = __shfl_sync(0xffffffffu, sum, row);

        at += row < r ? others : 0;
    }
    if (warp == 0)
        b->begin[r] = at;
    if (threadIdx.x == 0)
        b->begin[BUCKET] = n;
    for (int i = first; i < end; i++)
        if (b->row[i] == r)
            b->sorted[at++] = b->token[i];
    __syncthreads();
}

/* Adds the sorted tokens to their rows; fresh: rows begin at 0, also those without a token. */
template <class T, int N>
static __device__ void add_bucket(const struct bucket *b, const struct scatter<T> &a, bool fresh)
{
    int group = (int)threadIdx.x / a.lanes, groups = THREADS / a.lanes;
    int64_t base = (int64_t)blockIdx.x * BUCKET, first = (int64_t)blockIdx.y * a.span;
    int64_t last = first + a.span < a.width ? first + a.span : a.width;

    first += (int64_t)((int)threadIdx.x % a.lanes) * N;
    for (int r = group; r < BUCKET && group < groups && base + r < a.rows; r += groups) {
        float *to = a.dtable + (base + r) * a.width;
        int from = b->begin[r], end = b->begin[r + 1];

        if (from == end && !fresh)
            continue;
        for (int64_t c = first; c < last; c += a.lanes * N) {
            float s[N] = {}, v[N];

            for (int j = 0; j < N && !fresh; j++)
                s[j] = to[c + j];
#pragma unroll 8
            for (int i = from; i < end; i++) {
                const T *p = a.dy + b->sorted[i] * a.width + c;

                if (N == 1)
                    v[0] = tri_widen(*p);
                else
                    tri_load(p, v);
                for (int j = 0; j < N; j++)
                    s[j] += v[j];
            }
            for (int j = 0; j < N; j++)
                to[c + j] = s[j];
        }
    }
    __syncthreads();
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) embedding_grad(struct scatter<T> a)
{
    __shared__ struct bucket b;
    bool fresh = !a.added;
    int n = 0;

    for (int64_t first = 0; first < a.tokens; first += DEPTH * THREADS) {
        n = collect(&b, a, first, n);
        if (n + DEPTH * THREADS > LIST) {
            sort_bucket(&b, n);
            add_bucket<T, N>(&b, a, fresh);
            fresh = false;
            n = 0;
        }
    }
    sort_bucket(&b, n);
    add_bucket<T, N>(&b, a, fresh);
}

static tri_status prepare_embedding_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct cuda_kernel *k;

    TRI_TRY(tri_cuda_kernel_create(d, &tri_cuda_embedding_grad, 0, &k));
    k->from = d->in[1].dtype;
    k->dim[0] = tri_arg_present(d->in, 2, d->nin); /* adds to what is there */
    k->dim[1] = d->attrs.rows;                     /* V */
    k->dim[2] = tri_shape_cols(&d->in[1].shape);   /* C */
    *out = &k->base;
    return TRI_OK;
}

/* Blocks for the rows, and as many for the columns as fill the device twice. */
template <class T, int N>
static tri_status launch_grad(const struct cuda_kernel *k, struct scatter<T> *a, void *stream)
{
    int64_t narrow = NARROW * N, most = (a->width + narrow - 1) / narrow;
    int64_t rows = (a->rows + BUCKET - 1) / BUCKET, parts = (2 * k->sm_count + rows - 1) / rows;

    parts = parts < most ? parts : most;
    a->span = ((a->width + parts - 1) / parts + narrow - 1) / narrow * narrow;
    a->lanes = (int)(a->span / N < THREADS ? a->span / N : THREADS);
    return tri_launch(embedding_grad<T, N>,
                      dim3((unsigned)rows, (unsigned)((a->width + a->span - 1) / a->span)), THREADS,
                      0, stream, *a);
}

template <class T>
static tri_status run_embedding_grad_of(const struct cuda_kernel *k,
                                        const struct tri_kernel_args *args)
{
    const int N = tri_lanes<T>::count;
    struct scatter<T> a = {
    };

    a.ids = (const int32_t *)args->in[0];
    a.dy = (const T *)args->in[1];
    a.dtable = (float *)args->out[0];
    a.tokens = k->count;
    a.rows = k->dim[1];
    a.width = k->dim[2];
    a.added = k->dim[0] != 0;
    if (a.width % N == 0 && tri_cuda_aligned(a.dy, NULL, NULL))
        return launch_grad<T, N>(k, &a, args->stream);
    return launch_grad<T, 1>(k, &a, args->stream);
}

static tri_status run_embedding_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return TRI_CALL_FLOAT(k->from, run_embedding_grad_of, k, args);
}

TRI_CUDA_KERNEL(embedding_grad);
