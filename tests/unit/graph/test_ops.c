/* The op table: every kind infers what its line in ops.h says, and refuses what does not fit. */
#include "runtime/kernels/compress.h"
#include "tests/unit/graph/fixture.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs and outputs as "f32[2,3] i32[2] -": types, dims, absent ones. out NULL: refused. */
struct infer_case {
    enum tri_op_kind kind;
    const char *in, *out;
    struct tri_attrs attrs;
};

#define PLAIN                                                                                      \
    {                                                                                              \
        .rows = 0                                                                                  \
    }
#define WINDOW(k, s, p, hh, ww)                                                                    \
    {                                                                                              \
        .window = {.kh = k, .kw = k, .stride = s, .pad = p, .h = hh, .w = ww }                     \
    }
#define HEADS(n)                                                                                   \
    {                                                                                              \
        .attention = {.heads = n, .causal = true }                                                 \
    }

/* A compressor of 2 bytes an element; payloads of 2 ranks, 30 bytes behind the start of `total`. */
static int64_t two_bytes(const struct tri_attr_compress *a, int64_t n)
{
    (void)a;
    return 2 * n;
}

static const struct tri_compressor halves = {.name = "halves", .bytes = two_bytes};

/* Several parameters, with or without copies */
#define MULTI(n, copy)                                                                             \
    {                                                                                              \
        .optimizer = {.tensors = n, .copies = copy }                                               \
    }
/* Low rank: an n x m shape, elements before g, place in flat */
#define ROWS(n, m, before, place)                                                                  \
    {                                                                                              \
        .compress = {.shape = {.ndim = 2, .dim = {n, m}}, .offset = before, .first = place }       \
    }
#define HALVES(total)                                                                              \
    {                                                                                              \
        .compress = {                                                                              \
            .method = &halves,                                                                     \
            .ranks = 2,                                                                            \
            .offset = 30,                                                                          \
            .stride = (total),                                                                     \
            .shape = {.ndim = 2, .dim = {5, 7}}                                                    \
        }                                                                                          \
    }

