/* memory: a place for every value.
 *
 * Persistent storages go to the layout by name; what an engine touches gets an exchange place of
 * its own, since only waits order it; all else is placed in the step arena by its lifetime over the
 * positions of the compute stream, and so is the scratch of each instruction. */
#include "runtime/plan/program.h"

#include "runtime/core/memory.h"
#include "runtime/plan/offsets.h"
#include "runtime/plan/storage.h"

#include <stdio.h>

enum { NAME_BYTES = 512 };

/* Places of the storages, by root value. */
struct planner {
    struct tri_program *p;
    struct tri_storage_map map;
    struct tri_place *root;  /* by value, for roots */
    struct tri_block *block; /* storages of the step arena, then scratch of instructions */
    int32_t *owner;          /* by block: root value, or -1 - instruction */
    int nblock;
    int32_t nstorage;
};

static const char *role_prefix(enum tri_role role)
{
    switch (role) {
    case TRI_ROLE_INPUT:
        return "input";
    case TRI_ROLE_PARAM:
        return "param";
    case TRI_ROLE_STATE:
        return "state";
    default:
        return "output";
    }
}

static tri_status place_persistent(struct planner *pl, tri_vid root, struct tri_layout *layout)
{
    const struct tri_storage *s = &pl->map.storage[root];
    const struct tri_value *keeper = &pl->p->graph->value[s->keeper];
    struct tri_place *place = &pl->root[root];
    char name[NAME_BYTES];
    int n;

    if (keeper->role != TRI_ROLE_OUTPUT && tri_value_bytes(keeper) != s->bytes)
        return tri_fail(TRI_ERR_INTERNAL, "memory: \"%s\" is a piece of another value",
                        keeper->name);
    n = snprintf(name, sizeof(name), "%s/%s", role_prefix(keeper->role), keeper->name);
    if (n < 0 || n >= NAME_BYTES)
        return tri_fail(TRI_ERR_USAGE, "memory: the name \"%.64s...\" is longer than %d bytes",
                        keeper->name, NAME_BYTES);
    place->arena = TRI_ARENA_PERSISTENT;
    return tri_layout_place(layout, name, s->bytes, &place->offset);
}

static void add_block(struct planner *pl, size_t bytes, uint32_t first, uint32_t last,
                      int32_t owner)
{
    if (bytes == 0)
        return;
    pl->block[pl->nblock] = (struct tri_block){
        .bytes = tri_round_up(bytes, TRI_ALIGN_BYTES), .first = first, .last = last};
    pl->owner[pl->nblock++] = owner;
}

/* Gives each storage its arena; step storages become blocks, the others their final place. */
static tri_status place_storages(struct planner *pl, struct tri_layout *layout)
{
    struct tri_program *p = pl->p;

    for (int v = 0; v < p->graph->nvalue; v++) {
        const struct tri_storage *s = &pl->map.storage[v];
        struct tri_place *place = &pl->root[v];

        if (pl->map.parent[v] != v)
            continue;
        if (s->keeper == TRI_NONE && !s->written) {
            place->storage = TRI_NONE;
            continue;
        }
        place->storage = pl->nstorage++;
        if (s->keeper != TRI_NONE && s->collective) {
            return tri_fail(TRI_ERR_INTERNAL,
                            "memory: a collective works on \"%s\", which is persistent",
                            p->graph->value[s->keeper].name);
        } else if (s->keeper != TRI_NONE) {
            TRI_TRY(place_persistent(pl, v, layout));
        } else if (s->exchange) {
            place->arena = TRI_ARENA_EXCHANGE;
        } else {
            place->arena = TRI_ARENA_STEP;
            add_block(pl, s->bytes, s->first, s->last, v);
        }
    }
    return TRI_OK;
}

/* What ranks of a node share comes first: they find each other's buckets at equal offsets, whatever
 * else each of them has. */
static void place_exchange(struct planner *pl, bool shared)
{
    struct tri_program *p = pl->p;

    for (int v = 0; v < p->graph->nvalue; v++) {
        const struct tri_storage *s = &pl->map.storage[v];
        struct tri_place *place = &pl->root[v];

        if (pl->map.parent[v] != v || place->storage < 0 || place->arena != TRI_ARENA_EXCHANGE ||
            s->shared != shared)
            continue;
        place->offset = p->arena_bytes[TRI_ARENA_EXCHANGE];
        p->arena_bytes[TRI_ARENA_EXCHANGE] += tri_round_up(s->bytes, TRI_ALIGN_BYTES);
    }
}

