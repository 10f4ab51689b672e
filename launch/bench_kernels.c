/* trireme bench kernels: every kernel that steps of GPT-2 124M, ResNet-50 and an mlp run, once for
 * each kind of work, over memory of its own, on the CPU or on a device.
 *
 * The programs are compiled as for training (GPT-2 with dropout, ResNet-50 with momentum), for
 * evaluation and for generation, which says which shapes and fusions really occur. A line's share
 * of the limit is that of the roofline model: the longer of its operations over a square product
 * and its bytes over a triad, as part of the time measured. */
#include "launch/bench.h"
#include "launch/bench_subjects.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ARGS = 128,
    MIN_RUNS = 3,
    MAX_RUNS = 200,
    INDEX_MODULUS = 997,             /* contents repeat after so many elements */
    BLOCK_COUNT = 16 * INDEX_MODULUS /* elements that the host makes */
};
_Static_assert(MAX_ARGS > 9 * TRI_MULTI, "an update of several parameters fits");
static const int64_t MEASURE_NS = 60000000; /* of each kernel, warm-up not counted */

struct bench {
    const char *op; /* names, separated by commas; NULL: all */
    int threads;
    bool tiny; /* models of a few rows */
    struct tri_device *device;
    void *stream; /* of the device */
    struct tri_bench_limits limits;
    struct tri_text json;
    int lines;
    bool seen[TRI_OP_COUNT], measured[TRI_OP_COUNT];
};

static float near_one(int64_t i)
{
    return 0.5f + (float)(i % INDEX_MODULUS) / INDEX_MODULUS;
}

/* n elements: floats near one, 64-bit counters zero, and small positive integers: ids, classes. A
 * single integer is `single`. */
static void fill(void *buf, enum tri_dtype dtype, int64_t n, int64_t single)
{
    memset(buf, dtype == TRI_U8 ? 1 : 0, (size_t)n * tri_dtype_bytes(dtype));
    if (dtype == TRI_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)buf)[i] = near_one(i);
    if (tri_dtype_is_half(dtype))
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)buf)[i] =
                dtype == TRI_BF16 ? tri_bf16_from_f32(near_one(i)) : tri_f16_from_f32(near_one(i));
    if (dtype == TRI_F64)
        for (int64_t i = 0; i < n; i++)
            ((double *)buf)[i] = 1;
    if (dtype == TRI_I32)
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)buf)[i] = (int32_t)(n == 1 ? single : (i * 31) % INDEX_MODULUS);
}

/* What the integer argument of an op says: the last place of a cache, or that all samples of the
 * grain are real. */
static int64_t single_integer(const struct tri_bench_subject *s, const struct tri_graph *g,
                              const struct tri_op *op)
{
    return op->kind == TRI_OP_ATTENTION_CACHED ? g->value[op->in[1]].shape.dim[1] - 1
                                               : s->data.grain;
}

/* Repeats the first `done` of the bytes behind themselves until all are there. */
static tri_status repeat_block(const struct bench *b, char *memory, size_t done, size_t bytes)
{
    struct tri_device *d = b->device;

    while (done < bytes) {
        size_t n = done < bytes - done ? done : bytes - done;

        TRI_TRY(d->ops->copy(d, memory + done, memory, n, b->stream));
        done += n;
    }
    return d->ops->stream_sync(d, b->stream);
}

/* Memory of the device with the contents of a value. The host makes the first block only: gigabytes
 * out of it would take longer than the kernels. */
static tri_status make_value(const struct bench *b, const struct tri_value *v, int64_t single,
                             void **out)
{
    struct tri_device *d = b->device;
    int64_t n = tri_shape_count(&v->shape);
    int64_t first = n < BLOCK_COUNT ? n : BLOCK_COUNT;
    size_t bytes = (size_t)first * tri_dtype_bytes(v->dtype);
    void *contents = tri_alloc_aligned(bytes, "benchmark");
    tri_status st;

    if (contents == NULL)
        return tri_fail(TRI_ERR_NOMEM, "bench: cannot allocate %zu bytes", bytes);
    fill(contents, v->dtype, first, single);
    st = d->ops->alloc(d, tri_value_bytes(v), out);
    if (st == TRI_OK)
        st = d->ops->copy(d, *out, contents, bytes, b->stream);
    if (st == TRI_OK)
        st = repeat_block(b, *out, bytes, tri_value_bytes(v));
    tri_free(contents);
    return st;
}

