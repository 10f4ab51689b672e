/* As in a training step, each gradient is compressed on its own and the payloads of a bucket travel
 * together, so that results do not depend on the sizes of buckets. */
#include "optim/exchange_compress.h"

#include "runtime/core/memory.h"
#include "runtime/kernels/compress.h"

#include <stdio.h>
#include <string.h>

tri_status tri_exchange_compress_agree(const struct tri_gradient_options *o, struct tri_comm *comm)
{
    char text[96] = {0};

    (void)snprintf(text, sizeof(text), "%d %d %d %a", o->compress.name, o->compress.level,
                   o->compress.force, o->compress.ratio);
    return tri_comm_same(comm, text, sizeof(text), "the compression");
}

struct tri_compress_spec tri_exchange_compress_spec(const struct tri_gradient_options *gradient,
                                                    const struct tri_topology *t, int slices)
{
    static const struct tri_optimizer_options no_momentum = {.name = TRI_OPTIMIZER_CHOICE_SGD};
    const struct tri_compress_layout layout = {.rank = t->rank,
                                               .ranks = t->size,
                                               .node = t->node,
                                               .nodes = t->nodes,
                                               .slices = slices,
                                               .local_rank = t->local_rank};

    return tri_compress_spec_make(gradient, &no_momentum, 0, &layout);
}

/* Elements [first, end) of the exchange memory belong to this contributor. */
static struct tri_exchange_piece cut(int64_t at, int64_t count, uint64_t stream, int64_t first,
                                     int64_t end)
{
    int64_t begin = at > first ? at : first, stop = at + count < end ? at + count : end;

    return (struct tri_exchange_piece){
        .stream = stream, .at = begin, .count = stop > begin ? stop - begin : 0};
}

/* Where the payload of piece p lies behind those that end at `at`. */
static int64_t place(const struct tri_exchange_compress *c, const struct tri_exchange_piece *p,
                     int64_t at, struct tri_attr_compress *a)
{
    *a = tri_compress_attributes(&c->spec);
    a->stream = p->stream;
    a->offset = tri_pack_next(at, TRI_U8);
    return a->offset + c->spec.method->bytes(a, p->count);
}

/* Bytes of the payloads of bucket b, a multiple of the alignment of one. */
static int64_t payload_bytes(const struct tri_exchange_compress *c,
                             const struct tri_bucket_range *b)
{
    struct tri_attr_compress a;
    int64_t at = 0;

    for (int k = b->first; k < b->end; k++)
        if (c->piece[k].count > 0)
            at = place(c, &c->piece[k], at, &a);
    return tri_pack_next(at, TRI_U8);
}

/* Payloads hold indices of 32 bits. */
static bool choose(const struct tri_exchange_compress *c, const struct tri_bucket_range *b,
                   const int64_t *count, int n, struct tri_compress_estimate *total)
{
    struct tri_compress_estimate e = {0};
    bool pays = true;

    for (int k = b->first; k < b->end; k++) {
        int64_t elements = count[n - 1 - k];

        pays = pays && elements <= UINT32_MAX;
        if (elements > 0)
            tri_compress_estimate_count(&c->spec, elements, &e);
    }
    pays = pays && e.bytes > 0 && (c->spec.force || e.compressed_s < e.plain_s);
    total->bytes += e.bytes;
    total->plain_s += e.plain_s;
    total->payload += pays ? e.payload : e.bytes;
    total->compressed_s += pays ? e.compressed_s : e.plain_s;
    return pays;
}

static tri_status allocate(struct tri_exchange_compress *c,
                           const struct tri_exchange_layout *layout, int n)
{
    c->piece = tri_calloc((size_t)n + 1, sizeof(*c->piece), "pieces of gradients");
    c->chosen = tri_calloc((size_t)layout->nbuckets + 1, sizeof(*c->chosen), "chosen buckets");
    c->residual = tri_calloc((size_t)layout->elements + 1, sizeof(float), "residuals");
    c->next = tri_calloc((size_t)layout->elements + 1, sizeof(float), "residuals");
    if (c->piece == NULL || c->chosen == NULL || c->residual == NULL || c->next == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate residuals of %lld elements",
                        (long long)layout->elements);
    return TRI_OK;
}

