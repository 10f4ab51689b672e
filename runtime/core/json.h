/* Reads JSON text into a tree of nodes: manifests of checkpoints, lines of metrics.
 *
 * Accepts RFC 8259 with these bounds: depth 32, no NUL inside strings. Numbers keep their text, so
 * that 64-bit integers stay exact. Nodes and texts live in the caller's pool; memory stays
 * proportional to the input. */
#ifndef TRI_RUNTIME_CORE_JSON_H
#define TRI_RUNTIME_CORE_JSON_H

#include "runtime/core/memory.h"
#include "runtime/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

enum tri_json_kind {
    TRI_JSON_NULL,
    TRI_JSON_FALSE,
    TRI_JSON_TRUE,
    TRI_JSON_NUMBER,
    TRI_JSON_STRING,
    TRI_JSON_ARRAY,
    TRI_JSON_OBJECT
};

struct tri_json {
    enum tri_json_kind kind;
    const char *key;        /* name inside an object, else NULL */
    const char *text;       /* NUMBER: as written; STRING: decoded UTF-8 */
    struct tri_json *child; /* ARRAY, OBJECT: first member */
    struct tri_json *next;  /* next member of the parent */
    int count;              /* members of an ARRAY or OBJECT */
};

/* Parses exactly one value; `name` (a path) stands in messages. TRI_ERR_DATA with the byte offset
 * of the fault. Local. */
tri_status tri_json_parse(struct tri_pool *pool, const char *text, size_t bytes, const char *name,
                          struct tri_json **out) TRI_CHECKED;

/* Member of an object by key, NULL when absent or when j is NULL or no object. Local. */
const struct tri_json *tri_json_get(const struct tri_json *j, const char *key);
/* The value when j is a number that int64_t holds exactly as written, or a number, or a string.
 * False else (j may be NULL). Local. */
bool tri_json_int(const struct tri_json *j, int64_t *out);
bool tri_json_double(const struct tri_json *j, double *out);
const char *tri_json_string(const struct tri_json *j);

TRI_END_DECLS
#endif