/* Memory of each argument; an output that must lie in an input's memory shares it. */
static tri_status make_args(const struct bench *b, const struct tri_bench_subject *s,
                            const struct tri_graph *g, const struct tri_op *op,
                            void *memory[MAX_ARGS], void *arg[MAX_ARGS])
{
    for (int k = 0; k < op->nin + op->nout; k++) {
        tri_vid v = k < op->nin ? op->in[k] : op->out[k - op->nin];
        int input = 0;

        if (v == TRI_NONE)
            continue;
        if (k >= op->nin && tri_op_info(op->kind)->alias != NULL &&
            tri_op_info(op->kind)->alias(g, op, k - op->nin, &input) == TRI_ALIAS_MUST) {
            arg[k] = arg[input];
            continue;
        }
        TRI_TRY(make_value(b, &g->value[v], single_integer(s, g, op), &memory[k]));
        arg[k] = memory[k];
    }
    return TRI_OK;
}

static tri_status time_on_cpu(const struct tri_kernel *k, const struct tri_kernel_args *args,
                              double *best_s, double *median_s)
{
    double times[MAX_RUNS];
    int64_t total = 0;
    int n = 0;

    TRI_TRY(k->ops->run(k, args));
    while (n < MAX_RUNS && (n < MIN_RUNS || total < MEASURE_NS)) {
        int64_t begin = tri_now_ns(), time;

        TRI_TRY(k->ops->run(k, args));
        time = tri_now_ns() - begin;
        total += time;
        times[n++] = (double)time * 1e-9;
    }
    tri_bench_sort(times, n, best_s, median_s);
    return TRI_OK;
}

/* "2x256x768 768x3072", the arguments that are there. */
static void describe(const struct tri_graph *g, const struct tri_op *op, struct tri_text *out)
{
    const char *gap = "";

    for (int k = 0; k < op->nin && k < 2; k++) {
        const struct tri_shape *s = op->in[k] != TRI_NONE ? &g->value[op->in[k]].shape : NULL;

        for (int d = 0; s != NULL && d < s->ndim; d++)
            tri_text_printf(out, "%s%lld", d > 0 ? "x" : gap, (long long)s->dim[d]);
        gap = " ";
    }
}

/* Operations and bytes; of a table only the rows that are used. */
static void count_work(const struct tri_program *p, const struct tri_instr *in, double *flops,
                       double *bytes)
{
    const struct tri_graph *g = p->graph;
    const struct tri_op *op = &g->op[in->op];

    tri_plan_cost(p, in, flops, bytes);
    if (op->kind == TRI_OP_EMBEDDING)
        *bytes = 2 * (double)tri_value_bytes(&g->value[op->out[0]]);
    if (op->kind == TRI_OP_EMBEDDING_GRAD)
        *bytes = 3 * (double)tri_value_bytes(&g->value[op->in[1]]);
}

static void print_line(struct bench *b, const struct tri_bench_subject *s,
                       const struct tri_program *p, const struct tri_instr *in, double best_s,
                       double median_s)
{
    const struct tri_op *op = &p->graph->op[in->op];
    const char *kernel = p->kernel[in->kernel]->ops->name;
    struct tri_text shapes = {0};
    double flops, bytes, products_s, memory_s, share;
    const char *bound;

    count_work(p, in, &flops, &bytes);
    products_s = flops / b->limits.flops_per_s;
    memory_s = bytes / b->limits.bytes_per_s;
    bound = products_s > memory_s ? "products" : "memory";
    share = fmax(products_s, memory_s) / best_s;
    describe(p->graph, op, &shapes);
    printf("%-10s %-19s %-22s %-30s %10.1f %8.1f %7.1f %6.1f %s\n", s->name, tri_op_name(op->kind),
           kernel, shapes.data != NULL ? shapes.data : "", best_s * 1e6, flops / best_s * 1e-9,
           bytes / best_s * 1e-9, 100 * share, bound);
    (void)fflush(stdout);
    tri_text_printf(&b->json,
                    "%s\n  {\"model\": \"%s\", \"op\": \"%s\", \"kernel\": \"%s\", \"shapes\": "
                    "\"%s\", \"best_us\": %.3f, \"median_us\": %.3f, \"flops\": %.0f, \"bytes\": "
                    "%.0f, \"bound\": \"%s\", \"of_limit\": %.4f}",
                    b->lines++ > 0 ? "," : "", s->name, tri_op_name(op->kind), kernel,
                    shapes.data != NULL ? shapes.data : "", best_s * 1e6, median_s * 1e6, flops,
                    bytes, bound, share);
    tri_text_finish(&shapes);
}

