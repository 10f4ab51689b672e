/* Compression in the exchange of a foreign model, through its public interface. */
#include "mp_worker.h"

#include "optim/exchange.h"
#include "runtime/core/log.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define FORCED "compress.force=true compress.level=all "

/* The largest of (3, 2, 1) by error feedback, by hand: 3 at 0, 4 at 1, 6 at 0; then, from the
 * residual (0, 2, 3) and so (3, 4, 4), 4 at 1. */
static const float gradient[3] = {3, 2, 1};
static const float delivered[4][3] = {{3, 0, 0}, {0, 4, 0}, {6, 0, 0}, {0, 4, 0}};

static int run_by_hand(int rank, int size)
{
    static const char *const cfg[] = {
        "compress.name=topk compress.ratio=0.3 " FORCED "overlap=true",
        "compress.name=topk compress.ratio=0.3 " FORCED "overlap=false bucket_bytes=4",
        "compress.name=topk compress.ratio=0.3 " FORCED "hierarchy=two_level"};

    (void)size;
    for (size_t c = 0; c < sizeof(cfg) / sizeof(cfg[0]); c++) {
        struct tri_exchange *x;
        uint16_t half[3];
        float full[3];
        int id[2];

        MP_OK(tri_exchange_create(MPI_COMM_WORLD, cfg[c], &x));
        MP_OK(tri_exchange_register(x, "full", full, 3, TRI_F32, &id[0]));
        MP_OK(tri_exchange_register(x, "half", half, 3, TRI_F16, &id[1]));
        MP_OK(tri_exchange_commit(x));
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 3; i++) {
                full[i] = gradient[i];
                half[i] = tri_f16_from_f32(gradient[i]);
            }
            MP_OK(tri_exchange_ready(x, id[1]));
            MP_OK(tri_exchange_ready(x, id[0]));
            MP_OK(tri_exchange_wait(x));
            for (int i = 0; i < 3; i++) {
                MP_CHECK(full[i] == delivered[round][i], "round %d: %d: %g", round, i,
                         (double)full[i]);
                MP_CHECK(tri_f16_to_f32(half[i]) == delivered[round][i], "round %d: %d", round, i);
            }
        }
        tri_exchange_destroy(x);
    }
    return 0;
}

/* Round 2 holds a value that is not finite, in another bucket, on the last rank: all ranks see one,
 * and round 3 is what round 2 would have been. */
static int run_skipped(int rank, int size)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};

    for (size_t c = 0; c < sizeof(bad) / sizeof(bad[0]); c++) {
        struct tri_exchange *x;
        float g[2][3];
        int id[2];

        MP_OK(tri_exchange_create(
            MPI_COMM_WORLD, "compress.name=topk compress.ratio=0.3 bucket_bytes=4 " FORCED, &x));
        MP_OK(tri_exchange_register(x, "a", g[0], 3, TRI_F32, &id[0]));
        MP_OK(tri_exchange_register(x, "b", g[1], 3, TRI_F32, &id[1]));
        MP_OK(tri_exchange_commit(x));
        for (int round = 0; round < 5; round++) {
            const float *want = delivered[round < 1 ? round : round - 1];

            memcpy(g[0], gradient, sizeof(gradient));
            memcpy(g[1], gradient, sizeof(gradient));
            if (round == 1 && rank == size - 1)
                g[0][2] = bad[c];
            MP_OK(tri_exchange_ready(x, id[0]));
            MP_OK(tri_exchange_ready(x, id[1]));
            MP_OK(tri_exchange_wait(x));
            if (round == 1)
                MP_CHECK(!isfinite(g[0][0] + g[0][1] + g[0][2]), "%g", (double)g[0][0]);
            for (int i = 0; round != 1 && i < 3; i++)
                MP_CHECK(g[0][i] == want[i] && g[1][i] == want[i], "round %d: %d: %g, %g", round, i,
                         (double)g[0][i], (double)g[1][i]);
        }
        tri_exchange_destroy(x);
    }
    return 0;
}

enum { COUNT = 700, DRAINING = 60, ROUNDS = 5 + DRAINING };

struct model {
    struct tri_exchange *x;
    float g[2][COUNT];
    int id[2];
};

static int open_model(struct model *m, const char *name, const char *cfg, int rank)
{
    char text[192];

    (void)snprintf(text, sizeof(text), "compress.name=%s compress.force=true %s", name, cfg);
    MP_OK(tri_exchange_create(MPI_COMM_WORLD, text, &m->x));
    MP_OK(tri_exchange_register(m->x, "first", m->g[0], COUNT, TRI_F32, &m->id[0]));
    MP_OK(tri_exchange_register(m->x, "second", m->g[1], COUNT - 1, TRI_F32, &m->id[1]));
    MP_OK(tri_exchange_commit(m->x));
    return 0;
}

/* 5 rounds of gradients, then rounds without any, not even marked: what is late arrives. */
static int exchange(struct model *m, int round, int rank)
{
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < COUNT; i++)
            m->g[p][i] = sinf((float)(i + 3 * round + 11 * rank + 17 * p));
    for (int p = 0; p < 2 && round < ROUNDS - DRAINING; p++)
        MP_OK(tri_exchange_ready(m->x, m->id[p]));
    MP_OK(tri_exchange_wait(m->x));
    return 0;
}

