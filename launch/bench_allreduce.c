/* trireme bench allreduce: the same sum by every way that these ranks have, checked while timed.
 *
 * A repetition fills the buffer, meets, and times the call on the thread that makes it; its time is
 * that of the slowest rank. Values are small integers, so that every order of additions gives the
 * same bits, 16-bit types included (they sum in f32 and round once). */
#include "launch/bench.h"
#include "launch/bench_ways.h"

#include "collectives/reduce.h"
#include "runtime/core/counter.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZES = 40,
    MAX_REPEATS = 100,
    PERIOD = 3,  /* values repeat after so many elements */
    PASSES = 200 /* of the hand-over between threads */
};
static const int64_t MEASURE_NS = 200000000; /* of each line, checks not counted */

struct bench {
    struct tri_env env;
    struct tri_comm *control; /* borrowed */
    struct tri_bench_ways ways;
    size_t size[MAX_SIZES];
    int nsizes;
    enum tri_dtype dtype[3];
    int ndtypes;
    struct tri_text json;
    const char *link; /* as stated */
    int lines;
};

struct result {
    double best_s, median_s;
    int64_t wrong;
};

static tri_status parse_size(const char *text, size_t *out, const char **end)
{
    char *behind;
    double n = strtod(text, &behind);

    if (*behind == 'K' || *behind == 'k')
        n *= 1024;
    else if (*behind == 'M' || *behind == 'm')
        n *= 1024 * 1024;
    else if (*behind == 'G' || *behind == 'g')
        n *= 1024 * 1024 * 1024;
    *end = behind + (strchr("KkMmGg", *behind) != NULL && *behind != '\0');
    if (behind == text || !(n >= 8 && n <= 4e9))
        return tri_fail(TRI_ERR_USAGE, "--sizes: '%s' does not begin with a size of 8 to 4G bytes",
                        text);
    *out = (size_t)n & ~(size_t)7;
    return TRI_OK;
}

/* "4K..64M" (each four times the one before) or "4K,1M,3M". */
static tri_status parse_sizes(struct bench *b, const char *text)
{
    const char *end;
    size_t last;

    TRI_TRY(parse_size(text, &b->size[0], &end));
    b->nsizes = 1;
    if (strncmp(end, "..", 2) == 0) {
        TRI_TRY(parse_size(end + 2, &last, &end));
        while (b->nsizes < MAX_SIZES && 4 * b->size[b->nsizes - 1] <= last) {
            b->size[b->nsizes] = 4 * b->size[b->nsizes - 1];
            b->nsizes++;
        }
    }
    while (*end == ',' && b->nsizes < MAX_SIZES)
        TRI_TRY(parse_size(end + 1, &b->size[b->nsizes++], &end));
    if (*end != '\0')
        return tri_fail(TRI_ERR_USAGE, "--sizes: '%s' is no list of sizes (4K..64M or 4K,1M)",
                        text);
    return TRI_OK;
}

static tri_status parse_dtypes(struct bench *b, const char *text)
{
    static const enum tri_dtype known[] = {TRI_F32, TRI_BF16, TRI_F16};

    for (size_t i = 0; i < 3; i++)
        for (const char *at = text; at != NULL; at = strchr(at, ',')) {
            const char *name = tri_dtype_name(known[i]);

            at += *at == ',';
            if (strncmp(at, name, strlen(name)) == 0 && strchr(",", at[strlen(name)]) != NULL)
                b->dtype[b->ndtypes++] = known[i];
            if (b->ndtypes == 3)
                return TRI_OK;
        }
    if (b->ndtypes == 0)
        return tri_fail(TRI_ERR_USAGE, "--dtypes: '%s' names none of f32, bf16, f16", text);
    return TRI_OK;
}

