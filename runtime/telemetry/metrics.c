#include "runtime/telemetry/metrics.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/memory.h"
#include "runtime/telemetry/lines.h"

#include <fcntl.h>
#include <inttypes.h>

struct tri_metrics {
    struct tri_lines *steps, *samples; /* samples: NULL when not asked for */
};

static void put_double(struct tri_text *out, const char *key, double x)
{
    tri_text_printf(out, ", \"%s\": ", key);
    tri_text_json_double(out, x);
}

void tri_step_metrics_print(const struct tri_step_metrics *m, struct tri_text *out)
{
    tri_text_printf(out, "{\"step\": %" PRId64 ", \"updates\": %" PRId64 ", \"epoch\": %" PRId64,
                    m->step, m->updates, m->epoch);
    put_double(out, "loss", m->loss);
    put_double(out, "grad_norm", m->grad_norm);
    put_double(out, "lr", m->lr);
    put_double(out, "loss_scale", m->loss_scale);
    tri_text_printf(out, ", \"skipped\": %d, \"samples\": %" PRId64 ", \"tokens\": %" PRId64,
                    m->skipped ? 1 : 0, m->samples, m->tokens);
    put_double(out, "step_ms", m->step_ms);
    put_double(out, "compute_ms", m->compute_ms);
    put_double(out, "exposed_comm_ms", m->exposed_comm_ms);
    put_double(out, "input_ms", m->input_ms);
    put_double(out, "other_ms", m->other_ms);
    tri_text_printf(out, ", \"comm_bytes\": %" PRIu64, m->comm_bytes);
    put_double(out, "samples_per_s", m->samples_per_s);
    put_double(out, "tokens_per_s", m->tokens_per_s);
    tri_text_printf(out, ", \"mem_bytes\": %" PRIu64, m->mem_bytes);
    if (m->hashed)
        tri_text_printf(out, ", \"weights_hash\": \"%016" PRIx64 "\"", m->weights_hash);
    tri_text_printf(out, "}");
}

void tri_eval_metrics_print(int64_t step, const struct tri_eval_metrics *m, struct tri_text *out)
{
    tri_text_printf(out, "{\"step\": %" PRId64 ", \"eval\": {\"loss\": ", step);
    tri_text_json_double(out, m->loss);
    if (m->has_accuracy)
        put_double(out, "accuracy", m->accuracy);
    if (m->has_perplexity)
        put_double(out, "perplexity", m->perplexity);
    tri_text_printf(out, "}}");
}

static tri_status open_lines(const char *run_dir, const char *name, int64_t loaded_step,
                             struct tri_lines **out)
{
    char *path = NULL;
    tri_status st;
    int fd;

    TRI_TRY(tri_path_join(run_dir, name, &path));
    st = tri_metrics_truncate(path, loaded_step);
    if (st == TRI_OK) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        st = fd < 0 ? tri_file_fail("open", path) : tri_lines_create(fd, path, true, out);
    }
    tri_free(path);
    return st;
}

tri_status tri_metrics_open(const char *run_dir, int64_t loaded_step, bool samples,
                            struct tri_metrics **out)
{
    struct tri_metrics *m = tri_calloc(1, sizeof(*m), "metrics");
    tri_status st;

    if (m == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the metrics");
    st = open_lines(run_dir, "metrics.jsonl", loaded_step, &m->steps);
    if (st == TRI_OK && samples)
        st = open_lines(run_dir, "samples.jsonl", loaded_step, &m->samples);
    if (st != TRI_OK) {
        tri_metrics_close(m);
        return st;
    }
    *out = m;
    return TRI_OK;
}

tri_status tri_metrics_step(struct tri_metrics *m, const struct tri_step_metrics *step)
{
    struct tri_text *line;

    TRI_TRY(tri_lines_next(m->steps, &line));
    tri_step_metrics_print(step, line);
    tri_text_printf(line, "\n");
    return tri_lines_send(m->steps);
}

tri_status tri_metrics_eval(struct tri_metrics *m, int64_t step,
                            const struct tri_eval_metrics *eval)
{
    struct tri_text *line;

    TRI_TRY(tri_lines_next(m->steps, &line));
    tri_eval_metrics_print(step, eval, line);
    tri_text_printf(line, "\n");
    return tri_lines_send(m->steps);
}

tri_status tri_metrics_samples(struct tri_metrics *m, int64_t step, int64_t epoch, int rank,
                               const int64_t *ids, int64_t count)
{
    struct tri_text *line;

    if (m->samples == NULL)
        return TRI_OK;
    TRI_TRY(tri_lines_next(m->samples, &line));
    tri_text_printf(line,
                    "{\"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"rank\": %d, \"ids\": [",
                    step, epoch, rank);
    for (int64_t i = 0; i < count; i++)
        tri_text_printf(line, "%s%" PRId64, i > 0 ? ", " : "", ids[i]);
    tri_text_printf(line, "]}\n");
    return tri_lines_send(m->samples);
}

tri_status tri_metrics_flush(struct tri_metrics *m)
{
    TRI_TRY(tri_lines_flush(m->steps));
    return m->samples == NULL ? TRI_OK : tri_lines_flush(m->samples);
}

void tri_metrics_close(struct tri_metrics *m)
{
    if (m == NULL)
        return;
    tri_lines_destroy(m->samples);
    tri_lines_destroy(m->steps);
    tri_free(m);
}
