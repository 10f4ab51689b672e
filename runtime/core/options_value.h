/* From YAML nodes to typed values and back: the part of the options that knows the kinds. Inner
 * header of core. */
#ifndef TRI_RUNTIME_CORE_OPTIONS_VALUE_H
#define TRI_RUNTIME_CORE_OPTIONS_VALUE_H

#include "runtime/core/memory.h"
#include "runtime/core/options.h"

#include <yaml.h>

/* Where values come from: messages begin with "name:line: ", overrides with "name: ". */
struct tri_opt_source {
    yaml_document_t *doc;
    const char *name;
    bool has_lines;
    struct tri_pool *pool; /* strings and lists go here */
};

/* tri_fail(TRI_ERR_USAGE) with the place of the node in front. */
tri_status tri_opt_fail(const struct tri_opt_source *src, const yaml_node_t *node, const char *fmt,
                        ...) TRI_PRINTF(3, 4);

/* Stores a node as the value of a row (never null; the caller treats that) in base + row->offset.
 * `key` is the full name for messages. TRI_ERR_USAGE, TRI_ERR_NOMEM. */
tri_status tri_opt_store(const struct tri_opt_source *src, const struct tri_opt *row,
                         const char *key, const yaml_node_t *node, void *base) TRI_CHECKED;
/* Stores the default of a row. TRI_ERR_INTERNAL when the row refuses it. */
tri_status tri_opt_store_default(const struct tri_opt *row, struct tri_pool *pool,
                                 void *base) TRI_CHECKED;

/* Plain null, ~ or nothing. */
bool tri_opt_is_null(const yaml_node_t *node);
/* Text of a scalar node, NUL-terminated; NULL if it is none or holds a NUL byte. */
const char *tri_opt_scalar(const yaml_node_t *node);
/* The same kind and content of two values of a row? */
bool tri_opt_equal(const struct tri_opt *row, const void *base_a, const void *base_b);
/* The value as YAML on one line. */
void tri_opt_print_value(const struct tri_opt *row, const void *base, struct tri_text *out);
/* "integer in [1, inf)", "one of a, b, c", "list of texts" ... */
void tri_opt_print_kind(const struct tri_opt *row, struct tri_text *out);

/* The known key or section nearest to a wrong one (Levenshtein); never NULL for
 * a non-empty table. */
const char *tri_opt_nearest(const struct tri_opt_section *sections, size_t nsections,
                            const char *wrong, char *buffer, size_t bytes);

/* Parses one YAML document; the caller deletes it. TRI_ERR_USAGE with line and column. */
tri_status tri_opt_parse_yaml(const char *name, bool has_lines, const char *text, size_t len,
                              yaml_document_t *doc) TRI_CHECKED;

#endif