/* The PERIOD values of rank `rank`, or their sums over `size` ranks, as elements of dtype. */
static void make_values(int rank, int size, bool summed, enum tri_dtype dtype,
                        unsigned char out[PERIOD * 8])
{
    float wide[PERIOD];

    for (int i = 0; i < PERIOD; i++)
        wide[i] = (float)(summed ? size * i + size / 2 : rank % 2 + i);
    if (dtype == TRI_F32)
        memcpy(out, wide, sizeof(wide));
    else
        tri_reduce_narrow(out, wide, PERIOD, dtype);
}

static void fill(unsigned char *buf, int64_t count, size_t elem, const unsigned char *value)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(buf + (size_t)i * elem, value + (size_t)(i % PERIOD) * elem, elem);
}

static int64_t count_wrong(const unsigned char *buf, int64_t count, size_t elem,
                           const unsigned char *value)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < count; i++)
        wrong +=
            memcmp(buf + (size_t)i * elem, value + (size_t)(i % PERIOD) * elem, elem) != 0 ? 1 : 0;
    return wrong;
}

/* Two turns to warm up, then until enough time or turns have passed; all ranks go by the time of
 * the slowest. */
static tri_status measure(struct bench *b, const struct tri_bench_way *w, int64_t count,
                          enum tri_dtype dtype, struct result *out)
{
    size_t elem = tri_dtype_bytes(dtype);
    unsigned char before[PERIOD * 8], after[PERIOD * 8];
    double times[MAX_REPEATS], total = 0;
    int n = 0;

    make_values(b->env.rank, b->env.size, false, dtype, before);
    make_values(0, b->env.size, true, dtype, after);
    out->wrong = 0;
    for (int turn = -2; n < MAX_REPEATS && (n < 3 || total * 1e9 < (double)MEASURE_NS); turn++) {
        int64_t begin, end;
        double t;

        fill(w->buf, count, elem, before);
        TRI_TRY(tri_comm_barrier(b->control));
        begin = tri_now_ns();
        TRI_TRY(w->sum(&b->ways, w, count, dtype));
        end = tri_now_ns();
        if (w->takes_turns)
            TRI_TRY(tri_comm_allreduce(b->control, &begin, 1, TRI_I64, TRI_REDUCE_MIN, false));
        t = (double)(end - begin) * 1e-9;
        /* All meet before any checks: on a shared core a check would keep late ranks from the
         * end of their call. */
        TRI_TRY(tri_comm_allreduce(b->control, &t, 1, TRI_F64, TRI_REDUCE_MAX, false));
        if (w->summed)
            out->wrong += count_wrong(w->buf, count, elem, after);
        if (turn < 0)
            continue;
        times[n++] = t;
        total += t;
    }
    tri_bench_sort(times, n, &out->best_s, &out->median_s);
    return tri_comm_allreduce(b->control, &out->wrong, 1, TRI_I64, TRI_REDUCE_SUM, false);
}

/* Prints what all ways took for one size; the last one is the limit. */
static void print_lines(struct bench *b, size_t bytes, enum tri_dtype dtype, const struct result *r)
{
    const struct tri_bench_ways *ways = &b->ways;
    double limit_s = r[ways->count - 1].best_s, mpi_s = NAN;
    int64_t count = (int64_t)(bytes / tri_dtype_bytes(dtype));

    for (int k = 0; k < ways->count; k++)
        mpi_s = ways->way[k].comm == ways->library ? r[k].best_s : mpi_s;
    for (int k = 0; k < ways->count && b->env.rank == 0; k++) {
        const char *name = ways->way[k].name;
        double algbw = (double)bytes / r[k].best_s * 1e-9;
        double busbw = algbw * 2 * (b->env.size - 1) / b->env.size;

        if (isnan(r[k].best_s))
            continue;
        printf("%11zu %10lld  %-5s %-13s %11.1f %11.1f %8.2f %8.2f %6lld %7.2f %6.1f\n", bytes,
               (long long)count, tri_dtype_name(dtype), name, r[k].best_s * 1e6,
               r[k].median_s * 1e6, algbw, busbw, (long long)r[k].wrong, mpi_s / r[k].best_s,
               100 * limit_s / r[k].best_s);
        tri_text_printf(&b->json,
                        "%s\n  {\"size\": %zu, \"count\": %lld, \"dtype\": \"%s\", \"algorithm\": "
                        "\"%s\", \"time_us\": %.3f, \"median_us\": %.3f, \"algbw\": %.4f, "
                        "\"busbw\": %.4f, \"wrong\": %lld, \"mpi_ratio\": ",
                        b->lines++ > 0 ? "," : "", bytes, (long long)count, tri_dtype_name(dtype),
                        name, r[k].best_s * 1e6, r[k].median_s * 1e6, algbw, busbw,
                        (long long)r[k].wrong);
        tri_text_json_double(&b->json, mpi_s / r[k].best_s);
        tri_text_printf(&b->json, ", \"of_limit\": %.4f}", limit_s / r[k].best_s);
    }
    (void)fflush(stdout);
}

