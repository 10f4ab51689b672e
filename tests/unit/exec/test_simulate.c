/* The simulator against sums by hand. */
#include "runtime/exec/simulate.h"
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>
#include <math.h>

/* A machine whose kernels and links carry so much a second. */
static struct tri_costs machine(double rate, int ranks, double latency_s)
{
    struct tri_costs c = {.flops_per_s = rate, .bytes_per_s = rate};

    c.level[TRI_LEVEL_ALL] = tri_sum_cost_of_link(ranks, latency_s, rate);
    return c;
}

static struct tri_simulation simulate(bool overlap, const struct tri_costs *costs)
{
    struct net net;
    struct tri_program *p = net_program(&net, 4, overlap, NULL);
    struct tri_simulation sim;

    cr_assert_eq(tri_program_simulate(p, costs, &sim), TRI_OK);
    tri_program_destroy(p);
    return sim;
}

Test(simulate, one_rank_is_the_sum_of_its_kernels)
{
    struct tri_costs costs = machine(1e9, 1, 1e-3);
    struct tri_simulation sim = simulate(true, &costs);

    cr_assert_gt(sim.busy_s[TRI_STREAM_COMPUTE], 0);
    cr_assert_eq(sim.busy_s[TRI_STREAM_INTRA], 0);
    cr_assert_float_eq(sim.step_s, sim.busy_s[TRI_STREAM_COMPUTE], 1e-12);
    cr_assert_float_eq(sim.exposed_comm_s, 0, 1e-12);
}

Test(simulate, overlap_hides_what_it_can)
{
    struct tri_costs costs = machine(1e8, 4, 1e-6);
    struct tri_simulation on = simulate(true, &costs), off = simulate(false, &costs);
    double bytes = 4.0 * NET_H * NET_V + 64 + 4.0 * NET_I * NET_H + 8.0 * TRI_STATS_COUNT;

    /* Three collectives of 4 ranks: 4 latencies each, and 3/2 of the bytes. */
    cr_assert_float_eq(on.busy_s[TRI_STREAM_INTRA], 3 * 4 * 1e-6 + 1.5 * bytes / 1e8, 1e-12);
    cr_assert_float_eq(off.exposed_comm_s, off.busy_s[TRI_STREAM_INTRA], 1e-12);
    cr_assert_lt(on.exposed_comm_s, off.exposed_comm_s);
    cr_assert_float_eq(on.step_s, on.busy_s[TRI_STREAM_COMPUTE] + on.exposed_comm_s, 1e-12);
}

Test(simulate, a_machine_can_be_measured)
{
    struct tri_costs costs = {.level = {{1e-6, 1e9}}};

    cr_assert_eq(tri_costs_measure(tri_kernels_cpu, 1, &costs), TRI_OK, "%s", tri_error_text());
    cr_assert_gt(costs.flops_per_s, 1e7);
    cr_assert_gt(costs.bytes_per_s, 1e8);
    cr_assert_eq(costs.level[0].bytes_per_s, 1e9, "the level was changed");
}
