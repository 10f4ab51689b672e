/* What this machine can do, to hold a step against: the best square f32 product of oneDNN and the
 * bandwidth of a triad, with as many threads as the argument says. Prints one JSON line. */
#include <dnnl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TRIAD_COUNT (INT64_C(1) << 25) /* elements of an array: 128 MiB, beyond any cache */
#define ALIGN       64

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Array of n floats, touched by the threads that will use it; NULL without memory. */
static float *array(int64_t n)
{
    float *p = aligned_alloc(ALIGN, (size_t)n * sizeof(*p));

    if (p == NULL)
        return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        p[i] = 1.0f + (float)(i % 7);
    return p;
}

/* GFLOP/s of the best of `tries` products of n x n; 0 when it fails. */
static double product(int64_t n, int tries)
{
    float *a = array(n * n), *b = array(n * n), *c = array(n * n);
    double best = 0.0;

    for (int i = 0; i < tries && a != NULL && b != NULL && c != NULL; i++) {
        double begin = now_s(), rate;

        if (dnnl_sgemm('N', 'N', n, n, n, 1.0f, a, n, b, n, 0.0f, c, n) != dnnl_success)
            break;
        rate = 2e-9 * (double)n * (double)n * (double)n / (now_s() - begin);
        best = rate > best ? rate : best;
    }
    free(a);
    free(b);
    free(c);
    return best;
}

/* GB/s of a = b + s c, counted as two reads and one write. */
static double triad(int tries)
{
    float *a = array(TRIAD_COUNT), *b = array(TRIAD_COUNT), *c = array(TRIAD_COUNT);
    double best = 0.0;

    for (int t = 0; t < tries && a != NULL && b != NULL && c != NULL; t++) {
        double begin = now_s(), rate;

#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < TRIAD_COUNT; i++)
            a[i] = b[i] + 3.0f * c[i];
        rate = 3e-9 * (double)TRIAD_COUNT * sizeof(float) / (now_s() - begin);
        best = rate > best ? rate : best;
    }
    free(a);
    free(b);
    free(c);
    return best;
}

int main(int argc, char **argv)
{
    static const int64_t sizes[] = {1024, 2048, 3072};
    long threads = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    const dnnl_version_t *v = dnnl_version();
    int64_t at = 0;
    double best = 0.0;

    if (threads < 1 || threads > 4096) {
        fprintf(stderr, "usage: limits [threads]\n");
        return 2;
    }
    omp_set_num_threads((int)threads);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double rate = product(sizes[i], 6);

        at = rate > best ? sizes[i] : at;
        best = rate > best ? rate : best;
    }
    printf("{\"threads\": %ld, \"sgemm_gflops\": %.1f, \"sgemm_size\": %lld, \"triad_gbs\": %.1f, "
           "\"onednn\": \"%d.%d.%d\"}\n",
           threads, best, (long long)at, triad(5), v->major, v->minor, v->patch);
    return best > 0.0 ? 0 : 1;
}
