/* What gradient.compress asks for, and where it pays. */
#include "optim/compress_internal.h"

#include "optim/compressors/compressors.h"

#include <math.h>

/* Multiply-adds per second of the low-rank kernels on one thread: CPU time on a 1024 x 1024 matrix
 * at rank 4, as the rates of the compressors on a million elements. */
static const double LOW_RANK_RATE = 1.8e9;

/* Assumed until links are measured: shared memory, and 1 Gbit/s. */
static const struct tri_link_rate inside_node = {4e9, 2e-6}, between_nodes = {1.2e8, 5e-5};

static const struct tri_compressor *method_of(int name)
{
    switch (name) {
    case TRI_COMPRESS_FP16:
        return &tri_compressor_fp16;
    case TRI_COMPRESS_BF16:
        return &tri_compressor_bf16;
    case TRI_COMPRESS_INT8:
        return &tri_compressor_int8;
    case TRI_COMPRESS_ONEBIT:
        return &tri_compressor_onebit;
    case TRI_COMPRESS_TOPK:
        return &tri_compressor_topk;
    case TRI_COMPRESS_RANDK:
        return &tri_compressor_randk;
    default:
        return NULL;
    }
}

/* Why compression between nodes cannot be; NULL: it can. */
static const char *refuse(const struct tri_gradient_options *gradient,
                          const struct tri_compress_layout *l)
{
    if (gradient->compress.level == TRI_COMPRESS_ALL || l->nodes == l->ranks)
        return NULL;
    if (l->nodes == 1)
        return "all ranks share one node (gradient.compress.level is inter)";
    if (l->slices == 0)
        return "the exchange is flat (gradient.compress.level is inter)";
    return NULL;
}

/* topk, randk */
static bool chooses(const struct tri_compress_spec *spec)
{
    return spec->method != NULL && spec->method->clear_sent != NULL;
}

struct tri_compress_spec tri_compress_spec_make(const struct tri_gradient_options *gradient,
                                                const struct tri_optimizer_options *o,
                                                uint64_t seed, const struct tri_compress_layout *l)
{
    bool inter = gradient->compress.level == TRI_COMPRESS_INTER && l->nodes < l->ranks;
    struct tri_compress_spec s = {
        .name = tri_compress_name(gradient->compress.name),
        .off = refuse(gradient, l),
        .link = l->nodes > 1 ? between_nodes : inside_node,
        .level = inter ? TRI_LEVEL_INTER : TRI_LEVEL_ALL,
        .rank = inter ? l->node : l->rank,
        .ranks = inter ? l->nodes : l->ranks,
        .slices = inter ? l->slices : 1,
        .slice = inter ? l->local_rank : 0,
        .method = method_of(gradient->compress.name),
        .ratio = gradient->compress.ratio,
        .last_ratio = gradient->compress.ratio,
        .force = gradient->compress.force,
        .seed = seed,
    };

    if (gradient->compress.name == TRI_COMPRESS_NONE || s.off != NULL) {
        s.method = NULL;
        s.force = false;
        return s;
    }
    if (gradient->compress.name == TRI_COMPRESS_POWERSGD)
        s.low_rank = gradient->compress.rank;
    if (chooses(&s) && o->name == TRI_OPTIMIZER_CHOICE_SGD &&
        gradient->compress.momentum_correction != TRI_CORRECTION_FALSE) {
        s.momentum = o->momentum;
        s.nesterov = o->nesterov;
    }
    return s;
}

int tri_compress_stages(const struct tri_compress_spec *spec)
{
    int n = 0;

    if (!chooses(spec))
        return spec->method != NULL || spec->low_rank > 0 ? 1 : 0;
    while (n < TRI_COMPRESS_MAX_STAGES && pow(0.25, n + 1) > spec->ratio)
        n++;
    return n;
}

struct tri_compress_spec tri_compress_stage(const struct tri_compress_spec *spec, int k)
{
    struct tri_compress_spec s = *spec;

    if (!chooses(spec))
        return (struct tri_compress_spec){0};
    s.ratio = pow(0.25, k + 1);
    return s;
}

