/* Who wrote each byte of an arena last, and who read it since: the evidence of verify. */
#ifndef TRI_RUNTIME_PLAN_RANGES_H
#define TRI_RUNTIME_PLAN_RANGES_H

#include "runtime/plan/program.h"

enum { TRI_OWNER_NONE = -1, TRI_OWNER_SCRATCH = -2 };

/* Bytes [begin, next range's begin). */
struct tri_range {
    size_t begin;
    tri_vid owner;                   /* value whose bytes these are, or TRI_OWNER_... */
    int32_t writer;                  /* instruction, TRI_NONE: there before the step */
    uint32_t read[TRI_STREAM_COUNT]; /* last reader of each stream since the write; 0: none */
};

/* Ranges of one arena, sorted, without gaps, up to `bytes`. */
struct tri_ranges {
    struct tri_range *range;
    int n, cap;
    size_t bytes;
};

/* One range that nobody has written. Local. */
tri_status tri_ranges_init(struct tri_ranges *r, size_t bytes) TRI_CHECKED;
void tri_ranges_finish(struct tri_ranges *r);
/* Makes range borders at begin and end; [*first, *last) are then the ranges of [begin, end).
 * Local. */
tri_status tri_ranges_cut(struct tri_ranges *r, size_t begin, size_t end, int *first,
                          int *last) TRI_CHECKED;
/* Replaces ranges [first, last) by one with that owner and writer, without readers. Local. */
void tri_ranges_own(struct tri_ranges *r, int first, int last, tri_vid owner, int32_t writer);

#endif
