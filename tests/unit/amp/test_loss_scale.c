/* The loss scale as a state machine, and that clipping sees true gradients. */
#include "runtime/kernels/control.h"
#include "runtime/kernels/kernels.h"
#include "tests/unit/kernels/by_hand.h"

#include <math.h>

struct scaler {
    struct tri_attrs control;
    int64_t counters[TRI_COUNTER_COUNT];
    double scalars[TRI_SCALAR_COUNT];
    float scale;
};

/* One step with the summed gradients' sum of squares. */
static void step(struct scaler *s, double sumsq)
{
    static const struct tri_arg arg[4] = {
        {TRI_F64, {1, {4}}}, {TRI_I64, {1, {8}}}, {TRI_F64, {1, {1}}}, {TRI_F32, {1, {1}}}};
    double stats[TRI_STATS_COUNT] = {1, 1};
    struct tri_attrs none = {.rows = 0};

    run(TRI_OP_STEP_BEGIN, &none, 1, &arg[1], (void *[]){s->counters}, 1, (void *[]){s->counters});
    run(TRI_OP_CONTROL, &s->control, 4, arg, (void *[]){stats, s->counters, &sumsq, &s->scale}, 1,
        (void *[]){s->scalars});
    run(TRI_OP_SCALE_END, &none, 2, arg, (void *[]){&s->scale, s->scalars}, 1,
        (void *[]){&s->scale});
    run(TRI_OP_STEP_END, &none, 2, arg, (void *[]){s->counters, s->scalars}, 1,
        (void *[]){s->counters});
}

static struct scaler scaler(float initial, int64_t interval)
{
    return (struct scaler){.scale = initial,
                           .control.control = {.total = 100,
                                               .scaled = true,
                                               .scale_unit = 1,
                                               .scale_factor = 2,
                                               .scale_floor = 1,
                                               .scale_interval = interval}};
}

Test(loss_scale, the_run_of_good_steps_restarts_at_an_overflow)
{
    const bool good[] = {true, true, false, true, true, true, true};
    const float want[] = {65536, 65536, 32768, 32768, 32768, 32768, 65536};
    struct scaler s = scaler(65536, 4);

    for (int i = 0; i < 7; i++) {
        step(&s, good[i] ? 1 : INFINITY);
        cr_assert_eq(s.scale, want[i], "step %d: %g", i + 1, (double)s.scale);
    }
    cr_assert_eq(s.counters[TRI_COUNTER_SKIPPED], 1);
    cr_assert_eq(s.counters[TRI_COUNTER_UPDATES], 6);
}

Test(loss_scale, falls_to_the_floor_and_tells)
{
    struct scaler s = scaler(65536, 4);

    for (int i = 1; i <= 16; i++) {
        step(&s, NAN);
        cr_assert_eq(s.scalars[TRI_SCALAR_SCALE_STUCK], 0, "step %d", i);
        cr_assert_eq((double)s.scale, exp2(16 - i));
    }
    step(&s, NAN);
    cr_assert_eq(s.scale, 1.0f);
    cr_assert_eq(s.scalars[TRI_SCALAR_SCALE_STUCK], 1);
}

Test(loss_scale, never_grows_to_infinity)
{
    struct scaler s = scaler(0x1p127f, 1);

    for (int i = 0; i < 3; i++)
        step(&s, 1);
    cr_assert_eq(s.scale, 0x1p127f);
}

/* The gradient (3, 4) times the scale has norm 5, and is applied as (0.6, 0.8) when
 * clipped at 1. */
Test(loss_scale, clipping_is_of_unscaled_gradients)
{
    for (int p = 0; p <= 16; p += 8) {
        struct scaler s = scaler((float)exp2(p), 2000);

        s.control.control.clip_norm = 1;
        s.control.control.scale_unit = 0.25;
        step(&s, 25 * exp2(2 * p) / 16);
        NEAR(s.scalars[TRI_SCALAR_GRAD_NORM], 5);
        NEAR(3 * exp2(p) / 4 * s.scalars[TRI_SCALAR_GRAD_SCALE], 0.6);
        NEAR(4 * exp2(p) / 4 * s.scalars[TRI_SCALAR_GRAD_SCALE], 0.8);
    }
}

/* What compression holds back of scaled gradients follows the scale: kept at a skip, in new units.
 */
Test(loss_scale, residuals_change_with_it)
{
    static const struct tri_arg arg[3] = {
        {TRI_F32, {1, {2}}}, {TRI_F32, {1, {2}}}, {TRI_F64, {1, {TRI_SCALAR_COUNT}}}};
    struct tri_attrs none = {.rows = 0};
    struct scaler s = scaler(1024, 2);
    float state[2] = {1, -3}, fresh[2] = {5, 7};

    step(&s, INFINITY);
    run(TRI_OP_COMMIT, &none, 3, arg, (void *[]){state, fresh, s.scalars}, 1, (void *[]){state});
    cr_assert(state[0] == 0.5f && state[1] == -1.5f, "halved, else as it was");
    step(&s, 1);
    run(TRI_OP_COMMIT, &none, 3, arg, (void *[]){state, fresh, s.scalars}, 1, (void *[]){state});
    cr_assert(state[0] == 5.0f && state[1] == 7.0f, "the new one");
    step(&s, 1);
    run(TRI_OP_COMMIT, &none, 3, arg, (void *[]){state, fresh, s.scalars}, 1, (void *[]){state});
    cr_assert(state[0] == 10.0f && state[1] == 14.0f, "the new one, doubled");
}
