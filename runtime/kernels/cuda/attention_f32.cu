/* Attention in f32 arithmetic: the three passes of attention.cuh for f32, and for 16-bit heads that
 * are wider than the tensor-core kernels take.
 *
 * A block of 16 x 16 threads has a tile of 16 R rows and walks over tiles of 16 R columns; thread
 * (x, y) computes the scores of rows R y .. R y + R - 1 and columns x, x + 16, ...; the 16 threads
 * of a row lie in one warp. Products are chains of fused multiply-adds in index order, softmax
 * online in key order, all f32. Class: 2e-6 of the largest |v|. */
#include "runtime/kernels/cuda/attention.cuh"

#include <math.h>

#define THREADS 256
#define WIDEST  256 /* head */

/* Rows a thread: as many as shared memory has room for. */
template <int D> static constexpr int rows_each = D <= 128 ? 4 : 2;

/* Elements between rows of a tile of operands, and of scores: rows begin at multiples of 16 bytes,
 * an odd number of them apart. */
template <int D> static constexpr int operand_row = D + 4;
template <int R> static constexpr int score_row = 16 * R + 4;

struct place {
    int x, y; /* of this thread in the block */
};

static __device__ inline struct place place_here()
{
    return {(int)threadIdx.x % 16, (int)threadIdx.x / 16};
}

/* Rows [first, first + 16 R) of `count` as f32 into to[16 R][LD]; zeros elsewhere. The caller waits
 * and synchronises. */
template <class T, int R, int D>
static __device__ inline void load_rows(float *to, const T *from, int64_t row, int first, int count,
                                        const struct tri_attention &a)
{
    for (int i = (int)threadIdx.x; i < 16 * R * D; i += THREADS) {
        int r = i / D, c = i % D;
        bool valid = first + r < count && c < a.width;

        to[r * operand_row<D> + c] = valid ? tri_widen(from[(first + r) * row + c]) : 0.0f;
    }
}

template <int R, int D>
static __device__ inline void load_rows_f32(float *to, const float *from, int64_t row, int first,
                                            int count, const struct tri_attention &a)
{
    tri_attention_copy<float, THREADS, 16 * R, D, operand_row<D>>(to, from, row, first, count,
                                                                  a.width, a.vectors);
}

template <class T, int R, int D> struct loader {
    static __device__ inline void load(float *to, const void *from, int64_t at, int64_t row,
                                       int first, int count, const struct tri_attention &a)
    {
        load_rows<T, R, D>(to, (const T *)from + at, row, first, count, a);
    }
};

template <int R, int D> struct loader<float, R, D> {
    static __device__ inline void load(float *to, const void *from, int64_t at, int64_t row,
                                       int first, int count, const struct tri_attention &a)
    {
        load_rows_f32<R, D>(to, (const float *)from + at, row, first, count, a);
    }
};

/* Loads are done and seen by the whole block. */
static __device__ inline void wait_for_loads()
{
    tri_copy_commit();
    tri_copy_wait<0>();
    __syncthreads();
}

/* s[i][j] = a row R y + i times b row x + 16 j. */
template <int R, int D>
static __device__ inline void rows_product(float (*s)[R], const float *a, const float *b,
                                           const struct place &p)
{
    constexpr int LD = operand_row<D>;
    const float *pa = a + p.y * R * LD, *pb = b + p.x * LD;

#pragma unroll
    for (int i = 0; i < R * R; i++)
        s[i / R][i % R] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < D; d += 4) {
        float u[R][4], w[R][4];

#pragma unroll
        for (int i = 0; i < R; i++) {
            tri_load<float>(pa + i * LD + d, u[i]);
            tri_load<float>(pb + i * 16 * LD + d, w[i]);
        }
#pragma unroll
        for (int i = 0; i < R * R * 4; i++)
            s[i / 4 / R][i / 4 % R] += u[i / 4 / R][i % 4] * w[i / 4 % R][i % 4];
    }
}

