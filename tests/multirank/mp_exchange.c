/* The exchange of a foreign model's gradients, through its public interface. */
#include "mp_worker.h"

#include "optim/exchange.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const char *const overlaps[] = {"gradient.overlap=true", "gradient.overlap=false"};

/* Two micro-batches on two ranks: 1, 4 and 3, 8. The program adds its own up; the mean over all
 * four is 4. */
static int run_accumulated(int rank, int size)
{
    static const float micro[2][2] = {{1, 4}, {3, 8}};

    (void)size;
    for (int o = 0; o < 2; o++) {
        struct tri_exchange *x;
        float g = 0;
        int id;

        MP_OK(tri_exchange_create(MPI_COMM_WORLD, overlaps[o], &x));
        MP_OK(tri_exchange_register(x, "w", &g, 1, TRI_F32, &id));
        MP_OK(tri_exchange_commit(x));
        for (int step = 0; step < 3; step++) {
            g = 0;
            for (int k = 0; k < 2; k++)
                g += micro[rank][k] / 2;
            MP_OK(tri_exchange_ready(x, id));
            MP_OK(tri_exchange_wait(x));
            MP_CHECK(g == 4.0f, "step %d: %g", step, (double)g);
        }
        tri_exchange_destroy(x);
    }
    return 0;
}

/* 16-bit gradients whose sum is out of range, or whose eighth is. */
static int run_half_range(int rank, int size)
{
    struct tri_exchange *x;
    uint16_t big[5];
    uint16_t small[5];
    uint16_t brain[3];
    int id[3];

    (void)size;
    MP_OK(tri_exchange_create(MPI_COMM_WORLD, NULL, &x));
    MP_OK(tri_exchange_register(x, "big", big, 5, TRI_F16, &id[0]));
    MP_OK(tri_exchange_register(x, "small", small, 5, TRI_F16, &id[1]));
    MP_OK(tri_exchange_register(x, "brain", brain, 3, TRI_BF16, &id[2]));
    MP_OK(tri_exchange_commit(x));
    for (int i = 0; i < 5; i++) {
        big[i] = tri_f16_from_f32(12000.0f);
        small[i] = tri_f16_from_f32(3 * 0x1p-24f);
    }
    for (int i = 0; i < 3; i++)
        brain[i] = tri_bf16_from_f32((float)(rank + 1));
    for (int i = 0; i < 3; i++)
        MP_OK(tri_exchange_ready(x, id[i]));
    MP_OK(tri_exchange_wait(x));
    for (int i = 0; i < 5; i++) {
        MP_CHECK(tri_f16_to_f32(big[i]) == 12000.0f, "%g", (double)tri_f16_to_f32(big[i]));
        MP_CHECK(tri_f16_to_f32(small[i]) == 3 * 0x1p-24f, "%g", (double)tri_f16_to_f32(small[i]));
    }
    MP_CHECK(tri_bf16_to_f32(brain[2]) == (float)(size + 1) / 2, "%g",
             (double)tri_bf16_to_f32(brain[2]));
    tri_exchange_destroy(x);
    return 0;
}

/* A model of odd sizes, f32 and bf16 mixed. */
enum { NPARTS = 6, LARGEST = 1000 };
static const int64_t part_count[NPARTS] = {1, 3, 5, 7, 16, LARGEST};

struct odd_model {
    struct tri_exchange *x;
    float f32[NPARTS][LARGEST];
    uint16_t bf16[NPARTS][LARGEST];
    int id[NPARTS];
};

static bool is_wide(int part)
{
    return part % 2 == 0;
}

static int open_odd(struct odd_model *m, const char *cfg, int rank)
{
    char name[16];

    MP_OK(tri_exchange_create(MPI_COMM_WORLD, cfg, &m->x));
    for (int p = 0; p < NPARTS; p++) {
        (void)snprintf(name, sizeof(name), "part.%d", p);
        MP_OK(tri_exchange_register(m->x, name, is_wide(p) ? (void *)m->f32[p] : m->bf16[p],
                                    part_count[p], is_wide(p) ? TRI_F32 : TRI_BF16, &m->id[p]));
    }
    MP_OK(tri_exchange_commit(m->x));
    return 0;
}

static void fill_odd(struct odd_model *m, int step, int rank)
{
    for (int p = 0; p < NPARTS; p++)
        for (int i = 0; i < part_count[p]; i++) {
            float v = 1.0f / (float)(1 + step + 3 * p + 7 * rank + i);

            m->f32[p][i] = v;
            m->bf16[p][i] = tri_bf16_from_f32(v);
        }
}

/* Marks the gradients in an order and at times of this rank's own. */
static int mark_odd(struct odd_model *m, int step, int rank, bool shuffled)
{
    for (int k = 0; k < NPARTS; k++) {
        int p = shuffled ? (k * (rank % 2 == 0 ? 5 : 1) + step + rank) % NPARTS : NPARTS - 1 - k;

        if (shuffled)
            (void)usleep((unsigned)((step * 37 + rank * 91 + k * 53) % 400));
        MP_OK(tri_exchange_ready(m->x, m->id[p]));
    }
    MP_OK(tri_exchange_wait(m->x));
    return 0;
}

