/* Attention on bf16 and f16 by tensor cores: the three passes of attention.cuh.
 *
 * A block has 4 warps with 16 rows each. Operands wait in shared memory, in rows that are 16 bytes
 * longer than D so that no two of the 8 rows that ldmatrix reads fall into the same banks; the
 * tiles of the other side are fetched one ahead. Scores, softmax and sums in f32; probabilities and
 * score gradients are rounded to 16 bits between two products. Class: 2^-8 (bf16) or 2^-11 (f16) of
 * the sum of |p| |v|; lse as in f32. */
#include "runtime/kernels/cuda/attention.cuh"

#include <math.h>

#define THREADS 128
#define ROWS    64 /* of a block; also keys of a tile in the passes over queries */
#define LOG2E   1.4426950408889634f

/* Queries of a tile of the pass over keys: fewer where dk and dv fill the registers. */
template <int D> static constexpr int query_tile = D <= 64 ? 64 : 32;

/* Position of this thread in the fragments of mma.cuh. */
struct lane {
    int warp, lane, g, q;
};

static __device__ inline struct lane lane_here()
{
    int l = (int)threadIdx.x % 32;

    return {(int)threadIdx.x / 32, l, l / 4, l % 4};
}

/* Begins to copy N rows from `first` on of two tensors, to[N][D + 8] each, one behind the other. */
template <class T, int N, int D>
static __device__ inline void copy_pair(T *to, const T *x, int64_t x_row, const T *y, int64_t y_row,
                                        int first, int count, const struct tri_attention &a)
{
    constexpr int LD = D + 8;

    tri_attention_copy<T, THREADS, N, D, LD>(to, x, x_row, first, count, a.width, a.vectors);
    tri_attention_copy<T, THREADS, N, D, LD>(to + N * LD, y, y_row, first, count, a.width,
                                             a.vectors);
}

/* s[NT][4] = a b^T: rows a[16][LD] of this warp, b[8 NT][LD]. */
template <class T, int D, int NT>
static __device__ inline void rows_product(float (*s)[4], const T *a, const T *b,
                                           const struct lane &l)
{
    constexpr int LD = D + 8;
    const T *pa = a + l.lane % 16 * LD + l.lane / 16 * 8;
    const T *pb = b + (l.lane % 8 + l.lane / 16 * 8) * LD + l.lane / 8 % 2 * 8;

#pragma unroll
    for (int n = 0; n < NT; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        unsigned fa[4], fb[4];

        tri_load_matrices(fa, pa + k);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            tri_load_matrices(fb, pb + n * 8 * LD + k);
            tri_mma<T>(s[n], fa, fb);
            tri_mma<T>(s[n + 1], fa, fb + 2);
        }
    }
}

/* acc[D/8][4] += p b: p[NT][4] of this warp, rounded; b[8 NT][LD]. */
template <class T, int D, int NT>
static __device__ inline void add_product(float (*acc)[4], const float (*p)[4], const T *b,
                                          const struct lane &l)
{
    constexpr int LD = D + 8;
    const T *pb = b + l.lane % 16 * LD + l.lane / 16 * 8;

#pragma unroll
    for (int n = 0; n < NT; n += 2) {
        unsigned fa[4] = {tri_narrow2<T>(p[n]), tri_narrow2<T>(p[n] + 2), tri_narrow2<T>(p[n + 1]),
                          tri_narrow2<T>(p[n + 1] + 2)};

#pragma unroll
        for (int c = 0; c < D; c += 16) {
            unsigned fb[4];

            tri_load_matrices_turned(fb, pb + n * 8 * LD + c);
            tri_mma<T>(acc[c / 8], fa, fb);
            tri_mma<T>(acc[c / 8 + 1], fa, fb + 2);
        }
    }
}

/* Bit 4 n + e: whether element e of p[n] is kept, where rows are queries i and i + 8 and columns
 * are keys from j on. A block of four words belongs to two lanes: each draws that of one row. */
template <int NT>
static __device__ inline unsigned keep_of_queries(const struct tri_attention &a, uint64_t step,
                                                  uint64_t index, int i, int j,
                                                  const struct lane &l)
{
    unsigned odd = (unsigned)l.q & 1, shift = 2 * odd, own = 0, other;
    uint64_t t = (uint64_t)a.queries;

    if (t % 4 != 0) {
        for (int n = 0; n < NT * 4; n++) {
            uint64_t row = (uint64_t)(i + n % 4 / 2 * 8),
                     column = (uint64_t)(j + n / 4 * 8 + 2 * l.q);

            own |= tri_attention_keep(a.drop, step, index + row * t + column + (uint64_t)(n & 1))
                   << n;
        }
        return own;
    }
    index += (uint64_t)(i + (int)odd * 8) * t + (uint64_t)(j + l.q / 2 * 4);
#pragma unroll 1
    for (int n = 0; n < NT; n++)
        own |= tri_attention_keep4(a.drop, step, (index >> 2) + (uint64_t)(2 * n)) << (4 * n);
    other = __shfl_xor_sync(0xffffffffu, own, 1);
    return ((odd ? other : own) >> shift & 0x33333333u) |
           ((odd ? own : other) >> shift & 0x33333333u) << 2;
}