struct tri_attr_compress tri_compress_attributes(const struct tri_compress_spec *spec)
{
    return (struct tri_attr_compress){.method = spec->method,
                                      .level = spec->level,
                                      .rank = spec->rank,
                                      .ranks = spec->ranks,
                                      .seed = spec->seed,
                                      .ratio = spec->ratio,
                                      .momentum = spec->momentum,
                                      .nesterov = spec->nesterov};
}

void tri_low_rank_matrix(const struct tri_value *v, int64_t *n, int64_t *m)
{
    *n = v->shape.ndim > 0 ? v->shape.dim[0] : 1;
    *m = *n > 0 ? tri_shape_count(&v->shape) / *n : 0;
}

bool tri_compress_can(const struct tri_graph *g, const struct tri_sum *s,
                      const struct tri_compress_spec *spec)
{
    const struct tri_value *v = &g->value[s->value];
    int64_t n, m, count = tri_shape_count(&v->shape);

    if ((spec->method == NULL && spec->low_rank == 0) || s->kind != TRI_SUM_GRAD ||
        v->dtype != TRI_F32 || count == 0 || count > UINT32_MAX)
        return false;
    tri_low_rank_matrix(v, &n, &m);
    return spec->low_rank == 0 || (v->shape.ndim > 1 && (n + m) * spec->low_rank < n * m &&
                                   spec->low_rank <= n && spec->low_rank <= m);
}

static void add_estimate(const struct tri_compress_spec *spec, int64_t count, int64_t payload,
                         double sent, double work, struct tri_compress_estimate *e)
{
    double bytes = 4.0 * (double)count, share = 2.0 * (spec->ranks - 1) / spec->ranks;

    e->bytes += 4 * count;
    e->payload += payload;
    e->plain_s += share * bytes / spec->link.bytes_per_s / spec->slices;
    e->compressed_s += (sent / spec->link.bytes_per_s + work) / spec->slices;
}

void tri_compress_estimate_count(const struct tri_compress_spec *spec, int64_t count,
                                 struct tri_compress_estimate *e)
{
    struct tri_attr_compress a = tri_compress_attributes(spec);
    double work = 4.0 * (double)count / spec->method->bytes_per_s;
    int64_t payload;

    a.ratio = spec->last_ratio;
    payload = spec->method->bytes(&a, count);
    work *= spec->method->clear_sent != NULL ? 1 : (1.0 + spec->ranks) / 2;
    add_estimate(spec, count, payload, (spec->ranks - 1.0) * (double)payload, work, e);
}

void tri_compress_estimate_add(const struct tri_graph *g, const struct tri_sum *s,
                               const struct tri_compress_spec *spec,
                               struct tri_compress_estimate *e)
{
    const struct tri_value *v = &g->value[s->value];
    int64_t count = tri_shape_count(&v->shape), n, m, payload;

    if (spec->low_rank == 0) {
        tri_compress_estimate_count(spec, count, e);
        return;
    }
    tri_low_rank_matrix(v, &n, &m);
    payload = 4 * (n + spec->slices * m) * spec->low_rank;
    add_estimate(spec, count, payload, 2.0 * (spec->ranks - 1) / spec->ranks * (double)payload,
                 4.0 * (double)(count * spec->low_rank) / LOW_RANK_RATE, e);
}

void tri_compress_report(const struct tri_compress_spec *spec,
                         const struct tri_compress_estimate *e, struct tri_text *report)
{
    if (report == NULL || spec->name == NULL)
        return;
    if (spec->off != NULL)
        tri_text_printf(report, "compression %s: none, %s\n", spec->name, spec->off);
    else
        tri_text_printf(report,
                        "compression %s: %.3f of %.3f MiB a rank, estimated %.3f against %.3f ms "
                        "over a link of %.3f GB/s%s\n",
                        spec->name, (double)e->payload / 1048576.0, (double)e->bytes / 1048576.0,
                        e->compressed_s * 1e3, e->plain_s * 1e3, spec->link.bytes_per_s * 1e-9,
                        spec->force              ? " (forced)"
                        : e->payload == e->bytes ? ": does not pay"
                                                 : "");
}