static tri_status allocate_payloads(struct tri_exchange_compress *c, int64_t most)
{
    size_t bytes = (size_t)most + TRI_PACK_BYTES, all;

    TRI_TRY(tri_mul_size(bytes, (size_t)c->spec.ranks, "payloads", &all));
    c->payload = tri_alloc_aligned(bytes, "payloads");
    c->gathered = tri_alloc_aligned(all, "payloads");
    if (c->payload == NULL || c->gathered == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate payloads of %zu bytes for %d ranks", bytes,
                        c->spec.ranks);
    memset(c->payload, 0, bytes); /* gaps travel too */
    return TRI_OK;
}

tri_status tri_exchange_compress_init(struct tri_exchange_compress *c,
                                      const struct tri_compress_spec *spec,
                                      const struct tri_exchange_layout *layout,
                                      const int64_t *count, const uint64_t *stream, int n,
                                      int local_rank, struct tri_text *report)
{
    struct tri_compress_estimate total = {0};
    int64_t most = 0;

    *c = (struct tri_exchange_compress){.spec = *spec, .round = 1};
    if (spec->method == NULL) {
        tri_compress_report(spec, &total, report);
        return TRI_OK;
    }
    TRI_TRY(allocate(c, layout, n));
    for (int i = 0; i < layout->nbuckets; i++) {
        const struct tri_bucket_range *b = &layout->bucket[i];
        int64_t first = 0, own = b->count, bytes;

        if (spec->level == TRI_LEVEL_INTER)
            tri_comm_slice(b->count, spec->slices, local_rank, &first, &own);
        first += b->at;
        for (int k = b->first; k < b->end; k++) {
            int g = n - 1 - k;

            c->piece[k] = cut(layout->at[g], count[g], stream[g], first, first + own);
        }
        c->chosen[i] = choose(c, b, count, n, &total);
        bytes = payload_bytes(c, b);
        most = c->chosen[i] && bytes > most ? bytes : most;
    }
    tri_compress_report(spec, &total, report);
    return allocate_payloads(c, most);
}

void tri_exchange_compress_finish(struct tri_exchange_compress *c)
{
    tri_free(c->piece);
    tri_free(c->chosen);
    tri_free(c->residual);
    tri_free(c->next);
    tri_free(c->payload);
    tri_free(c->gathered);
    *c = (struct tri_exchange_compress){0};
}

tri_status tri_exchange_compress_sum(struct tri_exchange_compress *c, struct tri_comm *comm,
                                     const struct tri_bucket_range *b, float *memory)
{
    struct tri_attr_compress a;
    int64_t stride = payload_bytes(c, b), at = 0;

    if (stride == 0)
        return TRI_OK;
    for (int k = b->first; k < b->end; k++) {
        const struct tri_exchange_piece *p = &c->piece[k];
        struct tri_compress_job job = {.grad = memory + p->at,
                                       .residual = c->residual + p->at,
                                       .n = p->count,
                                       .residual_out = c->next + p->at};

        if (p->count == 0)
            continue;
        at = place(c, p, at, &a);
        job.payload = c->payload + a.offset;
        tri_compress_encode(&a, c->round, &job);
    }
    TRI_TRY(tri_comm_allgather(comm, c->payload, (size_t)stride, c->gathered));
    at = 0;
    for (int k = b->first; k < b->end; k++) {
        const struct tri_exchange_piece *p = &c->piece[k];

        if (p->count == 0)
            continue;
        at = place(c, p, at, &a);
        a.stride = stride;
        tri_compress_decode(&a, c->round, c->gathered, p->count, memory + p->at);
    }
    return TRI_OK;
}

void tri_exchange_compress_end(struct tri_exchange_compress *c, bool skipped)
{
    float *before = c->residual;

    c->round++;
    if (skipped)
        return;
    c->residual = c->next;
    c->next = before;
}

bool tri_exchange_is_finite(const void *x, int64_t count, enum tri_dtype dtype)
{
    const uint32_t wide = 0x7f800000u;
    const uint16_t half = dtype == TRI_F16 ? 0x7c00 : 0x7f80, *narrow = x;
    const float *full = x;
    bool all = true;

    for (int64_t i = 0; dtype == TRI_F32 && i < count; i++) {
        uint32_t bits;

        memcpy(&bits, full + i, sizeof(bits));
        all &= (bits & wide) != wide;
    }
    for (int64_t i = 0; dtype != TRI_F32 && i < count; i++)
        all &= (narrow[i] & half) != half;
    return all;
}