static const struct infer_case cases[] = {
    {TRI_OP_MATMUL, "f32[2,3,4] f32[4,5]", "f32[2,3,5]", PLAIN},
    {TRI_OP_MATMUL, "f32[2,3,4] f32[5,4] f32[5]", "f32[2,3,5]", {.matmul = {.tb = true}}},
    {TRI_OP_MATMUL, "f32[6,4] f32[6,5] - f32[4,5]", "f32[4,5]", {.matmul = {.ta = true}}},
    {TRI_OP_MATMUL, "f32[6,4] f32[5,6]", "f32[4,5]", {.matmul = {.ta = true, .tb = true}}},
    {TRI_OP_MATMUL, "f32[2,3] f32[4,5]", NULL, PLAIN},
    {TRI_OP_MATMUL, "f32[2,3] f32[3,5] f32[4]", NULL, PLAIN},
    {TRI_OP_MATMUL, "f32[2,3] f32[3,5] - f32[2,4]", NULL, PLAIN},
    {TRI_OP_MATMUL, "i32[2,3] f32[3,5]", NULL, PLAIN},
    {TRI_OP_MATMUL_GELU, "f32[2,3,4] f32[4,5] f32[5]", "f32[2,3,5] f32[2,3,5]", PLAIN},
    {TRI_OP_MATMUL_GELU, "f32[2,3] f32[3,5] f32[4]", NULL, PLAIN},
    {TRI_OP_MATMUL_GELU_GRAD, "f32[6,4] f32[4,5] f32[6,5]", "f32[6,5]", PLAIN},
    {TRI_OP_MATMUL_GELU_GRAD, "f32[6,4] f32[4,5] f32[5,6]", NULL, PLAIN},
    {TRI_OP_MATMUL_BGRAD, "f32[6,4] f32[4,5] f32[6,5] f32[5]", "f32[6,5] f32[5]", PLAIN},
    {TRI_OP_MATMUL_BGRAD, "f32[6,4] f32[4,5] - f32[4]", NULL, PLAIN},
    {TRI_OP_COLUMN_SUM, "f32[2,3,4]", "f32[4]", PLAIN},
    {TRI_OP_COLUMN_SUM, "f32[2,4] f32[4]", "f32[4]", PLAIN},
    {TRI_OP_COLUMN_SUM, "f32[2,4] f32[2]", NULL, PLAIN},
    {TRI_OP_ADD, "f64[4] f64[4]", "f64[4]", PLAIN},
    {TRI_OP_ADD, "f32[4] f64[4]", NULL, PLAIN},
    {TRI_OP_ADD, "i32[4] i32[4]", NULL, PLAIN},
    {TRI_OP_RELU, "f32[2,3]", "f32[2,3]", PLAIN},
    {TRI_OP_RELU_GRAD, "f32[2,3] f32[2,3]", "f32[2,3]", PLAIN},
    {TRI_OP_RELU_GRAD, "f32[2,3] f32[3,2]", NULL, PLAIN},
    {TRI_OP_GELU, "f32[2,3]", "f32[2,3]", PLAIN},
    {TRI_OP_GELU_GRAD, "f32[2,3] f32[2,3]", "f32[2,3]", PLAIN},
    {TRI_OP_DROPOUT, "f32[2,3] i64[8]", "f32[2,3]", {.dropout = {.p = 0.5}}},
    {TRI_OP_DROPOUT, "f32[2,3] i64[8]", NULL, {.dropout = {.p = 1}}},
    {TRI_OP_CAST, "f32[2,3]", "bf16[2,3]", {.cast = {.to = TRI_BF16}}},
    {TRI_OP_LAYERNORM, "f32[2,3,4] f32[4] f32[4]", "f32[2,3,4] f32[6] f32[6] -", PLAIN},
    {TRI_OP_LAYERNORM, "f32[6,4] f32[4] f32[4] f32[6,4]", "f32[6,4] f32[6] f32[6] f32[6,4]", PLAIN},
    {TRI_OP_LAYERNORM, "f32[6,4] f32[4] f32[6]", NULL, PLAIN},
    {TRI_OP_LAYERNORM_GRAD, "f32[6,4] f32[6,4] f32[4] f32[6] f32[6]", "f32[6,4] f32[4] f32[4]",
     PLAIN},
    {TRI_OP_LAYERNORM_GRAD, "f32[6,4] f32[6,4] f32[4] f32[6] f32[6] f32[6]", NULL, PLAIN},
    {TRI_OP_BATCHNORM, "f32[2,5,5,3] f32[3] f32[3] i32[1]", "f32[2,5,5,3] f32[3] f32[3] f32[7]",
     PLAIN},
    {TRI_OP_BATCHNORM, "f32[8,3] f32[3] f32[3] i32[1] f32[8,3]", "f32[8,3] f32[3] f32[3] f32[7]",
     PLAIN},
    {TRI_OP_BATCHNORM, "f32[2,8,3] f32[3] f32[3] i32[1]", NULL, PLAIN},
    {TRI_OP_BATCHNORM_GRAD,
     "f32[8,3] f32[8,3] f32[3] f32[3] f32[3] i32[1] f32[8,3]",
     "f32[8,3] f32[3] f32[3] f32[8,3]",
     {.norm = {.relu = true}}},
    {TRI_OP_BATCHNORM_GRAD,
     "f32[8,3] f32[8,3] f32[3] f32[3] f32[3] i32[1]",
     NULL,
     {.norm = {.relu = true}}},
    {TRI_OP_BATCHNORM_INFER, "f32[8,3] f32[3] f32[3] f32[3] f32[3] f32[8,3]", "f32[8,3]", PLAIN},
    {TRI_OP_BATCHNORM_RUNNING, "f32[3] f32[3] f32[7] f64[16]", "f32[3] f32[3]", PLAIN},
    {TRI_OP_BATCHNORM_RUNNING, "f32[3] f32[3] f32[6] f64[16]", NULL, PLAIN},
    {TRI_OP_ATTENTION, "f32[2,5,24]", "f32[2,5,8] f32[2,4,5]", HEADS(4)},
    {TRI_OP_ATTENTION, "f32[2,5,24]", NULL, HEADS(3)},
    {TRI_OP_ATTENTION, "f32[2,5,24]", NULL, {.attention = {.heads = 4, .p = 0.1}}},
    {TRI_OP_ATTENTION_GRAD, "f32[2,5,8] f32[2,5,24] f32[2,5,8] f32[2,4,5]", "f32[2,5,24]",
     HEADS(4)},
    {TRI_OP_ATTENTION_CACHED, "f32[2,1,24] f32[2,9,8] f32[2,9,8] i32[1]",
     "f32[2,1,8] f32[2,9,8] f32[2,9,8]", HEADS(2)},
    {TRI_OP_ATTENTION_CACHED, "f32[2,10,24] f32[2,9,8] f32[2,9,8] i32[1]", NULL, HEADS(2)},
    {TRI_OP_EMBEDDING, "i32[2,5] f32[16,8] f32[5,8] i32[1]", "f32[2,5,8]", PLAIN},
    {TRI_OP_EMBEDDING, "i32[2,5] f32[16,8] f32[4,8]", NULL, PLAIN},
    {TRI_OP_EMBEDDING_GRAD, "i32[2,5] f32[2,5,8] f32[16,8]", "f32[16,8]", {.rows = 16}},
    {TRI_OP_POSITION_GRAD, "f32[2,5,8]", "f32[6,8]", {.rows = 6}},
    {TRI_OP_POSITION_GRAD, "f32[2,5,8]", NULL, {.rows = 4}},
    {TRI_OP_SOFTMAX_XENT, "f32[2,5,16] i32[2,5]", "f64[4] f32[10]", PLAIN},
    {TRI_OP_SOFTMAX_XENT, "f32[10,16] i32[9]", NULL, PLAIN},
    {TRI_OP_SOFTMAX_XENT_GRAD, "f32[10,16] i32[10] f32[10]", "f32[10,16]", PLAIN},
    {TRI_OP_SOFTMAX_XENT_FUSED, "f32[10,16] i32[10]", "f64[4] f32[10,16]", PLAIN},
    {TRI_OP_MSE, "f32[8,3] f32[8,3] i32[1]", "f64[4]", PLAIN},
    {TRI_OP_MSE, "f32[8,3] f32[8] i32[1]", NULL, PLAIN},
    {TRI_OP_MSE_GRAD, "f32[8,3] f32[8,3] i32[1]", "f32[8,3]", PLAIN},
    {TRI_OP_CONV2D, "f32[2,9,8,3] f32[6,3,3,3] f32[6]", "f32[2,5,4,6]", WINDOW(3, 2, 1, 0, 0)},
    {TRI_OP_CONV2D, "f32[2,9,8,3] f32[6,4,3,3]", NULL, WINDOW(3, 2, 1, 0, 0)},
    {TRI_OP_CONV2D, "f32[2,2,2,3] f32[6,3,3,3]", NULL, WINDOW(3, 1, 0, 0, 0)},
    {TRI_OP_CONV2D_DX, "f32[2,5,4,6] f32[6,3,3,3]", "f32[2,9,8,3]", WINDOW(3, 2, 1, 9, 8)},
    {TRI_OP_CONV2D_DX, "f32[2,5,4,6] f32[6,3,3,3]", NULL, WINDOW(3, 2, 1, 11, 8)},
    {TRI_OP_CONV2D_DW, "f32[2,9,8,3] f32[2,5,4,6]", "f32[6,3,3,3]", WINDOW(3, 2, 1, 9, 8)},
    {TRI_OP_MAXPOOL, "f32[2,8,8,3]", "f32[2,4,4,3] u8[2,4,4,3]", WINDOW(3, 2, 1, 0, 0)},
    {TRI_OP_MAXPOOL, "f32[2,8,8,3]", NULL, WINDOW(3, 2, 2, 0, 0)},
    {TRI_OP_MAXPOOL_GRAD, "f32[2,4,4,3] u8[2,4,4,3]", "f32[2,8,8,3]", WINDOW(3, 2, 1, 8, 8)},
    {TRI_OP_AVGPOOL, "f32[2,8,8,3]", "f32[2,3]", PLAIN},
    {TRI_OP_AVGPOOL_GRAD, "f32[2,3]", "f32[2,8,8,3]", WINDOW(0, 0, 0, 8, 8)},
    {TRI_OP_RESHAPE, "f32[2,6]", "f32[4,3]", {.view = {.shape = {.ndim = 2, .dim = {4, 3}}}}},
    {TRI_OP_RESHAPE, "f32[2,6]", NULL, {.view = {.shape = {.ndim = 2, .dim = {4, 4}}}}},
    {TRI_OP_PACK, "f32[3] f32[4,5] f32[2]", "f32[50]", PLAIN}, /* at 0, 16, 48 */
    {TRI_OP_PACK, "f32[3] f64[4]", NULL, PLAIN},
    {TRI_OP_VIEW,
     "f32[50]",
     "f32[4,5]",
     {.view = {.offset = 16, .shape = {.ndim = 2, .dim = {4, 5}}}}},
    {TRI_OP_VIEW, "f32[50]", NULL, {.view = {.offset = 31, .shape = {.ndim = 2, .dim = {4, 5}}}}},
    {TRI_OP_ALLREDUCE, "f32[50]", "f32[50]", {.comm = {.axis = TRI_AXIS_DATA}}},
    {TRI_OP_ALLREDUCE, "f32[50]", "f32[50]", {.comm = {.first = 16, .count = 34}}},
    {TRI_OP_ALLREDUCE, "f32[50]", NULL, {.comm = {.first = 16, .count = 35}}},
    {TRI_OP_ALLREDUCE, "f32[50]", NULL, {.comm = {.level = TRI_LEVEL_COUNT}}},
    {TRI_OP_REDUCE_SCATTER, "f32[50]", "f32[50]", {.comm = {.slices = 2}}},
    {TRI_OP_REDUCE_SCATTER, "f32[50]", NULL, {.comm = {.slices = 0}}},
    {TRI_OP_ALLGATHER, "f32[50]", "f32[50]", {.comm = {.slices = 2}}},
    {TRI_OP_GATHER, "u8[50]", "u8[150]", {.comm = {.axis = TRI_AXIS_DATA, .ranks = 3}}},
    {TRI_OP_GATHER, "u8[50]", NULL, {.comm = {.axis = TRI_AXIS_DATA}}},
    {TRI_OP_COMPRESS, "f32[5,7] f32[5,7] i64[8]", "u8[70] f32[5,7] -", HALVES(0)},
    {TRI_OP_COMPRESS, "f32[5,7] f32[5,7] i64[8] f32[5,7]", "u8[70] f32[5,7] f32[5,7]", HALVES(0)},
    {TRI_OP_COMPRESS, "f32[5,7] f32[7,5] i64[8]", NULL, HALVES(0)},
    {TRI_OP_COMPRESS, "f32[5,7] f32[5,7] i64[8]", NULL, PLAIN},
    {TRI_OP_DECOMPRESS, "u8[400] i64[8]", "f32[5,7]", HALVES(200)},
    {TRI_OP_DECOMPRESS, "u8[198] i64[8]", NULL, HALVES(99)},
    {TRI_OP_DECOMPRESS, "u8[400] i64[8] f32[50]", "f32[50]", HALVES(200)},
    {TRI_OP_DECOMPRESS, "u8[400] i64[8] f32[34]", NULL, HALVES(200)},
    {TRI_OP_LOWRANK_LEFT, "f32[5,2,3] f32[5,2,3] f32[6,2]", "f32[5,6] f32[5,2]", PLAIN},
    {TRI_OP_LOWRANK_LEFT, "f32[5,2,3] f32[5,2,3] f32[5,2]", NULL, PLAIN},
    {TRI_OP_LOWRANK_LEFT, "f32[5] f32[5] f32[1,1]", NULL, PLAIN},
    {TRI_OP_LOWRANK_LEFT, "f32[9] f32[9] f32[6,2]", "f32[2,6] f32[2,2]", ROWS(2, 6, 3, 0)},
    {TRI_OP_LOWRANK_LEFT, "f32[9] f32[9] f32[6,2]", NULL, ROWS(2, 6, 4, 0)},
    {TRI_OP_LOWRANK_RIGHT, "f32[5,6] f32[5,2]", "f32[5,2] f32[6,2] f32[5,6]", PLAIN},
    {TRI_OP_LOWRANK_RIGHT, "f32[5,6] f32[6,2]", NULL, PLAIN},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[7,2]", "f32[5,7]", ROWS(5, 7, 0, 0)},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[8,2]", "f32[5,7]", ROWS(5, 7, 5, 0)},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[8,2]", NULL, ROWS(5, 7, 6, 0)},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[6,2]", NULL, ROWS(5, 7, 0, 0)},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[7,2] f32[50]", "f32[50]", ROWS(5, 7, 0, 15)},
    {TRI_OP_LOWRANK_PRODUCT, "f32[5,2] f32[7,2] f32[50]", NULL, ROWS(5, 7, 0, 16)},
    {TRI_OP_COMMIT, "f32[5,7] f32[35] f64[16]", "f32[5,7]", PLAIN},
    {TRI_OP_COMMIT, "f32[5,7] f32[34] f64[16]", NULL, PLAIN},
    {TRI_OP_COMMIT, "f32[5,7] f32[40] f64[16]", "f32[5,7]", {.view = {.offset = 5}}},
    {TRI_OP_COMMIT, "f32[5,7] f32[40] f64[16]", NULL, {.view = {.offset = 6}}},
    {TRI_OP_STEP_BEGIN, "i64[8]", "i64[8]", PLAIN},
    {TRI_OP_SUMSQ, "f32[5,7]", "f64[1]", PLAIN},
    {TRI_OP_CONTROL, "f64[4] i64[8] f64[1] f64[1]", "f64[16]", PLAIN},
    {TRI_OP_CONTROL, "f64[4] i64[8] f32[1]", NULL, PLAIN},
    {TRI_OP_SGD, "f32[5] f32[5] f32[5] f64[16]", "f32[5] f32[5]", PLAIN},
    {TRI_OP_SGD, "f32[5] f32[5] - f64[16]", "f32[5] -", PLAIN},
    {TRI_OP_SGD, "f32[5] f32[4] - f64[16]", NULL, PLAIN},
    {TRI_OP_ADAMW, "f32[5] f32[5] f32[5] f32[5] f64[16]", "f32[5] f32[5] f32[5]", PLAIN},
    {TRI_OP_CONTROL, "f64[4] i64[8] f64[1] f32[1]", "f64[16]", {.control = {.scaled = true}}},
    {TRI_OP_CONTROL, "f64[4] i64[8] f64[1] f64[1]", NULL, {.control = {.scaled = true}}},
    {TRI_OP_STEP_END, "i64[8] f64[16]", "i64[8]", PLAIN},
    {TRI_OP_SCALE_END, "f32[1] f64[16]", "f32[1]", PLAIN},
    {TRI_OP_SCALE_END, "f64[1] f64[16]", NULL, PLAIN},
    {TRI_OP_MATMUL, "bf16[4,3] bf16[3,5] f32[5]", "bf16[4,5]", PLAIN},
    {TRI_OP_MATMUL, "bf16[4,3] bf16[3,5] - f32[4,5]", "f32[4,5]", {.matmul = {.wide = true}}},
    {TRI_OP_MATMUL, "bf16[4,3] bf16[3,5] - f32[4,5]", NULL, PLAIN},
    {TRI_OP_MATMUL, "bf16[4,3] f16[3,5]", NULL, PLAIN},
    {TRI_OP_CONV2D_DW, "f16[2,8,8,3] f16[2,8,8,4] f32[4,3,3,3]", "f32[4,3,3,3]",
     WINDOW(3, 1, 1, 0, 0)},
    {TRI_OP_LAYERNORM, "f16[4,6] f32[6] f32[6] f16[4,6]", "f16[4,6] f32[4] f32[4] f16[4,6]", PLAIN},
    {TRI_OP_LAYERNORM, "f16[4,6] f16[6] f32[6]", NULL, PLAIN},
    {TRI_OP_SOFTMAX_XENT_FUSED, "bf16[4,6] i32[4] f32[1]", "f64[4] bf16[4,6]", PLAIN},
    {TRI_OP_MULTI_SUMSQ, "f32[5,7] f32[3]", "f64[2]", PLAIN},
    {TRI_OP_MULTI_SUMSQ, "f32[5,7] bf16[3]", NULL, PLAIN},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[2,3] f32[5] f32[2,3]", "f32[5] f32[2,3]", MULTI(2, 0)},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[7] f32[5] f32[7] f32[5] f32[7]",
     "f32[5] f32[7] f32[5] f32[7]", MULTI(2, 0)},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[5] bf16[5]", "f32[5] bf16[5]", MULTI(1, 1)},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[5] f32[5]", NULL, MULTI(1, 1)},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[7] f32[5] f32[5]", NULL, MULTI(2, 0)},
    {TRI_OP_MULTI_SGD, "f64[16] f32[5] f32[7] f32[5]", NULL, MULTI(2, 0)},
    {TRI_OP_MULTI_ADAMW, "f64[16] f32[5] f32[5] f32[5] f32[5] f16[5]",
     "f32[5] f32[5] f32[5] f16[5]", MULTI(1, 1)},
    {TRI_OP_MULTI_ADAMW, "f64[16] f32[5] f32[5] f32[5]", NULL, MULTI(1, 0)},
    {TRI_OP_MULTI_ADAMW, "f64[16] f32[5] f32[5] f32[5] f32[5]", NULL, MULTI(9, 0)},
    {TRI_OP_CAST, "f32[5] bf16[5]", "bf16[5]", {.cast = {TRI_BF16}}},
    {TRI_OP_CAST, "f32[5] f16[5]", NULL, {.cast = {TRI_BF16}}},
    {TRI_OP_INJECT, "f32[5] i64[8]", "f32[5]", PLAIN},
};

