#include "runtime/telemetry/trace.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(trace, is_json_that_starts_at_zero)
{
    struct tri_trace_span span[] = {
        {"conv \"1\"", "forward", "compute", 5000, 7500},
        {"bucket 0", "exchange", "intra", 6001, 9000},
        {"relu", "forward", "compute", 7500, 7600},
    };
    char path[] = "/tmp/tri-trace-XXXXXX", *text = NULL;
    int fd = mkstemp(path);
    size_t bytes = 0;
    struct tri_pool pool = {0};
    struct tri_json *j = NULL;
    const struct tri_json *first, *second;

    close(fd);
    cr_assert_eq(tri_trace_write(NULL, path, span, 3), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_read_file(path, 1 << 20, &text, &bytes), TRI_OK);
    cr_assert_eq(tri_json_parse(&pool, text, bytes, path, &j), TRI_OK, "%s", tri_error_text());
    j = tri_json_get(j, "traceEvents")->child;
    first = j;
    second = j->next;
    cr_assert_str_eq(tri_json_string(tri_json_get(first, "name")), "conv \"1\"");
    cr_assert_str_eq(tri_json_get(first, "ts")->text, "0.000");
    cr_assert_str_eq(tri_json_get(first, "dur")->text, "2.500");
    cr_assert_str_eq(tri_json_get(second, "ts")->text, "1.001");
    cr_assert_str_eq(tri_json_get(first, "tid")->text, "0");
    cr_assert_str_eq(tri_json_get(second, "tid")->text, "1");
    tri_pool_finish(&pool);
    tri_free(text);
    unlink(path);
}

Test(trace, an_unwritable_file_is_an_error)
{
    cr_assert_eq(tri_trace_write(NULL, "/nonexistent/trace.json", NULL, 0), TRI_ERR_IO);
    cr_assert(strstr(tri_error_text(), "/nonexistent/trace.json"));
}

Test(trace, no_spans_are_fine)
{
    char path[] = "/tmp/tri-trace-XXXXXX";
    int fd = mkstemp(path);

    close(fd);
    cr_assert_eq(tri_trace_write(NULL, path, NULL, 0), TRI_OK, "%s", tri_error_text());
    unlink(path);
}
