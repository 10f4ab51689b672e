/* Cases of the kernel suite for what runs beside the collectives of a compressed exchange. COMPRESS
 * and DECOMPRESS compare bits: all contributors must agree on them. Tolerances as in cases.c. */
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kcase.h"

#include "optim/compressors/compressors.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <string.h>

static const struct tri_compressor *const methods[] = {&tri_compressor_fp16, &tri_compressor_bf16,
                                                       &tri_compressor_int8, &tri_compressor_onebit,
                                                       &tri_compressor_topk, &tri_compressor_randk};
#define NMETHODS 6

static const int64_t lengths[] = {1, 255, 257, 1024, 5003};
#define NLENGTHS 5

/* What the values are like. */
enum values { PLAIN, EQUAL, WIDE, NOT_FINITE, VALUES };

static struct tri_attrs compress_attrs(const struct tri_compressor *method, int i)
{
    struct tri_attrs at = {.compress = {.method = method, .seed = 3, .stream = 77}};

    at.compress.ratio = i % 2 ? 0.01 : 0.3;
    at.compress.momentum = 0.9;
    at.compress.nesterov = i % 3 == 0;
    at.compress.rank = i % 4;
    at.compress.ranks = 4;
    return at;
}

/* EQUAL: many magnitudes are the same, or zero. WIDE: beyond the range of f16, and subnormal. */
static void reshape_values(float *x, int64_t n, enum values what)
{
    for (int64_t i = 0; i < n; i++) {
        if (what == EQUAL)
            x[i] = floorf(x[i] * 3) / 2;
        if (what == WIDE)
            x[i] = ldexpf(x[i], (int)(i * 37 % 250) - 125);
    }
    if (what == NOT_FINITE)
        x[n / 2] = n % 2 ? NAN : -INFINITY;
}

static void payload_out(struct kcase *c, const struct tri_attrs *at, int64_t n)
{
    kcase_out(c, TRI_U8, SHAPE(at->compress.method->bytes(&at->compress, n)), 0, 0);
}

int cases_compress(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NMETHODS * NLENGTHS * VALUES; i++) {
        int64_t n = lengths[i / VALUES % NLENGTHS];
        struct tri_attrs at = compress_attrs(methods[i / VALUES / NLENGTHS], i);
        struct kcase c;

        kcase_init(&c, TRI_OP_COMPRESS, &at);
        reshape_values(kcase_in(&c, TRI_F32, SHAPE(n), -1, 1), n, (enum values)(i % VALUES));
        reshape_values(kcase_in(&c, TRI_F32, SHAPE(n), -0.1, 0.1), n,
                       i % VALUES == EQUAL ? EQUAL : PLAIN);
        kcase_in(&c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 1, 1e6);
        if (i % 5 == 0)
            kcase_in(&c, TRI_F32, SHAPE(n), -0.1, 0.1);
        payload_out(&c, &at, n);
        kcase_out(&c, TRI_F32, SHAPE(n), 0, 0);
        if (i % 5 == 0)
            kcase_out(&c, TRI_F32, SHAPE(n), 0, 0);
        else
            kcase_out_absent(&c);
        ran += kcase_run(&c, ops, at.compress.method->name);
    }
    return ran;
}

/* Payloads of all contributors, encoded from fresh values; those of the last are spoiled if asked
 * for. Input 1 are the counters. */
static void payloads_in(struct kcase *c, struct tri_attrs *at, int64_t n, bool spoil)
{
    int64_t bytes = at->compress.method->bytes(&at->compress, n), step = 5;
    float *work = tri_alloc_aligned((size_t)(3 * n) * sizeof(float), "test");
    unsigned char *to;
    struct kcase values;

    KCASE_CHECK(work != NULL, "out of memory");
    at->compress.offset = 64;
    at->compress.stride = at->compress.offset + bytes;
    c->d.attrs = *at;
    to = kcase_in(c, TRI_U8, SHAPE(at->compress.ranks * at->compress.stride), 0, 256);
    for (int r = 0; r < at->compress.ranks; r++) {
        struct tri_compress_job job = {.n = n, .residual = work, .residual_out = work + n};

        kcase_init(&values, TRI_OP_COMPRESS, at);
        job.grad = kcase_in(&values, TRI_F32, SHAPE(n), -1, 1);
        memset(work, 0, (size_t)n * sizeof(float));
        if (spoil && r == at->compress.ranks - 1)
            work[n / 2] = INFINITY;
        at->compress.rank = r;
        job.payload = to + r * at->compress.stride + at->compress.offset;
        tri_compress_encode(&at->compress, step, &job);
        tri_free(values.data[0]);
    }
    tri_free(work);
    *(int64_t *)kcase_in(c, TRI_I64, SHAPE(TRI_COUNTER_COUNT), 0, 1) = step;
}

