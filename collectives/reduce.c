/* Element-wise reductions. Order: see reduce.h; lanes are independent, so every instruction set
 * gives the same bits. */
#include "collectives/reduce.h"

#include "runtime/core/memory.h"

#include <stdbool.h>
#include <string.h>

/* One function per instruction set, picked by the loader; the loops below are what the compiler
 * vectorises. */
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))

#define SUM(a, b)     ((a) + (b))
#define SUM_INT(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define MIN(a, b)     ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) || (a) != (a) ? (a) : (b))

#define DEFINE_PAIR(name, type, OP)                                                                \
    WIDE static void name(void *dst, const void *a, const void *b, int64_t count)                  \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *x = a;                                                                         \
        const type *y = b;                                                                         \
                                                                                                   \
        for (int64_t i = 0; i < count; i++)                                                        \
            d[i] = (type)OP(x[i], y[i]);                                                           \
    }

DEFINE_PAIR(sum_f32, float, SUM)
DEFINE_PAIR(min_f32, float, MIN)
DEFINE_PAIR(max_f32, float, MAX)
DEFINE_PAIR(sum_f64, double, SUM)
DEFINE_PAIR(min_f64, double, MIN)
DEFINE_PAIR(max_f64, double, MAX)
DEFINE_PAIR(sum_i32, int32_t, SUM_INT)
DEFINE_PAIR(min_i32, int32_t, MIN)
DEFINE_PAIR(max_i32, int32_t, MAX)
DEFINE_PAIR(sum_i64, int64_t, SUM_INT)
DEFINE_PAIR(min_i64, int64_t, MIN)
DEFINE_PAIR(max_i64, int64_t, MAX)

static tri_reduce_fn *const pair_fn[TRI_DTYPE_COUNT][3] = {
    [TRI_F32] = {sum_f32, min_f32, max_f32},
    [TRI_F64] = {sum_f64, min_f64, max_f64},
    [TRI_I32] = {sum_i32, min_i32, max_i32},
    [TRI_I64] = {sum_i64, min_i64, max_i64},
};

/* Both sides of two buffers get the sum in one pass: the case of two ranks. */
WIDE static void sum_f32_both(float *a, float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float s = a[i] + b[i];

        a[i] = s;
        b[i] = s;
    }
}

enum tri_dtype tri_reduce_dtype(enum tri_dtype dtype)
{
    return dtype == TRI_BF16 || dtype == TRI_F16 ? TRI_F32 : dtype;
}

tri_status tri_reduce_find(enum tri_dtype dtype, enum tri_reduce op, tri_reduce_fn **out)
{
    tri_reduce_fn *fn = pair_fn[dtype][op];

    if (fn == NULL)
        return tri_fail(TRI_ERR_UNSUPPORTED, "a reduction of type '%s' is not supported",
                        tri_dtype_name(dtype));
    *out = fn;
    return TRI_OK;
}

void tri_reduce_widen(float *dst, const void *src, int64_t count, enum tri_dtype dtype)
{
    const uint16_t *h = src;

    for (int64_t i = 0; i < count; i++)
        dst[i] = dtype == TRI_BF16 ? tri_bf16_to_f32(h[i]) : tri_f16_to_f32(h[i]);
}

void tri_reduce_narrow(void *dst, const float *src, int64_t count, enum tri_dtype dtype)
{
    uint16_t *h = dst;

    for (int64_t i = 0; i < count; i++)
        h[i] = dtype == TRI_BF16 ? tri_bf16_from_f32(src[i]) : tri_f16_from_f32(src[i]);
}

enum {
    BLOCK_BYTES = 2048, /* a block of every level of the tree stays in the first cache */
    LEVELS = 16         /* of the tree: 65536 buffers */
};

/* A reduction of many buffers, block by block. */
struct many {
    const void *const *from;
    enum tri_dtype dtype; /* stored */
    size_t elem;          /* bytes, stored */
    tri_reduce_fn *fn;
    bool wide;                         /* stored in 16 bits: leaves are widened */
    unsigned char (*tmp)[BLOCK_BYTES]; /* one block a level */
};

/* Reduces [at, at + count) of buffers [lo, hi); returns where the result lies: tmp[level], or the
 * buffer itself. */
static const void *tree(struct many *m, int lo, int hi, int level, int64_t at, int64_t count)
{
    int mid = lo + (hi - lo) / 2;
    const void *left;
    const void *right;

    TRI_ASSERT(level <= LEVELS);
    if (hi - lo == 1) {
        const unsigned char *leaf = (const unsigned char *)m->from[lo] + (size_t)at * m->elem;

        if (!m->wide)
            return leaf;
        tri_reduce_widen((void *)m->tmp[level], leaf, count, m->dtype);
        return m->tmp[level];
    }
    left = tree(m, lo, mid, level, at, count);
    right = tree(m, mid, hi, level + 1, at, count);
    m->fn(m->tmp[level], left, right, count);
    return m->tmp[level];
}

tri_status tri_reduce_many(void *const *to, int nto, const void *const *from, int n, int64_t first,
                           int64_t count, enum tri_dtype dtype, enum tri_reduce op)
{
    enum tri_dtype in = tri_reduce_dtype(dtype);
    int64_t block = (int64_t)(BLOCK_BYTES / tri_dtype_bytes(in));
    _Alignas(TRI_ALIGN_BYTES) unsigned char tmp[LEVELS + 1][BLOCK_BYTES];
    struct many m = {.from = from,
                     .dtype = dtype,
                     .elem = tri_dtype_bytes(dtype),
                     .wide = in != dtype,
                     .tmp = tmp};

    TRI_TRY(tri_reduce_find(in, op, &m.fn));
    if (n == 2 && nto == 2 && dtype == TRI_F32 && op == TRI_REDUCE_SUM && to[0] == from[0] &&
        to[1] == from[1]) {
        sum_f32_both((float *)to[0] + first, (float *)to[1] + first, count);
        return TRI_OK;
    }
    for (int64_t at = first; at < first + count; at += block) {
        int64_t now = first + count - at < block ? first + count - at : block;
        const void *sum = tree(&m, 0, n, 0, at, now);

        for (int i = 0; i < nto; i++) {
            unsigned char *dst = (unsigned char *)to[i] + (size_t)at * m.elem;

            if (m.wide)
                tri_reduce_narrow(dst, sum, now, dtype);
            else
                memmove(dst, sum, (size_t)now * m.elem);
        }
    }
    return TRI_OK;
}
