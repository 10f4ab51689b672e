/* Small matrix products and packing for the attention kernels.
 *
 * The unit is a strip of SIMD_MR rows by NV vectors of columns, held in registers: c = alpha c + a
 * b, where a is read element by element (broadcast) and b is a packed panel of rows. Keys are taken
 * SIMD_KEYS at a time; K and V transposed are packed as panels of SIMD_PANEL keys,
 * [panel][D][SIMD_PANEL], so that scores come out a panel at a time. Widths of heads are padded to
 * a multiple of VF with zeros. */
#ifndef TRI_RUNTIME_KERNELS_CPU_ATTENTION_TILE_H
#define TRI_RUNTIME_KERNELS_CPU_ATTENTION_TILE_H

#include "runtime/kernels/cpu/simd.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIMD_MR    6
#define SIMD_NV    (VF == 8 ? 2 : 4) /* 24, 12 or 24 accumulators: what the registers hold */
#define SIMD_PANEL (SIMD_NV * VF)
#define SIMD_KEYS  64              /* keys of a block: a multiple of SIMD_PANEL */
#define SIMD_LDS   (SIMD_KEYS + 8) /* row stride of its scores; columns behind the keys are 0 */
#define SIMD_QROWS (8 * SIMD_MR)   /* queries of a block */

/* Kept out of its callers, whose own needs would push accumulators out of the registers. */
#define SIMD_APART __attribute__((noinline, unused)) static

/* Element (row r, step k) of A lies at a[r * row + k * step].
 * c[r][0 .. nv VF) = alpha[r] c + sum over k of a[r][k] b[k]; alpha NULL: c is overwritten. */
TRI_INLINE void tile_body(int nv, const float *a, ptrdiff_t row, ptrdiff_t step, const float *b,
                          ptrdiff_t ldb, int64_t n, const float *alpha, float *c, ptrdiff_t ldc)
{
    vf acc[SIMD_MR][SIMD_NV];

#pragma GCC unroll 8
    for (int r = 0; r < SIMD_MR; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            acc[r][v] = alpha == NULL ? vf_set(0.0f)
                                      : vf_mul(vf_set(alpha[r]), vf_load(c + r * ldc + v * VF));
    for (int64_t k = 0; k < n; k++) {
        vf bv[SIMD_NV];

#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            bv[v] = vf_load(b + k * ldb + v * VF);
#pragma GCC unroll 8
        for (int r = 0; r < SIMD_MR; r++) {
            vf x = vf_set(a[r * row + k * step]);

#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                acc[r][v] = vf_fma(x, bv[v], acc[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < SIMD_MR; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            vf_store(c + r * ldc + v * VF, acc[r][v]);
}

/* The same over a width of any number of vectors. */
TRI_INLINE void tile_width(const float *a, ptrdiff_t row, ptrdiff_t step, const float *b,
                           ptrdiff_t ldb, int64_t n, const float *alpha, float *c, ptrdiff_t ldc,
                           int64_t width)
{
    int64_t at = 0;

    for (; at + SIMD_PANEL <= width; at += SIMD_PANEL)
        tile_body(SIMD_NV, a, row, step, b + at, ldb, n, alpha, c + at, ldc);
    switch ((width - at) / VF) {
#if VF != 8
    case 3:
        tile_body(3, a, row, step, b + at, ldb, n, alpha, c + at, ldc);
        break;
    case 2:
        tile_body(2, a, row, step, b + at, ldb, n, alpha, c + at, ldc);
        break;
#endif
    case 1:
        tile_body(1, a, row, step, b + at, ldb, n, alpha, c + at, ldc);
        break;
    default:
        break;
    }
}

/* A by rows: a[r * lda + k]. */
SIMD_APART void tile_rows(const float *a, ptrdiff_t lda, const float *b, ptrdiff_t ldb, int64_t n,
                          const float *alpha, float *c, ptrdiff_t ldc, int64_t width)
{
    tile_width(a, lda, 1, b, ldb, n, alpha, c, ldc, width);
}

/* A by columns: a[k * lda + r]. */
SIMD_APART void tile_cols(const float *a, ptrdiff_t lda, const float *b, ptrdiff_t ldb, int64_t n,
                          const float *alpha, float *c, ptrdiff_t ldc, int64_t width)
{
    tile_width(a, 1, lda, b, ldb, n, alpha, c, ldc, width);
}

/* Scores of a strip against the panels [0, npanels) of one block of keys: s[r][j] = sum over d of
 * q[r][d] kt[..][d][j]. */
SIMD_APART void tile_scores(const float *q, ptrdiff_t ldq, const float *kt, int64_t D,
                            int64_t npanels, float *s)
{
    for (int64_t p = 0; p < npanels; p++)
        tile_body(SIMD_NV, q, ldq, 1, kt + p * D * SIMD_PANEL, SIMD_PANEL, D, NULL,
                  s + p * SIMD_PANEL, SIMD_LDS);
}

static inline int64_t tile_pad(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Rows of one head lie far apart, out of reach of the hardware's prefetch: asks for the row
 * SIMD_AHEAD further on. */
#define SIMD_AHEAD 12

static inline void prefetch_row(const float *row, int64_t D)
{
    for (int64_t d = 0; d < D; d += 16)
        __builtin_prefetch(row + d);
}

/* x[n][D] with row stride ld, times scale, to dense rows of Dp floats, padded to `rows` rows with
 * zeros. */
static inline void pack_rows(const float *x, ptrdiff_t ld, int64_t n, int64_t D, float scale,
                             float *out, int64_t rows, int64_t Dp)
{
    vf f = vf_set(scale);

    for (int64_t i = 0; i < n; i++) {
        if (i + SIMD_AHEAD < n)
            prefetch_row(x + (i + SIMD_AHEAD) * ld, D);
        for (int64_t d = 0; d < D; d += VF)
            vf_store(out + i * Dp + d, vf_mul(f, vf_load_n(x + i * ld + d, D - d)));
    }
    memset(out + n * Dp, 0, (size_t)((rows - n) * Dp) * sizeof(float));
}

/* Rows [0, n), n <= SIMD_PANEL, of x become columns of the panel out[D][SIMD_PANEL]; missing
 * columns are 0. */
static inline void pack_panel(const float *x, ptrdiff_t ld, int64_t n, int64_t D, float *out)
{
    int64_t j = 0;

    if (n < SIMD_PANEL)
        memset(out, 0, (size_t)(D * SIMD_PANEL) * sizeof(float));
    for (; j + 4 <= n; j += 4) {
        const float *r = x + j * ld;
        int64_t d = 0;

        for (; d + VF <= D; d += VF)
            vf_store_columns(out + d * SIMD_PANEL + j, SIMD_PANEL, vf_load(r + d),
                             vf_load(r + ld + d), vf_load(r + 2 * ld + d), vf_load(r + 3 * ld + d));
        for (; d < D; d++)
            for (int64_t i = 0; i < 4; i++)
                out[d * SIMD_PANEL + j + i] = r[i * ld + d];
    }
    for (; j < n; j++)
        for (int64_t d = 0; d < D; d++)
            out[d * SIMD_PANEL + j] = x[j * ld + d];
}

/* x[n][D] with row stride ld, to panels [ceil][D][SIMD_PANEL] of its transpose. */
static inline void pack_transposed(const float *x, ptrdiff_t ld, int64_t n, int64_t D, float *out)
{
    for (int64_t p = 0; p < n; p += SIMD_PANEL, out += D * SIMD_PANEL)
        pack_panel(x + p * ld, ld, n - p < SIMD_PANEL ? n - p : SIMD_PANEL, D, out);
}

#endif
