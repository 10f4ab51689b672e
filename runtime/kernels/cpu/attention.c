/* ATTENTION and ATTENTION_CACHED: softmax(q k^T / sqrt(D)) v, causal, without a T x T matrix.
 *
 * Online softmax over blocks of SIMD_KEYS keys (Dao et al., "FlashAttention", 2022; Milakov,
 * Gimelshein, 2018): every row keeps its maximum m, its sum l and its unnormalised output. K
 * transposed and V of a (sample, head) are packed once per task; blocks and panels above the
 * diagonal are skipped. All f32; blocks in key order, so that no bit depends on the number of
 * threads. Class: 2e-6 of the largest |v|; lse 1e-6. Dropout acts on probabilities after the sum,
 * index of (b, h, tq, tk) = (((grain B + b) heads + h) T + tq) T + tk. */
#include "runtime/kernels/cpu/attention_tile.h"
#include "runtime/kernels/cpu/philox.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <math.h>
#include <omp.h>

/* One (sample, head): queries are positions first .. first + nq - 1 of nk keys. */
struct head {
    const float *q, *k, *v;
    ptrdiff_t ldq, ldkv;
    int64_t nq, nk, first, D, Dp;
    bool causal;
    bool direct;                     /* few queries, no lse, no dropout: not worth packing */
    const struct simd_dropout *drop; /* NULL: none */
    uint64_t drop_base;              /* index of (query 0, key 0) */
    float *out, *lse;                /* lse may be NULL */
    ptrdiff_t ldo;
};

/* Scratch of a thread. */
struct work {
    float *kt, *v, *q, *s, *o;
    float m[SIMD_QROWS], l[SIMD_QROWS][VF]; /* maximum so far; lanes of the sum */
};

static size_t work_floats(int64_t keys, int64_t D)
{
    int64_t Dp = tile_pad(D, VF), n = tile_pad(keys, SIMD_KEYS);

    return (size_t)(n * D + n * Dp + 2 * SIMD_QROWS * Dp + SIMD_MR * SIMD_LDS + 64);
}

static struct work work_make(float *scratch, int64_t keys, int64_t D)
{
    int64_t Dp = tile_pad(D, VF), n = tile_pad(keys, SIMD_KEYS);
    struct work w;

    w.kt = scratch;
    w.v = w.kt + n * D;
    w.q = w.v + n * Dp;
    w.o = w.q + SIMD_QROWS * Dp;
    w.s = w.o + SIMD_QROWS * Dp;
    return w;
}

/* Softmax of one row of scores with n > 0 valid keys: s becomes e^(s - m), zero behind n; m and the
 * lanes of the sum l move on. Returns what the old output is multiplied with. */
TRI_INLINE float softmax_row(float *s, int64_t n, float *m, float *l)
{
    vf top = vf_set(*m), sum = vf_set(0.0f), alpha;
    float max;

#pragma GCC unroll 4
    for (int64_t j = 0; j < SIMD_KEYS; j += VF)
        if (j < n)
            top = vf_max(top, vf_select(vf_first(n - j), vf_load(s + j), top));
    max = vf_hmax(top);
#pragma GCC unroll 4
    for (int64_t j = 0; j < SIMD_KEYS; j += VF) {
        vf e = vf_set(0.0f);

        if (j < n)
            e = vf_select(vf_first(n - j), vf_exp(vf_sub(vf_load(s + j), vf_set(max))), e);
        sum = vf_add(sum, e);
        vf_store(s + j, e);
    }
    alpha = vf_exp(vf_set(*m - max));
    vf_store(l, vf_fma(vf_load(l), alpha, sum));
    *m = max;
    return vf_low(alpha);
}

static void drop_row(const struct simd_dropout *d, uint64_t first, float *s, int64_t n)
{
    float buffer[SIMD_DROPOUT_BUFFER];
    const float *f = simd_dropout_factors(d, first, n, buffer);

    for (int64_t j = 0; j < n; j += VF)
        vf_store_n(s + j, vf_mul(vf_load_n(s + j, n - j), vf_load_n(f + j, n - j)), n - j);
}

