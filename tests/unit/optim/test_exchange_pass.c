/* Buckets of gradients: what they hold, how large they get, and where their reduction stands. */
#include "optim/exchange_pass.h"
#include "runtime/core/memory.h"
#include "tests/unit/optim/fixture.h"

#include <criterion/criterion.h>
#include <string.h>

/* Which value each sum had before the pass. */
static tri_vid *old_values(const struct tri_graph *g)
{
    tri_vid *old = tri_calloc((size_t)g->nsum, sizeof(*old), "test");

    cr_assert_not_null(old);
    for (int i = 0; i < g->nsum; i++)
        old[i] = g->sum[i].value;
    return old;
}

static size_t padded(const struct tri_graph *g, tri_vid v)
{
    return tri_round_up(tri_value_bytes(&g->value[v]), TRI_PACK_BYTES);
}

/* One bucket: same dtype, in ready order, within the limit or alone, reduced right behind the op
 * that completes it. Returns the producer of its last part. */
static int32_t check_bucket(const struct tri_graph *g, const struct tri_op *pack, size_t limit,
                            int32_t before)
{
    int32_t at = (int32_t)(pack - g->op);
    size_t bytes = 0;

    for (int k = 0; k < pack->nin; k++) {
        const struct tri_value *part = &g->value[pack->in[k]];

        cr_assert_eq(part->dtype, g->value[pack->in[0]].dtype);
        cr_assert_geq(part->producer, before, "parts are not in ready order");
        before = part->producer;
        bytes += padded(g, pack->in[k]);
    }
    cr_assert(bytes <= limit || pack->nin == 1, "%zu bytes in a bucket of %zu", bytes, limit);
    for (int32_t i = before + 1; i < at; i++) /* only other buckets that the same op completes */
        cr_assert(g->op[i].kind == TRI_OP_PACK || g->op[i].kind == TRI_OP_ALLREDUCE ||
                  g->op[i].kind == TRI_OP_VIEW);
    cr_assert_eq(g->op[at + 1].kind, TRI_OP_ALLREDUCE);
    cr_assert_eq(g->op[at + 1].in[0], pack->out[0]);
    cr_assert_eq(g->op[at + 1].attrs.comm.axis, TRI_AXIS_DATA);
    return before;
}

/* Each sum is now the view of its former value's place in the reduced bucket. */
static void check_views(const struct tri_graph *g, const tri_vid *old)
{
    for (int i = 0; i < g->nsum; i++) {
        const struct tri_value *v = &g->value[g->sum[i].value];
        const struct tri_op *view = &g->op[v->producer];
        const struct tri_op *pack =
            &g->op[g->value[g->op[g->value[view->in[0]].producer].in[0]].producer];
        size_t offset = 0;
        int k = 0;

        cr_assert_eq(view->kind, TRI_OP_VIEW);
        cr_assert_eq(pack->kind, TRI_OP_PACK);
        for (; k < pack->nin && pack->in[k] != old[i]; k++)
            offset += padded(g, pack->in[k]);
        cr_assert_lt(k, pack->nin, "sum %d is not in its bucket", i);
        cr_assert_eq((size_t)view->attrs.view.offset * tri_dtype_bytes(v->dtype), offset);
        cr_assert_eq(offset % TRI_PACK_BYTES, 0);
        cr_assert(tri_shape_equal(&v->shape, &g->value[old[i]].shape));
    }
}

/* Number of buckets. */
static int check_exchange(int64_t bucket_bytes)
{
    const struct tri_exchange_spec spec = {.bucket_bytes = bucket_bytes};
    struct tri_graph *g = step_graph(2, 1);
    struct tri_mesh mesh = tri_mesh_data(2, 1);
    tri_vid *old = old_values(g);
    const struct tri_op *pack;
    int32_t before = 0;
    int n = 0, parts = 0;

    GOOD(tri_pass_exchange(g, &mesh, &spec));
    while ((pack = nth_op(g, TRI_OP_PACK, n)) != NULL) {
        before = check_bucket(g, pack, (size_t)bucket_bytes, before);
        parts += pack->nin;
        n++;
    }
    cr_assert_eq(parts, g->nsum);
    check_views(g, old);
    tri_free(old);
    tri_graph_destroy(g);
    return n;
}

/* 7 sums: the loss statistics in f64, and the gradients of weights of 35 and 7000 elements and of
 * vectors of 7, 7, 7 and 1000. The largest takes 28000 bytes, 28032 with its gap. */
Test(exchange_pass, every_size_of_a_bucket_packs_all_gradients)
{
    cr_assert_eq(check_exchange(1), 7);
    cr_assert_eq(check_exchange(4), 7);
    check_exchange(27999);
    check_exchange(28000);
    check_exchange(28004);
    check_exchange(28032);
    cr_assert_eq(check_exchange(1 << 20), 2); /* statistics, and all gradients */
    cr_assert_eq(check_exchange(INT64_C(1) << 40), 2);
}

