/* Kernels of low-rank compression: nothing is lost, factors are orthonormal, zero is left again. */
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"
#include "runtime/kernels/kernels.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N = 13, M = 17, R = 3 };

struct matrices {
    float g[N * M], residual[N * M], right[M * R], x[N * M], left[N * R];
    float basis[N * R], right_out[M * R], residual_out[N * M], out[N * M];
};

static struct tri_arg arg(int64_t rows, int64_t cols)
{
    return (struct tri_arg){.dtype = TRI_F32, .shape = {.ndim = 2, .dim = {rows, cols}}};
}

static void run(enum tri_op_kind kind, const struct tri_arg *in, int nin, const struct tri_arg *out,
                int nout, void **pin, void **pout)
{
    struct tri_kernel_desc d = {.kind = kind,
                                .nin = nin,
                                .nout = nout,
                                .in = in,
                                .out = out,
                                .nthreads = 1,
                                .attrs = {.compress = {.shape = {.ndim = 2, .dim = {N, M}}}}};
    struct tri_kernel_args a = {.in = pin, .out = pout};
    struct tri_kernel *k;

    cr_assert_eq(tri_kernel_prepare(tri_kernels_cpu, &d, &k), TRI_OK);
    cr_assert_eq(k->ops->run(k, &a), TRI_OK);
    k->ops->destroy(k);
}

/* One step of one contributor; the right factor is kept. */
static void step(struct matrices *m)
{
    struct tri_arg full = arg(N, M), left = arg(N, R), right = arg(M, R);

    run(TRI_OP_LOWRANK_LEFT, (struct tri_arg[]){full, full, right}, 3,
        (struct tri_arg[]){full, left}, 2, (void *[]){m->g, m->residual, m->right},
        (void *[]){m->x, m->left});
    run(TRI_OP_LOWRANK_RIGHT, (struct tri_arg[]){full, left}, 2,
        (struct tri_arg[]){left, right, full}, 3, (void *[]){m->x, m->left},
        (void *[]){m->basis, m->right_out, m->residual_out});
    run(TRI_OP_LOWRANK_PRODUCT, (struct tri_arg[]){left, right}, 2, &full, 1,
        (void *[]){m->basis, m->right_out}, (void *[]){m->out});
    memcpy(m->right, m->right_out, sizeof(m->right));
    memcpy(m->residual, m->residual_out, sizeof(m->residual));
}

static void start(struct matrices *m)
{
    struct tri_rng_key key = tri_rng_key_make(1, 2, 3);

    memset(m, 0, sizeof(*m));
    tri_rng_fill_uniform(&key, 0, N * M, -1, 1, m->g);
    tri_rng_fill_normal(&key, 1000, M * R, 0, 1, m->right);
}

static double norm(const float *a, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

Test(low_rank, what_is_sent_and_what_is_left_make_the_whole)
{
    struct matrices m;

    start(&m);
    for (int i = 0; i < 10; i++) {
        step(&m);
        for (int k = 0; k < N * M; k++) /* numbers of size 10 at most, a few roundings */
            cr_assert_float_eq(m.out[k] + m.residual_out[k], m.x[k], 1e-5);
        cr_assert_leq(norm(m.residual_out, N * M), norm(m.x, N * M));
    }
}

Test(low_rank, the_basis_is_orthonormal_and_finds_a_matrix_of_low_rank)
{
    struct matrices m;

    start(&m);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++)
            m.g[i * M + j] = (float)(i - 5) * (float)(j + 1) * 0.1f + (float)(i * i) * 0.01f;
    step(&m);
    for (int c = 0; c < R; c++)
        for (int e = 0; e < R; e++) {
            double sum = 0;

            for (int i = 0; i < N; i++)
                sum += (double)m.basis[i * R + c] * (double)m.basis[i * R + e];
            cr_assert(fabs(sum - (c == e)) < 1e-5 || (c == e && sum == 0), "%d %d: %g", c, e, sum);
        }
    cr_assert_leq(norm(m.residual_out, N * M), 1e-5 * norm(m.g, N * M));
}

Test(low_rank, a_gradient_of_zero_does_not_stop_it_for_good)
{
    struct matrices m;
    float g[N * M];

    start(&m);
    memcpy(g, m.g, sizeof(g));
    memset(m.g, 0, sizeof(m.g));
    step(&m);
    cr_assert_eq(norm(m.out, N * M), 0);
    cr_assert_eq(norm(m.right, M * R), 0);
    memcpy(m.g, g, sizeof(g));
    step(&m);
    cr_assert_gt(norm(m.out, N * M), 0.2 * norm(m.g, N * M));
}

Test(low_rank, what_is_not_finite_shows)
{
    const float bad[] = {INFINITY, NAN};

    for (int b = 0; b < 2; b++) {
        struct matrices m;

        start(&m);
        m.g[7] = bad[b];
        step(&m);
        cr_assert(!isfinite(norm(m.out, N * M)));
    }
}