static tri_status measure_instr(struct bench *b, const struct tri_bench_subject *s,
                                const struct tri_program *p, const struct tri_instr *in)
{
    const struct tri_op *op = &p->graph->op[in->op];
    const struct tri_kernel *k = p->kernel[in->kernel];
    struct tri_device *d = b->device;
    void *memory[MAX_ARGS] = {NULL}, *arg[MAX_ARGS] = {NULL}, *scratch = NULL;
    struct tri_kernel_args args = {.in = arg, .out = arg + op->nin, .stream = b->stream};
    double best, median;
    tri_status st;

    if (op->nin + op->nout > MAX_ARGS)
        return TRI_OK; /* bookkeeping over lists of values: microseconds */
    TRI_TRY_GOTO(st, make_args(b, s, p->graph, op, memory, arg), free_all);
    TRI_TRY_GOTO(st, d->ops->alloc(d, k->scratch_bytes + TRI_ALIGN_BYTES, &scratch), free_all);
    args.scratch = scratch;
    st = d->host ? time_on_cpu(k, &args, &best, &median)
                 : tri_device_time(d, k, &args, &best, &median);
    if (st == TRI_OK)
        print_line(b, s, p, in, best, median);

free_all:
    for (int i = 0; i < MAX_ARGS; i++)
        d->ops->free(d, memory[i]);
    d->ops->free(d, scratch);
    return st;
}

static bool same_shape(const struct tri_graph *g, tri_vid a, tri_vid b)
{
    if (a == TRI_NONE || b == TRI_NONE)
        return a == b;
    return g->value[a].dtype == g->value[b].dtype &&
           tri_shape_equal(&g->value[a].shape, &g->value[b].shape);
}

/* The same work: kinds, shapes and attributes, up to the key of their randomness. */
static bool same_work(const struct tri_graph *g, const struct tri_op *a, const struct tri_op *b)
{
    bool random = a->kind == TRI_OP_DROPOUT || a->kind == TRI_OP_ATTENTION ||
                  a->kind == TRI_OP_ATTENTION_GRAD;

    if (a->kind != b->kind || a->nin != b->nin || a->nout != b->nout ||
        (!random && memcmp(&a->attrs, &b->attrs, sizeof(a->attrs)) != 0))
        return false;
    for (int k = 0; k < a->nin; k++)
        if (!same_shape(g, a->in[k], b->in[k]))
            return false;
    for (int k = 0; k < a->nout; k++)
        if (!same_shape(g, a->out[k], b->out[k]))
            return false;
    return true;
}

/* An earlier instruction of the program does the same work. */
static bool repeats(const struct tri_program *p, int i)
{
    for (int k = 0; k < i; k++)
        if (same_work(p->graph, &p->graph->op[p->instr[k].op], &p->graph->op[p->instr[i].op]))
            return true;
    return false;
}

/* Whether a name is in a list, whose parts are separated by commas; NULL: every name is. */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p != NULL; p++) {
        size_t part = strcspn(p, ",");

        if (part == n && strncmp(p, name, n) == 0)
            return true;
        p += part;
        if (*p == '\0')
            return false;
    }
    return true;
}

/* The first instruction of each kind of work; ops that an earlier program had are left out of
 * `others`. */
