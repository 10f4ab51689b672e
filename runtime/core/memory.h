/* Heap memory outside the planned arenas: configuration, graphs, tables; never inside a step. */
#ifndef TRI_RUNTIME_CORE_MEMORY_H
#define TRI_RUNTIME_CORE_MEMORY_H

#include "runtime/core/status.h"

#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_ALIGN_BYTES 64 /* alignment of every tensor and arena */

/* count * size zeroed bytes, or NULL (also on overflow). `what` names the object in debug logs.
 * Local. */
void *tri_calloc(size_t count, size_t size, const char *what);
/* Resizes like realloc; NULL leaves the old block as it was (also on overflow of count * size).
 * Local. */
void *tri_realloc(void *p, size_t count, size_t size, const char *what);
/* Uninitialised bytes aligned to TRI_ALIGN_BYTES, freed by tri_free. Local. */
void *tri_alloc_aligned(size_t bytes, const char *what);
char *tri_strdup(const char *s);
/* printf into a fresh string; NULL when out of memory. Local. */
char *tri_asprintf(const char *fmt, ...) TRI_PRINTF(1, 2);
void tri_free(void *p);

/* *out = a * b; TRI_ERR_NOMEM with a message naming `what` on overflow. Local. */
tri_status tri_mul_size(size_t a, size_t b, const char *what, size_t *out) TRI_CHECKED;

/* x rounded up to a multiple of `to` (a power of two). */
static inline size_t tri_round_up(size_t x, size_t to)
{
    return (x + to - 1) & ~(to - 1);
}

/* A bump allocator: many small objects with one lifetime (a graph, a parsed file). Zero-initialise;
 * finish frees all. */
struct tri_pool {
    struct tri_pool_chunk *head; /* newest chunk first */
};
/* Zeroed bytes, 16-byte aligned; NULL when out of memory. Local. */
void *tri_pool_alloc(struct tri_pool *pool, size_t bytes);
char *tri_pool_strdup(struct tri_pool *pool, const char *s);
char *tri_pool_printf(struct tri_pool *pool, const char *fmt, ...) TRI_PRINTF(2, 3);
void tri_pool_finish(struct tri_pool *pool);

TRI_END_DECLS
#endif
