/* Places of persistent values by name: a hash table over an arena that only grows. */
#include "runtime/plan/program.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <string.h>

struct entry {
    char *name; /* NULL: free slot */
    size_t bytes, offset;
};

struct tri_layout {
    struct entry *slot; /* cap slots, open addressing */
    size_t cap, used;   /* cap is a power of two, at most half used */
    size_t bytes;
};

tri_status tri_layout_create(struct tri_layout **out)
{
    struct tri_layout *l = tri_calloc(1, sizeof(*l), "layout");

    if (l == NULL)
        return tri_fail(TRI_ERR_NOMEM, "layout: cannot allocate");
    l->cap = 64;
    l->slot = tri_calloc(l->cap, sizeof(*l->slot), "layout");
    if (l->slot == NULL) {
        tri_free(l);
        return tri_fail(TRI_ERR_NOMEM, "layout: cannot allocate");
    }
    *out = l;
    return TRI_OK;
}

void tri_layout_destroy(struct tri_layout *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->cap; i++)
        tri_free(l->slot[i].name);
    tri_free(l->slot);
    tri_free(l);
}

/* Slot that holds `name`, or the free one where it belongs. */
static struct entry *find_slot(struct entry *slot, size_t cap, const char *name)
{
    size_t i = (size_t)tri_hash_name(name) & (cap - 1);

    while (slot[i].name != NULL && strcmp(slot[i].name, name) != 0)
        i = (i + 1) & (cap - 1);
    return &slot[i];
}

static tri_status grow(struct tri_layout *l)
{
    size_t cap = l->cap * 2;
    struct entry *slot = tri_calloc(cap, sizeof(*slot), "layout");

    if (slot == NULL)
        return tri_fail(TRI_ERR_NOMEM, "layout: cannot allocate %zu slots", cap);
    for (size_t i = 0; i < l->cap; i++)
        if (l->slot[i].name != NULL)
            *find_slot(slot, cap, l->slot[i].name) = l->slot[i];
    tri_free(l->slot);
    l->slot = slot;
    l->cap = cap;
    return TRI_OK;
}

tri_status tri_layout_place(struct tri_layout *l, const char *name, size_t bytes, size_t *offset)
{
    struct entry *e = find_slot(l->slot, l->cap, name);

    if (e->name == NULL) {
        if (2 * (l->used + 1) > l->cap) {
            TRI_TRY(grow(l));
            e = find_slot(l->slot, l->cap, name);
        }
        e->name = tri_strdup(name);
        if (e->name == NULL)
            return tri_fail(TRI_ERR_NOMEM, "layout: cannot allocate the name \"%s\"", name);
        e->bytes = bytes;
        e->offset = l->bytes;
        l->bytes += tri_round_up(bytes, TRI_ALIGN_BYTES);
        l->used++;
    }
    if (e->bytes != bytes)
        return tri_fail(TRI_ERR_INTERNAL,
                        "layout: \"%s\" has %zu bytes, but %zu in an earlier program", name, bytes,
                        e->bytes);
    *offset = e->offset;
    return TRI_OK;
}

size_t tri_layout_bytes(const struct tri_layout *l)
{
    return l->bytes;
}
