/* Log lines: each is built in memory and written with one call, so that lines of ranks
 * do not mix. */
#include "runtime/core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int log_rank = -1;
static enum tri_log_level log_level = TRI_LOG_INFO;

void tri_log_init(int rank, enum tri_log_level level)
{
    log_rank = rank;
    log_level = level;
}

bool tri_log_enabled(enum tri_log_level level)
{
    return level <= log_level;
}

void tri_log(enum tri_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    char line[2304];
    const size_t room = sizeof(line) - 1; /* the last byte is kept for the line feed */
    int len;
    va_list args;

    if (!tri_log_enabled(level))
        return;
    if (log_rank >= 0)
        len = snprintf(line, room, "[rank %d] %s: ", log_rank, names[level]);
    else
        len = snprintf(line, room, "%s: ", names[level]);
    va_start(args, fmt);
    len += vsnprintf(line + len, room - (size_t)len, fmt, args);
    va_end(args);
    if ((size_t)len >= room)
        len = (int)room - 1;
    line[len++] = '\n';
    /* A lost log line is not worth a failure: there is nowhere to report it. */
    if (write(STDERR_FILENO, line, (size_t)len) < 0)
        return;
}

int64_t tri_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
