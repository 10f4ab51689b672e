/* Result codes and this thread's error message. */
#include "runtime/core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char message[MESSAGE_BYTES];

const char *tri_status_name(tri_status st)
{
    static const char *const names[] = {
#define X(name, text) text,
        TRI_STATUS_LIST(X)
#undef X
    };

    return (unsigned)st < TRI_STATUS_COUNT ? names[st] : "unknown status";
}

tri_status tri_fail(tri_status code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES]; /* apart, because an argument may be the old message */
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tri_error_set(text);
    return code;
}

const char *tri_error_text(void)
{
    return message;
}

void tri_error_set(const char *text)
{
    snprintf(message, sizeof(message), "%s", text);
}

void tri_assert_fail(const char *file, int line, const char *cond)
{
    fprintf(stderr, "trireme: bug at %s:%d: %s does not hold\n", file, line, cond);
    abort();
}
