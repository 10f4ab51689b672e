#include "runtime/telemetry/metrics.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/json.h"
#include "runtime/core/memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static char file[128];

static void set_up(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/tri-telemetry-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(file, sizeof(file), "%s/metrics.jsonl", folder);
}

static void tear_down(void)
{
    cr_assert_eq(tri_remove_tree(folder), TRI_OK);
}

TestSuite(metrics, .init = set_up, .fini = tear_down);

static char *read_all(const char *name)
{
    char *path = NULL, *text = NULL;
    size_t bytes = 0;

    cr_assert_eq(tri_path_join(folder, name, &path), TRI_OK);
    cr_assert_eq(tri_read_file(path, 1 << 20, &text, &bytes), TRI_OK, "%s", tri_error_text());
    tri_free(path);
    return text;
}

static void write_steps(int64_t loaded, int64_t from, int64_t to)
{
    struct tri_metrics *m = NULL;

    cr_assert_eq(tri_metrics_open(folder, loaded, false, &m), TRI_OK, "%s", tri_error_text());
    for (int64_t s = from; s <= to; s++) {
        struct tri_step_metrics step = {.step = s, .loss = (double)s};
        struct tri_eval_metrics eval = {.loss = 0.5};
        cr_assert_eq(tri_metrics_step(m, &step), TRI_OK);
        if (s % 2 == 0)
            cr_assert_eq(tri_metrics_eval(m, s, &eval), TRI_OK);
    }
    cr_assert_eq(tri_metrics_flush(m), TRI_OK);
    tri_metrics_close(m);
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++)
        n++;
    return n;
}

Test(metrics, a_step_is_one_json_object_with_all_fields)
{
    static const char *const key[] = {
        "step",      "updates",         "epoch",        "loss",         "grad_norm",
        "lr",        "loss_scale",      "skipped",      "samples",      "tokens",
        "step_ms",   "compute_ms",      "input_ms",     "other_ms",     "comm_bytes",
        "mem_bytes", "exposed_comm_ms", "tokens_per_s", "samples_per_s"};
    struct tri_step_metrics m = {.step = 3,
                                 .loss = 1.0 / 3.0,
                                 .grad_norm = NAN,
                                 .lr = INFINITY,
                                 .skipped = true,
                                 .comm_bytes = UINT64_MAX,
                                 .hashed = true,
                                 .weights_hash = 0xabc};
    struct tri_text text = {0};
    struct tri_pool pool = {0};
    struct tri_json *j = NULL;
    double loss = 0;
    int64_t n = 0;

    tri_step_metrics_print(&m, &text);
    cr_assert_eq(tri_json_parse(&pool, text.data, text.len, "line", &j), TRI_OK, "%s", text.data);
    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
        cr_assert_not_null(tri_json_get(j, key[i]), "%s", key[i]);
    cr_assert_eq(j->count, 20);
    cr_assert_str_eq(tri_json_get(j, "loss")->text, "0.333333333");
    cr_assert(tri_json_double(tri_json_get(j, "loss"), &loss) && fabs(loss - 1.0 / 3.0) < 1e-9);
    cr_assert_eq(tri_json_get(j, "grad_norm")->kind, TRI_JSON_NULL);
    cr_assert_eq(tri_json_get(j, "lr")->kind, TRI_JSON_NULL);
    cr_assert(tri_json_int(tri_json_get(j, "skipped"), &n) && n == 1);
    cr_assert_str_eq(tri_json_string(tri_json_get(j, "weights_hash")), "0000000000000abc");
    tri_pool_finish(&pool);
    tri_text_finish(&text);
}

Test(metrics, lines_keep_their_order_through_the_io_thread)
{
    char *text;

    cr_assert_eq(tri_io_start(), TRI_OK);
    write_steps(0, 1, 100);
    tri_io_stop();
    text = read_all("metrics.jsonl");
    cr_assert_eq(count_lines(text), 150);
    for (int64_t s = 1; s < 100; s++) {
        char a[32], b[32];
        (void)snprintf(a, sizeof(a), "{\"step\": %lld,", (long long)s);
        (void)snprintf(b, sizeof(b), "{\"step\": %lld,", (long long)s + 1);
        cr_assert(strstr(text, a) != NULL && strstr(text, a) < strstr(text, b));
    }
    tri_free(text);
}

Test(metrics, a_resumed_run_goes_on_behind_the_loaded_step)
{
    char *text;

    write_steps(0, 1, 10);
    write_steps(6, 7, 8);
    text = read_all("metrics.jsonl");
    cr_assert_eq(count_lines(text), 12); /* 8 steps, 4 evaluations */
    cr_assert_null(strstr(text, "\"step\": 9"));
    tri_free(text);
    write_steps(0, 1, 1);
    text = read_all("metrics.jsonl");
    cr_assert_eq(count_lines(text), 1);
    tri_free(text);
}

Test(metrics, a_damaged_last_line_is_dropped)
{
    char *text;
    int fd;

    write_steps(0, 1, 3);
    fd = open(file, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, "{\"step\": 3, \"lo", 15), 15);
    close(fd);
    write_steps(3, 4, 4);
    text = read_all("metrics.jsonl");
    cr_assert_eq(count_lines(text), 6);
    cr_assert_null(strstr(text, "\"lo{"));
    tri_free(text);
}

Test(metrics, samples_are_written_where_asked_for)
{
    struct tri_metrics *m = NULL;
    int64_t ids[] = {5, 3, 9};
    char *text;

    cr_assert_eq(tri_metrics_open(folder, 0, true, &m), TRI_OK);
    cr_assert_eq(tri_metrics_samples(m, 2, 1, 0, ids, 3), TRI_OK);
    tri_metrics_close(m);
    text = read_all("samples.jsonl");
    cr_assert_str_eq(text, "{\"step\": 2, \"epoch\": 1, \"rank\": 0, \"ids\": [5, 3, 9]}\n");
    tri_free(text);
}

Test(metrics, an_unwritable_folder_is_an_error)
{
    struct tri_metrics *m = NULL;

    cr_assert_eq(tri_metrics_open("/nonexistent/run", 0, false, &m), TRI_ERR_IO);
    cr_assert(strstr(tri_error_text(), "/nonexistent/run/metrics.jsonl"));
}