/* The furthest that the sum of what arrived is from that of the gradients' means. */
static double furthest(const double *sum, int size)
{
    double worst = 0;

    for (int i = 0; i < COUNT; i++) {
        double want = 0;

        for (int k = 0; k < 5 * size; k++)
            want += (double)sinf((float)(i + 3 * (k % 5) + 11 * (k / 5))) / size;
        worst = fmax(worst, fabs(sum[i] - want));
    }
    return worst;
}

/* Compressors lose nothing. With `same`, the sizes of buckets and overlap do not change a bit. */
static int check_sums(const char *level, bool same, int rank, int size)
{
    static const char *const name[] = {"fp16", "bf16", "int8", "topk", "randk", "onebit"};
    static struct model a, b;

    for (size_t c = 0; c < sizeof(name) / sizeof(name[0]); c++) {
        const char *ratio = name[c][strlen(name[c]) - 1] == 'k' ? "compress.ratio=0.3" : "";
        char one[96], many[128];
        double sum[COUNT] = {0}, worst;

        (void)snprintf(one, sizeof(one), "compress.level=%s %s", level, ratio);
        (void)snprintf(many, sizeof(many), "%s bucket_bytes=64 overlap=false", one);
        if (open_model(&a, name[c], one, rank) != 0 || open_model(&b, name[c], many, rank) != 0)
            return 1;
        for (int round = 0; round < ROUNDS; round++) {
            if (exchange(&a, round, rank) != 0 || exchange(&b, round, rank) != 0)
                return 1;
            for (int i = 0; i < COUNT; i++)
                sum[i] += (double)a.g[0][i];
            for (int p = 0; same && p < 2; p++)
                MP_CHECK(memcmp(a.g[p], b.g[p], (size_t)(COUNT - p) * sizeof(float)) == 0,
                         "%s: round %d", name[c], round);
        }
        tri_exchange_destroy(a.x);
        tri_exchange_destroy(b.x);
        worst = furthest(sum, size);
        /* onebit keeps a residual of the order of its steps; else only roundings of f32 are left */
        MP_CHECK(worst < (strcmp(name[c], "onebit") == 0 ? 0.5 : 1e-5), "%s: %g", name[c], worst);
    }
    return 0;
}

static int run_sums(int rank, int size)
{
    return check_sums("all", true, rank, size);
}

/* Between nodes a rank compresses its slice of a bucket; on one node nothing. */
static int run_slices(int rank, int size)
{
    return check_sums("inter", false, rank, size);
}

/* On one node, where compression is between nodes, and where it does not pay: the plain bits. */
static int run_left_out(int rank, int size)
{
    static const char *const cfg[] = {"", "compress.name=topk",
                                      "compress.name=int8 compress.level=all"};
    struct tri_exchange *x;
    float g[3][100];
    int id;

    (void)size;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 100; i++)
            g[c][i] = sinf((float)(i + rank));
        MP_OK(tri_exchange_create(MPI_COMM_WORLD, cfg[c], &x));
        MP_OK(tri_exchange_register(x, "w", g[c], 100, TRI_F32, &id));
        MP_OK(tri_exchange_commit(x));
        MP_OK(tri_exchange_ready(x, id));
        MP_OK(tri_exchange_wait(x));
        MP_CHECK(memcmp(g[c], g[0], sizeof(g[0])) == 0, "'%s' changes bits", cfg[c]);
        tri_exchange_destroy(x);
    }
    return 0;
}

/* Settings that would mean nothing are refused with the key's name; differences between ranks. */
static int run_refused(int rank, int size)
{
    static const char *const bad[][2] = {
        {"compress.ratio=0.1", "compress.ratio"},
        {"compress.level=all", "compress.level"},
        {"compress.name=none compress.force=true", "compress.force"},
        {"compress.name=int8 compress.ratio=0.1", "topk or randk"},
        {"compress.name=powersgd", "matrices"},
        {"compress.name=int8 compress.rank=2", "matrices"},
        {"compress.name=topk compress.warmup=3", "compress.warmup"},
        {"compress.momentum_correction=true", "compress.momentum_correction"},
        {"compress.name=zip", "compress.name"}};
    struct tri_exchange *x;

    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        MP_CHECK(tri_exchange_create(MPI_COMM_WORLD, bad[k][0], &x) == TRI_ERR_USAGE,
                 "'%s' is accepted", bad[k][0]);
        MP_CHECK(strstr(tri_error_text(), bad[k][1]) != NULL, "%s", tri_error_text());
    }
    if (size == 1)
        return 0;
    MP_CHECK(tri_exchange_create(MPI_COMM_WORLD,
                                 rank == 1 ? "compress.name=int8" : "compress.name=bf16",
                                 &x) == TRI_ERR_USAGE,
             "accepted");
    MP_CHECK(strstr(tri_error_text(), "compression of rank 1") != NULL, "%s", tri_error_text());
    return 0;
}

const struct mp_case mp_compress_cases[] = {
    {"compress_by_hand", run_by_hand},
    {"compress_skipped", run_skipped},
    {"compress_sums", run_sums},
    {"compress_slices", run_slices},
    {"compress_left_out", run_left_out},
    {"compress_refused", run_refused},
    {NULL, NULL},
};
