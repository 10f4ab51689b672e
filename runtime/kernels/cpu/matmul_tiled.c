/* Products of 16-bit operands that oneDNN has no product for: tiles of both are widened to f32,
 * multiplied by dnnl_sgemm, and the finished tile of y is rounded once.
 *
 * Scratch is three tiles whatever the matrices are. Class: 4 ulp of the sum of |a||b| in f32, then
 * half a unit in the last place of y's type; a sum beyond the range of f16 becomes infinite. Sums
 * go over the tiles of the depth in order. */
#include "runtime/kernels/cpu/cpu_kernels.h"
#include "runtime/kernels/cpu/simd_dispatch.h"

#include "runtime/core/memory.h"

#include <dnnl.h>
#include <omp.h>

#define TILE_M 256
#define TILE_N 1024
#define TILE_K 512

/* An operand as it is stored: row-major, `trans`: its rows are the depth (a) or the columns of y
 * (b). */
struct operand {
    int64_t ld;
    bool trans;
};

struct tiled {
    struct tri_kernel base;
    int64_t m, n, depth;
    struct operand a, b;
    enum tri_dtype in, out;
    bool bias, acc;
    int nthreads;
    const struct tri_simd_convert *convert;
    size_t b_at, c_at; /* tiles of b and y in scratch; that of a lies at 0 */
};

struct range {
    int64_t first, count;
};

static struct range tile_at(int64_t first, int64_t size, int64_t end)
{
    return (struct range){first, end - first < size ? end - first : size};
}

/* Rows x cols of a 16-bit matrix to a dense tile of f32. */
static void load_tile(const struct tiled *k, const uint16_t *src, int64_t ld, struct range rows,
                      struct range cols, float *tile)
{
#pragma omp parallel for num_threads(k->nthreads) schedule(static)
    for (int64_t r = 0; r < rows.count; r++)
        k->convert->widen(k->in, src + (rows.first + r) * ld + cols.first, tile + r * cols.count,
                          cols.count);
}

static const float *bias_of(const struct tiled *k, const struct tri_kernel_args *args)
{
    return k->bias ? args->in[2] : NULL;
}

/* y's tile with what the sums start from: acc, or nothing (then the first product overwrites). */
static void open_tile(const struct tiled *k, const uint16_t *y, struct range m, struct range n,
                      float *c)
{
#pragma omp parallel for num_threads(k->nthreads) schedule(static)
    for (int64_t r = 0; r < m.count; r++)
        k->convert->widen(k->out, y + (m.first + r) * k->n + n.first, c + r * n.count, n.count);
}

/* Adds the bias and, for a 16-bit y, rounds the tile into place. */
static void close_tile(const struct tiled *k, const float *bias, struct range m, struct range n,
                       float *c, int64_t ldc, uint16_t *y)
{
#pragma omp parallel for num_threads(k->nthreads) schedule(static)
    for (int64_t r = 0; r < m.count; r++) {
        for (int64_t j = 0; bias != NULL && j < n.count; j++)
            c[r * ldc + j] += bias[n.first + j];
        if (y != NULL)
            k->convert->narrow(k->out, c + r * ldc, y + (m.first + r) * k->n + n.first, n.count);
    }
}

/* c (+)= tile of a x tile of b, over all of the depth. */
static dnnl_status_t sum_tile(const struct tiled *k, const struct tri_kernel_args *args,
                              struct range m, struct range n, float *c, int64_t ldc)
{
    float *a = args->scratch, *b = (float *)args->scratch + k->b_at;

    for (int64_t at = 0; at < k->depth; at += TILE_K) {
        struct range d = tile_at(at, TILE_K, k->depth);
        dnnl_status_t st;

        load_tile(k, args->in[0], k->a.ld, k->a.trans ? d : m, k->a.trans ? m : d, a);
        load_tile(k, args->in[1], k->b.ld, k->b.trans ? n : d, k->b.trans ? d : n, b);
        st = dnnl_sgemm(k->a.trans ? 'T' : 'N', k->b.trans ? 'T' : 'N', m.count, n.count, d.count,
                        1.0f, a, k->a.trans ? m.count : d.count, b, k->b.trans ? d.count : n.count,
                        at > 0 || k->acc ? 1.0f : 0.0f, c, ldc);
        if (st != dnnl_success)
            return st;
    }
    return dnnl_success;
}

