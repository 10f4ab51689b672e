#include "runtime/telemetry/lines.h"

#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SLOTS      16
#define LINE_BYTES 1023 /* set aside for a line; a longer one makes its slot grow */

struct slot {
    struct tri_lines *lines;
    struct tri_text text;
    struct tri_io_job job;
};

struct tri_lines {
    int fd;
    bool owned;
    char *name;
    int next; /* slot of the next line */
    struct slot slot[SLOTS];
};

tri_status tri_lines_create(int fd, const char *name, bool owned, struct tri_lines **out)
{
    struct tri_lines *l = tri_calloc(1, sizeof(*l), "lines");
    char *copy = tri_strdup(name);

    if (l == NULL || copy == NULL) {
        tri_free(copy);
        tri_free(l);
        if (owned)
            close(fd);
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate its buffers", name);
    }
    l->fd = fd;
    l->owned = owned;
    l->name = copy;
    for (int i = 0; i < SLOTS; i++) {
        l->slot[i].lines = l;
        tri_text_reserve(&l->slot[i].text, LINE_BYTES);
    }
    *out = l;
    return TRI_OK;
}

/* On the I/O thread. A short write goes on: it happens on pipes and full disks. */
static tri_status write_slot(void *arg)
{
    const struct slot *s = arg;
    const char *from = s->text.data;
    size_t left = s->text.len;

    while (left > 0) {
        ssize_t n = write(s->lines->fd, from, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 && !s->lines->owned)
            return TRI_OK; /* nobody reads the messages any more: no reason to stop */
        if (n <= 0)
            return tri_fail(TRI_ERR_IO, "cannot write '%s': %s", s->lines->name, strerror(errno));
        from += n;
        left -= (size_t)n;
    }
    return TRI_OK;
}

tri_status tri_lines_next(struct tri_lines *l, struct tri_text **text)
{
    struct slot *s = &l->slot[l->next];

    TRI_TRY(tri_io_wait(&s->job));
    tri_text_clear(&s->text);
    *text = &s->text;
    return TRI_OK;
}

tri_status tri_lines_send(struct tri_lines *l)
{
    struct slot *s = &l->slot[l->next];

    if (s->text.failed) {
        tri_text_finish(&s->text);
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate a line", l->name);
    }
    tri_io_post(&s->job, write_slot, s);
    l->next = (l->next + 1) % SLOTS;
    return TRI_OK;
}

tri_status tri_lines_flush(struct tri_lines *l)
{
    tri_status first = TRI_OK;

    for (int i = 0; i < SLOTS; i++) {
        tri_status st = tri_io_wait(&l->slot[(l->next + i) % SLOTS].job);
        if (first == TRI_OK)
            first = st;
    }
    return first;
}

void tri_lines_destroy(struct tri_lines *l)
{
    if (l == NULL)
        return;
    if (tri_lines_flush(l) != TRI_OK)
        tri_warn("%s", tri_error_text());
    for (int i = 0; i < SLOTS; i++)
        tri_text_finish(&l->slot[i].text);
    if (l->owned)
        close(l->fd);
    tri_free(l->name);
    tri_free(l);
}
