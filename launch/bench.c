/* See bench.h. */
#include "launch/bench.h"

#include "collectives/machine.h"
#include "runtime/checkpoint/files.h"
#include "runtime/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER "" /* __VERSION__ says it */
#else
#define COMPILER "gcc "
#endif

tri_status tri_bench_limits(struct tri_comm *comm, const struct tri_measured *m,
                            struct tri_bench_limits *out)
{
    struct tri_costs costs = {0};
    double sum[2];

    TRI_TRY(tri_comm_barrier(comm));
    TRI_TRY(tri_comm_agree(comm, tri_device_measure(m, &costs)));
    sum[0] = costs.flops_per_s;
    sum[1] = costs.bytes_per_s;
    TRI_TRY(tri_comm_allreduce(comm, sum, 2, TRI_F64, TRI_REDUCE_SUM, false));
    *out = (struct tri_bench_limits){.flops_per_s = sum[0], .bytes_per_s = sum[1]};
    return TRI_OK;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void tri_bench_sort(double *times, int n, double *best, double *median)
{
    qsort(times, (size_t)n, sizeof(times[0]), compare_times);
    *best = times[0];
    *median = times[n / 2];
}

/* The processor's name as the kernel tells it, or "unknown". */
static void find_cpu(char *out, size_t bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    (void)snprintf(out, bytes, "unknown");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        const char *name = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || name == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, bytes, "%s", name + 2);
        break;
    }
    if (f != NULL)
        (void)fclose(f);
}

/* What the system knows of the link between nodes; false: nothing. */
static bool find_link(char *out, size_t bytes)
{
    struct tri_machine m;

    tri_machine_read(&m);
    if (m.link_mbit > 0)
        (void)snprintf(out, bytes, "%s, %d Mbit/s", m.link, m.link_mbit);
    else
        (void)snprintf(out, bytes, "%s", m.link);
    return m.link[0] != '\0';
}

static void append_text(struct tri_text *t, const char *key, const char *value)
{
    tri_text_printf(t, ", \"%s\": ", key);
    if (value != NULL)
        tri_text_json_string(t, value);
    else
        tri_text_printf(t, "null");
}

void tri_bench_begin(struct tri_text *json, const char *name, const struct tri_bench_setting *s)
{
    const struct tri_topology *t = s->topology;
    const char *link = s->link;
    char cpu[128], mpi[64], products[64], known[64], now[32];
    time_t seconds = time(NULL);
    struct tm utc;

    find_cpu(cpu, sizeof(cpu));
    tri_mpi_library(mpi, sizeof(mpi));
    tri_kernels_cpu_library(products, sizeof(products));
    (void)strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    tri_text_printf(json, "{\"benchmark\": \"%s\", \"environment\": {\"version\": \"%s\"", name,
                    TRI_VERSION);
    append_text(json, "commit", tri_bench_commit);
    append_text(json, "compiler", COMPILER __VERSION__);
    append_text(json, "mpi", mpi);
    append_text(json, "products", products);
    append_text(json, "cpu", cpu);
    tri_text_printf(json, ", \"cores\": %ld", sysconf(_SC_NPROCESSORS_ONLN));
    if (link == NULL && t != NULL && t->nodes > 1 && !t->pretended &&
        find_link(known, sizeof(known)))
        link = known;
    append_text(json, "link", link);
    tri_text_printf(json, ", \"ranks\": %d, \"nodes\": %d, \"pretended\": %s, \"threads\": %d",
                    t != NULL ? t->size : 1, t != NULL ? t->nodes : 1,
                    t != NULL && t->pretended ? "true" : "false", s->threads);
    append_text(json, "time", now);
    tri_text_printf(json, "}");
}

tri_status tri_bench_write(const struct tri_comm *comm, const char *path,
                           const struct tri_text *json)
{
    if (path == NULL || tri_comm_rank(comm) != 0)
        return TRI_OK;
    if (json->failed)
        return tri_fail(TRI_ERR_NOMEM, "bench: the result does not fit into memory");
    return tri_write_file(path, json->data, json->len);
}