/* A gradient below the first bucket's size is not cut; a given size is kept as it is. */
Test(exchange_pass, an_open_size_spreads_the_gradient)
{
    struct tri_gradient_options o = {.bucket_mb = TRI_OPT_AUTO, .bucket_bytes = TRI_OPT_AUTO};
    struct tri_exchange_spec spec = tri_exchange_spec_make(&o, false);
    struct tri_graph *g = step_graph(2, 1);
    struct tri_mesh mesh = tri_mesh_data(2, 1);

    cr_assert(spec.spread && spec.bucket_bytes == TRI_BUCKET_BYTES);
    GOOD(tri_pass_exchange(g, &mesh, &spec));
    cr_assert_null(nth_op(g, TRI_OP_PACK, 2));
    tri_graph_destroy(g);
    o.bucket_bytes = 4096;
    spec = tri_exchange_spec_make(&o, false);
    cr_assert(!spec.spread && spec.bucket_bytes == 4096);
}

Test(exchange_pass, one_data_rank_changes_nothing)
{
    const struct tri_exchange_spec spec = {.bucket_bytes = 1 << 20};
    struct tri_graph *g = step_graph(1, 0);
    struct tri_mesh mesh = tri_mesh_data(1, 0);
    tri_vid *old = old_values(g);
    int nop = g->nop, nvalue = g->nvalue;

    GOOD(tri_pass_exchange(g, &mesh, &spec));
    cr_assert(g->nop == nop && g->nvalue == nvalue);
    for (int i = 0; i < g->nsum; i++)
        cr_assert_eq(g->sum[i].value, old[i]);
    tri_free(old);
    tri_graph_destroy(g);
}

/* One op makes each of four gradients of 0.5 MiB; the fifth is of another type. */
static struct tri_graph *half_megabytes(void)
{
    struct tri_graph *g;
    const int64_t n = 1 << 17;
    struct tri_shape shape = tri_shape_make(1, &n);

    GOOD(tri_graph_create(&g));
    for (int i = 0; i < 5; i++) {
        const char *name = tri_pool_printf(&g->pool, "w%d", i);
        tri_vid w = tri_graph_param(g, name, shape, (struct tri_init){.kind = TRI_INIT_ZERO});
        struct tri_attrs cast = {.cast = {.to = TRI_BF16}};
        tri_vid v = tri_graph_op1(g, TRI_OP_GELU, name, &w, 1, NULL);

        if (i == 2)
            v = tri_graph_op1(g, TRI_OP_CAST, name, &v, 1, &cast);
        tri_graph_add_sum(g, TRI_SUM_GRAD, v, w, TRI_NONE);
    }
    GOOD(tri_graph_status(g));
    return g;
}

Test(exchange_pass, the_first_bucket_is_small_and_types_do_not_mix)
{
    const struct tri_exchange_spec spec = {.bucket_bytes = 25 << 20, .fixed_tree = true};
    struct tri_mesh mesh = tri_mesh_data(4, 2);
    struct tri_graph *g = half_megabytes();

    GOOD(tri_pass_exchange(g, &mesh, &spec));
    cr_assert_eq(nth_op(g, TRI_OP_PACK, 0)->nin, 2); /* TRI_FIRST_BUCKET_BYTES */
    cr_assert_eq(nth_op(g, TRI_OP_PACK, 1)->nin, 1); /* bf16 */
    cr_assert_eq(nth_op(g, TRI_OP_PACK, 2)->nin, 2);
    cr_assert_null(nth_op(g, TRI_OP_PACK, 3));
    cr_assert(nth_op(g, TRI_OP_ALLREDUCE, 0)->attrs.comm.fixed_tree);
    tri_graph_destroy(g);
}

/* The order of g->sum says nothing: what is ready first goes first. */
Test(exchange_pass, buckets_follow_readiness)
{
    const struct tri_exchange_spec spec = {.bucket_bytes = 1 << 19};
    struct tri_mesh mesh = tri_mesh_data(2, 0);
    struct tri_graph *g = half_megabytes();

    for (int i = 0; i < 2; i++) {
        struct tri_sum swap = g->sum[i];

        g->sum[i] = g->sum[4 - i];
        g->sum[4 - i] = swap;
    }
    GOOD(tri_pass_exchange(g, &mesh, &spec));
    for (int n = 0; n < 5; n++)
        cr_assert_str_eq(g->op[g->value[nth_op(g, TRI_OP_PACK, n)->in[0]].producer].name,
                         tri_pool_printf(&g->pool, "w%d", n));
    for (int i = 0; i < 5; i++) /* views went back to their own sums */
        cr_assert_str_eq(g->value[g->sum[i].target].name, tri_pool_printf(&g->pool, "w%d", 4 - i));
    tri_graph_destroy(g);
}
