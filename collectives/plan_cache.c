/* See plan_cache.h. */
#include "collectives/plan_cache.h"

static bool equal(const struct tri_plan_key *a, const struct tri_plan_key *b)
{
    return a->make == b->make && a->make_with == b->make_with && a->count == b->count &&
           a->number == b->number;
}

tri_status tri_plan_cache_find(struct tri_plan_cache *c, int rank, int size,
                               struct tri_plan_key key, const struct tri_rounds **out)
{
    struct tri_rounds made = {0};
    int slot;

    for (int i = 0; i < c->nplans && i < TRI_PLANS_KEPT; i++) {
        if (equal(&c->key[i], &key)) {
            *out = &c->rounds[i];
            return TRI_OK;
        }
    }
    if (key.make != NULL)
        TRI_TRY(key.make(rank, size, key.count, &made));
    else
        TRI_TRY(key.make_with(rank, size, key.number, key.count, &made));
    slot = c->nplans % TRI_PLANS_KEPT;
    tri_rounds_finish(&c->rounds[slot]);
    c->key[slot] = key;
    c->rounds[slot] = made;
    c->nplans = c->nplans + 1 < 2 * TRI_PLANS_KEPT ? c->nplans + 1 : TRI_PLANS_KEPT;
    *out = &c->rounds[slot];
    return TRI_OK;
}

void tri_plan_cache_finish(struct tri_plan_cache *c)
{
    for (int i = 0; i < TRI_PLANS_KEPT; i++)
        tri_rounds_finish(&c->rounds[i]);
    *c = (struct tri_plan_cache){0};
}
