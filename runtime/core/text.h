/* A growing text buffer: for messages, JSON lines and reports that are built before they are
 * written in one go. */
#ifndef TRI_RUNTIME_CORE_TEXT_H
#define TRI_RUNTIME_CORE_TEXT_H

#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>

TRI_BEGIN_DECLS

/* Zero-initialise. Sticky: after a failed allocation `failed` stays set and appends do nothing. */
struct tri_text {
    char *data; /* NUL-terminated, or NULL while empty */
    size_t len, cap;
    bool failed;
};

/* Makes room for `bytes` of text, so that lines up to that length allocate nothing. */
void tri_text_reserve(struct tri_text *t, size_t bytes);
void tri_text_printf(struct tri_text *t, const char *fmt, ...) TRI_PRINTF(2, 3);
/* A JSON string literal with quotes and escapes. */
void tri_text_json_string(struct tri_text *t, const char *s);
/* A JSON number with 9 significant digits; null when not finite. */
void tri_text_json_double(struct tri_text *t, double x);
void tri_text_clear(struct tri_text *t); /* keeps the memory */
void tri_text_finish(struct tri_text *t);

TRI_END_DECLS
#endif