static enum tri_dtype dtype_of(const char *text, size_t len)
{
    for (int t = 0; t < TRI_DTYPE_COUNT; t++) {
        const char *name = tri_dtype_name((enum tri_dtype)t);

        if (strlen(name) == len && strncmp(name, text, len) == 0)
            return (enum tri_dtype)t;
    }
    cr_assert_fail("unknown type in \"%s\"", text);
    return TRI_F32;
}

/* Makes an input of each word; returns their number. */
static int make_inputs(struct tri_graph *g, const char *words, tri_vid *in)
{
    int n = 0;
    char copy[160], *save = NULL, name[16];

    snprintf(copy, sizeof(copy), "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save), n++) {
        size_t len = strcspn(w, "[");

        in[n] = TRI_NONE;
        if (strcmp(w, "-") == 0)
            continue;
        snprintf(name, sizeof(name), "i%d", n);
        w[strlen(w) - 1] = '\0';
        in[n] = tri_graph_input(g, name, dtype_of(w, len), shape_of(w + len + 1));
    }
    return n;
}

/* The outputs in the same words. */
static void describe(const struct tri_graph *g, const struct tri_op *op, char *text, size_t bytes)
{
    size_t at = 0;
    int n = op->nout;

    text[0] = '\0';
    while (op->nout == TRI_MULTI_OUTPUTS && op->out[n - 1] == TRI_NONE)
        n--;
    for (int o = 0; o < n; o++) {
        const char *space = o > 0 ? " " : "";

        if (op->out[o] == TRI_NONE) {
            at += (size_t)snprintf(text + at, bytes - at, "%s-", space);
            continue;
        }
        const struct tri_value *v = &g->value[op->out[o]];

        at += (size_t)snprintf(text + at, bytes - at, "%s%s[", space, tri_dtype_name(v->dtype));
        for (int d = 0; d < v->shape.ndim; d++)
            at += (size_t)snprintf(text + at, bytes - at, "%s%lld", d > 0 ? "," : "",
                                   (long long)v->shape.dim[d]);
        at += (size_t)snprintf(text + at, bytes - at, "]");
    }
}

