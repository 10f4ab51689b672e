/* ATTENTION_GRAD: dq, dk, dv of one (sample, head) at a time; probabilities are made again from
 * lse.
 *
 * With P = e^(s - lse), mask and scale M of dropout, delta = row sum of dout * out (Dao et al.,
 * "FlashAttention", 2022, algorithm 4): dv = (P M)^T dout,   dS = P (M (dout v^T) - delta),   dq =
 * dS k / sqrt(D),   dk = dS^T q / sqrt(D). Blocks of keys outside, blocks of queries inside, both
 * in order; a head belongs to one thread: the same bits for every number of threads. All f32.
 * Class: 1e-5 of the largest element. dqkv is written in full. */
#include "runtime/kernels/cpu/attention_tile.h"
#include "runtime/kernels/cpu/philox.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/simd_kernel.h"

#include <math.h>
#include <omp.h>

#define KROWS (SIMD_KEYS + 2) /* rows of dk and dv of a block: a multiple of SIMD_MR */

/* One (sample, head): operands and the thread's scratch. */
struct grad {
    int64_t T, D, Dp, Tq; /* Tq: T in whole strips */
    bool causal;
    const struct simd_dropout *drop;
    uint64_t drop_base;
    float *kt, *vt;        /* panels */
    float *k, *q, *g, *dq; /* rows of Dp; q is scaled, g = dout */
    float *delta, *lse;    /* [Tq] */
    float *p, *ds;         /* [SIMD_QROWS][SIMD_LDS] */
    float *dk, *dv;        /* [KROWS][Dp] */
};

static size_t carve(struct grad *w, float *scratch)
{
    int64_t nk = tile_pad(w->T, SIMD_KEYS), n = 0;
    struct {
        float **p;
        int64_t count;
    } part[] = {
        {&w->kt, nk * w->D},
        {&w->vt, nk * w->D},
        {&w->k, nk * w->Dp},
        {&w->q, w->Tq * w->Dp},
        {&w->g, w->Tq * w->Dp},
        {&w->dq, w->Tq * w->Dp},
        {&w->delta, w->Tq},
        {&w->lse, w->Tq},
        {&w->p, SIMD_QROWS * SIMD_LDS},
        {&w->ds, SIMD_QROWS * SIMD_LDS},
        {&w->dk, KROWS * w->Dp},
        {&w->dv, KROWS * w->Dp},
    };

    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        if (scratch != NULL)
            *part[i].p = scratch + n;
        n += tile_pad(part[i].count, 16);
    }
    return (size_t)n * sizeof(float);
}

static void size_of(struct grad *w, int64_t T, int64_t D)
{
    w->T = T;
    w->D = D;
    w->Dp = tile_pad(D, VF);
    w->Tq = tile_pad(T, SIMD_MR);
}

static tri_status prepare_attention_grad(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct simd_kernel *k;
    struct grad w = {0};

    if (!tri_simd_is_f32(d))
        return TRI_ERR_UNSUPPORTED;
    TRI_TRY(tri_simd_kernel_create(d, &TRI_ISA_NAME(tri_simd_attention_grad), 0, &k));
    size_of(&w, k->dim[1], k->cols / d->attrs.attention.heads);
    if (!tri_simd_has_in(d, 4))
        k->attrs.attention.p = 0.0;
    k->thread_bytes = carve(&w, NULL);
    k->base.scratch_bytes = (size_t)k->nthreads * k->thread_bytes;
    *out = &k->base;
    return TRI_OK;
}

/* delta[t] = sum over d of dout[t][d] out[t][d]. */
static void fill_delta(struct grad *w, const float *out, ptrdiff_t ld)
{
    for (int64_t t = 0; t < w->T; t++) {
        vf s = vf_set(0.0f);

        if (t + SIMD_AHEAD < w->T)
            prefetch_row(out + (t + SIMD_AHEAD) * ld, w->D);
        for (int64_t d = 0; d < w->D; d += VF)
            s = vf_fma(vf_load(w->g + t * w->Dp + d), vf_load_n(out + t * ld + d, w->D - d), s);
        w->delta[t] = vf_sum(s);
    }
}

/* Row of query t against the keys of block k0, of which n are visible: p holds scores and becomes P
 * M; ds holds dout v^T and becomes dS. */
