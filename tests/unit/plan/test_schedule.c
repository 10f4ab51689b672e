/* schedule: shared kernels, early collectives, few waits. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

static int count_waits(const struct tri_program *p)
{
    int n = 0;

    for (int i = 0; i < p->ninstr; i++)
        for (int t = 0; t < TRI_STREAM_COUNT; t++)
            n += p->instr[i].wait[t] != 0;
    return n;
}

Test(schedule, equal_signatures_share_a_kernel)
{
    struct net net;
    struct tri_program *one = net_program(&net, 1, true, NULL);
    int nkernel = one->nkernel, ninstr = one->ninstr;

    tri_program_destroy(one);
    one = net_program(&net, 2, true, NULL);
    /* Totals of later grains add to an accumulator, which is another signature:
     * three more kernels. */
    cr_assert_eq(one->nkernel, nkernel + 3);
    cr_assert_eq(one->ninstr, ninstr + 10);
    tri_program_destroy(one);
    one = net_program(&net, 8, true, NULL);
    cr_assert_eq(one->nkernel, nkernel + 3);
    tri_program_destroy(one);
}

Test(schedule, collectives_follow_their_last_part)
{
    struct net net;
    struct tri_program *p = net_program(&net, 1, true, NULL);
    int32_t dw2 = net_instr(p, "dw2");

    /* bucket2 stands behind all of backward in the graph. */
    cr_assert_eq(net_instr(p, "bucket2"), dw2 + 1);
    cr_assert_eq(net_instr(p, "bucket1"), net_instr(p, "dw1") + 1);
    cr_assert_eq(net_instr(p, "stats"), net_instr(p, "loss") + 1);
    cr_assert_eq(p->instr[dw2].stream, TRI_STREAM_COMPUTE);
    cr_assert_eq(p->instr[dw2 + 1].stream, TRI_STREAM_INTRA);
    cr_assert_eq(p->instr[dw2 + 1].kernel, TRI_NONE);
    cr_assert_eq(p->stream_count[TRI_STREAM_INTRA], 3);
    tri_program_destroy(p);
}

Test(schedule, waits_and_signals_are_minimal)
{
    struct net net;
    struct tri_program *p = net_program(&net, 1, true, NULL);
    int signals = 0;

    for (int i = 0; i < p->ninstr; i++)
        signals += p->instr[i].signal;
    /* Each bucket waits for its last part. sgd.w2 waits for bucket2 and knows of stats, issued
     * before it; sgd.b1 waits for bucket1; sgd.w1 and the sum of stats know all. */
    cr_assert_eq(count_waits(p), 5);
    cr_assert_eq(signals, 5);
    cr_assert_eq(p->instr[net_instr(p, "bucket2")].wait[TRI_STREAM_COMPUTE],
                 p->instr[net_instr(p, "dw2")].seq);
    cr_assert_eq(p->instr[net_instr(p, "sgd.w2")].wait[TRI_STREAM_INTRA], 2);
    cr_assert_eq(p->instr[net_instr(p, "sgd.b1")].wait[TRI_STREAM_INTRA], 3);
    cr_assert_eq(p->instr[net_instr(p, "sgd.w1")].wait[TRI_STREAM_INTRA], 0);
    tri_program_destroy(p);
}

Test(schedule, without_overlap_compute_waits_at_once)
{
    struct net net;
    struct tri_program *on = net_program(&net, 2, true, NULL),
                       *off = net_program(&net, 2, false, NULL);

    cr_assert_eq(on->ninstr, off->ninstr);
    for (int i = 0; i < on->ninstr; i++) {
        const struct tri_instr *in = &off->instr[i];

        cr_assert_eq(on->instr[i].op, in->op);
        if (i > 0 && in->stream == TRI_STREAM_COMPUTE &&
            off->instr[i - 1].stream == TRI_STREAM_INTRA)
            cr_assert_eq(in->wait[TRI_STREAM_INTRA], off->instr[i - 1].seq);
    }
    tri_program_destroy(on);
    tri_program_destroy(off);
}

/* Buckets become ready in the order stats, bucket2, bucket1. */
Test(schedule, phases_of_buckets_interleave)
{
    static const char *const intra[] = {"stats.scatter",   "bucket2.scatter", "stats.gather",
                                        "bucket1.scatter", "bucket2.gather",  "bucket1.gather"};
    struct net net;

    for (int overlap = 0; overlap < 2; overlap++)
        for (int local_rank = 0; local_rank < 3; local_rank++) { /* the last one owns nothing */
            static const uint32_t inter[] = {3, 2, 0};           /* the small one is one slice */
            struct tri_layout *layout;
            struct tri_program *p;

            cr_assert_eq(tri_layout_create(&layout), TRI_OK);
            p = net_program_levels(&net, 2, 2, local_rank, overlap == 1, layout);
            cr_assert_eq(tri_plan_verify(p), TRI_OK, "%s", tri_error_text());
            cr_assert_eq(p->stream_count[TRI_STREAM_INTRA], 6);
            cr_assert_eq(p->stream_count[TRI_STREAM_INTER], inter[local_rank]);
            for (uint32_t k = 0; k < 6; k++)
                cr_assert_eq(p->instr[net_instr(p, intra[k])].seq, k + 1, "%s", intra[k]);
            tri_program_destroy(p);
            tri_layout_destroy(layout);
        }
}

static tri_status refuse(const struct tri_kernel_desc *d, struct tri_kernel **out)
{
    (void)out;
    return tri_fail(TRI_ERR_NOMEM, "no memory for %d inputs", d->nin);
}

Test(schedule, a_failing_prepare_names_the_op)
{
    static const struct tri_kernel_ops ops = {.name = "refuse", .prepare = refuse};
    static const struct tri_kernel_ops *const table[TRI_OP_COUNT] = {[TRI_OP_RELU] = &ops};
    struct net net = net_create(1);
    struct tri_program *p = NULL;

    cr_assert_eq(tri_plan_schedule(net.g, table, NULL, 1, true, &p), TRI_ERR_NOMEM);
    cr_assert_str_eq(tri_error_text(), "op \"relu\" (relu): no memory for 1 inputs");
    cr_assert_null(p);
}

Test(summary, sums_over_instructions)
{
    struct net net;
    struct tri_program *p = net_program(&net, 2, true, NULL);
    struct tri_plan_summary s;
    double products = 2.0 * NET_B * NET_I * NET_H + 2.0 * NET_B * NET_H * NET_V;

    tri_plan_summarise(p, &s);
    cr_assert_eq(s.params, NET_I * NET_H + NET_H + NET_H * NET_V);
    cr_assert_eq(s.collectives, 3);
    cr_assert_eq(s.instrs, p->ninstr);
    /* dw2; db1 with its gap, and dw1; stats */
    cr_assert_eq(s.comm_bytes,
                 4.0 * NET_H * NET_V + 64 + 4.0 * NET_I * NET_H + 8.0 * TRI_STATS_COUNT);
    cr_assert_geq(s.flops[TRI_PHASE_FORWARD], 2 * products);
    cr_assert_leq(s.flops[TRI_PHASE_FORWARD], 2 * products + 1000);
    cr_assert_eq(s.flops[TRI_PHASE_EXCHANGE], 0);
    cr_assert_gt(s.bytes_touched[TRI_PHASE_UPDATE], 0);
    tri_program_destroy(p);
}