static int same_odd(const struct odd_model *a, const struct odd_model *b)
{
    for (int p = 0; p < NPARTS; p++) {
        size_t n = (size_t)part_count[p];

        MP_CHECK(!is_wide(p) || memcmp(a->f32[p], b->f32[p], n * sizeof(float)) == 0, "part %d", p);
        MP_CHECK(is_wide(p) || memcmp(a->bf16[p], b->bf16[p], n * sizeof(uint16_t)) == 0, "part %d",
                 p);
    }
    return 0;
}

/* Buckets of 1 element, around the largest parameter, larger than the model: the same bits. Size 0
 * is refused. */
static int run_bucket_sizes(int rank, int size)
{
    static struct odd_model want;
    static struct odd_model got;
    static const int bytes[] = {
        4, 4 * LARGEST - 1, 4 * LARGEST, 4 * LARGEST + 1, 4 * LARGEST - 4, 1 << 24};
    static const char *const hierarchy[] = {"flat", "two_level"};
    struct tri_exchange *x;
    char cfg[64];

    (void)size;
    MP_CHECK(tri_exchange_create(MPI_COMM_WORLD, "gradient.bucket_bytes=0", &x) == TRI_ERR_USAGE,
             "accepted");
    MP_CHECK(strstr(tri_error_text(), "bucket_bytes") != NULL, "%s", tri_error_text());
    if (open_odd(&want, "gradient.overlap=false", rank) != 0)
        return 1;
    fill_odd(&want, 0, rank);
    if (mark_odd(&want, 0, rank, false) != 0)
        return 1;
    for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
        (void)snprintf(cfg, sizeof(cfg), "gradient.bucket_bytes=%d hierarchy=%s", bytes[k],
                       hierarchy[k % 2]);
        if (open_odd(&got, cfg, rank) != 0)
            return 1;
        fill_odd(&got, 0, rank);
        if (mark_odd(&got, 0, rank, false) != 0 || same_odd(&got, &want) != 0)
            return 1;
        tri_exchange_destroy(got.x);
    }
    tri_exchange_destroy(want.x);
    return 0;
}

/* Random sleeps and orders of readiness, many rounds: the same bits as without. */
static int run_orders(int rank, int size)
{
    static struct odd_model calm;
    static struct odd_model wild;

    (void)size;
    if (open_odd(&calm, "gradient.overlap=false", rank) != 0 ||
        open_odd(&wild, "gradient.bucket_bytes=256", rank) != 0)
        return 1;
    for (int step = 0; step < 50; step++) {
        fill_odd(&calm, step, rank);
        fill_odd(&wild, step, rank);
        if (mark_odd(&wild, step, rank, true) != 0 || mark_odd(&calm, step, rank, false) != 0)
            return 1;
        if (same_odd(&wild, &calm) != 0)
            return 1;
    }
    tri_exchange_destroy(wild.x);
    tri_exchange_destroy(calm.x);
    return 0;
}

/* The last rank leaves out a layer in round 2, and nobody marks it in round 3. */
static int run_missing(int rank, int size)
{
    for (int o = 0; o < 2; o++) {
        struct tri_exchange *x;
        float g[2];
        int id[2];

        MP_OK(tri_exchange_create(MPI_COMM_WORLD, overlaps[o], &x));
        MP_OK(tri_exchange_register(x, "used", &g[0], 1, TRI_F32, &id[0]));
        MP_OK(tri_exchange_register(x, "bypassed", &g[1], 1, TRI_F32, &id[1]));
        MP_OK(tri_exchange_commit(x));
        for (int step = 1; step <= 4; step++) {
            int holders = step == 3 ? 0 : step == 2 ? size - 1 : size;

            g[0] = 8;
            g[1] = 8;
            MP_OK(tri_exchange_ready(x, id[0]));
            if (rank < holders)
                MP_OK(tri_exchange_ready(x, id[1]));
            MP_OK(tri_exchange_wait(x));
            MP_CHECK(g[0] == 8.0f, "step %d: %g", step, (double)g[0]);
            MP_CHECK(g[1] == 8.0f * (float)holders / (float)size, "step %d: %g", step,
                     (double)g[1]);
        }
        tri_exchange_destroy(x);
    }
    return 0;
}