int cases_decompress(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < NMETHODS * NLENGTHS * 2; i++) {
        int64_t n = lengths[i / 2 % NLENGTHS], first = 48;
        struct tri_attrs at = compress_attrs(methods[i / 2 / NLENGTHS], i);
        struct kcase c;

        at.compress.shape = SHAPE(n);
        at.compress.first = first;
        kcase_init(&c, TRI_OP_DECOMPRESS, &at);
        payloads_in(&c, &at, n, i % 7 == 0);
        if (i % 2) {
            kcase_in(&c, TRI_F32, SHAPE(first + n + 16), -1, 1);
            kcase_out(&c, TRI_F32, SHAPE(first + n + 16), 0, 0);
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        } else {
            kcase_out(&c, TRI_F32, SHAPE(n), 0, 0);
        }
        ran += kcase_run(&c, ops, at.compress.method->name);
    }
    return ran;
}

/* n, m, r */
static const int64_t ranks[][3] = {{1, 1, 1}, {7, 5, 2}, {64, 33, 4}, {40, 300, 7}, {1100, 3, 5}};
#define NRANKS 5

/* Elements of the matrix before those of a piece that begins and ends within rows. */
static int64_t before_piece(const int64_t *d)
{
    return d[1] / 2;
}

/* Elements of such a piece, at least 1. */
static int64_t in_piece(const int64_t *d)
{
    return d[0] * d[1] - before_piece(d) - d[1] / 3;
}

int cases_lowrank_left(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 4 * NRANKS; i++) {
        const int64_t *d = ranks[i / 4];
        struct tri_shape x = SHAPE(d[0], d[1]), g = i % 4 < 2 ? x : SHAPE(in_piece(d));
        struct tri_attrs at = {.compress = {.shape = x, .offset = before_piece(d)}};
        struct kcase c;
        float *right;

        kcase_init(&c, TRI_OP_LOWRANK_LEFT, i % 4 < 2 ? NULL : &at);
        kcase_in(&c, TRI_F32, g, -1, 1);
        kcase_in(&c, TRI_F32, g, -1, 1);
        right = kcase_in(&c, TRI_F32, SHAPE(d[1], d[2]), -1, 1);
        for (int64_t j = 0; i % 2 && j < d[1]; j++)
            right[j * d[2] + d[2] / 2] = 0; /* a direction stands in */
        kcase_out(&c, TRI_F32, x, 0, 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[2]), 2 * tol_sum(d[1]), 0);
        ran += kcase_run(&c, ops, "lowrank_left");
    }
    return ran;
}

int cases_lowrank_right(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NRANKS; i++) {
        const int64_t *d = ranks[i / 2];
        /* Columns of random numbers about 0.6 sqrt(n) long, of small condition: a sum in another
         * order moves few elements by a unit in the last place. */
        double tol = 64 * KCASE_EPS;
        struct kcase c;
        float *left;

        kcase_init(&c, TRI_OP_LOWRANK_RIGHT, NULL);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[1]), -1, 1);
        left = kcase_in(&c, TRI_F32, SHAPE(d[0], d[2]), -1, 1);
        for (int64_t j = 0; i % 2 && j < d[0]; j++)
            left[j * d[2] + d[2] - 1] = d[2] > 1 ? left[j * d[2]] : 0; /* carries nothing */
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[2]), tol, 0);
        kcase_out(&c, TRI_F32, SHAPE(d[1], d[2]), tol_sum(d[0]) + (double)d[0] * tol, 0);
        kcase_out(&c, TRI_F32, SHAPE(d[0], d[1]), tol_sum(d[0]) + (double)d[0] * 2 * tol, 0);
        ran += kcase_run(&c, ops, "lowrank_right");
    }
    return ran;
}

int cases_lowrank_product(const struct tri_kernel_ops *ops)
{
    int ran = 0;

    for (int i = 0; i < 2 * NRANKS; i++) {
        const int64_t *d = ranks[i / 2];
        struct tri_attrs at = {.compress = {.shape = SHAPE(d[0], d[1])}};
        struct kcase c;

        if (i % 2)
            at.compress = (struct tri_attr_compress){
                .shape = SHAPE(in_piece(d)), .offset = before_piece(d), .first = 48};
        kcase_init(&c, TRI_OP_LOWRANK_PRODUCT, &at);
        kcase_in(&c, TRI_F32, SHAPE(d[0], d[2]), -1, 1);
        kcase_in(&c, TRI_F32, SHAPE(d[1], d[2]), -1, 1);
        if (i % 2) {
            int64_t n = at.compress.first + in_piece(d) + 16;

            kcase_in(&c, TRI_F32, SHAPE(n), -1, 1);
            kcase_out(&c, TRI_F32, SHAPE(n), tol_sum(d[2]), 0);
            kcase_alias(&c, TRI_ALIAS_MUST, 2);
        } else {
            kcase_out(&c, TRI_F32, at.compress.shape, tol_sum(d[2]), 0);
        }
        ran += kcase_run(&c, ops, "lowrank_product");
    }
    return ran;
}