TRI_INLINE void grad_row(const struct grad *w, int64_t t, int64_t k0, int64_t n, float *p,
                         float *ds)
{
    float buffer[SIMD_DROPOUT_BUFFER];
    const float *f = NULL;
    vf lse = vf_set(w->lse[t]), delta = vf_set(w->delta[t]), zero = vf_set(0.0f);

    if (w->drop != NULL)
        f = simd_dropout_factors(w->drop, w->drop_base + (uint64_t)(t * w->T + k0), n, buffer);
    for (int64_t j = 0; j < SIMD_KEYS; j += VF) {
        vm in = vf_first(n - j);
        vf e, x;

        if (j >= n) {
            vf_store(p + j, zero);
            vf_store(ds + j, zero);
            continue;
        }
        e = vf_select(in, vf_exp(vf_sub(vf_load(p + j), lse)), zero);
        x = vf_load(ds + j);
        if (f != NULL) {
            vf m = vf_load_n(f + j, n - j);

            x = vf_mul(x, m);
            vf_store(p + j, vf_mul(e, m));
        } else {
            vf_store(p + j, e);
        }
        vf_store(ds + j, vf_select(in, vf_mul(e, vf_sub(x, delta)), zero));
    }
}

static inline int64_t visible(const struct grad *w, int64_t t, int64_t k0)
{
    int64_t end = t >= w->T ? 0 : w->causal ? t + 1 : w->T;

    return end - k0 < 0 ? 0 : end - k0 < SIMD_KEYS ? end - k0 : SIMD_KEYS;
}

/* A block of queries [q0, q0 + n), n a multiple of SIMD_MR, against the keys of block k0: adds to
 * dq, dk, dv. */
static void block_pair(struct grad *w, int64_t q0, int64_t n, int64_t k0)
{
    static const float one[SIMD_MR] = {1, 1, 1, 1, 1, 1};
    const float *kt = w->kt + k0 * w->D, *vt = w->vt + k0 * w->D;
    int64_t Dp = w->Dp, r0 = 0, keys = w->T - k0 < SIMD_KEYS ? w->T - k0 : SIMD_KEYS;

    while (w->causal && q0 + r0 + SIMD_MR - 1 < k0)
        r0 += SIMD_MR;
    for (int64_t r = r0; r < n; r += SIMD_MR) {
        int64_t last = q0 + r + SIMD_MR - 1 < w->T ? q0 + r + SIMD_MR - 1 : w->T - 1;
        int64_t seen = visible(w, last, k0), panels = (seen + SIMD_PANEL - 1) / SIMD_PANEL;
        float *p = w->p + r * SIMD_LDS, *ds = w->ds + r * SIMD_LDS;

        tile_scores(w->q + (q0 + r) * Dp, Dp, kt, w->D, panels, p);
        tile_scores(w->g + (q0 + r) * Dp, Dp, vt, w->D, panels, ds);
        for (int64_t i = 0; i < SIMD_MR; i++) {
            int64_t mine = visible(w, q0 + r + i, k0);

            if (mine == SIMD_KEYS) /* a constant: no masks */
                grad_row(w, q0 + r + i, k0, SIMD_KEYS, p + i * SIMD_LDS, ds + i * SIMD_LDS);
            else
                grad_row(w, q0 + r + i, k0, mine, p + i * SIMD_LDS, ds + i * SIMD_LDS);
        }
        tile_rows(ds, SIMD_LDS, w->k + k0 * Dp, Dp, seen, one, w->dq + (q0 + r) * Dp, Dp, Dp);
    }
    for (int64_t j = 0; j < keys; j += SIMD_MR) {
        int64_t first = w->causal && k0 + j > q0 + r0 ? k0 + j - q0 : r0;

        if (first >= n)
            break;
        tile_cols(w->p + first * SIMD_LDS + j, SIMD_LDS, w->g + (q0 + first) * Dp, Dp, n - first,
                  one, w->dv + j * Dp, Dp, Dp);
        tile_cols(w->ds + first * SIMD_LDS + j, SIMD_LDS, w->q + (q0 + first) * Dp, Dp, n - first,
                  one, w->dk + j * Dp, Dp, Dp);
    }
}