struct partner {
    struct tri_counter there, back;
};

static void *answer(void *arg)
{
    struct partner *p = arg;

    for (uint32_t i = 1; i <= PASSES; i++) {
        if (tri_counter_wait(&p->there, i, -1) != TRI_OK)
            return NULL;
        tri_counter_set(&p->back, i);
    }
    return NULL;
}

/* Half of a round trip between two threads over the executor's counters; the other thread may have
 * fallen asleep. */
static tri_status measure_handover(double *best_s, double *median_s)
{
    struct partner p = {0};
    double times[PASSES];
    pthread_t thread;

    if (pthread_create(&thread, NULL, answer, &p) != 0)
        return tri_fail(TRI_ERR_NOMEM, "bench: cannot start a thread");
    for (uint32_t i = 1; i <= PASSES; i++) {
        int64_t begin = tri_now_ns();

        tri_counter_set(&p.there, i);
        TRI_TRY(tri_counter_wait(&p.back, i, -1));
        times[i - 1] = (double)(tri_now_ns() - begin) * 0.5e-9;
    }
    (void)pthread_join(thread, NULL);
    tri_bench_sort(times, PASSES, best_s, median_s);
    return TRI_OK;
}

static tri_status measure_all(struct bench *b)
{
    struct result r[TRI_BENCH_MAX_WAYS];

    if (b->env.rank == 0)
        printf("%11s %10s  %-5s %-13s %11s %11s %8s %8s %6s %7s %6s\n", "size", "count", "dtype",
               "algorithm", "time us", "median us", "algbw", "busbw", "wrong", "MPI/it", "limit%");
    for (int d = 0; d < b->ndtypes; d++)
        for (int i = 0; i < b->nsizes; i++) {
            int64_t count = (int64_t)(b->size[i] / tri_dtype_bytes(b->dtype[d]));

            for (int k = 0; k < b->ways.count; k++) {
                const struct tri_bench_way *w = &b->ways.way[k];

                r[k].best_s = NAN;
                if (w->comm != b->ways.library || b->dtype[d] == TRI_F32) /* it has no 16 bits */
                    TRI_TRY(measure(b, w, count, b->dtype[d], &r[k]));
            }
            print_lines(b, b->size[i], b->dtype[d], r);
        }
    return TRI_OK;
}

static tri_status run_opened(struct bench *b, const char *path, const char *nodes,
                             const char *names)
{
    double best, median;

    size_t most = 0;

    b->control = b->env.world->control;
    for (int i = 0; i < b->nsizes; i++)
        most = b->size[i] > most ? b->size[i] : most;
    TRI_TRY(tri_bench_ways_open(&b->ways, &b->env, nodes, names, most));
    tri_bench_begin(&b->json, "allreduce",
                    &(struct tri_bench_setting){&b->ways.topology, 1, b->link});
    tri_text_printf(&b->json, ", \"lines\": [");
    TRI_TRY(measure_all(b));
    TRI_TRY(measure_handover(&best, &median));
    if (b->env.rank == 0)
        printf("hand-over between threads (not in the times): %.1f us, median %.1f us\n",
               best * 1e6, median * 1e6);
    tri_text_printf(&b->json, "],\n \"handover_us\": %.3f, \"handover_median_us\": %.3f}\n",
                    best * 1e6, median * 1e6);
    return tri_bench_write(b->control, path, &b->json);
}