/* Keys of block k0 that query q of the head sees. */
static inline int64_t visible(const struct head *h, int64_t q, int64_t k0)
{
    int64_t end = h->causal && h->first + q + 1 < h->nk ? h->first + q + 1 : h->nk;

    return end - k0 < SIMD_KEYS ? end - k0 : SIMD_KEYS;
}

/* One strip of queries (row r0 of the block that starts at query q0) against the keys
 * of block k0. */
static void strip(const struct head *h, struct work *w, int64_t q0, int64_t r0, int64_t k0)
{
    int64_t last = q0 + r0 + SIMD_MR - 1 < h->nq ? q0 + r0 + SIMD_MR - 1 : h->nq - 1;
    int64_t n = visible(h, last, k0);
    float alpha[SIMD_MR];

    if (n <= 0)
        return;
    tile_scores(w->q + r0 * h->Dp, h->Dp, w->kt + k0 * h->D, h->D,
                (n + SIMD_PANEL - 1) / SIMD_PANEL, w->s);
    for (int64_t r = 0; r < SIMD_MR; r++) {
        int64_t q = q0 + r0 + r, mine = q <= last ? visible(h, q, k0) : 0;
        float *s = w->s + r * SIMD_LDS;

        alpha[r] = 1.0f;
        if (mine <= 0) {
            memset(s, 0, SIMD_KEYS * sizeof(float));
            continue;
        }
        if (mine == SIMD_KEYS) /* a constant: no masks */
            alpha[r] = softmax_row(s, SIMD_KEYS, &w->m[r0 + r], w->l[r0 + r]);
        else
            alpha[r] = softmax_row(s, mine, &w->m[r0 + r], w->l[r0 + r]);
        if (h->drop != NULL)
            drop_row(h->drop, h->drop_base + (uint64_t)(q * h->nk + k0), s, mine);
    }
    tile_rows(w->s, SIMD_LDS, w->v + k0 * h->Dp, h->Dp, n, alpha, w->o + r0 * h->Dp, h->Dp, h->Dp);
}

/* Queries [q0, q0 + n) of the head, n <= SIMD_QROWS; K and V are packed. */
static void query_block(const struct head *h, struct work *w, int64_t q0, int64_t n)
{
    int64_t rows = tile_pad(n, SIMD_MR);

    pack_rows(h->q + q0 * h->ldq, h->ldq, n, h->D, 1.0f / sqrtf((float)h->D), w->q, rows, h->Dp);
    memset(w->o, 0, (size_t)(rows * h->Dp) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        w->m[r] = -INFINITY;
        vf_store(w->l[r], vf_set(0.0f));
    }
    for (int64_t k0 = 0; k0 < h->nk && visible(h, q0 + n - 1, k0) > 0; k0 += SIMD_KEYS)
        for (int64_t r = 0; r < rows; r += SIMD_MR)
            strip(h, w, q0, r, k0);
    for (int64_t r = 0; r < n; r++) {
        float sum = vf_sum(vf_load(w->l[r]));
        vf inv = vf_set(1.0f / sum);

        for (int64_t d = 0; d < h->D; d += VF)
            vf_store_n(h->out + (q0 + r) * h->ldo + d, vf_mul(inv, vf_load(w->o + r * h->Dp + d)),
                       h->D - d);
        if (h->lse != NULL)
            h->lse[q0 + r] = w->m[r] + logf(sum);
    }
}

/* s[j] = q k[j] / sqrt(D) for n keys; returns the largest. */
static float direct_scores(const struct head *h, const float *q, int64_t n, float *s)
{
    float scale = 1.0f / sqrtf((float)h->D), max = -INFINITY;

    for (int64_t j = 0; j < n; j++) {
        vf sum = vf_set(0.0f);

        for (int64_t d = 0; d < h->D; d += VF)
            sum = vf_fma(vf_load_n(q + d, h->D - d), vf_load_n(h->k + j * h->ldkv + d, h->D - d),
                         sum);
        s[j] = scale * vf_sum(sum);
        max = s[j] > max ? s[j] : max;
    }
    return max;
}