/* The same where rows are keys j and j + 8 and columns are queries from i on: four lanes share a
 * block of words, and each draws that of one of the four elements. */
template <int NT>
static __device__ inline unsigned keep_of_keys(const struct tri_attention &a, uint64_t step,
                                               uint64_t index, int i, int j, const struct lane &l)
{
    uint64_t t = (uint64_t)a.queries;
    unsigned own = 0, w = (unsigned)l.g & 3, mine = 0;

    if (t % 4 != 0) {
        for (int n = 0; n < NT * 4; n++) {
            uint64_t row = (uint64_t)(i + n / 4 * 8 + 2 * l.q + (n & 1));

            own |= tri_attention_keep(a.drop, step, index + row * t + (uint64_t)(j + n % 4 / 2 * 8))
                   << n;
        }
        return own;
    }
    index += (uint64_t)(i + 2 * l.q + (int)(w & 1)) * t + (uint64_t)(j - (int)w + (int)(w / 2) * 8);
#pragma unroll 1
    for (int n = 0; n < NT; n++)
        mine |= tri_attention_keep4(a.drop, step, (index + (uint64_t)(8 * n) * t) >> 2) << (4 * n);
#pragma unroll
    for (int e = 0; e < 4; e++)
        own |= (__shfl_sync(0xffffffffu, mine, (l.lane & ~12) | e << 2) >> w & 0x11111111u) << e;
    return own;
}

/* Scores of keys that row i must not see become -infinity. j: first key of the tile. */
template <int NT>
static __device__ inline void hide(float (*s)[4], const struct tri_attention &a, int position,
                                   int j, const struct lane &l)
{
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int key = j + n * 8 + 2 * l.q + (e & 1);

            if (key >= a.keys || (a.causal && key > position + e / 2 * 8))
                s[n][e] = -INFINITY;
        }
}

/* Sum or maximum over the four lanes of a row. */
static __device__ inline float row_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

static __device__ inline float row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

/* One tile of the online softmax: s becomes exp(scale (s - max)), max and the lanes' sums move on,
 * o shrinks to the new maximum. */
template <int NT, int D>
static __device__ inline void softmax_tile(float (*s)[4], float (*o)[4], float *max, float *sum,
                                           float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = max[r], shrink;

#pragma unroll
        for (int n = 0; n < NT; n++)
            top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = row_max(top);
        shrink = exp2f((max[r] - top) * scale);
        max[r] = top;
        sum[r] *= shrink;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                s[n][e] = exp2f((s[n][e] - top) * scale);
                sum[r] += s[n][e];
            }
#pragma unroll
        for (int c = 0; c < D / 8; c++) {
            o[c][2 * r] *= shrink;
            o[c][2 * r + 1] *= shrink;
        }
    }
}

