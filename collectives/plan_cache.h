/* The plans (rounds.h) that a communicator has made, kept by what they were made for: a step uses
 * few different counts, and its calls must not allocate. */
#ifndef TRI_COLLECTIVES_PLAN_CACHE_H
#define TRI_COLLECTIVES_PLAN_CACHE_H

#include "collectives/rounds.h"

enum { TRI_PLANS_KEPT = 64 };

/* A maker with one more argument: the root of a broadcast, the slices of a half of a sum. */
typedef tri_status tri_rounds_make_with(int rank, int size, int number, int64_t count,
                                        struct tri_rounds *out);

/* What a plan is made for. */
struct tri_plan_key {
    tri_rounds_make *make; /* NULL: by make_with */
    tri_rounds_make_with *make_with;
    int64_t count;
    int number; /* of make_with */
};

struct tri_plan_cache {
    struct tri_plan_key key[TRI_PLANS_KEPT];
    struct tri_rounds rounds[TRI_PLANS_KEPT];
    int nplans; /* made so far; beyond TRI_PLANS_KEPT: which one goes next */
};

/* The plan of `rank` of `size` for `key`, kept or new; when the cache is full the oldest one goes.
 * *out is valid until the next call. TRI_ERR_NOMEM. Local. */
tri_status tri_plan_cache_find(struct tri_plan_cache *c, int rank, int size,
                               struct tri_plan_key key, const struct tri_rounds **out) TRI_CHECKED;
void tri_plan_cache_finish(struct tri_plan_cache *c);

#endif
