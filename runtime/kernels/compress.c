/* See compress.h. Loops are plain, without branches on data, so that compilers vectorise them. */
#include "runtime/kernels/compress.h"

#include <string.h>

/* The largest magnitude as bits says whether all are finite: infinity and NaN have the largest
 * exponent. */
static bool all_finite(const float *x, int64_t n)
{
    int32_t most = 0, bits;

    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

static struct tri_compress_keys make_keys(const struct tri_attr_compress *a, int64_t step)
{
    uint64_t own = tri_mix64(a->stream + (uint64_t)a->rank + 1);

    return (struct tri_compress_keys){
        .shared = tri_rng_key_make(a->seed, a->stream, (uint64_t)step),
        .own = tri_rng_key_make(a->seed, own, (uint64_t)step),
    };
}

/* residual_out = what is to be sent; velocity_out = the new velocity. */
static void accumulate(const struct tri_attr_compress *a, const struct tri_compress_job *job)
{
    const float *restrict g = job->grad, *restrict r = job->residual, *restrict u = job->velocity;
    float *restrict x = job->residual_out, *restrict v = job->velocity_out;
    float m = (float)a->momentum, ahead = a->nesterov ? m : 1.0f, now = a->nesterov ? 1.0f : 0.0f;

    if (u == NULL) {
        for (int64_t i = 0; i < job->n; i++)
            x[i] = g[i] + r[i];
        return;
    }
    for (int64_t i = 0; i < job->n; i++) {
        v[i] = m * u[i] + g[i];
        x[i] = r[i] + (ahead * v[i] + now * g[i]);
    }
}

void tri_compress_encode(const struct tri_attr_compress *a, int64_t step,
                         const struct tri_compress_job *job)
{
    struct tri_compress_keys keys = make_keys(a, step);
    size_t bytes = (size_t)job->n * sizeof(float);

    if (job->n == 0)
        return;
    accumulate(a, job);
    if (!all_finite(job->residual_out, job->n)) {
        a->method->spoil(a, job->n, job->payload);
        memcpy(job->residual_out, job->residual, bytes);
        if (job->velocity != NULL)
            memcpy(job->velocity_out, job->velocity, bytes);
        return;
    }
    a->method->encode(a, &keys, job->residual_out, job->n, job->payload);
    if (job->velocity != NULL && a->method->clear_sent != NULL)
        a->method->clear_sent(a, &keys, job->payload, job->n, job->velocity_out);
}

void tri_compress_decode(const struct tri_attr_compress *a, int64_t step, const void *gathered,
                         int64_t n, float *out)
{
    struct tri_compress_keys keys = make_keys(a, step);
    const unsigned char *payload = (const unsigned char *)gathered + a->offset;

    memset(out, 0, (size_t)n * sizeof(*out));
    for (int r = 0; r < a->ranks && n > 0; r++)
        a->method->decode_add(a, &keys, payload + r * a->stride, n, out);
}
