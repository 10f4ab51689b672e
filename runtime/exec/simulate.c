/* Prediction of a step from a cost table, and the measurement of such a table. */
#include "runtime/exec/simulate.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>

enum {
    TRIAD_COUNT = 1 << 23, /* floats in each of three vectors: 96 MiB together, beyond caches */
};
static const int64_t product_sizes[] = {768, 1536}; /* rows and columns of measured products */
static const int64_t MEASURE_NS = 120000000;        /* of each measurement */

static double instr_time(const struct tri_program *p, const struct tri_instr *in,
                         const struct tri_costs *c)
{
    const struct tri_op *op = &p->graph->op[in->op];
    const struct tri_sum_cost *sum;
    double flops, bytes, time;

    tri_plan_cost(p, in, &flops, &bytes);
    if (in->kernel != TRI_NONE)
        return fmax(flops / c->flops_per_s, bytes / c->bytes_per_s);
    sum = &c->level[op->attrs.comm.level];
    if (sum->bytes_per_s <= 0)
        return 0;
    time = sum->latency_s + bytes / sum->bytes_per_s;
    return op->kind == TRI_OP_REDUCE_SCATTER || op->kind == TRI_OP_ALLGATHER ? time / 2 : time;
}

struct tri_sum_cost tri_sum_cost_of_link(int ranks, double latency_s, double bytes_per_s)
{
    if (ranks == 1)
        return (struct tri_sum_cost){0};
    return (struct tri_sum_cost){.latency_s = 2 * log2(ranks) * latency_s,
                                 .bytes_per_s = bytes_per_s * ranks / (2 * (ranks - 1.0))};
}

/* Largest completion time that instruction `in` waits for. */
static double wait_end(const struct tri_instr *in, double *const end[TRI_STREAM_COUNT])
{
    double latest = 0;

    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        if (in->wait[t] != 0)
            latest = fmax(latest, end[t][in->wait[t]]);
    return latest;
}

tri_status tri_program_simulate(const struct tri_program *p, const struct tri_costs *costs,
                                struct tri_simulation *out)
{
    struct tri_simulation sim = {0};
    double *end[TRI_STREAM_COUNT] = {NULL}; /* by number in the stream; [0]: the step's begin */
    double *all = tri_calloc((size_t)p->ninstr + TRI_STREAM_COUNT, sizeof(*all), "simulation");
    double *next = all;

    if (all == NULL)
        return tri_fail(TRI_ERR_NOMEM, "simulate: cannot allocate %d times", p->ninstr);
    for (int t = 0; t < TRI_STREAM_COUNT; t++) {
        end[t] = next;
        next += p->stream_count[t] + 1;
    }
    for (int i = 0; i < p->ninstr; i++) {
        const struct tri_instr *in = &p->instr[i];
        double ready = end[in->stream][in->seq - 1], waited = fmax(wait_end(in, end) - ready, 0);
        double time = instr_time(p, in, costs);

        if (in->stream == TRI_STREAM_COMPUTE)
            sim.exposed_comm_s += waited;
        sim.busy_s[in->stream] += time;
        end[in->stream][in->seq] = ready + waited + time;
    }
    for (int t = 0; t < TRI_STREAM_COUNT; t++)
        sim.step_s = fmax(sim.step_s, end[t][p->stream_count[t]]);
    sim.exposed_comm_s += sim.step_s - end[TRI_STREAM_COMPUTE][p->stream_count[TRI_STREAM_COMPUTE]];
    tri_free(all);
    *out = sim;
    return TRI_OK;
}

/* Best time of one run, in seconds. */
static tri_status time_kernel(const struct tri_kernel *k, const struct tri_kernel_args *a,
                              double *best)
{
    int64_t begin = tri_now_ns(), now = begin;

    *best = INFINITY;
    do {
        int64_t start = tri_now_ns();

        TRI_TRY(k->ops->run(k, a));
        now = tri_now_ns();
        *best = fmin(*best, (double)(now - start) * 1e-9);
    } while (now - begin < MEASURE_NS);
    return TRI_OK;
}

/* Operations a second of a product of `rows` x `rows` matrices; `data` has room for three. */
static tri_status measure_product(const struct tri_kernel_ops *const *table, int nthreads,
                                  int64_t rows, float *data, double *flops_per_s)
{
    const size_t n = (size_t)(rows * rows);
    struct tri_arg in[4] = {{.dtype = TRI_F32, .shape = {.ndim = 2, .dim = {rows, rows}}}};
    struct tri_kernel_desc d = {
        .kind = TRI_OP_MATMUL, .nin = 4, .nout = 1, .in = in, .out = in, .nthreads = nthreads};
    void *inputs[4] = {data, data + n, NULL, NULL}, *outputs[1] = {data + 2 * n}, *scratch = NULL;
    struct tri_kernel *k = NULL;
    double best = INFINITY;
    tri_status st;

    in[1] = in[0];
    in[2].shape.ndim = in[3].shape.ndim = TRI_ARG_ABSENT;
    TRI_TRY(tri_kernel_prepare(table, &d, &k));
    scratch = tri_alloc_aligned(k->scratch_bytes + TRI_ALIGN_BYTES, "scratch");
    if (scratch == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "costs: cannot allocate %zu bytes", k->scratch_bytes);
    else
        st = time_kernel(
            k, &(struct tri_kernel_args){.in = inputs, .out = outputs, .scratch = scratch}, &best);
    if (st == TRI_OK)
        *flops_per_s = fmax(*flops_per_s, 2.0 * pow((double)rows, 3) / best);
    tri_free(scratch);
    k->ops->destroy(k);
    return st;
}

/* Bytes a second of a[i] = b[i] + 3 c[i] (the triad of STREAM: McCalpin 1995; 12
 * bytes an element). */
static double measure_triad(int nthreads, float *data)
{
    float *a = data, *b = data + TRIAD_COUNT, *c = data + 2 * (size_t)TRIAD_COUNT;
    int64_t begin = tri_now_ns(), now = begin;
    double best = INFINITY;

    do {
        int64_t start = tri_now_ns();

#pragma omp parallel for num_threads(nthreads)
        for (int i = 0; i < TRIAD_COUNT; i++)
            a[i] = b[i] + 3.0f * c[i];
        now = tri_now_ns();
        best = fmin(best, (double)(now - start) * 1e-9);
    } while (now - begin < MEASURE_NS);
    return 12.0 * TRIAD_COUNT / best;
}

tri_status tri_costs_measure(const struct tri_kernel_ops *const *table, int nthreads,
                             struct tri_costs *out)
{
    const size_t count = 3 * (size_t)TRIAD_COUNT;
    struct tri_costs costs = *out;
    float *data = tri_alloc_aligned(count * sizeof(*data), "measurement");
    tri_status st = TRI_OK;

    if (data == NULL)
        return tri_fail(TRI_ERR_NOMEM, "costs: cannot allocate %zu bytes", count * sizeof(*data));
    costs.flops_per_s = 0;
    for (size_t i = 0; i < count; i++)
        data[i] = 0.5f;
    for (size_t i = 0; st == TRI_OK && i < sizeof(product_sizes) / sizeof(product_sizes[0]); i++)
        st = measure_product(table, nthreads, product_sizes[i], data, &costs.flops_per_s);
    if (st == TRI_OK) {
        costs.bytes_per_s = measure_triad(nthreads, data);
        *out = costs;
    }
    tri_free(data);
    return st;
}
