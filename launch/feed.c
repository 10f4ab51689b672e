/* Names of inputs are matched at setup; a step only copies. */
#include "launch/feed.h"

#include "runtime/core/memory.h"

#include <string.h>

enum source { SOURCE_X, SOURCE_Y, SOURCE_NREAL };

struct tri_feed_input {
    enum source source;
    int64_t grain; /* in the batch, from 0 */
    size_t bytes;
    void *to;
};

static const struct {
    const char *name;
    enum source source;
} names[] = {{"tokens", SOURCE_X}, {"x", SOURCE_X}, {"targets", SOURCE_Y},
             {"labels", SOURCE_Y}, {"y", SOURCE_Y}, {"nreal", SOURCE_NREAL}};

/* The part of `name` before ".<grain>" is one of names[]. */
static bool find_source(const char *name, enum source *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t len = strlen(names[i].name);

        if (strncmp(name, names[i].name, len) == 0 && (name[len] == '\0' || name[len] == '.')) {
            *out = names[i].source;
            return true;
        }
    }
    return false;
}

static size_t source_bytes(const struct tri_loader *l, enum source source)
{
    return source == SOURCE_X   ? tri_loader_x_bytes(l)
           : source == SOURCE_Y ? tri_loader_y_bytes(l)
                                : sizeof(int32_t);
}

tri_status tri_feed_create(struct tri_feed *f, const struct tri_program *p,
                           const struct tri_exec *x, const struct tri_loader *loader,
                           int64_t first_grain)
{
    const struct tri_graph *g = p->graph;

    *f = (struct tri_feed){.input = tri_calloc((size_t)g->nvalue, sizeof(*f->input), "inputs")};
    if (f->input == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot list %d values", g->nvalue);
    for (int i = 0; i < g->nvalue; i++) {
        const struct tri_value *v = &g->value[i];
        struct tri_feed_input in = {.bytes = tri_value_bytes(v)};

        if (v->role != TRI_ROLE_INPUT || p->place[i].storage < 0)
            continue;
        in.grain = v->grain == TRI_NONE ? 0 : v->grain - first_grain;
        in.to = tri_exec_value(x, i);
        if (!find_source(v->name, &in.source) || in.bytes != source_bytes(loader, in.source)) {
            tri_feed_finish(f);
            return tri_fail(TRI_ERR_INTERNAL,
                            "input '%s' of %zu bytes: the loader has nothing that fits", v->name,
                            in.bytes);
        }
        f->input[f->ninputs++] = in;
    }
    return TRI_OK;
}

void tri_feed_finish(struct tri_feed *f)
{
    tri_free(f->input);
    *f = (struct tri_feed){0};
}

void tri_feed_fill(const struct tri_feed *f, const struct tri_batch *batch)
{
    for (int i = 0; i < f->ninputs; i++) {
        const struct tri_feed_input *in = &f->input[i];
        size_t skip = (size_t)in->grain * in->bytes;

        if (in->source == SOURCE_NREAL)
            memcpy(in->to, &batch->nreal[in->grain], sizeof(int32_t));
        else
            memcpy(in->to, (const char *)(in->source == SOURCE_X ? batch->x : batch->y) + skip,
                   in->bytes);
    }
}