static void close_all(struct bench *b)
{
    tri_bench_ways_close(&b->ways);
    tri_text_finish(&b->json);
    tri_env_finish(&b->env);
}

static int run_allreduce(const struct tri_command *self, int argc, char **argv)
{
    const char *sizes = "4K..64M", *dtypes = "f32", *json = NULL, *nodes = NULL, *names = NULL;
    struct bench b = {0};
    const struct tri_flag flags[] = {{"sizes", &sizes}, {"dtypes", &dtypes},    {"json", &json},
                                     {"nodes", &nodes}, {"algorithms", &names}, {"link", &b.link}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 6, 0, &a);
    bool help = st == TRI_OK && a.help;

    if (st == TRI_OK && a.npairs > 0)
        st = tri_fail(TRI_ERR_USAGE, "bench allreduce: '%s' is no option", a.pair[0]);
    tri_free(a.pair);
    if (help) {
        printf("%s", self->help);
        return TRI_EXIT_DONE;
    }
    if (st == TRI_OK)
        st = parse_sizes(&b, sizes);
    if (st == TRI_OK)
        st = parse_dtypes(&b, dtypes);
    if (st != TRI_OK)
        return tri_command_refuse_job(st);
    st = tri_env_init(&b.env);
    if (st == TRI_OK)
        st = run_opened(&b, json, nodes, names);
    if (st != TRI_OK) {
        tri_command_error(b.control, st != TRI_ERR_USAGE && (b.control != NULL || b.env.rank == 0));
        if (st != TRI_ERR_USAGE)
            tri_env_abort(TRI_EXIT_FAILED);
    }
    close_all(&b);
    return st == TRI_OK ? TRI_EXIT_DONE : TRI_EXIT_REFUSED;
}

const struct tri_command tri_bench_allreduce = {
    .name = "allreduce",
    .help =
        "usage: mpirun -n N --bind-to none trireme bench allreduce [--sizes 4K..64M] [--dtypes "
        "f32,bf16,f16] [--json FILE]\n"
        "           [--algorithms ring,two-level] [--nodes 2,2] [--link TEXT]\n\n"
        "Times the sum of a buffer over all ranks by each way that they have, and checks every "
        "result:\n"
        "  shm window     the buffer lies in a shared-memory window (ranks of one node)\n"
        "  shm staged     any buffer, through shared staging memory (ranks of one node)\n"
        "  two-level      inside nodes, between them, inside again, bucket by bucket (several "
        "nodes)\n"
        "  ring, halving  our rounds over MPI messages, all ranks alike\n"
        "  MPI_Allreduce  the library, in place\n"
        "  plain sum      the limit of shm window: each rank sums its slice of the same windows, "
        "and waits for nobody\n"
        "  plain link     the limit of two-level: the bytes that must cross the links, without "
        "a sum\n"
        "size is in bytes; sizes 4K..64M grow by factors of four, 4K,1M is a list. time is the "
        "best repetition of the\nslowest rank, on the thread that makes the call; algbw = size / "
        "time and busbw = algbw * 2 (N-1)/N in GB/s;\nwrong counts wrong elements of all ranks "
        "and repetitions; MPI/it is the time of MPI_Allreduce / this time,\nlimit% that of the "
        "limit, which --algorithms leaves in. --nodes pretends nodes of so many ranks; --link "
        "states what joins the nodes, for "
        "the\nenvironment in the result.\n",
    .run = run_allreduce,
};