static tri_status run_tiled(const struct tri_kernel *kernel, const struct tri_kernel_args *args)
{
    const struct tiled *k = (const struct tiled *)kernel;
    bool wide = k->out == TRI_F32;
    int caller_threads = omp_get_max_threads();
    dnnl_status_t st = dnnl_success;

    omp_set_num_threads(k->nthreads);
    for (int64_t n0 = 0; n0 < k->n && st == dnnl_success; n0 += TILE_N)
        for (int64_t m0 = 0; m0 < k->m && st == dnnl_success; m0 += TILE_M) {
            struct range m = tile_at(m0, TILE_M, k->m), n = tile_at(n0, TILE_N, k->n);
            float *c =
                wide ? (float *)args->out[0] + m0 * k->n + n0 : (float *)args->scratch + k->c_at;
            int64_t ldc = wide ? k->n : n.count;

            if (!wide && k->acc)
                open_tile(k, args->out[0], m, n, c);
            st = sum_tile(k, args, m, n, c, ldc);
            if (!wide || k->bias)
                close_tile(k, bias_of(k, args), m, n, c, ldc, wide ? NULL : args->out[0]);
        }
    omp_set_num_threads(caller_threads);
    return st == dnnl_success
               ? TRI_OK
               : tri_fail(TRI_ERR_INTERNAL, "onednn: sgemm failed with code %d", (int)st);
}

static void destroy_tiled(struct tri_kernel *k)
{
    tri_free(k);
}

static const struct tri_kernel_ops ops_tiled = {.name = "matmul_tiled",
                                                .prepare = tri_matmul_tiled_prepare,
                                                .run = run_tiled,
                                                .destroy = destroy_tiled};

static bool present(const struct tri_kernel_desc *d, int i)
{
    return i < d->nin && d->in[i].shape.ndim >= 0;
}

tri_status tri_matmul_tiled_prepare(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    struct tiled *k = tri_calloc(1, sizeof(*k), "kernel");
    int64_t ar = tri_shape_rows(&d->in[0].shape), ac = tri_shape_cols(&d->in[0].shape);
    int64_t br = tri_shape_rows(&d->in[1].shape), bc = tri_shape_cols(&d->in[1].shape);
    int64_t tile_m, tile_n, tile_k;

    if (k == NULL)
        return tri_fail(TRI_ERR_NOMEM, "kernel \"matmul_tiled\": out of memory");
    k->base.ops = &ops_tiled;
    k->a = (struct operand){.ld = ac, .trans = d->attrs.matmul.ta};
    k->b = (struct operand){.ld = bc, .trans = d->attrs.matmul.tb};
    k->m = k->a.trans ? ac : ar;
    k->depth = k->a.trans ? ar : ac;
    k->n = k->b.trans ? br : bc;
    k->in = d->in[0].dtype;
    k->out = d->out[0].dtype;
    k->bias = present(d, 2);
    k->acc = present(d, 3);
    k->nthreads = d->nthreads > 0 ? d->nthreads : 1;
    k->convert = tri_simd_convert();
    tile_m = tile_at(0, TILE_M, k->m).count;
    tile_n = tile_at(0, TILE_N, k->n).count;
    tile_k = tile_at(0, TILE_K, k->depth).count;
    k->b_at = tri_round_up((size_t)(tile_m * tile_k), 16);
    k->c_at = k->b_at + tri_round_up((size_t)(tile_k * tile_n), 16);
    k->base.scratch_bytes = k->c_at * sizeof(float);
    if (k->out != TRI_F32)
        k->base.scratch_bytes += (size_t)(tile_m * tile_n) * sizeof(float);
    *out = &k->base;
    return TRI_OK;
}
