/* Lines of text on their way to a file or terminal, written by the I/O thread.
 *
 * The compute thread formats into a slot of a small ring and posts it: no file access, no lock and,
 * once the slots have grown, no allocation. Each line is one write(), so that a reader never sees
 * half of it. A failed write is reported by the next call. All Local, one thread at a time. */
#ifndef TRI_RUNTIME_TELEMETRY_LINES_H
#define TRI_RUNTIME_TELEMETRY_LINES_H

#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <stdbool.h>

TRI_BEGIN_DECLS

struct tri_lines;

/* name: of the file, for messages (copied). owned: fd is closed at the end. fd is taken also on
 * failure when owned. A borrowed fd carries messages: lines that cannot be written are dropped. */
tri_status tri_lines_create(int fd, const char *name, bool owned,
                            struct tri_lines **out) TRI_CHECKED;
/* The empty text of the next line, to be filled and sent. Waits when the ring is full. TRI_ERR_IO
 * after a failed write. */
tri_status tri_lines_next(struct tri_lines *l, struct tri_text **text) TRI_CHECKED;
/* Posts that text as it is (the caller ends it with a newline if it is to have one). */
tri_status tri_lines_send(struct tri_lines *l) TRI_CHECKED;
/* Waits until everything is written; the first failure since the last call that told one. */
tri_status tri_lines_flush(struct tri_lines *l) TRI_CHECKED;
/* Flushes (a failure becomes a warning) and frees. NULL is fine. */
void tri_lines_destroy(struct tri_lines *l);

TRI_END_DECLS
#endif