static void run_case(const struct infer_case *c)
{
    struct tri_graph *g = new_graph();
    tri_vid in[8];
    int nin = make_inputs(g, c->in, in);
    int32_t op = tri_graph_op(g, c->kind, "op", in, nin, &c->attrs, UINT32_MAX);
    char text[160];

    if (c->out == NULL) {
        cr_expect_eq(op, TRI_NONE, "%s takes %s", tri_op_name(c->kind), c->in);
        cr_expect_eq(tri_graph_status(g), TRI_ERR_USAGE);
        cr_expect_eq(strncmp(tri_error_text(), tri_op_name(c->kind), strlen(tri_op_name(c->kind))),
                     0, "%s", tri_error_text());
    } else {
        cr_assert_neq(op, TRI_NONE, "%s: %s", c->in, tri_error_text());
        describe(g, &g->op[op], text, sizeof(text));
        cr_expect_str_eq(text, c->out, "%s gives %s", tri_op_name(c->kind), text);
        if (tri_op_info(c->kind)->flops != NULL)
            cr_expect(tri_op_info(c->kind)->flops(g, &g->op[op]) >= 0);
    }
    tri_graph_destroy(g);
}

Test(ops, every_kind_infers)
{
    bool seen[TRI_OP_COUNT] = {false};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_case(&cases[i]);
        seen[cases[i].kind] = true;
    }
    for (int k = 0; k < TRI_OP_COUNT; k++)
        cr_expect(seen[k], "no case for %s", tri_op_name((enum tri_op_kind)k));
}

