/* Which values of a graph share memory, and where in the shared piece each one lies. */
#ifndef TRI_RUNTIME_PLAN_STORAGE_H
#define TRI_RUNTIME_PLAN_STORAGE_H

#include "runtime/plan/program.h"

/* A piece of memory under its root value. It lives from its first write to its last use, counted in
 * positions of the compute stream from 1; with a use by an engine `last` is UINT32_MAX. */
struct tri_storage {
    size_t bytes;    /* of the root, which holds all others */
    tri_vid keeper;  /* the value that makes it persistent, TRI_NONE */
    bool exchange;   /* an engine reads or writes it */
    bool collective; /* a collective does */
    bool shared;     /* one that ranks of a node take part in */
    bool packed;     /* it is a PACK's flat value */
    bool written;    /* some instruction writes it */
    uint32_t first, last;
};

/* Union-find over the values of a program's graph, with displacements. */
struct tri_storage_map {
    const struct tri_program *program;
    uint32_t *position;          /* by op: number in the compute stream, 0: not in it */
    int32_t *parent;             /* by value */
    size_t *shift;               /* by value: bytes from the parent's start */
    struct tri_storage *storage; /* by value, meaningful for roots */
};

/* Applies the alias rules: RESHAPE, VIEW and MUST first, then PACK takes its parts in, then MAY
 * where the input is a step temporary of the same size that nobody needs later. TRI_ERR_INTERNAL
 * names a part that cannot be placed. */
tri_status tri_storage_build(struct tri_storage_map *m, const struct tri_program *p) TRI_CHECKED;
void tri_storage_finish(struct tri_storage_map *m);
/* Root of v, and where v starts in it. */
tri_vid tri_storage_root(const struct tri_storage_map *m, tri_vid v, size_t *offset);

#endif