/* Hands s to the threads of the same rows: they are lanes of one warp. */
template <int R>
static __device__ inline void share_scores(float *to, const float (*s)[R], const struct place &p)
{
    __syncwarp();
#pragma unroll
    for (int i = 0; i < R * R; i++)
        to[(p.y * R + i / R) * score_row<R> + p.x + i % R * 16] = s[i / R][i % R];
    __syncwarp();
}

/* acc[i][c] += row R y + i of the shared scores times column x + 16 c of b. */
template <int R, int D>
static __device__ inline void add_product(float (*acc)[D / 16], const float *scores, const float *b,
                                          const struct place &p)
{
    constexpr int LD = operand_row<D>;
    const float *pa = scores + p.y * R * score_row<R>, *pb = b + p.x;

#pragma unroll 1
    for (int k = 0; k < 16 * R; k += 4) {
        float u[R][4];

#pragma unroll
        for (int i = 0; i < R; i++)
            tri_load<float>(pa + i * score_row<R> + k, u[i]);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                float w = pb[(k + e) * LD + c * 16];

#pragma unroll
                for (int i = 0; i < R; i++)
                    acc[i][c] += u[i][e] * w;
            }
    }
}

/* Over the 16 threads of a row. */
static __device__ inline float row_sum(float v)
{
    for (int d = 8; d > 0; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

static __device__ inline float row_max(float v)
{
    for (int d = 8; d > 0; d >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* Bit R i + j: whether the element of query t + i and key j + 16 j' is kept. Four neighbours share
 * a block of words: each draws that of one column. */
template <int R>
static __device__ inline unsigned keep_of_queries(const struct tri_attention &a, uint64_t step,
                                                  uint64_t index, int t, int j,
                                                  const struct place &p)
{
    uint64_t length = (uint64_t)a.queries;
    int lane = (int)threadIdx.x % 32, w = lane % 4;
    unsigned own = 0;

    for (int i = 0; i < R; i++) {
        uint64_t at = index + (uint64_t)(t + i) * length + (uint64_t)j;
        unsigned mine = 0;

        if (length % 4 == 0)
            mine = tri_attention_keep4(a.drop, step, (at + (uint64_t)(p.x + w % R * 16)) >> 2);
        for (int c = 0; c < R; c++) {
            unsigned bit = __shfl_sync(0xffffffffu, mine, (lane & ~3) | c) >> w & 1u;

            if (length % 4 != 0)
                bit = tri_attention_keep(a.drop, step, at + (uint64_t)(p.x + c * 16));
            own |= bit << (R * i + c);
        }
    }
    return own;
}

/* The same for keys t + i and query j + 16 j'. */
template <int R>
static __device__ inline unsigned keep_of_keys(const struct tri_attention &a, uint64_t step,
                                               uint64_t index, int t, int j, const struct place &p)
{
    uint64_t length = (uint64_t)a.queries;
    unsigned own = 0;

    for (int c = 0; c < R; c++) {
        uint64_t at = index + (uint64_t)(j + p.x + c * 16) * length + (uint64_t)t;
        unsigned words = length % 4 != 0 ? 0u : tri_attention_keep4(a.drop, step, at >> 2);

        for (int i = 0; i < R; i++)
            own |= (length % 4 != 0 ? tri_attention_keep(a.drop, step, at + (uint64_t)i)
                                    : words >> ((int)(at & 3) + i) & 1u)
                   << (R * i + c);
    }
    return own;
}

/* Whether the query at `position` sees the key. */
static __device__ inline bool sees(const struct tri_attention &a, int position, int key)
{
    return key < a.keys && (!a.causal || key <= position);
}

/* Rows first .. first + R - 1 of `count`, times factor[i], to to + t row. */
template <class T, int R, int D>
static __device__ inline void store_rows(T *to, int64_t row, int first, int count,
                                         const struct tri_attention &a, const float (*x)[D / 16],
                                         const float *factor, const struct place &p)
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            if (first + i < count && p.x + c * 16 < a.width)
                to[(first + i) * row + p.x + c * 16] = tri_narrow<T>(x[i][c] * factor[i]);
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1)
    forward_f32(struct tri_attention a)
{
    constexpr int R = rows_each<D>, ROWS = 16 * R, TILE = ROWS * operand_row<D>;
    TRI_DYNAMIC_SHARED(float, shared);
    const struct tri_attention_place at = tri_attention_here(a, ROWS, a.causal);
    const struct place p = place_here();
    float *q = shared, *k = q + TILE, *v = k + TILE, *scores = v + TILE;
    int64_t kv = tri_attention_kv(a, at);
    int t = at.row + p.y * R, seen = tri_attention_keys(a, at, ROWS);
    float o[R][D / 16] = {}, max[R], sum[R] = {};
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);

    for (int i = 0; i < R; i++)
        max[i] = -INFINITY;
    loader<T, R, D>::load(q, a.q, tri_attention_q(a, at), a.q_row, at.row, a.queries, a);
    for (int j = 0; j < seen; j += ROWS) {
        float s[R][R];
        unsigned keep = ~0u;

        __syncthreads();
        loader<T, R, D>::load(k, a.k, kv, a.kv_row, j, a.keys, a);
        loader<T, R, D>::load(v, a.v, kv, a.kv_row, j, a.keys, a);
        wait_for_loads();
        rows_product<R, D>(s, q, k, p);
        if (a.counters != NULL)
            keep = keep_of_queries<R>(a, step, index, t, j, p);
#pragma unroll
        for (int i = 0; i < R; i++) {
            float top = max[i], shrink;

#pragma unroll
            for (int c = 0; c < R; c++) {
                s[i][c] =
                    sees(a, at.first + t + i, j + p.x + c * 16) ? s[i][c] * a.scale : -INFINITY;
                top = fmaxf(top, s[i][c]);
            }
            top = row_max(top);
            shrink = expf(max[i] - top);
            max[i] = top;
            sum[i] *= shrink;
#pragma unroll
            for (int c = 0; c < R; c++) {
                s[i][c] = expf(s[i][c] - top);
                sum[i] += s[i][c];
                s[i][c] = keep >> (R * i + c) & 1 ? s[i][c] : 0.0f;
            }
#pragma unroll
            for (int c = 0; c < D / 16; c++)
                o[i][c] *= shrink;
        }
        share_scores<R>(scores, s, p);
        add_product<R, D>(o, scores, v, p);
    }
    for (int i = 0; i < R; i++) {
        sum[i] = row_sum(sum[i]);
        if (a.lse != NULL && p.x == 0 && t + i < a.queries)
            a.lse[tri_attention_stat(a, at) + t + i] = max[i] + logf(sum[i]);
        sum[i] = (a.counters != NULL ? a.drop.factor : 1.0f) / sum[i];
    }
    store_rows<T, R, D>((T *)a.out + tri_attention_out(a, at), (int64_t)a.heads * a.width, t,
                        a.queries, a, o, sum, p);
}

/* Of one score: p comes as q . k and becomes the kept probability, ds comes as dout . v and becomes
 * the gradient p (kept factor ds - delta). */
static __device__ inline void score_gradient(float &p, float &ds, bool seen, float lse, float delta,
                                             const struct tri_attention &a, bool keep)
{
    float factor = a.counters != NULL ? a.drop.factor : 1.0f;

    p = seen ? expf(p * a.scale - lse) : 0.0f;
    ds = p * ((keep ? ds * factor : 0.0f) - delta);
    p = keep ? p : 0.0f;
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1)
    queries_gradient_f32(struct tri_attention a)
{
    constexpr int R = rows_each<D>, ROWS = 16 * R, TILE = ROWS * operand_row<D>;
    TRI_DYNAMIC_SHARED(float, shared);
    const struct tri_attention_place at = tri_attention_here(a, ROWS, a.causal);
    const struct place p = place_here();
    float *q = shared, *dout = q + TILE, *k = dout + TILE, *v = k + TILE, *scores = v + TILE;
    int64_t kv = tri_attention_kv(a, at), stat = tri_attention_stat(a, at);
    int64_t row = (int64_t)a.heads * a.width, outs = tri_attention_out(a, at);
    const T *out = (const T *)a.out_in + outs;
    int t = at.row + p.y * R, seen = tri_attention_keys(a, at, ROWS);
    float dq[R][D / 16] = {}, lse[R], delta[R] = {}, factor[R];
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);

    loader<T, R, D>::load(q, a.q, tri_attention_q(a, at), a.q_row, at.row, a.queries, a);
    loader<T, R, D>::load(dout, a.dout, outs, row, at.row, a.queries, a);
    wait_for_loads();
    for (int i = 0; i < R; i++) {
        bool real = t + i < a.queries;

        for (int c = p.x; c < a.width && real; c += 16)
            delta[i] +=
                dout[(p.y * R + i) * operand_row<D> + c] * tri_widen(out[(t + i) * row + c]);
        delta[i] = row_sum(delta[i]);
        lse[i] = real ? a.lse_in[stat + t + i] : 0.0f;
        factor[i] = a.scale;
        if (real && p.x == 0)
            a.delta[stat + t + i] = delta[i];
    }
    for (int j = 0; j < seen; j += ROWS) {
        float s[R][R], ds[R][R];
        unsigned keep = ~0u;

        __syncthreads();
        loader<T, R, D>::load(k, a.k, kv, a.kv_row, j, a.keys, a);
        loader<T, R, D>::load(v, a.v, kv, a.kv_row, j, a.keys, a);
        wait_for_loads();
        if (a.counters != NULL)
            keep = keep_of_queries<R>(a, step, index, t, j, p);
        rows_product<R, D>(s, q, k, p);
        rows_product<R, D>(ds, dout, v, p);
#pragma unroll
        for (int n = 0; n < R * R; n++)
            score_gradient(s[n / R][n % R], ds[n / R][n % R],
                           sees(a, t + n / R, j + p.x + n % R * 16), lse[n / R], delta[n / R], a,
                           keep >> n & 1);
        share_scores<R>(scores, ds, p);
        add_product<R, D>(dq, scores, k, p);
    }
    store_rows<T, R, D>((T *)a.dq + tri_attention_q(a, at), a.q_row, t, a.queries, a, dq, factor,
                        p);
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, D < 64 ? 2 : 1)
    keys_gradient_f32(struct tri_attention a)
{
    constexpr int R = rows_each<D>, ROWS = 16 * R, TILE = ROWS * operand_row<D>;
    TRI_DYNAMIC_SHARED(float, shared);
    const struct tri_attention_place at = tri_attention_here(a, ROWS, false);
    const struct place p = place_here();
    float *k = shared, *v = k + TILE, *q = v + TILE, *dout = q + TILE, *scores = dout + TILE;
    int64_t kv = tri_attention_kv(a, at), stat = tri_attention_stat(a, at);
    int64_t row = (int64_t)a.heads * a.width, qs = tri_attention_q(a, at);
    int64_t outs = tri_attention_out(a, at);
    int t = at.row + p.y * R;
    float dk[R][D / 16] = {}, dv[R][D / 16] = {}, k_factor[R], v_factor[R];
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);

    loader<T, R, D>::load(k, a.k, kv, a.kv_row, at.row, a.keys, a);
    loader<T, R, D>::load(v, a.v, kv, a.kv_row, at.row, a.keys, a);
    for (int j = a.causal ? at.row : 0; j < a.queries; j += ROWS) {
        float s[R][R], ds[R][R];
        unsigned keep = ~0u;

        __syncthreads();
        loader<T, R, D>::load(q, a.q, qs, a.q_row, j, a.queries, a);
        loader<T, R, D>::load(dout, a.dout, outs, row, j, a.queries, a);
        wait_for_loads();
        if (a.counters != NULL)
            keep = keep_of_keys<R>(a, step, index, t, j, p);
        rows_product<R, D>(s, k, q, p);
        rows_product<R, D>(ds, v, dout, p);
#pragma unroll
        for (int c = 0; c < R; c++) {
            int query = j + p.x + c * 16;
            bool real = query < a.queries;
            float lse = real ? a.lse_in[stat + query] : 0.0f;
            float delta = real ? a.delta[stat + query] : 0.0f;

#pragma unroll
            for (int i = 0; i < R; i++)
                score_gradient(s[i][c], ds[i][c], real && sees(a, query, t + i), lse, delta, a,
                               keep >> (R * i + c) & 1);
        }
        share_scores<R>(scores, s, p);
        add_product<R, D>(dv, scores, dout, p);
        share_scores<R>(scores, ds, p);
        add_product<R, D>(dk, scores, q, p);
    }
    for (int i = 0; i < R; i++) {
        k_factor[i] = a.scale;
        v_factor[i] = a.counters != NULL ? a.drop.factor : 1.0f;
    }
    store_rows<T, R, D>((T *)a.dk + kv, a.kv_row, t, a.keys, a, dk, k_factor, p);
    store_rows<T, R, D>((T *)a.dv + kv, a.kv_row, t, a.keys, a, dv, v_factor, p);
}

