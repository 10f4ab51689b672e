/* Element-wise reductions. Order: see reduce.h; lanes are independent, so every instruction set
 * gives the same bits. */
#include "collectives/reduce.h"

#include "runtime/core/memory.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define SUM(a, b)     ((a) + (b))
#define SUM_INT(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define MIN(a, b)     ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) || (a) != (a) ? (a) : (b))

#define DEFINE_PAIR(isa, name, type, OP)                                                           \
    isa static void name(void *dst, const void *a, const void *b, int64_t count)                   \
    {                                                                                              \
        type *d = dst;                                                                             \
        const type *x = a;                                                                         \
        const type *y = b;                                                                         \
                                                                                                   \
        for (int64_t i = 0; i < count; i++)                                                        \
            d[i] = (type)OP(x[i], y[i]);                                                           \
    }

/* Functions of one instruction set. both, quad: two or four buffers get their sum in one pass, the
 * cases of few ranks. */
struct reducers {
    tri_reduce_fn *pair[TRI_DTYPE_COUNT][3]; /* by type and operation */
    void (*both)(float *a, float *b, int64_t count);
    void (*quad)(float *a, float *b, float *c, float *d, int64_t count);
    void (*widen[2])(float *dst, const uint16_t *src, int64_t count); /* bf16, f16 */
    void (*narrow[2])(uint16_t *dst, const float *src, int64_t count);
};

/* As tri_bf16_from_f32, without branches. */
static inline uint16_t bf16_of(float x)
{
    uint32_t u, rounded, quiet;

    memcpy(&u, &x, sizeof(u));
    rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    quiet = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float f32_of_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

static void widen_f16_base(float *dst, const uint16_t *src, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        dst[i] = tri_f16_to_f32(src[i]);
}

static void narrow_f16_base(uint16_t *dst, const float *src, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        dst[i] = tri_f16_from_f32(src[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) static void widen_f16_avx2(float *dst, const uint16_t *src,
                                                                int64_t count)
{
    int64_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(
            dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    widen_f16_base(dst + i, src + i, count - i);
}

__attribute__((target("avx2,f16c"))) static void narrow_f16_avx2(uint16_t *dst, const float *src,
                                                                 int64_t count)
{
    int64_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_f16_base(dst + i, src + i, count - i);
}
#endif

#define DEFINE_SET(isa, set)                                                                       \
    DEFINE_PAIR(isa, sum_f32_##set, float, SUM)                                                    \
    DEFINE_PAIR(isa, min_f32_##set, float, MIN)                                                    \
    DEFINE_PAIR(isa, max_f32_##set, float, MAX)                                                    \
    DEFINE_PAIR(isa, sum_f64_##set, double, SUM)                                                   \
    DEFINE_PAIR(isa, min_f64_##set, double, MIN)                                                   \
    DEFINE_PAIR(isa, max_f64_##set, double, MAX)                                                   \
    DEFINE_PAIR(isa, sum_i32_##set, int32_t, SUM_INT)                                              \
    DEFINE_PAIR(isa, min_i32_##set, int32_t, MIN)                                                  \
    DEFINE_PAIR(isa, max_i32_##set, int32_t, MAX)                                                  \
    DEFINE_PAIR(isa, sum_i64_##set, int64_t, SUM_INT)                                              \
    DEFINE_PAIR(isa, min_i64_##set, int64_t, MIN)                                                  \
    DEFINE_PAIR(isa, max_i64_##set, int64_t, MAX)                                                  \
                                                                                                   \
    isa static void both_##set(float *a, float *b, int64_t count)                                  \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            float s = a[i] + b[i];                                                                 \
                                                                                                   \
            a[i] = s;                                                                              \
            b[i] = s;                                                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    isa static void quad_##set(float *a, float *b, float *c, float *d, int64_t count)              \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            float s = (a[i] + b[i]) + (c[i] + d[i]);                                               \
                                                                                                   \
            a[i] = s;                                                                              \
            b[i] = s;                                                                              \
            c[i] = s;                                                                              \
            d[i] = s;                                                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    isa static void widen_bf16_##set(float *dst, const uint16_t *src, int64_t count)               \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                        \
            dst[i] = f32_of_bf16(src[i]);                                                          \
    }                                                                                              \
                                                                                                   \
    isa static void narrow_bf16_##set(uint16_t *dst, const float *src, int64_t count)              \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                        \
            dst[i] = bf16_of(src[i]);                                                              \
    }                                                                                              \
                                                                                                   \
    static const struct reducers set = {                                                           \
        .pair =                                                                                    \
            {                                                                                      \
                [TRI_F32] = {sum_f32_##set, min_f32_##set, max_f32_##set},                         \
                [TRI_F64] = {sum_f64_##set, min_f64_##set, max_f64_##set},                         \
                [TRI_I32] = {sum_i32_##set, min_i32_##set, max_i32_##set},                         \
                [TRI_I64] = {sum_i64_##set, min_i64_##set, max_i64_##set},                         \
            },                                                                                     \
        .both = both_##set,                                                                        \
        .quad = quad_##set,                                                                        \
        .widen = {widen_bf16_##set, widen_f16_##set},                                              \
        .narrow = {narrow_bf16_##set, narrow_f16_##set},                                           \
    };

DEFINE_SET(__attribute__((optimize("O3"))), base)
#if defined(__x86_64__)
DEFINE_SET(__attribute__((target("avx2"), optimize("O3"))), avx2)
#endif

/* The widest set of this processor. Asked for at each call: a look at a word that the C library has
 * filled. */
static const struct reducers *reducers(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        return &avx2;
#endif
    return &base;
}

enum tri_dtype tri_reduce_dtype(enum tri_dtype dtype)
{
    return dtype == TRI_BF16 || dtype == TRI_F16 ? TRI_F32 : dtype;
}

tri_status tri_reduce_find(enum tri_dtype dtype, enum tri_reduce op, tri_reduce_fn **out)
{
    tri_reduce_fn *fn = reducers()->pair[dtype][op];

    if (fn == NULL)
        return tri_fail(TRI_ERR_UNSUPPORTED, "a reduction of type '%s' is not supported",
                        tri_dtype_name(dtype));
    *out = fn;
    return TRI_OK;
}

tri_status tri_reduce_check_tree(int size, bool fixed_tree)
{
    if (fixed_tree && (size & (size - 1)) != 0)
        return tri_fail(TRI_ERR_USAGE, "a fixed-tree sum needs a power of two of ranks, not %d",
                        size);
    return TRI_OK;
}

void tri_reduce_widen(float *dst, const void *src, int64_t count, enum tri_dtype dtype)
{
    reducers()->widen[dtype == TRI_F16](dst, src, count);
}

void tri_reduce_narrow(void *dst, const float *src, int64_t count, enum tri_dtype dtype)
{
    reducers()->narrow[dtype == TRI_F16](dst, src, count);
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

/* The common case: all of two or four buffers of f32 get their sum. false: it is another one. */
static bool sum_in_place(void *const *to, const void *const *from, int n, int64_t first,
                         int64_t count)
{
    float *x[4];

    if (n != 2 && n != 4)
        return false;
    for (int i = 0; i < n; i++) {
        if (to[i] != from[i])
            return false;
        x[i] = (float *)to[i] + first;
    }
    if (n == 2)
        reducers()->both(x[0], x[1], count);
    else
        reducers()->quad(x[0], x[1], x[2], x[3], count);
    return true;
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
    if (dtype == TRI_F32 && op == TRI_REDUCE_SUM && n == nto &&
        sum_in_place(to, from, n, first, count))
        return TRI_OK;
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
