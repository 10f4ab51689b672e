/* Cutting a file of {"step": n, ...} lines back to the step that a resumed run starts from. */
#include "runtime/telemetry/metrics.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A whole line of a step up to `step`. Our lines begin with the step. */
static bool line_stays(const char *line, size_t bytes, int64_t step)
{
    static const char begin[] = "{\"step\": ";
    char *stop;
    long long n;

    if (bytes < 2 || memcmp(line + bytes - 2, "}\n", 2) != 0 || strncmp(line, begin, 9) != 0)
        return false;
    errno = 0;
    n = strtoll(line + 9, &stop, 10);
    return errno == 0 && stop != line + 9 && n <= step;
}

/* Copies the lines that stay; *dropped counts the others. `to` may be NULL: only count. */
static tri_status copy_lines(FILE *from, FILE *to, const char *path, int64_t step, int64_t *dropped)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    tri_status st = TRI_OK;

    *dropped = 0;
    while (st == TRI_OK && (n = getline(&line, &cap, from)) > 0) {
        if (!line_stays(line, (size_t)n, step))
            (*dropped)++;
        else if (to != NULL && fwrite(line, 1, (size_t)n, to) != (size_t)n)
            st = tri_file_fail("write", path);
    }
    if (st == TRI_OK && ferror(from))
        st = tri_file_fail("read", path);
    free(line);
    return st;
}

static tri_status write_copy(FILE *from, const char *temporary, int64_t step)
{
    FILE *to = fopen(temporary, "we");
    int64_t dropped;
    tri_status st;

    if (to == NULL)
        return tri_file_fail("create", temporary);
    st = copy_lines(from, to, temporary, step, &dropped);
    if (st == TRI_OK && (fflush(to) != 0 || fsync(fileno(to)) != 0))
        st = tri_file_fail("write", temporary);
    if (fclose(to) != 0 && st == TRI_OK)
        st = tri_file_fail("close", temporary);
    return st;
}

static tri_status rewrite(FILE *from, const char *path, int64_t step)
{
    char *temporary = tri_asprintf("%s.tmp", path);
    tri_status st;

    if (temporary == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the path '%s.tmp'", path);
    rewind(from);
    st = write_copy(from, temporary, step);
    if (st == TRI_OK && rename(temporary, path) != 0)
        st = tri_file_fail("replace", path);
    if (st != TRI_OK)
        (void)unlink(temporary);
    tri_free(temporary);
    return st;
}

tri_status tri_metrics_truncate(const char *path, int64_t step)
{
    FILE *from = fopen(path, "re");
    int64_t dropped = 0;
    tri_status st;

    if (from == NULL)
        return errno == ENOENT ? TRI_OK : tri_file_fail("open", path);
    st = copy_lines(from, NULL, path, step, &dropped);
    if (st == TRI_OK && dropped > 0)
        st = rewrite(from, path, step);
    (void)fclose(from);
    return st;
}
