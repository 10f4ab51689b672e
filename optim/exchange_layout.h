/* Where gradients of a foreign model lie in flat buckets of f32. */
#ifndef TRI_OPTIM_EXCHANGE_LAYOUT_H
#define TRI_OPTIM_EXCHANGE_LAYOUT_H

#include "runtime/core/status.h"

#include <stdint.h>

enum {
    TRI_PART_ALIGN = 4,   /* elements: a gradient starts at a multiple of 16 bytes */
    TRI_BUCKET_ALIGN = 16 /* elements: a bucket starts at a cache line */
};

/* Gradients [first, end) in the order of exchange, that is: registered as n-1-first
 * down to n-end. */
struct tri_bucket_range {
    int first, end;
    int64_t at;    /* elements from the start of the memory */
    int64_t count; /* elements with the gaps between gradients */
};

struct tri_exchange_layout {
    int64_t *at; /* owned: element of the memory where gradient i (by registration) starts */
    struct tri_bucket_range *bucket; /* owned, in the order of exchange */
    int nbuckets;
    int64_t elements; /* of the memory */
};

/* Packs n gradients of count[i] >= 0 elements in reverse order. The first bucket is kept to
 * first_bytes, the others to bucket_bytes; a gradient that is larger has a bucket of its own.
 * TRI_ERR_NOMEM. Local. */
tri_status tri_exchange_layout_make(const int64_t *count, int n, int64_t first_bytes,
                                    int64_t bucket_bytes,
                                    struct tri_exchange_layout *out) TRI_CHECKED;
void tri_exchange_layout_finish(struct tri_exchange_layout *l);

#endif