/* Bytes of shared memory of a block. */
template <int D> static constexpr size_t bytes_of(enum tri_attention_pass pass)
{
    constexpr int R = rows_each<D>;
    size_t tiles = pass == TRI_ATTENTION_FORWARD ? 3 : 4;

    return 16 * R * (tiles * operand_row<D> + score_row<R>)*sizeof(float);
}

template <class T, int D> static tri_status allow_all()
{
    TRI_TRY(tri_attention_allow(forward_f32<T, D>, bytes_of<D>(TRI_ATTENTION_FORWARD)));
    TRI_TRY(tri_attention_allow(queries_gradient_f32<T, D>, bytes_of<D>(TRI_ATTENTION_QUERIES)));
    return tri_attention_allow(keys_gradient_f32<T, D>, bytes_of<D>(TRI_ATTENTION_KEYS));
}

template <int D> static tri_status allow_width()
{
    return allow_all<float, D>();
}

template <class T> static tri_status allow_widest()
{
    return allow_all<T, WIDEST>();
}

bool tri_attention_f32_supports(enum tri_dtype type, int64_t width)
{
    return width <= WIDEST && (type == TRI_F32 || width > 128);
}

tri_status tri_attention_f32_allow(enum tri_dtype type, int64_t width)
{
    if (width > 128)
        return TRI_CALL_FLOAT(type, allow_widest);
    return TRI_CALL_WIDTH(width, allow_width);
}

