/* Heap blocks, formatted strings and the bump allocator. */
#include "runtime/core/memory.h"
#include "runtime/core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_CHUNK_BYTES = 64 * 1024, POOL_ALIGN_BYTES = 16 };

struct tri_pool_chunk {
    struct tri_pool_chunk *next;
    size_t used, cap; /* bytes of data taken, bytes of data there are */
    _Alignas(POOL_ALIGN_BYTES) unsigned char data[];
};

static void *noted(void *p, const char *what, size_t count, size_t size)
{
    if (p == NULL)
        tri_debug("%s: cannot allocate %zu x %zu bytes", what, count, size);
    return p;
}

void *tri_calloc(size_t count, size_t size, const char *what)
{
    if (count == 0 || size == 0)
        count = size = 1; /* NULL means failure only */
    return noted(calloc(count, size), what, count, size);
}

void *tri_realloc(void *p, size_t count, size_t size, const char *what)
{
    if (count == 0 || size == 0)
        count = size = 1;
    if (count > SIZE_MAX / size)
        return noted(NULL, what, count, size);
    return noted(realloc(p, count * size), what, count, size);
}

void *tri_alloc_aligned(size_t bytes, const char *what)
{
    if (bytes > SIZE_MAX - TRI_ALIGN_BYTES)
        return noted(NULL, what, 1, bytes);
    bytes = tri_round_up(bytes == 0 ? 1 : bytes, TRI_ALIGN_BYTES);
    return noted(aligned_alloc(TRI_ALIGN_BYTES, bytes), what, 1, bytes);
}

char *tri_strdup(const char *s)
{
    return noted(strdup(s), "string", 1, strlen(s) + 1);
}

char *tri_asprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&s, fmt, args) < 0)
        s = NULL; /* its value is undefined after a failure */
    va_end(args);
    return s;
}

void tri_free(void *p)
{
    free(p);
}

tri_status tri_mul_size(size_t a, size_t b, const char *what, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return tri_fail(TRI_ERR_NOMEM, "%s: %zu x %zu bytes exceed the address space", what, a, b);
    *out = a * b;
    return TRI_OK;
}

static struct tri_pool_chunk *add_chunk(struct tri_pool *pool, size_t bytes)
{
    size_t cap = bytes > POOL_CHUNK_BYTES ? bytes : POOL_CHUNK_BYTES;
    struct tri_pool_chunk *c;

    if (cap > SIZE_MAX - sizeof(*c))
        return NULL;
    c = tri_calloc(1, sizeof(*c) + cap, "pool chunk");
    if (c == NULL)
        return NULL;
    c->cap = cap;
    c->next = pool->head;
    pool->head = c;
    return c;
}

void *tri_pool_alloc(struct tri_pool *pool, size_t bytes)
{
    struct tri_pool_chunk *c = pool->head;
    void *p;

    if (bytes > SIZE_MAX - POOL_ALIGN_BYTES)
        return NULL;
    bytes = tri_round_up(bytes, POOL_ALIGN_BYTES);
    if (c == NULL || c->cap - c->used < bytes)
        c = add_chunk(pool, bytes);
    if (c == NULL)
        return NULL;
    p = c->data + c->used;
    c->used += bytes;
    return p;
}

char *tri_pool_strdup(struct tri_pool *pool, const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = tri_pool_alloc(pool, bytes);

    return copy == NULL ? NULL : memcpy(copy, s, bytes);
}

char *tri_pool_printf(struct tri_pool *pool, const char *fmt, ...)
{
    va_list args;
    int len;
    char *s;

    va_start(args, fmt);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    s = len < 0 ? NULL : tri_pool_alloc(pool, (size_t)len + 1);
    if (s == NULL)
        return NULL;
    va_start(args, fmt);
    vsnprintf(s, (size_t)len + 1, fmt, args);
    va_end(args);
    return s;
}

void tri_pool_finish(struct tri_pool *pool)
{
    if (pool == NULL)
        return;
    while (pool->head != NULL) {
        struct tri_pool_chunk *next = pool->head->next;

        tri_free(pool->head);
        pool->head = next;
    }
}