static tri_status measure_program(struct bench *b, const struct tri_bench_subject *s,
                                  const struct tri_program *p, bool others)
{
    bool before[TRI_OP_COUNT];
    tri_status st = TRI_OK;

    memcpy(before, b->seen, sizeof(before));
    for (int i = 0; st == TRI_OK && i < p->ninstr; i++) {
        const struct tri_instr *in = &p->instr[i];
        enum tri_op_kind kind = p->graph->op[in->op].kind;

        if (in->kernel == TRI_NONE || (others && before[kind]) || repeats(p, i))
            continue;
        b->seen[kind] = true;
        if (b->device->kernels[kind] == NULL || !listed(b->op, tri_op_name(kind)))
            continue;
        b->measured[kind] = true;
        st = measure_instr(b, s, p, in);
    }
    return st;
}

static tri_status measure_subject(struct bench *b, const struct tri_bench_subject *s)
{
    struct tri_bench_programs p;
    tri_status st = TRI_OK;

    TRI_TRY(tri_bench_compile(s, b->device, b->threads, &p));
    for (int i = 0; st == TRI_OK && i < TRI_BENCH_PROGRAMS; i++)
        if (p.program[i] != NULL)
            st = measure_program(b, s, p.program[i], i > 0);
    tri_bench_release(&p);
    return st;
}

/* Slots of the table that no program above has. */
static void print_rest(const struct bench *b)
{
    const char *gap = "in the table, but not in these models: ";

    for (int k = 0; k < TRI_OP_COUNT; k++)
        if (b->device->kernels[k] != NULL && !b->seen[k]) {
            printf("%s%s", gap, tri_op_name((enum tri_op_kind)k));
            gap = ", ";
        }
    if (strcmp(gap, ", ") == 0)
        printf("\n");
}

/* Whether the first n characters of `name` are a kernel that was measured. */
static bool was_measured(const struct bench *b, const char *name, size_t n)
{
    for (int k = 0; k < TRI_OP_COUNT; k++) {
        const char *op = tri_op_name((enum tri_op_kind)k);

        if (b->measured[k] && strlen(op) == n && strncmp(op, name, n) == 0)
            return true;
    }
    return false;
}

/* Each name of --op was measured. */
static tri_status check_names(const struct bench *b)
{
    for (const char *p = b->op;; p++) {
        size_t part = strcspn(p, ",");

        if (!was_measured(b, p, part))
            return tri_fail(TRI_ERR_USAGE, "--op: these models run no kernel '%.*s'", (int)part, p);
        p += part;
        if (*p == '\0')
            return TRI_OK;
    }
}

static tri_status measure_limits(struct bench *b)
{
    const struct tri_measured m = {.device = b->device, .threads = b->threads, .compute = TRI_BF16};

    TRI_TRY(tri_bench_limits(NULL, &m, &b->limits));
    if (!b->device->host) {
        printf("limits of %s: %.1f TFLOP/s square product of bf16, %.1f GB/s copy\n",
               b->device->name, b->limits.flops_per_s * 1e-12, b->limits.bytes_per_s * 1e-9);
        return TRI_OK;
    }
    printf("limits with %d thread%s: %.1f GFLOP/s square product, %.1f GB/s triad\n", b->threads,
           b->threads == 1 ? "" : "s", b->limits.flops_per_s * 1e-9, b->limits.bytes_per_s * 1e-9);
    return TRI_OK;
}

static tri_status run_all(struct bench *b, const char *json)
{
    int n;
    const struct tri_bench_subject *s = tri_bench_subjects(b->device->host, b->tiny, &n);
    tri_status st = TRI_OK;

    omp_set_num_threads(b->threads);
    TRI_TRY(measure_limits(b));
    printf("%-10s %-19s %-22s %-30s %10s %8s %7s %6s %s\n", "model", "op", "kernel", "shapes",
           "time us", "GFLOP/s", "GB/s", "limit%", "by");
    tri_bench_begin(&b->json, "kernels", &(struct tri_bench_setting){.threads = b->threads});
    tri_text_printf(&b->json, ",\n \"device\": ");
    tri_text_json_string(&b->json, b->device->name);
    tri_text_printf(
        &b->json, ", \"product_flops_per_s\": %.4g, \"%s_bytes_per_s\": %.4g, \"lines\": [",
        b->limits.flops_per_s, b->device->host ? "triad" : "copy", b->limits.bytes_per_s);
    for (int i = 0; st == TRI_OK && i < n; i++)
        st = measure_subject(b, &s[i]);
    TRI_TRY(st);
    if (b->op == NULL)
        print_rest(b);
    else
        TRI_TRY(check_names(b));
    tri_text_printf(&b->json, "]}\n");
    return tri_bench_write(NULL, json, &b->json);
}