/* out[0 .. width) = sum over n keys of s[j] v[j][0 .. width) / l, width at most SIMD_PANEL. */
static void direct_values(const struct head *h, const float *v, const float *s, int64_t n, float l,
                          int64_t width, float *out)
{
    vf acc[SIMD_NV];

    for (int i = 0; i < SIMD_NV; i++)
        acc[i] = vf_set(0.0f);
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < SIMD_NV; i++)
            if (i * VF < width)
                acc[i] = vf_fma(vf_set(s[j]), vf_load_n(v + j * h->ldkv + i * VF, width - i * VF),
                                acc[i]);
    for (int i = 0; i < SIMD_NV; i++)
        if (i * VF < width)
            vf_store_n(out + i * VF, vf_div(acc[i], vf_set(l)), width - i * VF);
}

/* One query without packing: K and V are read once, which is what decoding one position costs at
 * least. */
static void direct_query(const struct head *h, int64_t q, float *s)
{
    int64_t n = h->causal && h->first + q + 1 < h->nk ? h->first + q + 1 : h->nk;
    vf max = vf_set(direct_scores(h, h->q + q * h->ldq, n, s)), sum = vf_set(0.0f);

    for (int64_t j = 0; j < n; j += VF) {
        vf e = vf_exp(vf_sub(vf_load_n(s + j, n - j), max));

        sum = vf_add(sum, vf_select(vf_first(n - j), e, vf_set(0.0f)));
        vf_store_n(s + j, e, n - j);
    }
    for (int64_t d = 0; d < h->D; d += SIMD_PANEL)
        direct_values(h, h->v + d, s, n, vf_sum(sum), h->D - d < SIMD_PANEL ? h->D - d : SIMD_PANEL,
                      h->out + q * h->ldo + d);
}

/* Queries [lo, hi) of the head. */
static void head_run(const struct head *h, struct work *w, int64_t lo, int64_t hi)
{
    int64_t keys = h->causal && h->first + hi < h->nk ? h->first + hi : h->nk;

    if (h->direct) {
        for (int64_t q = lo; q < hi; q++)
            direct_query(h, q, w->kt);
        return;
    }
    /* K goes through V's room: transposing dense rows is cheaper than far apart ones. */
    pack_rows(h->k, h->ldkv, keys, h->D, 1.0f, w->v, keys, h->Dp);
    pack_transposed(w->v, h->Dp, keys, h->D, w->kt);
    pack_rows(h->v, h->ldkv, keys, h->D, 1.0f, w->v, keys, h->Dp);
    for (int64_t q0 = lo; q0 < hi; q0 += SIMD_QROWS)
        query_block(h, w, q0, hi - q0 < SIMD_QROWS ? hi - q0 : SIMD_QROWS);
}

/* Parts that the queries of a head are cut into, so that every thread has work: whole blocks of
 * queries. */
static int64_t query_parts(int64_t heads, int64_t T, int nthreads)
{
    int64_t most = (T + SIMD_QROWS - 1) / SIMD_QROWS, parts = 1;

    while (parts < most && heads * parts < nthreads)
        parts++;
    return parts;
}

static tri_status prepare_heads(const struct tri_kernel_desc *d, const struct tri_kernel_ops *ops,
                                int64_t keys, struct tri_kernel **out)
{
    struct simd_kernel *k;
    int64_t D;

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, ops, 0, &k));
    D = k->cols / 3 / d->attrs.attention.heads;
    k->nblocks = query_parts(k->dim[0] * d->attrs.attention.heads, k->dim[1], k->nthreads);
    k->thread_bytes = (work_floats(keys, D) * sizeof(float) + 63) / 64 * 64;
    k->base.scratch_bytes = (size_t)k->nthreads * k->thread_bytes;
    k->dim[3] = keys;
    *out = &k->base;
    return TRI_OK;
}

/* Runs every head: `base` with the pointers of (sample 0, head 0); strides between samples and
 * heads follow from the layout. */
