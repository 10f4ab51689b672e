#include "optim/exchange_layout.h"

#include "runtime/core/memory.h"

static int64_t align(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

tri_status tri_exchange_layout_make(const int64_t *count, int n, int64_t first_bytes,
                                    int64_t bucket_bytes, struct tri_exchange_layout *out)
{
    struct tri_exchange_layout l = {0};
    struct tri_bucket_range *b = NULL;

    l.at = tri_calloc((size_t)n + 1, sizeof(*l.at), "places of gradients");
    l.bucket = tri_calloc((size_t)n + 1, sizeof(*l.bucket), "buckets");
    if (l.at == NULL || l.bucket == NULL) {
        tri_exchange_layout_finish(&l);
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the layout of %d gradients", n);
    }
    for (int k = 0; k < n; k++) {
        int i = n - 1 - k;
        int64_t limit = l.nbuckets <= 1 && first_bytes < bucket_bytes ? first_bytes : bucket_bytes;
        int64_t place = b != NULL ? align(b->count, TRI_PART_ALIGN) : 0;

        if (b == NULL || (b->count > 0 && place + count[i] > limit / (int64_t)sizeof(float))) {
            l.elements = align(l.elements, TRI_BUCKET_ALIGN);
            b = &l.bucket[l.nbuckets++];
            *b = (struct tri_bucket_range){.first = k, .at = l.elements};
            place = 0;
        }
        l.at[i] = b->at + place;
        b->count = place + count[i];
        b->end = k + 1;
        l.elements = b->at + b->count;
    }
    *out = l;
    return TRI_OK;
}

void tri_exchange_layout_finish(struct tri_exchange_layout *l)
{
    tri_free(l->at);
    tri_free(l->bucket);
    *l = (struct tri_exchange_layout){0};
}
