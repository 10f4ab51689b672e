/* The executor: right numbers, the same bits whatever the timing, failures that come through. */
#include "runtime/exec/exec.h"
#include "tests/unit/exec/fake_comm.h"
#include "tests/unit/exec/fake_device.h"
#include "tests/unit/plan/fixture.h"

#include "runtime/core/log.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* A rank ready to run. */
struct rank {
    struct net net;
    struct tri_layout *layout;
    struct tri_program *program;
    struct tri_memory memory;
    struct tri_exec *exec;
};

/* That ranks start on; NULL: the CPU. */
static struct tri_device *device;

/* Address of a parameter in the process, as it is now. */
static float *parameter(const struct rank *r, tri_vid v)
{
    cr_assert_eq(tri_exec_pull(r->exec, v), TRI_OK);
    return tri_exec_value(r->exec, v);
}

static struct tri_comm *no_comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT];

static float weight(int tensor, int i)
{
    return (float)sin(1.7 * i + tensor) * 0.5f;
}

static void fill_inputs(struct rank *r, int rank)
{
    double *scalars = tri_exec_value(r->exec, r->net.scalars);

    for (int k = 0; k < r->net.ngrains; k++) {
        float *x = tri_exec_value(r->exec, r->net.x[k]);
        int32_t *t = tri_exec_value(r->exec, r->net.t[k]);

        for (int i = 0; i < NET_B * NET_I; i++)
            x[i] = weight(10 + k + 5 * rank, i);
        for (int b = 0; b < NET_B; b++)
            t[b] = (b + k + rank) % NET_V;
    }
    scalars[TRI_SCALAR_FINITE] = 1;
    scalars[TRI_SCALAR_GRAD_SCALE] = 0.05;
    scalars[TRI_SCALAR_LR_FACTOR] = 1;
}

static void fill_weights(struct rank *r)
{
    const tri_vid v[3] = {r->net.w1, r->net.b1, r->net.w2};
    const int n[3] = {NET_I * NET_H, NET_H, NET_H * NET_V};

    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < n[k]; i++)
            ((float *)tri_exec_value(r->exec, v[k]))[i] = weight(k, i);
        cr_assert_eq(tri_exec_push(r->exec, v[k]), TRI_OK);
    }
}

/* Main thread only. comms: by level. slices: 0: the flat exchange. */
static void start_levels(struct rank *r, int ngrains, bool overlap,
                         struct tri_comm *const level[TRI_LEVEL_COUNT], int slices, int rank)
{
    struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT] = {
        {level[TRI_LEVEL_ALL], level[TRI_LEVEL_INTRA], level[TRI_LEVEL_INTER]}};
    int local_rank = tri_comm_rank(level[TRI_LEVEL_INTRA]);

    cr_assert_eq(tri_layout_create(&r->layout), TRI_OK);
    r->program = net_program_levels(&r->net, ngrains, slices, local_rank, overlap, r->layout);
    cr_assert_eq(tri_plan_verify(r->program), TRI_OK, "%s", tri_error_text());
    if (device != NULL)
        r->program->device = device;
    cr_assert_eq(
        tri_memory_create(&r->memory, r->program->device, r->layout, &r->program, 1, NULL, NULL),
        TRI_OK);
    cr_assert_eq(tri_exec_create(r->program, &r->memory, comms, &r->exec), TRI_OK);
    fill_weights(r);
    fill_inputs(r, rank);
}

/* Main thread only. */
static void start_rank(struct rank *r, int ngrains, bool overlap, struct tri_comm *comm)
{
    start_levels(r, ngrains, overlap, (struct tri_comm *[TRI_LEVEL_COUNT]){comm}, 0,
                 tri_comm_rank(comm));
}

static void stop_rank(struct rank *r)
{
    tri_exec_destroy(r->exec);
    tri_memory_destroy(&r->memory);
    tri_program_destroy(r->program);
    tri_layout_destroy(r->layout);
}