static void run_heads(const struct simd_kernel *k, const struct head *base, int64_t q_sample,
                      int64_t kv_sample, void *scratch)
{
    int64_t heads = k->attrs.attention.heads, B = k->dim[0], parts = k->nblocks;
    int64_t T = base->nq, blocks = (T + SIMD_QROWS - 1) / SIMD_QROWS;

#pragma omp parallel for num_threads(k->nthreads) schedule(dynamic, 1) if (B * heads * parts > 1)
    for (int64_t i = 0; i < B * heads * parts; i++) {
        int64_t bh = i / parts, part = i % parts, b = bh / heads, at = bh % heads * base->D;
        int64_t lo = blocks * part / parts * SIMD_QROWS;
        int64_t hi = blocks * (part + 1) / parts * SIMD_QROWS;
        char *mine = (char *)scratch + (size_t)omp_get_thread_num() * k->thread_bytes;
        struct work w = work_make((float *)(void *)mine, k->dim[3], base->D);
        struct head h = *base;

        h.q += b * q_sample + at;
        h.k += b * kv_sample + at;
        h.v += b * kv_sample + at;
        h.out += b * T * h.ldo + at;
        h.lse = h.lse == NULL ? NULL : h.lse + bh * T;
        h.drop_base += (uint64_t)(bh * T * T);
        head_run(&h, &w, lo, hi < T ? hi : T);
    }
}

static tri_status prepare_attention(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    TRI_TRY(prepare_heads(d, &TRI_ISA_NAME(tri_simd_attention), d->in[0].shape.dim[1], out));
    if (!tri_simd_has_in(d, 1))
        ((struct simd_kernel *)*out)->attrs.attention.p = 0.0;
    return TRI_OK;
}

static tri_status run_attention(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const struct tri_attr_attention *a = &k->attrs.attention;
    int64_t B = k->dim[0], T = k->dim[1], C = k->cols / 3;
    struct simd_dropout drop;
    struct head h = {0};

    h.D = C / a->heads;
    h.Dp = tile_pad(h.D, VF);
    h.q = args->in[0];
    h.k = h.q + C;
    h.v = h.q + 2 * C;
    h.ldq = h.ldkv = 3 * C;
    h.nq = h.nk = T;
    h.causal = a->causal;
    h.out = args->out[0];
    h.lse = args->out[1];
    h.ldo = C;
    if (a->p > 0.0) {
        drop = simd_dropout_make(a->p, a->seed, a->stream, args->in[1]);
        h.drop = &drop;
        h.drop_base = (uint64_t)(args->grain * B * a->heads) * (uint64_t)(T * T);
    }
    run_heads(k, &h, T * 3 * C, T * 3 * C, args->scratch);
    return TRI_OK;
}

TRI_SIMD_KERNEL(attention);

static tri_status prepare_attention_cached(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    return prepare_heads(d, &TRI_ISA_NAME(tri_simd_attention_cached), d->in[1].shape.dim[1], out);
}

static tri_status run_attention_cached(const struct tri_kernel *kernel,
                                       const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    int64_t B = k->dim[0], T = k->dim[1], C = k->cols / 3, P = k->dim[3];
    int64_t offset = *(const int32_t *)args->in[3];
    const float *qkv = args->in[0];
    float *kc = args->out[1], *vc = args->out[2];
    size_t bytes = (size_t)C * sizeof(float);
    struct head h = {0};

    if (offset < 0 || offset + T > P)
        return tri_fail(TRI_ERR_DATA, "attention: positions %lld to %lld are outside [0, %lld)",
                        (long long)offset, (long long)(offset + T - 1), (long long)P);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            memcpy(kc + (b * P + offset + t) * C, qkv + (b * T + t) * 3 * C + C, bytes);
            memcpy(vc + (b * P + offset + t) * C, qkv + (b * T + t) * 3 * C + 2 * C, bytes);
        }
    h.D = C / k->attrs.attention.heads;
    h.Dp = tile_pad(h.D, VF);
    h.q = qkv;
    h.k = kc;
    h.v = vc;
    h.ldq = 3 * C;
    h.ldkv = h.ldo = C;
    h.nq = T;
    h.nk = offset + T;
    h.first = offset;
    h.causal = true;
    h.direct = T < SIMD_MR / 2;
    h.out = args->out[0];
    run_heads(k, &h, T * 3 * C, P * C, args->scratch);
    return TRI_OK;
}

TRI_SIMD_KERNEL(attention_cached);