static void store_rows(const float *x, int64_t n, int64_t D, int64_t Dp, float scale, float *out,
                       ptrdiff_t ld)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D; d += VF)
            vf_store_n(out + i * ld + d, vf_mul(vf_set(scale), vf_load(x + i * Dp + d)), D - d);
}

/* The whole head; dqkv points at its first query. */
static void head_run(struct grad *w, float *dqkv, int64_t C)
{
    ptrdiff_t ld = 3 * C;

    memset(w->p, 0, (size_t)(SIMD_QROWS * SIMD_LDS) * sizeof(float));
    memset(w->ds, 0, (size_t)(SIMD_QROWS * SIMD_LDS) * sizeof(float));
    memset(w->dq, 0, (size_t)(w->Tq * w->Dp) * sizeof(float));
    for (int64_t k0 = 0; k0 < w->T; k0 += SIMD_KEYS) {
        int64_t keys = w->T - k0 < SIMD_KEYS ? w->T - k0 : SIMD_KEYS;

        memset(w->dk, 0, (size_t)(KROWS * w->Dp) * sizeof(float));
        memset(w->dv, 0, (size_t)(KROWS * w->Dp) * sizeof(float));
        for (int64_t q0 = w->causal ? k0 / SIMD_QROWS * SIMD_QROWS : 0; q0 < w->Tq;
             q0 += SIMD_QROWS)
            block_pair(w, q0, w->Tq - q0 < SIMD_QROWS ? w->Tq - q0 : SIMD_QROWS, k0);
        store_rows(w->dk, keys, w->D, w->Dp, 1.0f, dqkv + k0 * ld + C, ld);
        store_rows(w->dv, keys, w->D, w->Dp, 1.0f, dqkv + k0 * ld + 2 * C, ld);
    }
    store_rows(w->dq, w->T, w->D, w->Dp, 1.0f / sqrtf((float)w->D), dqkv, ld);
}

static tri_status run_attention_grad(const struct tri_kernel *kernel,
                                     const struct tri_kernel_args *args)
{
    const struct simd_kernel *k = (const struct simd_kernel *)kernel;
    const struct tri_attr_attention *a = &k->attrs.attention;
    int64_t B = k->dim[0], T = k->dim[1], C = k->cols, heads = a->heads, D = C / heads;
    const float *dout = args->in[0], *qkv = args->in[1], *out = args->in[2], *lse = args->in[3];
    float *dqkv = args->out[0];
    struct simd_dropout drop = {0};

    if (a->p > 0.0)
        drop = simd_dropout_make(a->p, a->seed, a->stream, args->in[4]);
#pragma omp parallel for num_threads(k->nthreads) schedule(dynamic, 1) if (B * heads > 1)
    for (int64_t i = 0; i < B * heads; i++) {
        int64_t b = i / heads, at = i % heads * D, row = b * T * C + at;
        const float *x = qkv + b * T * 3 * C + at;
        char *mine = (char *)args->scratch + (size_t)omp_get_thread_num() * k->thread_bytes;
        struct grad w = {0};

        size_of(&w, T, D);
        (void)carve(&w, (float *)(void *)mine);
        w.causal = a->causal;
        w.drop = a->p > 0.0 ? &drop : NULL;
        w.drop_base = (uint64_t)(args->grain * B * heads + i) * (uint64_t)(T * T);
        pack_rows(x, 3 * C, T, D, 1.0f / sqrtf((float)D), w.q, w.Tq, w.Dp);
        pack_rows(x + 2 * C, 3 * C, T, D, 1.0f, w.k, T, w.Dp);
        pack_transposed(w.k, w.Dp, T, D, w.vt);
        pack_rows(x + C, 3 * C, T, D, 1.0f, w.k, T, w.Dp);
        pack_transposed(w.k, w.Dp, T, D, w.kt);
        pack_rows(dout + row, C, T, D, 1.0f, w.g, w.Tq, w.Dp);
        fill_delta(&w, out + row, C);
        memcpy(w.lse, lse + i * T, (size_t)T * sizeof(float));
        head_run(&w, dqkv + b * T * 3 * C + at, C);
    }
    return TRI_OK;
}

TRI_SIMD_KERNEL(attention_grad);