static size_t scratch_of(const struct tri_program *p, const struct tri_instr *in)
{
    return in->kernel != TRI_NONE ? p->kernel[in->kernel]->scratch_bytes : 0;
}

/* The instructions of an engine run one behind the other, at unknown positions of the compute
 * stream: they share one scratch, which lives all the step. */
static void add_engine_scratch(struct planner *pl, enum tri_stream stream)
{
    struct tri_program *p = pl->p;
    size_t bytes = 0;

    for (int i = 0; i < p->ninstr; i++)
        if (p->instr[i].stream == stream && scratch_of(p, &p->instr[i]) > bytes)
            bytes = scratch_of(p, &p->instr[i]);
    if (bytes > 0)
        add_block(pl, bytes, 1, p->stream_count[TRI_STREAM_COMPUTE], -1 - p->ninstr - (int)stream);
}

static void set_engine_scratch(struct tri_program *p, enum tri_stream stream, size_t offset)
{
    for (int i = 0; i < p->ninstr; i++)
        if (p->instr[i].stream == stream)
            p->instr[i].scratch_offset = offset;
}

static tri_status place_blocks(struct planner *pl)
{
    struct tri_program *p = pl->p;

    for (int i = 0; i < p->ninstr; i++)
        if (p->instr[i].stream == TRI_STREAM_COMPUTE && p->instr[i].kernel != TRI_NONE)
            add_block(pl, scratch_of(p, &p->instr[i]), p->instr[i].seq, p->instr[i].seq, -1 - i);
    for (int t = TRI_STREAM_COMPUTE + 1; t < TRI_STREAM_COUNT; t++)
        add_engine_scratch(pl, (enum tri_stream)t);
    TRI_TRY(
        tri_plan_offsets(pl->block, pl->nblock, &p->arena_bytes[TRI_ARENA_STEP], &p->live_bytes));
    for (int b = 0; b < pl->nblock; b++) {
        if (pl->owner[b] >= 0)
            pl->root[pl->owner[b]].offset = pl->block[b].offset;
        else if (pl->owner[b] < -p->ninstr)
            set_engine_scratch(p, (enum tri_stream)(-1 - p->ninstr - pl->owner[b]),
                               pl->block[b].offset);
        else
            p->instr[-1 - pl->owner[b]].scratch_offset = pl->block[b].offset;
    }
    return TRI_OK;
}

/* From roots to all values. */
static void spread_places(struct planner *pl)
{
    for (int v = 0; v < pl->p->graph->nvalue; v++) {
        size_t at;
        tri_vid root = tri_storage_root(&pl->map, v, &at);

        pl->p->place[v] = pl->root[root];
        pl->p->place[v].offset += at;
    }
}

tri_status tri_plan_memory(struct tri_program *p, struct tri_layout *layout)
{
    size_t nvalue = (size_t)p->graph->nvalue + 1, nblock = nvalue + (size_t)p->ninstr;
    struct planner pl = {.p = p};
    struct tri_place *place = tri_calloc(nvalue, sizeof(*place), "places");
    tri_status st = TRI_OK;

    pl.root = tri_calloc(nvalue, sizeof(*pl.root), "places");
    pl.block = tri_calloc(nblock, sizeof(*pl.block), "blocks");
    pl.owner = tri_calloc(nblock, sizeof(*pl.owner), "blocks");
    if (place == NULL || pl.root == NULL || pl.block == NULL || pl.owner == NULL) {
        tri_free(place);
        st = tri_fail(TRI_ERR_NOMEM, "memory: cannot allocate tables for %zu values", nvalue);
        goto finish;
    }
    tri_free(p->place);
    p->place = place;
    p->arena_bytes[TRI_ARENA_EXCHANGE] = 0;
    TRI_TRY_GOTO(st, tri_storage_build(&pl.map, p), finish);
    TRI_TRY_GOTO(st, place_storages(&pl, layout), finish);
    place_exchange(&pl, true);
    place_exchange(&pl, false);
    TRI_TRY_GOTO(st, place_blocks(&pl), finish);
    spread_places(&pl);
    p->arena_bytes[TRI_ARENA_PERSISTENT] = tri_layout_bytes(layout);
finish:
    tri_storage_finish(&pl.map);
    tri_free(pl.root);
    tri_free(pl.block);
    tri_free(pl.owner);
    return st;
}
