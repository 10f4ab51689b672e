/* Reference kernels on numbers worked out by hand: the oracle needs one of its own. */
#include "tests/unit/kernels/by_hand.h"

#include <string.h>

static struct tri_arg arg_of(enum tri_dtype dtype, int64_t a, int64_t b)
{
    struct tri_arg arg = {dtype, {2, {a, b}}};

    return arg;
}

static struct tri_arg image_of(int64_t h, int64_t w)
{
    struct tri_arg arg = {TRI_F32, {4, {1, h, w, 1}}};

    return arg;
}

/* Like run() with signatures of its own for the outputs. */
static void run_io(enum tri_op_kind kind, const struct tri_attrs *at, int nin,
                   const struct tri_arg *in, void **pin, int nout, const struct tri_arg *out,
                   void **pout)
{
    struct tri_kernel_desc d = {
        .kind = kind, .attrs = *at, .nin = nin, .nout = nout, .in = in, .out = out};
    struct tri_kernel_args args = {.in = pin, .out = pout};
    double scratch[64];
    struct tri_kernel *k;

    cr_assert_eq(tri_kernels_ref[kind]->prepare(&d, &k), TRI_OK);
    cr_assert(k->scratch_bytes <= sizeof(scratch));
    args.scratch = scratch;
    cr_assert_eq(k->ops->run(k, &args), TRI_OK);
    k->ops->destroy(k);
}

/* [1 2; 3 4] [5 6; 7 8] + [10 20] = [29 42; 53 70] */
Test(reference, matmul)
{
    struct tri_attrs at = {.matmul = {false, false}};
    struct tri_arg in[3] = {arg_of(TRI_F32, 2, 2), arg_of(TRI_F32, 2, 2), {TRI_F32, {1, {2}}}};
    float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, bias[] = {10, 20}, y[4];

    run(TRI_OP_MATMUL, &at, 3, in, (void *[]){a, b, bias}, 1, (void *[]){y});
    cr_assert(y[0] == 29 && y[1] == 42 && y[2] == 53 && y[3] == 70);
    at.matmul.tb = true; /* [1 2; 3 4] [5 7; 6 8] */
    run(TRI_OP_MATMUL, &at, 2, in, (void *[]){a, b}, 1, (void *[]){y});
    cr_assert(y[0] == 17 && y[1] == 23 && y[2] == 39 && y[3] == 53);
}

/* Row 0 has two equal largest logits: class 0 is the answer. Row 1 has no target and holds NaN. */
Test(reference, cross_entropy)
{
    struct tri_attrs at = {.rows = 0};
    struct tri_arg in[2] = {arg_of(TRI_F32, 3, 2), {TRI_I32, {1, {3}}}};
    float z[] = {1, 1, NAN, INFINITY, 0, 2}, dz[6];
    int32_t target[] = {0, TRI_IGNORE_TARGET, 0};
    double stats[TRI_STATS_COUNT];

    run(TRI_OP_SOFTMAX_XENT_FUSED, &at, 2, in, (void *[]){z, target}, 2, (void *[]){stats, dz});
    NEAR(stats[TRI_STATS_LOSS], log(2) + 2 + log(1 + exp(-2)));
    cr_assert(stats[TRI_STATS_TARGETS] == 2 && stats[TRI_STATS_RIGHT] == 1);
    NEAR(dz[0], -0.5);
    NEAR(dz[1], 0.5);
    cr_assert(dz[2] == 0 && dz[3] == 0);
    NEAR(dz[5], 1 / (1 + exp(-2)));
}

/* A sample's loss is the mean over its components; the second sample is padding. */
Test(reference, squared_error)
{
    struct tri_attrs at = {.rows = 0};
    struct tri_arg in[3] = {arg_of(TRI_F32, 2, 2), arg_of(TRI_F32, 2, 2), {TRI_I32, {1, {1}}}};
    float y[] = {1, 4, NAN, NAN}, t[] = {0, 1, 0, 0}, dy[4];
    int32_t nreal = 1;
    double stats[TRI_STATS_COUNT];

    run(TRI_OP_MSE, &at, 3, in, (void *[]){y, t, &nreal}, 1, (void *[]){stats});
    cr_assert(stats[TRI_STATS_LOSS] == 5 && stats[TRI_STATS_TARGETS] == 1);
    run(TRI_OP_MSE_GRAD, &at, 3, in, (void *[]){y, t, &nreal}, 1, (void *[]){dy});
    cr_assert(dy[0] == 1 && dy[1] == 3 && dy[2] == 0 && dy[3] == 0);
}

/* 3 x 3 image 1..9, filter [1 2; 3 4], no padding: 1 + 4 + 12 + 20 = 37, then + 10 a column, + 30 a
 * row. */