/* Runs on the device named `kind` ("cpu", "cuda"; NULL: the CPU). */
static tri_status run_on(struct bench *b, const char *kind, const char *json)
{
    tri_status st = TRI_OK;

    b->device = tri_device_cpu();
    if (kind != NULL && strcmp(kind, "cuda") == 0)
        TRI_TRY(tri_device_cuda_open(0, &b->device));
    else if (kind != NULL && strcmp(kind, "cpu") != 0)
        return tri_fail(TRI_ERR_USAGE, "--device: '%s' is neither cpu nor cuda", kind);
    st = b->device->ops->stream_create(b->device, false, &b->stream);
    if (st == TRI_OK)
        st = run_all(b, json);
    b->device->ops->stream_destroy(b->device, b->stream);
    tri_device_destroy(b->device);
    return st;
}

static tri_status choose_threads(const char *text, int *out)
{
    struct tri_env_settings env;
    char *end;
    long n;

    tri_env_read_settings(&env);
    *out = env.threads > 0 ? env.threads : omp_get_num_procs();
    if (text == NULL)
        return TRI_OK;
    n = strtol(text, &end, 10);
    if (*end != '\0' || n < 1 || n > 1024)
        return tri_fail(TRI_ERR_USAGE, "--threads: '%s' is not a number from 1 to 1024", text);
    *out = (int)n;
    return TRI_OK;
}

static int run_kernels(const struct tri_command *self, int argc, char **argv)
{
    struct bench b = {0};
    const char *threads = NULL, *json = NULL, *device = NULL, *size = "full";
    const struct tri_flag flags[] = {{"op", &b.op},
                                     {"threads", &threads},
                                     {"json", &json},
                                     {"device", &device},
                                     {"size", &size}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 5, 0, &a);

    if (st == TRI_OK && a.help) {
        printf("%s", self->help);
        tri_free(a.pair);
        return TRI_EXIT_DONE;
    }
    if (st == TRI_OK && a.npairs > 0)
        st = tri_fail(TRI_ERR_USAGE, "bench kernels: '%s' is no option", a.pair[0]);
    b.tiny = strcmp(size, "tiny") == 0;
    if (st == TRI_OK && !b.tiny && strcmp(size, "full") != 0)
        st = tri_fail(TRI_ERR_USAGE, "--size: '%s' is neither full nor tiny", size);
    if (st == TRI_OK)
        st = choose_threads(threads, &b.threads);
    if (st == TRI_OK)
        st = run_on(&b, device, json);
    tri_text_finish(&b.json);
    tri_free(a.pair);
    return tri_command_refuse(st);
}

const struct tri_command tri_bench_kernels = {
    .name = "kernels",
    .help =
        "usage: trireme bench kernels [--op NAME,NAME] [--threads N] [--device cpu|cuda] "
        "[--size full|tiny] [--json FILE]\n\n"
        "Times every kernel of the CPU table over the shapes that GPT-2 124M (2 sequences of "
        "256), ResNet-50 (8 images of\n"
        "224 x 224) and an mlp need, each once a signature: best time, GFLOP/s, GB/s of inputs and "
        "outputs, and the share of the\n"
        "limit (square product or triad of the same run, whichever allows less, which is named "
        "last: products or memory; above\n100 % where the caches hold the data).\n"
        "--op: kinds, as `matmul,layernorm`. --device cuda: the CUDA table on the first device, in "
        "bf16, with 32 sequences of 1024\nand 256 images; the limit is then a square product of "
        "bf16 or a copy there. --size tiny: models of a few rows in bf16,\nto try the command "
        "out.\n",
    .run = run_kernels,
};
