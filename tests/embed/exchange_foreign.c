/* A program that owns MPI and its own model, a network of one hidden layer, and lets Trireme
 * exchange its gradients.
 *
 *     mpirun -n N exchange_foreign single|multiple [SETTINGS]
 *
 * Each rank computes the gradient of its share of the samples. At the end the weights are compared
 * with those of a run over all samples without any exchange; where SETTINGS ask for compression,
 * the loss is. */
#include "optim/exchange.h"

#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16, IN = 3, HIDDEN = 8, STEPS = 60, NPARAMS = 4 };

struct layer {
    float hidden_weight[HIDDEN * IN], hidden_bias[HIDDEN], out_weight[HIDDEN], out_bias[1];
};

struct model {
    struct layer weight, grad;
};

static float input(int sample, int i)
{
    return (float)((sample * 7 + i * 5) % 11) / 11 - 0.5f;
}

static void init(struct model *m)
{
    memset(m, 0, sizeof(*m));
    for (int k = 0; k < HIDDEN * IN; k++)
        m->weight.hidden_weight[k] = (float)(k * 37 % 19) / 19 - 0.5f;
    for (int h = 0; h < HIDDEN; h++)
        m->weight.out_weight[h] = (float)(h * 5 % 7) / 7 - 0.5f;
}

/* Forward and backward of one sample; adds to the gradient of the mean over `n` samples and
 * returns its part of the loss. Target: the product of the inputs. */
static float learn(struct model *m, int sample, int n)
{
    const struct layer *w = &m->weight;
    struct layer *g = &m->grad;
    float act[HIDDEN];
    float y = w->out_bias[0];
    float dy, error;

    for (int h = 0; h < HIDDEN; h++) {
        act[h] = w->hidden_bias[h];
        for (int i = 0; i < IN; i++)
            act[h] += w->hidden_weight[h * IN + i] * input(sample, i);
        act[h] = tanhf(act[h]);
        y += w->out_weight[h] * act[h];
    }
    error = y - input(sample, 0) * input(sample, 1) * input(sample, 2);
    dy = 2 * error / (float)n;
    g->out_bias[0] += dy;
    for (int h = 0; h < HIDDEN; h++) {
        float d = dy * w->out_weight[h] * (1 - act[h] * act[h]);

        g->out_weight[h] += dy * act[h];
        g->hidden_bias[h] += d;
        for (int i = 0; i < IN; i++)
            g->hidden_weight[h * IN + i] += d * input(sample, i);
    }
    return error * error / (float)n;
}

static void update(struct model *m)
{
    float *w = (float *)&m->weight;
    const float *g = (const float *)&m->grad;

    for (size_t i = 0; i < sizeof(struct layer) / sizeof(float); i++)
        w[i] -= 0.3f * g[i];
    memset(&m->grad, 0, sizeof(m->grad));
}

/* Trains on the samples rank, rank + size, ...; x NULL: without exchange. */
static tri_status train(struct model *m, struct tri_exchange *x, int rank, int size)
{
    for (int step = 0; step < STEPS; step++) {
        for (int s = rank; s < SAMPLES; s += size)
            (void)learn(m, s, SAMPLES / size);
        for (int id = NPARAMS - 1; x != NULL && id >= 0; id--)
            TRI_TRY(tri_exchange_ready(x, id));
        if (x != NULL)
            TRI_TRY(tri_exchange_wait(x));
        update(m);
    }
    return TRI_OK;
}

static tri_status train_together(struct model *m, const char *settings, int rank, int size)
{
    struct tri_exchange *x;
    struct layer *g = &m->grad;
    int id;

    TRI_TRY(tri_exchange_create(MPI_COMM_WORLD, settings, &x));
    TRI_TRY(tri_exchange_register(x, "hidden.weight", g->hidden_weight, HIDDEN * IN, TRI_F32, &id));
    TRI_TRY(tri_exchange_register(x, "hidden.bias", g->hidden_bias, HIDDEN, TRI_F32, &id));
    TRI_TRY(tri_exchange_register(x, "out.weight", g->out_weight, HIDDEN, TRI_F32, &id));
    TRI_TRY(tri_exchange_register(x, "out.bias", g->out_bias, 1, TRI_F32, &id));
    TRI_TRY(tri_exchange_commit(x));
    TRI_TRY(train(m, x, rank, size));
    tri_exchange_destroy(x);
    return TRI_OK;
}

static float loss(struct model *m)
{
    float sum = 0;

    for (int s = 0; s < SAMPLES; s++)
        sum += learn(m, s, SAMPLES);
    return sum;
}

/* Why the models differ more than they may; NULL: they do not. */
static const char *compare(struct model *together, struct model *alone, bool compressed)
{
    float worst = 0;

    for (size_t i = 0; i < sizeof(struct layer) / sizeof(float); i++)
        worst = fmaxf(worst, fabsf(((float *)&together->weight)[i] - ((float *)&alone->weight)[i]));
    /* Sums of 16 terms below 1 in another order: 16 roundings of 2^-24 a step, scaled by the rate
     * of 0.3, 60 steps. */
    if (!compressed)
        return worst <= 16 * 0x1p-24f * 0.3f * STEPS ? NULL : "the weights differ";
    if (worst == 0)
        return "nothing was compressed";
    return loss(together) <= 1.1f * loss(alone) ? NULL : "the loss is larger";
}

int main(int argc, char **argv)
{
    const int want =
        argc > 1 && strcmp(argv[1], "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    const char *settings = argc > 2 ? argv[2] : "gradient.bucket_bytes=64", *why;
    struct model together, alone;
    int level, rank, size;

    MPI_Init_thread(&argc, &argv, want, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    init(&together);
    init(&alone);
    if (SAMPLES % size != 0 || level != want ||
        train_together(&together, settings, rank, size) != TRI_OK ||
        train(&alone, NULL, 0, 1) != TRI_OK) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, tri_error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    why = compare(&together, &alone, strstr(settings, "compress") != NULL);
    if (why != NULL) {
        (void)fprintf(stderr, "rank %d: %s: losses %g and, of one rank, %g\n", rank, why,
                      (double)loss(&together), (double)loss(&alone));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