Test(reference, convolution_and_pools)
{
    struct tri_attrs at = {.window = {.kh = 2, .kw = 2, .stride = 1}};
    struct tri_arg in[2] = {image_of(3, 3), {TRI_F32, {4, {1, 1, 2, 2}}}}, out[2];
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w[] = {1, 2, 3, 4}, y[4];
    uint8_t index[4];

    out[0] = out[1] = image_of(2, 2);
    out[1].dtype = TRI_U8;
    run_io(TRI_OP_CONV2D, &at, 2, in, (void *[]){x, w}, 1, out, (void *[]){y});
    cr_assert(y[0] == 37 && y[1] == 47 && y[2] == 67 && y[3] == 77);
    run_io(TRI_OP_MAXPOOL, &at, 1, in, (void *[]){x}, 2, out, (void *[]){y, index});
    cr_assert(y[0] == 5 && y[3] == 9 && index[0] == 3);
    out[0] = arg_of(TRI_F32, 1, 1);
    run_io(TRI_OP_AVGPOOL, &at, 1, in, (void *[]){x}, 1, out, (void *[]){y});
    cr_assert(y[0] == 5);
}

/* Equal keys give equal weights: position t gets the mean of the values up to t. Cached attention
 * in two pieces gives the same. */
Test(reference, attention)
{
    struct tri_attrs at = {.attention = {.heads = 1, .causal = true}};
    struct tri_arg qkv = {TRI_F32, {3, {1, 3, 3}}}, piece = {TRI_F32, {3, {1, 1, 3}}};
    struct tri_arg cache = {TRI_F32, {3, {1, 4, 1}}}, one = {TRI_I32, {1, {1}}},
                   in[4] = {piece, cache, cache, one};
    struct tri_arg results[2] = {qkv, qkv};
    float x[] = {1, 2, 3, -1, 2, 5, 4, 2, 10}, out[3], lse[3], kc[4] = {0}, vc[4] = {0}, o;

    run_io(TRI_OP_ATTENTION, &at, 1, &qkv, (void *[]){x}, 2, results, (void *[]){out, lse});
    NEAR(out[0], 3);
    NEAR(out[1], 4);
    NEAR(out[2], 6);
    NEAR(lse[2], 8 + log(3));
    for (int32_t t = 0; t < 3; t++) {
        run_io(TRI_OP_ATTENTION_CACHED, &at, 4, in, (void *[]){x + 3 * t, kc, vc, &t}, 3, in,
               (void *[]){&o, kc, vc});
        NEAR(o, out[t]);
    }
}

/* (1, 3): mean 2, variance 1. GELU(1) in its tanh form is 0.8411920. */
Test(reference, layernorm_and_gelu)
{
    struct tri_attrs at = {.norm = {.eps = 0}};
    struct tri_arg in[3] = {arg_of(TRI_F32, 1, 2), {TRI_F32, {1, {2}}}, {TRI_F32, {1, {2}}}};
    float x[] = {1, 3}, gamma[] = {2, 2}, beta[] = {0, 1}, y[2], mean, rstd;

    run(TRI_OP_LAYERNORM, &at, 3, in, (void *[]){x, gamma, beta}, 3, (void *[]){y, &mean, &rstd});
    cr_assert(y[0] == -2 && y[1] == 3 && mean == 2 && rstd == 1);
    run(TRI_OP_GELU, &at, 1, in, (void *[]){x}, 1, (void *[]){y});
    NEAR(y[0], 0.8411920);
}

/* A grain of 8 draws elements 8 grain .. 8 grain + 7 of the step's stream: two grains of 8 are one
 * of 16. */
Test(reference, dropout_is_indexed_globally)
{
    struct tri_attrs at = {.dropout = {.p = 0.5, .stream = 3, .seed = 4}};
    struct tri_arg in[2] = {arg_of(TRI_F32, 2, 8), {TRI_I64, {1, {TRI_COUNTER_COUNT}}}};
    int64_t counters[TRI_COUNTER_COUNT] = {5};
    float x[16], whole[16], part[8];
    struct tri_kernel_desc d = {.kind = TRI_OP_DROPOUT,
                                .attrs = at,
                                .nin = 2,
                                .nout = 1,
                                .in = in,
                                .out = in,
                                .nthreads = 1};
    struct tri_kernel *k;
    int kept = 0;

    for (int i = 0; i < 16; i++)
        x[i] = 1;
    run(TRI_OP_DROPOUT, &at, 2, in, (void *[]){x, counters}, 1, (void *[]){whole});
    in[0] = arg_of(TRI_F32, 1, 8);
    cr_assert_eq(tri_kernels_ref[TRI_OP_DROPOUT]->prepare(&d, &k), TRI_OK);
    cr_assert_eq(k->ops->run(k, &(struct tri_kernel_args){.in = (void *[]){x, counters},
                                                          .out = (void *[]){part},
                                                          .grain = 1}),
                 TRI_OK);
    k->ops->destroy(k);
    cr_assert(memcmp(whole + 8, part, sizeof(part)) == 0);
    for (int i = 0; i < 16; i++) {
        cr_assert(whole[i] == 0 || whole[i] == 2);
        kept += whole[i] != 0;
    }
    cr_assert(kept > 0 && kept < 16);
}