/* Writes factor[r] x of rows i and i + 8, of `count`, where they exist. Row t at to + t row. */
template <class T, int D>
static __device__ inline void store_rows(T *to, int64_t row, int i, int count, int width,
                                         bool pairs, const float (*x)[4], const float *factor,
                                         const struct lane &l)
{
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float v[2] = {x[c][2 * r] * factor[r], x[c][2 * r + 1] * factor[r]};
            int column = c * 8 + 2 * l.q;
            T *p = to + (i + 8 * r) * row + column;

            if (i + 8 * r >= count)
                continue;
            if (pairs && column < width)
                *reinterpret_cast<unsigned *>(p) = tri_narrow2<T>(v);
            for (int e = 0; e < 2 && !pairs; e++)
                if (column + e < width)
                    p[e] = tri_narrow<T>(v[e]);
        }
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 4 : 2) forward(struct tri_attention a)
{
    constexpr int LD = D + 8, NT = ROWS / 8, TILE = ROWS * LD;
    TRI_DYNAMIC_SHARED(T, shared); /* k, v; k, v of the next tile */
    const struct tri_attention_place at = tri_attention_here(a, ROWS, a.causal);
    const struct lane l = lane_here();
    const T *q = (const T *)a.q + tri_attention_q(a, at);
    const T *k = (const T *)a.k + tri_attention_kv(a, at);
    const T *v = (const T *)a.v + tri_attention_kv(a, at);
    int i = at.row + l.warp * 16 + l.g, seen = tri_attention_keys(a, at, ROWS);
    float o[D / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, factor[2];
    float scale = a.scale * LOG2E;
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);
    T *rows = shared + 4 * TILE;

    tri_attention_copy<T, THREADS, ROWS, D, LD>(rows, q, a.q_row, at.row, a.queries, a.width,
                                                a.vectors);
    copy_pair<T, ROWS, D>(shared, k, a.kv_row, v, a.kv_row, 0, a.keys, a);
    tri_copy_commit();
    for (int j = 0, stage = 0; j < seen; j += ROWS, stage ^= 1) {
        T *now = shared + stage * 2 * TILE, *next = shared + (stage ^ 1) * 2 * TILE;
        float s[NT][4];

        if (j + ROWS < seen)
            copy_pair<T, ROWS, D>(next, k, a.kv_row, v, a.kv_row, j + ROWS, a.keys, a);
        tri_copy_commit();
        tri_copy_wait<1>();
        __syncthreads();
        rows_product<T, D, NT>(s, rows + l.warp * 16 * LD, now, l);
        if (j + ROWS > a.keys || (a.causal && j + ROWS > at.first + at.row))
            hide<NT>(s, a, at.first + i, j, l);
        softmax_tile<NT, D>(s, o, max, sum, scale);
        if (a.counters != NULL) {
            unsigned keep = keep_of_queries<NT>(a, step, index, i, j, l);

#pragma unroll
            for (int n = 0; n < NT * 4; n++)
                s[n / 4][n % 4] = keep >> n & 1 ? s[n / 4][n % 4] : 0.0f;
        }
        add_product<T, D, NT>(o, s, now + TILE, l);
        __syncthreads();
    }
    for (int r = 0; r < 2; r++) {
        sum[r] = row_sum(sum[r]);
        factor[r] = (a.counters != NULL ? a.drop.factor : 1.0f) / sum[r];
        if (a.lse != NULL && l.q == 0 && i + 8 * r < a.queries)
            a.lse[tri_attention_stat(a, at) + i + 8 * r] = max[r] * a.scale + logf(sum[r]);
    }
    store_rows<T, D>((T *)a.out + tri_attention_out(a, at), (int64_t)a.heads * a.width, i,
                     a.queries, a.width, a.vectors, o, factor, l);
}

/* Of one score: p comes as q . k and becomes the kept probability, ds comes as dout . v and becomes
 * the gradient p (kept factor ds - delta). scale and lse are those of base 2. */
static __device__ inline void score_gradient(float &p, float &ds, float lse, float delta,
                                             float scale, bool keep, float factor)
{
    p = exp2f(p * scale - lse);
    ds = p * ((keep ? ds * factor : 0.0f) - delta);
    p = keep ? p : 0.0f;
}

