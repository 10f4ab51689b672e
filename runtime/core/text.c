/* Growing text buffer. */
#include "runtime/core/text.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Room for `extra` more bytes and the NUL. */
static bool grow(struct tri_text *t, size_t extra)
{
    size_t cap = t->cap == 0 ? 256 : t->cap;
    char *data;

    if (t->failed)
        return false;
    if (t->len + extra < t->cap)
        return true;
    while (cap <= t->len + extra)
        cap *= 2;
    data = tri_realloc(t->data, cap, 1, "text");
    if (data == NULL) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

void tri_text_reserve(struct tri_text *t, size_t bytes)
{
    if (bytes > t->len)
        (void)grow(t, bytes - t->len);
}

void tri_text_printf(struct tri_text *t, const char *fmt, ...)
{
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0 || !grow(t, (size_t)len))
        return;
    va_start(args, fmt);
    vsnprintf(t->data + t->len, (size_t)len + 1, fmt, args);
    va_end(args);
    t->len += (size_t)len;
}

void tri_text_json_string(struct tri_text *t, const char *s)
{
    tri_text_printf(t, "\"");
    for (; *s != '\0'; s++) {
        const unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            tri_text_printf(t, "\\%c", c);
        else if (c == '\n')
            tri_text_printf(t, "\\n");
        else if (c < 0x20)
            tri_text_printf(t, "\\u%04x", c);
        else
            tri_text_printf(t, "%c", c);
    }
    tri_text_printf(t, "\"");
}

void tri_text_json_double(struct tri_text *t, double x)
{
    if (isfinite(x))
        tri_text_printf(t, "%.9g", x);
    else
        tri_text_printf(t, "null");
}

void tri_text_clear(struct tri_text *t)
{
    t->len = 0;
    if (t->data != NULL)
        t->data[0] = '\0';
}

void tri_text_finish(struct tri_text *t)
{
    if (t == NULL)
        return;
    tri_free(t->data);
    *t = (struct tri_text){0};
}