Test(ops, rows_are_complete)
{
    for (int k = 0; k < TRI_OP_COUNT; k++) {
        const struct tri_op_info *info = tri_op_info((enum tri_op_kind)k);

        cr_expect_str_eq(info->name, tri_op_name((enum tri_op_kind)k));
        cr_expect_not_null(info->infer);
        cr_expect(info->diff_out == 0 || info->grad != NULL);
        cr_expect(info->acc_in == 0 || (info->optional_in >> info->acc_in & 1) == 1);
    }
}

static enum tri_alias alias_of(enum tri_op_kind kind, const char *words, const struct tri_attrs *a,
                               int o, int *input)
{
    struct tri_graph *g = new_graph();
    tri_vid in[8];
    int nin = make_inputs(g, words, in);
    int32_t op = tri_graph_op(g, kind, "op", in, nin, a, UINT32_MAX);
    enum tri_alias rule = tri_op_info(kind)->alias(g, &g->op[op], o, input);

    tri_graph_destroy(g);
    return rule;
}

Test(ops, alias_rules)
{
    struct tri_attrs heads = HEADS(2);
    int in = -1;

    cr_assert_eq(alias_of(TRI_OP_MATMUL, "f32[2,3] f32[3,4]", NULL, 0, &in), TRI_ALIAS_NO);
    cr_assert_eq(alias_of(TRI_OP_MATMUL, "f32[2,3] f32[3,4] - f32[2,4]", NULL, 0, &in),
                 TRI_ALIAS_MUST);
    cr_assert_eq(in, 3);
    cr_assert_eq(alias_of(TRI_OP_ADAMW, "f32[5] f32[5] f32[5] f32[5] f64[16]", NULL, 2, &in),
                 TRI_ALIAS_MUST);
    cr_assert_eq(in, 3);
    cr_assert_eq(alias_of(TRI_OP_ATTENTION_CACHED, "f32[2,1,24] f32[2,9,8] f32[2,9,8] i32[1]",
                          &heads, 2, &in),
                 TRI_ALIAS_MUST);
    cr_assert_eq(in, 2);
    cr_assert_eq(alias_of(TRI_OP_SOFTMAX_XENT_FUSED, "f32[10,16] i32[10]", NULL, 1, &in),
                 TRI_ALIAS_MAY);
    cr_assert_eq(
        alias_of(TRI_OP_LAYERNORM_GRAD, "f32[6,4] f32[6,4] f32[4] f32[6] f32[6]", NULL, 0, &in),
        TRI_ALIAS_NO);
    cr_assert_eq(alias_of(TRI_OP_RELU, "f32[6,4]", NULL, 0, &in), TRI_ALIAS_MAY);
}

Test(ops, products_count_multiply_adds_twice)
{
    struct tri_graph *g = new_graph();
    tri_vid y = binary(g, TRI_OP_MATMUL, "fc", input(g, "x", "2,3,4"), param(g, "w", "4,5"));

    cr_assert_eq(tri_op_info(TRI_OP_MATMUL)->flops(g, &g->op[g->value[y].producer]), 2 * 6 * 4 * 5);
    tri_graph_destroy(g);
}