/* One sample of the network by hand, in double precision; adds its gradients. Returns its loss. */
static double hand_sample(const float *x, int target, double dw1[NET_I][NET_H], double db1[NET_H],
                          double dw2[NET_H][NET_V])
{
    double h[NET_H], l[NET_V], sum = 0, dl[NET_V];

    for (int j = 0; j < NET_H; j++) {
        h[j] = (double)weight(1, j);
        for (int i = 0; i < NET_I; i++)
            h[j] += (double)x[i] * (double)weight(0, i * NET_H + j);
        h[j] = h[j] > 0 ? h[j] : 0;
    }
    for (int v = 0; v < NET_V; v++) {
        l[v] = 0;
        for (int j = 0; j < NET_H; j++)
            l[v] += h[j] * (double)weight(2, j * NET_V + v);
        sum += exp(l[v]);
    }
    for (int v = 0; v < NET_V; v++)
        dl[v] = exp(l[v]) / sum - (v == target);
    for (int j = 0; j < NET_H; j++) {
        double dh = 0;

        for (int v = 0; v < NET_V; v++) {
            dw2[j][v] += h[j] * dl[v];
            dh += dl[v] * (double)weight(2, j * NET_V + v);
        }
        dh = h[j] > 0 ? dh : 0;
        db1[j] += dh;
        for (int i = 0; i < NET_I; i++)
            dw1[i][j] += (double)x[i] * dh;
    }
    return log(sum) - l[target];
}

/* |f32 result - exact| <= 24 products and sums of numbers below 4, each rounded once: 24 * 4 *
 * 2^-24 < 1e-5. */
static void check_weights(const struct rank *r, tri_vid v, int tensor, const double *grad, int n)
{
    const float *w = parameter(r, v);

    for (int i = 0; i < n; i++)
        cr_assert_float_eq((double)w[i], (double)weight(tensor, i) - 0.1 * 0.05 * grad[i], 1e-5,
                           "tensor %d element %d", tensor, i);
}

Test(exec, a_step_has_the_numbers_of_a_computation_by_hand)
{
    struct rank r;
    double dw1[NET_I][NET_H] = {{0}}, db1[NET_H] = {0}, dw2[NET_H][NET_V] = {{0}}, loss = 0;
    struct tri_exec_times times;

    start_rank(&r, 3, true, NULL);
    for (int k = 0; k < 3; k++)
        for (int b = 0; b < NET_B; b++)
            loss += hand_sample((float *)tri_exec_value(r.exec, r.net.x[k]) + b * NET_I,
                                ((int32_t *)tri_exec_value(r.exec, r.net.t[k]))[b], dw1, db1, dw2) *
                    (k == 2); /* the fixture sums the last grain's statistics */
    cr_assert_eq(tri_exec_run(r.exec), TRI_OK, "%s", tri_error_text());
    check_weights(&r, r.net.w1, 0, &dw1[0][0], NET_I * NET_H);
    check_weights(&r, r.net.b1, 1, db1, NET_H);
    check_weights(&r, r.net.w2, 2, &dw2[0][0], NET_H * NET_V);
    cr_assert_float_eq(((double *)tri_exec_value(r.exec, r.net.stats))[TRI_STATS_LOSS], 2 * loss,
                       1e-5);
    tri_exec_times(r.exec, &times);
    cr_assert_eq(times.compute_ns + times.wait_ns, times.total_ns);
    cr_assert_gt(times.compute_ns, 0);
    stop_rank(&r);
}

Test(exec, a_trace_has_every_instruction)
{
    struct rank r;
    struct tri_exec_span span[256];

    start_rank(&r, 2, true, NULL);
    cr_assert_leq(r.program->ninstr, 256);
    tri_exec_trace(r.exec, span);
    cr_assert_eq(tri_exec_run(r.exec), TRI_OK);
    tri_exec_trace(r.exec, NULL);
    for (int i = 0; i < r.program->ninstr; i++) {
        cr_assert_eq(span[i].instr, i);
        cr_assert_gt(span[i].begin_ns, 0);
        cr_assert_geq(span[i].end_ns, span[i].begin_ns);
    }
    cr_assert_eq(tri_exec_run(r.exec), TRI_OK);
    stop_rank(&r);
}

struct race {
    struct rank rank[2];
    int steps;
};

static int run_steps(struct tri_comm *c, void *arg)
{
    struct race *race = arg;
    struct rank *r = &race->rank[c->rank];

    for (int s = 0; s < race->steps; s++)
        if (tri_exec_run(r->exec) != TRI_OK)
            return 1;
    return 0;
}

enum { LEVEL_RANKS = 4 };

struct levels_race {
    struct rank rank[LEVEL_RANKS];
    int steps;
};

static int run_level_steps(struct tri_comm *c, void *arg)
{
    struct levels_race *race = arg;

    for (int s = 0; s < race->steps; s++)
        if (tri_exec_run(race->rank[c->rank].exec) != TRI_OK)
            return 1;
    return 0;
}