/* Of rows i and i + 8: lse in base 2, and delta, which the pass over keys reads too. */
template <class T>
static __device__ inline void
row_statistics(float *lse, float *delta, const struct tri_attention &a, const T *dout, const T *out,
               int i, int64_t stat, const struct lane &l)
{
    int64_t row = (int64_t)a.heads * a.width;

    for (int r = 0; r < 2; r++) {
        int t = i + 8 * r;

        lse[r] = t < a.queries ? a.lse_in[stat + t] * LOG2E : 0.0f;
        delta[r] = 0.0f;
        for (int c = l.q; c < a.width && t < a.queries; c += 4)
            delta[r] += tri_widen(dout[t * row + c]) * tri_widen(out[t * row + c]);
        delta[r] = row_sum(delta[r]);
        if (l.q == 0 && t < a.queries)
            a.delta[stat + t] = delta[r];
    }
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, 2) queries_gradient(struct tri_attention a)
{
    constexpr int LD = D + 8, NT = ROWS / 8, TILE = ROWS * LD;
    TRI_DYNAMIC_SHARED(T, shared); /* k, v; k, v of the next tile; q, dout */
    const struct tri_attention_place at = tri_attention_here(a, ROWS, a.causal);
    const struct lane l = lane_here();
    const T *k = (const T *)a.k + tri_attention_kv(a, at);
    const T *v = (const T *)a.v + tri_attention_kv(a, at);
    const T *dout = (const T *)a.dout + tri_attention_out(a, at);
    int i = at.row + l.warp * 16 + l.g, seen = tri_attention_keys(a, at, ROWS);
    float dq[D / 8][4] = {}, lse[2], delta[2], factor[2] = {a.scale, a.scale};
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);
    int64_t row = (int64_t)a.heads * a.width;
    T *q_rows = shared + 4 * TILE, *dout_rows = q_rows + TILE;

    copy_pair<T, ROWS, D>(q_rows, (const T *)a.q + tri_attention_q(a, at), a.q_row, dout, row,
                          at.row, a.queries, a);
    copy_pair<T, ROWS, D>(shared, k, a.kv_row, v, a.kv_row, 0, a.keys, a);
    tri_copy_commit();
    row_statistics(lse, delta, a, dout, (const T *)a.out_in + tri_attention_out(a, at), i,
                   tri_attention_stat(a, at), l);
    for (int j = 0, stage = 0; j < seen; j += ROWS, stage ^= 1) {
        T *now = shared + stage * 2 * TILE, *next = shared + (stage ^ 1) * 2 * TILE;
        float s[NT][4], ds[NT][4];
        unsigned keep = ~0u;

        if (j + ROWS < seen)
            copy_pair<T, ROWS, D>(next, k, a.kv_row, v, a.kv_row, j + ROWS, a.keys, a);
        tri_copy_commit();
        tri_copy_wait<1>();
        __syncthreads();
        if (a.counters != NULL)
            keep = keep_of_queries<NT>(a, step, index, i, j, l);
        rows_product<T, D, NT>(s, q_rows + l.warp * 16 * LD, now, l);
        if (j + ROWS > a.keys || (a.causal && j + ROWS > at.row))
            hide<NT>(s, a, i, j, l);
        rows_product<T, D, NT>(ds, dout_rows + l.warp * 16 * LD, now + TILE, l);
#pragma unroll
        for (int n = 0; n < NT * 4; n++)
            score_gradient(s[n / 4][n % 4], ds[n / 4][n % 4], lse[n % 4 / 2], delta[n % 4 / 2],
                           a.scale * LOG2E, keep >> n & 1,
                           a.counters != NULL ? a.drop.factor : 1.0f);
        add_product<T, D, NT>(dq, ds, now, l);
        __syncthreads();
    }
    store_rows<T, D>((T *)a.dq + tri_attention_q(a, at), a.q_row, i, a.queries, a.width, a.vectors,
                     dq, factor, l);
}

/* Statistics of queries [i, i + N) into stat[2][N]: those that do not exist have probability 0. */
template <int N>
static __device__ inline void load_statistics(float *stat, const struct tri_attention &a,
                                              int64_t at, int i)
{
    int t = (int)threadIdx.x;

    if (t < N) {
        stat[t] = i + t < a.queries ? a.lse_in[at + i + t] * LOG2E : INFINITY;
        stat[N + t] = i + t < a.queries ? a.delta[at + i + t] : 0.0f;
    }
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, 2) keys_gradient(struct tri_attention a)
{
    constexpr int LD = D + 8, N = query_tile<D>, NT = N / 8, TILE = N * LD;
    TRI_DYNAMIC_SHARED(T, shared); /* q, dout; q, dout of the next tile; k, v */
    __shared__ float stat[2][2 * N];
    const struct tri_attention_place at = tri_attention_here(a, ROWS, false);
    const struct lane l = lane_here();
    const T *q = (const T *)a.q + tri_attention_q(a, at);
    const T *dout = (const T *)a.dout + tri_attention_out(a, at);
    int j = at.row + l.warp * 16 + l.g, begin = a.causal ? at.row / N * N : 0;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    float k_factor[2] = {a.scale, a.scale}, v_factor[2] = {1.0f, 1.0f};
    uint64_t step = tri_attention_step(a), index = tri_attention_index(a, at);
    int64_t stats = tri_attention_stat(a, at), row = (int64_t)a.heads * a.width;
    T *k_rows = shared + 4 * TILE, *v_rows = k_rows + ROWS * LD;

    copy_pair<T, ROWS, D>(k_rows, (const T *)a.k + tri_attention_kv(a, at), a.kv_row,
                          (const T *)a.v + tri_attention_kv(a, at), a.kv_row, at.row, a.keys, a);
    copy_pair<T, N, D>(shared, q, a.q_row, dout, row, begin, a.queries, a);
    load_statistics<N>(stat[0], a, stats, begin);
    tri_copy_commit();
    for (int i = begin, stage = 0; i < a.queries; i += N, stage ^= 1) {
        T *now = shared + stage * 2 * TILE, *next = shared + (stage ^ 1) * 2 * TILE;
        const float *lse = stat[stage] + 2 * l.q, *delta = lse + N;
        float s[NT][4], ds[NT][4];
        unsigned keep = ~0u;

        if (i + N < a.queries) {
            copy_pair<T, N, D>(next, q, a.q_row, dout, row, i + N, a.queries, a);
            load_statistics<N>(stat[stage ^ 1], a, stats, i + N);
        }
        tri_copy_commit();
        tri_copy_wait<1>();
        __syncthreads();
        if (a.counters != NULL)
            keep = keep_of_keys<NT>(a, step, index, i, j, l);
        rows_product<T, D, NT>(s, k_rows + l.warp * 16 * LD, now, l);
        rows_product<T, D, NT>(ds, v_rows + l.warp * 16 * LD, now + TILE, l);
#pragma unroll
        for (int n = 0; n < NT * 4; n++) {
            int column = n / 4 * 8 + (n & 1);

            if (a.causal && i + column + 2 * l.q < j + n % 4 / 2 * 8)
                s[n / 4][n % 4] = -INFINITY;
            score_gradient(s[n / 4][n % 4], ds[n / 4][n % 4], lse[column], delta[column],
                           a.scale * LOG2E, keep >> n & 1,
                           a.counters != NULL ? a.drop.factor : 1.0f);
        }
        add_product<T, D, NT>(dv, s, now + TILE, l);
        add_product<T, D, NT>(dk, ds, now, l);
        __syncthreads();
    }
    if (a.counters != NULL)
        v_factor[0] = v_factor[1] = a.drop.factor;
    store_rows<T, D>((T *)a.dk + tri_attention_kv(a, at), a.kv_row, j, a.keys, a.width, a.vectors,
                     dk, k_factor, l);
    store_rows<T, D>((T *)a.dv + tri_attention_kv(a, at), a.kv_row, j, a.keys, a.width, a.vectors,
                     dv, v_factor, l);
}