/* Rank 1 registers another name; count; type; number of parameters; bucket size. */
static int run_mismatch(int rank, int size)
{
    static const char *const words[] = {"'other'", "(5 elements of f32)", "(4 elements of f16)",
                                        "the end of the list"};
    static float g[8];

    (void)size;
    for (int k = 0; k < 4; k++) {
        bool odd = rank == 1;
        struct tri_exchange *x;
        int id;

        MP_OK(tri_exchange_create(MPI_COMM_WORLD, NULL, &x));
        MP_OK(tri_exchange_register(x, "first", &g[0], 1, TRI_F32, &id));
        if (!odd || k < 3)
            MP_OK(tri_exchange_register(x, odd && k == 0 ? "other" : "second", &g[1],
                                        odd && k == 1 ? 5 : 4, odd && k == 2 ? TRI_F16 : TRI_F32,
                                        &id));
        MP_CHECK(tri_exchange_commit(x) == TRI_ERR_USAGE, "way %d is accepted", k);
        MP_CHECK(strstr(tri_error_text(), "rank 1 on") == tri_error_text(), "%s", tri_error_text());
        MP_CHECK(strstr(tri_error_text(), "parameter 1 is ") != NULL, "%s", tri_error_text());
        MP_CHECK(strstr(tri_error_text(), words[k]) != NULL, "%s", tri_error_text());
        tri_exchange_destroy(x);
    }
    struct tri_exchange *x;
    MP_CHECK(tri_exchange_create(MPI_COMM_WORLD, rank == 1 ? "bucket_bytes=64" : "bucket_bytes=32",
                                 &x) == TRI_ERR_USAGE,
             "accepted");
    MP_CHECK(strstr(tri_error_text(), "bucket size of rank 1") != NULL, "%s", tri_error_text());
    return 0;
}

/* Wrong calls say so and change nothing. */
static int run_usage(int rank, int size)
{
    static const char *const bad[] = {"gradient.bucket_mbs=3", "gradient.hierarchy=three_level",
                                      "gradient.bucket_mb=x", "gradient.clip_norm=1"};
    struct tri_exchange *x;
    float g[2] = {1, 2};
    int id;

    (void)size;
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        MP_CHECK(tri_exchange_create(MPI_COMM_WORLD, bad[k], &x) == TRI_ERR_USAGE,
                 "'%s' is accepted", bad[k]);
        MP_CHECK(strlen(tri_error_text()) > 20, "%s", tri_error_text());
    }
    MP_OK(tri_exchange_create(MPI_COMM_WORLD, "  gradient.bucket_mb=1  overlap=true ", &x));
    MP_CHECK(tri_exchange_register(x, "", g, 1, TRI_F32, &id) == TRI_ERR_USAGE, "no name");
    MP_CHECK(tri_exchange_register(x, "n", NULL, 1, TRI_F32, &id) == TRI_ERR_USAGE, "no address");
    MP_CHECK(tri_exchange_register(x, "n", g, -1, TRI_F32, &id) == TRI_ERR_USAGE, "negative");
    MP_CHECK(tri_exchange_register(x, "n", g, 1, TRI_I64, &id) == TRI_ERR_USAGE, "integers");
    MP_OK(tri_exchange_register(x, "n", g, 1, TRI_F32, &id));
    MP_CHECK(tri_exchange_register(x, "n", g, 1, TRI_F32, &id) == TRI_ERR_USAGE, "twice");
    MP_CHECK(tri_exchange_ready(x, id) == TRI_ERR_USAGE, "before commit");
    MP_CHECK(tri_exchange_wait(x) == TRI_ERR_USAGE, "before commit");
    MP_OK(tri_exchange_commit(x));
    MP_CHECK(tri_exchange_commit(x) == TRI_ERR_USAGE, "twice");
    MP_CHECK(tri_exchange_register(x, "late", g, 1, TRI_F32, &id) == TRI_ERR_USAGE, "late");
    MP_CHECK(tri_exchange_ready(x, 1) == TRI_ERR_USAGE, "no such gradient");
    MP_OK(tri_exchange_ready(x, 0));
    MP_CHECK(tri_exchange_ready(x, 0) == TRI_ERR_USAGE, "twice");
    MP_OK(tri_exchange_wait(x));
    MP_CHECK(g[0] == 1.0f, "%g", (double)g[0]);
    tri_exchange_destroy(x);
    return 0;
}

/* Rounds beside collectives of the program on its own communicator: known sums. */
static int run_beside(int rank, int size)
{
    struct tri_exchange *x;
    float g;
    int id;

    MP_OK(tri_exchange_create(MPI_COMM_WORLD, NULL, &x));
    MP_OK(tri_exchange_register(x, "w", &g, 1, TRI_F32, &id));
    MP_OK(tri_exchange_commit(x));
    for (int step = 0; step < 1000; step++) {
        int mine = rank + step;
        int sum = 0;

        g = (float)(rank + step);
        MP_OK(tri_exchange_ready(x, id));
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MP_OK(tri_exchange_wait(x));
        MP_CHECK(sum == size * step + size * (size - 1) / 2, "step %d: %d", step, sum);
        MP_CHECK(g == (float)sum / (float)size, "step %d: %g", step, (double)g);
    }
    tri_exchange_destroy(x);
    return 0;
}

const struct mp_case mp_exchange_cases[] = {
    {"exchange_accumulated", run_accumulated},
    {"exchange_half_range", run_half_range},
    {"exchange_bucket_sizes", run_bucket_sizes},
    {"exchange_orders", run_orders},
    {"exchange_missing", run_missing},
    {"exchange_mismatch", run_mismatch},
    {"exchange_usage", run_usage},
    {"exchange_beside", run_beside},
    {NULL, NULL},
};