/* Runs two ranks; their weights, which must be equal on both, go to out. */
static void run_race(bool overlap, uint64_t seed, int max_us, bool poison, float out[NET_I * NET_H])
{
    struct fake_world w;
    struct race race = {.steps = 25};

    fake_world_init(&w, 2);
    for (int r = 0; r < 2; r++) {
        start_rank(&race.rank[r], 3, overlap, &w.comm[r].base);
        tri_exec_jitter(race.rank[r].exec, seed + (uint64_t)r, max_us);
        tri_exec_poison(race.rank[r].exec, poison);
    }
    fake_world_run(&w, run_steps, &race);
    memcpy(out, parameter(&race.rank[0], race.rank[0].net.w1), NET_I * NET_H * sizeof(float));
    cr_assert_arr_eq(out, parameter(&race.rank[1], race.rank[1].net.w1),
                     NET_I * NET_H * sizeof(float));
    for (int r = 0; r < 2; r++) { /* the gap between b1 and w1 in their bucket */
        unsigned char flat[4 * (NET_H + NET_I * NET_H) + 64];

        cr_assert_eq(tri_exec_read(race.rank[r].exec, race.rank[r].net.flat1, flat), TRI_OK);
        for (int i = 4 * NET_H; i < 64; i++)
            cr_assert_eq(flat[i], 0, "the gap was written");
    }
    for (int r = 0; r < 2; r++)
        stop_rank(&race.rank[r]);
    fake_world_finish(&w);
}

Test(exec, timing_overlap_and_poison_change_no_bit)
{
    float want[NET_I * NET_H], got[NET_I * NET_H];

    run_race(false, 0, 0, false, want);
    for (int i = 0; i < NET_I * NET_H; i++)
        cr_assert(isfinite(want[i]));
    cr_assert_neq(want[0], weight(0, 0));
    for (uint64_t seed = 1; seed <= 3; seed++) {
        for (int overlap = 0; overlap < 2; overlap++) {
            run_race(overlap == 1, 2 * seed, 60, true, got);
            cr_assert_arr_eq(got, want, sizeof(want), "seed %d overlap %d", (int)seed, overlap);
        }
    }
}

/* Four ranks on two nodes; their weights, which must be equal on all, go to out. */
static void run_levels(bool two, bool overlap, uint64_t seed, int max_us, float out[NET_I * NET_H])
{
    struct fake_world all, intra[2], inter[2];
    struct levels_race race = {.steps = 15};

    fake_world_init(&all, LEVEL_RANKS);
    for (int k = 0; k < 2; k++) {
        fake_world_init(&intra[k], 2);
        fake_world_init(&inter[k], 2);
    }
    for (int r = 0; r < LEVEL_RANKS; r++) {
        struct tri_comm *level[TRI_LEVEL_COUNT] = {
            &all.comm[r].base, &intra[r / 2].comm[r % 2].base, &inter[r % 2].comm[r / 2].base};

        start_levels(&race.rank[r], 2, overlap, level, two ? 2 : 0, r);
        tri_exec_jitter(race.rank[r].exec, seed + (uint64_t)r, max_us);
        tri_exec_poison(race.rank[r].exec, true);
    }
    fake_world_run(&all, run_level_steps, &race);
    memcpy(out, parameter(&race.rank[0], race.rank[0].net.w1), NET_I * NET_H * sizeof(float));
    for (int r = 0; r < LEVEL_RANKS; r++) {
        cr_assert_arr_eq(out, parameter(&race.rank[r], race.rank[r].net.w1),
                         NET_I * NET_H * sizeof(float));
        stop_rank(&race.rank[r]);
    }
    for (int k = 0; k < 2; k++) {
        fake_world_finish(&intra[k]);
        fake_world_finish(&inter[k]);
    }
    fake_world_finish(&all);
}

Test(exec, levels_sum_what_all_ranks_have_whatever_the_timing)
{
    float flat[NET_I * NET_H], want[NET_I * NET_H], got[NET_I * NET_H];

    run_levels(false, true, 0, 0, flat);
    run_levels(true, false, 0, 0, want);
    /* Two orders of three roundings in each of 15 steps of sums below 4 times 0.05. */
    for (int i = 0; i < NET_I * NET_H; i++)
        cr_assert_float_eq(want[i], flat[i], 1e-6f);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run_levels(true, true, 4 * seed, 60, got);
        cr_assert_arr_eq(got, want, sizeof(want), "seed %d", (int)seed);
    }
}

