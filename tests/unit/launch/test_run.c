/* Training runs of a program's own model on one process: results, places, refusals. */
#include "launch/run.h"
#include "models/builder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define GOOD(call) cr_assert_eq(call, TRI_OK, "%s", tri_error_text())

enum { GRAIN = 2, IN = 5, OUT = 7 };

/* x -> a 5 x 7 matrix with bias -> norm -> cross-entropy. */
static struct tri_graph *classifier(void)
{
    struct tri_builder b = {.training = true};
    tri_vid h;

    GOOD(tri_graph_create(&b.graph));
    h = tri_linear(&b, tri_input(&b, "x", TRI_F32, TRI_SHAPE(GRAIN, IN)), "fc", OUT);
    tri_loss_softmax(&b, tri_layernorm(&b, h, "norm"),
                     tri_input(&b, "labels", TRI_I32, TRI_SHAPE(GRAIN)));
    return b.graph;
}

static struct tri_run *create(int64_t batch, const char *const *settings)
{
    const struct tri_run_spec spec = {.batch = batch, .grain = GRAIN, .settings = settings};
    struct tri_run *run;

    GOOD(tri_run_create(&spec, classifier(), &run));
    return run;
}

static void fill(struct tri_run *run, int32_t label)
{
    for (int64_t k = 0; k < tri_run_grains(run)->count; k++) {
        float *x = tri_run_input(run, "x", k);
        int32_t *labels = tri_run_input(run, "labels", k);

        for (int i = 0; i < GRAIN * IN; i++)
            x[i] = (float)(i * 7 % 5) - 2;
        for (int i = 0; i < GRAIN; i++)
            labels[i] = label;
    }
}

Test(run, a_model_learns)
{
    const char *settings[] = {"optimizer.name=sgd", "optimizer.lr=0.5", "run.threads=1", NULL};
    struct tri_run *run = create(3 * GRAIN, settings);
    double first;

    cr_assert(tri_run_grains(run)->count == 3 && tri_run_grains(run)->first == 0);
    cr_assert_eq(tri_run_scalar(run, TRI_SCALAR_LOSS), 0);
    fill(run, 3);
    GOOD(tri_run_step(run));
    first = tri_run_scalar(run, TRI_SCALAR_LOSS);
    cr_assert_eq(tri_run_scalar(run, TRI_SCALAR_TARGETS), 3 * GRAIN);
    for (int i = 0; i < 20; i++)
        GOOD(tri_run_step(run));
    cr_assert_eq(tri_run_scalar(run, TRI_SCALAR_UPDATES), 21);
    cr_assert_lt(tri_run_scalar(run, TRI_SCALAR_LOSS), 0.2 * first);
    tri_run_destroy(run);
}

/* Decay alone: no target, so that every gradient is 0. Matrix entries shrink by (1 - lr decay)^10,
 * with 10 roundings of 2^-24; gains and biases keep their bits. */
Test(run, weight_decay_reaches_matrices_only)
{
    const char *settings[] = {"optimizer.lr=0.01", "optimizer.weight_decay=0.1", "run.threads=1",
                              NULL};
    struct tri_run *run = create(GRAIN, settings);
    const float *weight = tri_run_value(run, "fc.weight"), *bias = tri_run_value(run, "fc.bias");
    const float *gain = tri_run_value(run, "norm.weight");
    float w[IN * OUT], b[OUT];

    memcpy(w, weight, sizeof(w));
    memcpy(b, bias, sizeof(b));
    fill(run, TRI_IGNORE_TARGET);
    for (int i = 0; i < 10; i++)
        GOOD(tri_run_step(run));
    cr_assert_eq(tri_run_scalar(run, TRI_SCALAR_UPDATES), 10);
    for (int i = 0; i < IN * OUT; i++)
        cr_assert_float_eq((double)weight[i] / (double)w[i], 0.990044880, 10 * 0x1p-24 + 1e-9);
    cr_assert_eq(memcmp(bias, b, sizeof(b)), 0);
    for (int i = 0; i < OUT; i++)
        cr_assert_eq(gain[i], 1.0f);
    tri_run_destroy(run);
}

Test(run, places_are_found_by_name)
{
    struct tri_run *run = create(2 * GRAIN, NULL);
    uint64_t hash, again;

    cr_assert_not_null(tri_run_input(run, "x", 1));
    cr_assert_neq(tri_run_input(run, "x", 0), tri_run_input(run, "x", 1));
    cr_assert_null(tri_run_input(run, "x", 2));
    cr_assert_null(tri_run_input(run, "z", 0));
    cr_assert_null(tri_run_value(run, "x.0"));
    cr_assert_not_null(tri_run_value(run, "optimizer/fc.weight/exp_avg"));
    GOOD(tri_run_hash(run, &hash));
    ((float *)tri_run_value(run, "fc.bias"))[3] += 1;
    GOOD(tri_run_hash(run, &again));
    cr_assert_neq(hash, again);
    tri_run_destroy(run);
}

static void refused(int64_t batch, int64_t grain, const char *setting, const char *part)
{
    const char *settings[] = {setting, NULL};
    const struct tri_run_spec spec = {.batch = batch, .grain = grain, .settings = settings};
    struct tri_run *run;

    cr_expect_eq(tri_run_create(&spec, classifier(), &run), TRI_ERR_USAGE, "%s", setting);
    cr_expect_not_null(strstr(tri_error_text(), part), "%s", tri_error_text());
}

Test(run, refuses_what_it_cannot_train)
{
    refused(GRAIN, GRAIN, "optimizer.rl=0.1", "optimizer.lr");
    refused(GRAIN, GRAIN, "run.dir=runs/x", "run.dir");
    refused(GRAIN, GRAIN, "precision.check_action=restore", "precision.check_action");
    refused(GRAIN, GRAIN, "optimizer.name=lamb", "lamb");
    refused(GRAIN, GRAIN, "schedule.name=cosine", "run.steps");
    refused(GRAIN, GRAIN, "gradient.compress.warmup=3", "warmup");
    refused(3, GRAIN, NULL, "3");
    refused(0, GRAIN, NULL, "0");
    refused(6, 3, NULL, "'x'");
}

Test(run, refuses_a_model_without_loss)
{
    const struct tri_run_spec spec = {.batch = 2, .grain = 2};
    struct tri_graph *g;
    struct tri_run *run;

    GOOD(tri_graph_create(&g));
    cr_assert_eq(tri_run_create(&spec, g, &run), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "loss"));
}