template <class T, int D>
static tri_status run_pass(enum tri_attention_pass pass, const struct tri_attention *a,
                           void *stream)
{
    int rows = pass == TRI_ATTENTION_KEYS ? a->keys : a->queries, tile = 16 * rows_each<D>;
    dim3 grid((unsigned)((rows + tile - 1) / tile), (unsigned)a->heads, (unsigned)a->batch);
    void (*kernel)(struct tri_attention) = pass == TRI_ATTENTION_FORWARD ? forward_f32<T, D>
                                           : pass == TRI_ATTENTION_QUERIES
                                               ? queries_gradient_f32<T, D>
                                               : keys_gradient_f32<T, D>;

    return tri_launch(kernel, grid, THREADS, bytes_of<D>(pass), stream, *a);
}

template <int D>
static tri_status run_width(enum tri_attention_pass pass, const struct tri_attention *a,
                            void *stream)
{
    return run_pass<float, D>(pass, a, stream);
}

template <class T>
static tri_status run_widest(enum tri_attention_pass pass, const struct tri_attention *a,
                             void *stream)
{
    return run_pass<T, WIDEST>(pass, a, stream);
}

tri_status tri_attention_f32_run(enum tri_dtype type, enum tri_attention_pass pass,
                                 const struct tri_attention *a, void *stream)
{
    if (a->width > 128)
        return TRI_CALL_FLOAT(type, run_widest, pass, a, stream);
    return TRI_CALL_WIDTH(a->width, run_width, pass, a, stream);
}