Test(exec, a_device_changes_no_bit)
{
    float want[NET_I * NET_H], got[NET_I * NET_H], levels[NET_I * NET_H];

    run_race(true, 0, 0, false, want);
    run_levels(true, true, 0, 0, levels);
    device = fake_device(1 << 20);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        run_race(true, 2 * seed, 60, true, got);
        cr_assert_arr_eq(got, want, sizeof(want), "seed %d", (int)seed);
        run_levels(true, true, 4 * seed, 60, got);
        cr_assert_arr_eq(got, levels, sizeof(levels), "levels, seed %d", (int)seed);
    }
}

Test(exec, a_device_keeps_values_apart_from_the_process)
{
    struct rank r;
    float *w;

    device = fake_device(1 << 20);
    start_rank(&r, 1, true, NULL);
    w = tri_exec_value(r.exec, r.net.w1);
    w[0] = 7; /* not pushed */
    cr_assert_eq(tri_exec_pull(r.exec, r.net.w1), TRI_OK);
    cr_assert_eq(w[0], weight(0, 0));
    cr_assert_eq(tri_exec_graph(r.exec), 1);
    stop_rank(&r);
}

Test(exec, too_small_a_device_is_told_with_what_the_run_needs)
{
    struct rank r;

    cr_assert_eq(tri_layout_create(&r.layout), TRI_OK);
    r.program = net_program(&r.net, 2, true, r.layout);
    r.program->device = fake_device(100);
    cr_assert_eq(
        tri_memory_create(&r.memory, r.program->device, r.layout, &r.program, 1, NULL, NULL),
        TRI_ERR_NOMEM);
    cr_assert_neq(strstr(tri_error_text(), "fake device has no room for"), NULL);
    cr_assert_neq(strstr(tri_error_text(), "MB for the values of a step"), NULL, "%s",
                  tri_error_text());
    tri_program_destroy(r.program);
    tri_layout_destroy(r.layout);
}

static int expect_comm_failure(struct tri_comm *c, void *arg)
{
    struct race *race = arg;
    struct rank *r = &race->rank[c->rank];

    if (tri_exec_run(r->exec) != TRI_OK)
        return 1;
    for (int again = 0; again < 2; again++) /* the failure stays */
        if (tri_exec_run(r->exec) != TRI_ERR_COMM ||
            strstr(tri_error_text(), "lost its peer") == NULL)
            return 2;
    return 0;
}

Test(exec, a_failed_collective_ends_the_step_with_its_message)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        struct fake_world w;
        struct race race = {.steps = 2};

        fake_world_init(&w, 2);
        w.fail_call = 5; /* the second collective of the second step */
        for (int r = 0; r < 2; r++)
            start_rank(&race.rank[r], 2, overlap == 1, &w.comm[r].base);
        fake_world_run(&w, expect_comm_failure, &race);
        for (int r = 0; r < 2; r++)
            stop_rank(&race.rank[r]);
        fake_world_finish(&w);
    }
}

static tri_status run_broken(const struct tri_kernel *k, const struct tri_kernel_args *a)
{
    (void)k;
    (void)a;
    return tri_fail(TRI_ERR_NUMERIC, "broken kernel");
}

static void destroy_nothing(struct tri_kernel *k)
{
    (void)k;
}

Test(exec, a_failed_kernel_ends_the_step_with_its_message)
{
    static const struct tri_kernel_ops ops = {
        .name = "broken", .run = run_broken, .destroy = destroy_nothing};
    struct tri_kernel broken = {.ops = &ops}, *good;
    struct rank r;
    int32_t k;
    int64_t begin = tri_now_ns();

    start_rank(&r, 2, true, NULL);
    k = r.program->instr[net_instr(r.program, "drelu")].kernel;
    good = r.program->kernel[k];
    tri_exec_destroy(r.exec);
    r.program->kernel[k] = &broken;
    cr_assert_eq(tri_exec_create(r.program, &r.memory, no_comms, &r.exec), TRI_OK);
    cr_assert_eq(tri_exec_run(r.exec), TRI_ERR_NUMERIC);
    cr_assert_str_eq(tri_error_text(), "broken kernel");
    cr_assert_eq(tri_exec_run(r.exec), TRI_ERR_NUMERIC);
    r.program->kernel[k] = good;
    stop_rank(&r);
    cr_assert_lt(tri_now_ns() - begin, INT64_C(5000000000));
}

Test(exec, too_little_memory_is_refused)
{
    struct rank r;
    struct tri_memory small;
    struct tri_exec *x;

    start_rank(&r, 1, true, NULL);
    small = r.memory;
    small.bytes[TRI_ARENA_STEP] = 0;
    cr_assert_eq(tri_exec_create(r.program, &small, no_comms, &x), TRI_ERR_INTERNAL);
    stop_rank(&r);
}