/* Bytes of shared memory of a block. */
template <int D> static constexpr size_t bytes_of(enum tri_attention_pass pass)
{
    size_t rows = pass == TRI_ATTENTION_FORWARD   ? 5 * ROWS
                  : pass == TRI_ATTENTION_QUERIES ? 6 * ROWS
                                                  : 2 * ROWS + 4 * query_tile<D>;

    return rows * (D + 8) * sizeof(uint16_t);
}

template <class T, int D> static tri_status allow_all()
{
    TRI_TRY(tri_attention_allow(forward<T, D>, bytes_of<D>(TRI_ATTENTION_FORWARD)));
    TRI_TRY(tri_attention_allow(queries_gradient<T, D>, bytes_of<D>(TRI_ATTENTION_QUERIES)));
    return tri_attention_allow(keys_gradient<T, D>, bytes_of<D>(TRI_ATTENTION_KEYS));
}

template <int D> static tri_status allow_width(enum tri_dtype type)
{
    return type == TRI_BF16 ? allow_all<__nv_bfloat16, D>() : allow_all<__half, D>();
}

bool tri_attention_half_supports(enum tri_dtype type, int64_t width)
{
    return tri_dtype_is_half(type) && width <= 128;
}

tri_status tri_attention_half_allow(enum tri_dtype type, int64_t width)
{
    return TRI_CALL_WIDTH(width, allow_width, type);
}

template <class T, int D>
static tri_status run_pass(enum tri_attention_pass pass, const struct tri_attention *a,
                           void *stream)
{
    int rows = pass == TRI_ATTENTION_KEYS ? a->keys : a->queries;
    dim3 grid((unsigned)((rows + ROWS - 1) / ROWS), (unsigned)a->heads, (unsigned)a->batch);
    void (*kernel)(struct tri_attention) = pass == TRI_ATTENTION_FORWARD   ? forward<T, D>
                                           : pass == TRI_ATTENTION_QUERIES ? queries_gradient<T, D>
                                                                           : keys_gradient<T, D>;

    return tri_launch(kernel, grid, THREADS, bytes_of<D>(pass), stream, *a);
}

template <int D>
static tri_status run_width(enum tri_dtype type, enum tri_attention_pass pass,
                            const struct tri_attention *a, void *stream)
{
    return type == TRI_BF16 ? run_pass<__nv_bfloat16, D>(pass, a, stream)
                            : run_pass<__half, D>(pass, a, stream);
}

tri_status tri_attention_half_run(enum tri_dtype type, enum tri_attention_pass pass,
                                  const struct tri_attention *a, void *stream)
{
    return TRI_CALL_WIDTH(a->width, run_width, type, pass, a, stream);
}
