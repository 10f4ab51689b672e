/* Kinds of options: reading, comparing, and naming what is allowed. */
#include "runtime/core/options_value.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tri_status tri_opt_fail(const struct tri_opt_source *src, const yaml_node_t *node, const char *fmt,
                        ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (src->has_lines)
        return tri_fail(TRI_ERR_USAGE, "%s:%zu: %s", src->name, node->start_mark.line + 1, text);
    return tri_fail(TRI_ERR_USAGE, "%s: %s", src->name, text);
}

const char *tri_opt_scalar(const yaml_node_t *node)
{
    const char *s;

    if (node->type != YAML_SCALAR_NODE)
        return NULL;
    s = (const char *)node->data.scalar.value;
    return strlen(s) == node->data.scalar.length ? s : NULL;
}

static bool is_plain(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

bool tri_opt_is_null(const yaml_node_t *node)
{
    const char *s = tri_opt_scalar(node);

    return is_plain(node) && s != NULL &&
           (s[0] == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0);
}

/* An interval "[1, inf)". */
struct interval {
    double lo, hi;
    bool lo_open, hi_open;
};

static bool inside(const char *allowed, double x)
{
    struct interval r;
    char *end;

    if (allowed == NULL)
        return true;
    r.lo_open = allowed[0] == '(';
    r.lo = strtod(allowed + 1, &end);
    r.hi = strtod(end + 1, &end); /* skips the comma */
    r.hi_open = *end == ')';
    return (r.lo_open ? x > r.lo : x >= r.lo) && (r.hi_open ? x < r.hi : x <= r.hi);
}

static bool parse_bool(const char *s, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(s, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* Decimal digits with an optional sign; no leading zeros, which YAML 1.1 reads as octal. */
static bool parse_int(const char *s, int64_t *out)
{
    const char *digits = s + (s[0] == '-' || s[0] == '+');
    char *end;
    long long v;

    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits[1] != '\0'))
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (*end != '\0' || errno != 0)
        return false;
    *out = v;
    return true;
}

static bool parse_double(const char *s, double *out)
{
    char *end;
    double v;

    if (s[0] == '\0' || strspn(s, "0123456789+-.eE") != strlen(s))
        return false;
    v = strtod(s, &end);
    if (*end != '\0' || !isfinite(v))
        return false;
    *out = v;
    return true;
}

static int find_choice(const char *allowed, const char *s)
{
    const size_t len = strlen(s);

    for (int i = 0;; i++) {
        const size_t n = strcspn(allowed, "|");

        if (n == len && memcmp(allowed, s, n) == 0)
            return i;
        if (allowed[n] == '\0')
            return -1;
        allowed += n + 1;
    }
}

const char *tri_opt_choice(const char *allowed, int value)
{
    static _Thread_local char text[64];

    for (int i = 0; i < value; i++) {
        allowed += strcspn(allowed, "|");
        TRI_ASSERT(*allowed == '|');
        allowed++;
    }
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(allowed, "|"), allowed);
    return text;
}

static const char *node_text(const yaml_node_t *node)
{
    const char *s = tri_opt_scalar(node);

    if (node->type == YAML_MAPPING_NODE)
        return "a mapping";
    if (node->type == YAML_SEQUENCE_NODE)
        return "a list";
    return s == NULL ? "a text with a NUL byte" : s;
}

/* "'optimizer.lr' must be a number in [0, inf), not 'fast'". */
static tri_status wrong_value(const struct tri_opt_source *src, const struct tri_opt *row,
                              const char *key, const yaml_node_t *node)
{
    const char *quote = node->type != YAML_SCALAR_NODE ? "" : is_plain(node) ? "'" : "\"";
    struct tri_text kind = {0};
    tri_status st;

    tri_opt_print_kind(row, &kind);
    st = tri_opt_fail(src, node, "'%s' must be %s, not %s%s%s", key,
                      kind.data == NULL ? "of another kind" : kind.data, quote, node_text(node),
                      quote);
    tri_text_finish(&kind);
    return st;
}

static tri_status out_of_memory(const char *key)
{
    return tri_fail(TRI_ERR_NOMEM, "option '%s': out of memory", key);
}

/* Numbers, truth values and choices: plain scalars only, a quoted one is a text. */
static bool read_scalar(const struct tri_opt *row, const char *s, void *value)
{
    const bool may_be_auto = row->type == TRI_OPT_INT_AUTO || row->type == TRI_OPT_DOUBLE_AUTO;
    const bool left_open = may_be_auto && strcmp(s, "auto") == 0;
    int64_t i = TRI_OPT_AUTO;
    double d = TRI_OPT_AUTO;

    switch (row->type) {
    case TRI_OPT_BOOL:
        return parse_bool(s, value);
    case TRI_OPT_INT:
    case TRI_OPT_INT_AUTO:
    case TRI_OPT_INTS:
        if (!left_open && !(parse_int(s, &i) && inside(row->allowed, (double)i)))
            return false;
        memcpy(value, &i, sizeof(i));
        return true;
    case TRI_OPT_DOUBLE:
    case TRI_OPT_DOUBLE_AUTO:
    case TRI_OPT_DOUBLES:
        if (!left_open && !(parse_double(s, &d) && inside(row->allowed, d)))
            return false;
        memcpy(value, &d, sizeof(d));
        return true;
    default:
        return false;
    }
}

static tri_status store_string(const struct tri_opt_source *src, const struct tri_opt *row,
                               const char *key, const yaml_node_t *node, const char **value)
{
    const char *s = tri_opt_scalar(node);

    if (s == NULL)
        return wrong_value(src, row, key, node);
    s = tri_pool_strdup(src->pool, s);
    if (s == NULL)
        return out_of_memory(key);
    *value = s;
    return TRI_OK;
}

static tri_status store_choice(const struct tri_opt_source *src, const struct tri_opt *row,
                               const char *key, const yaml_node_t *node, int *value)
{
    const char *s = tri_opt_scalar(node);
    const int choice = s == NULL ? -1 : find_choice(row->allowed, s);

    if (choice < 0)
        return wrong_value(src, row, key, node);
    *value = choice;
    return TRI_OK;
}

static tri_status store_record(const struct tri_opt_source *src, const struct tri_opt_record *rec,
                               const char *key, const yaml_node_t *node, void *base);

/* Items of the list kinds; `item` is one element of the array. */
static tri_status store_item(const struct tri_opt_source *src, const struct tri_opt *row,
                             const char *key, const yaml_node_t *node, void *item)
{
    const char *s;

    if (row->type == TRI_OPT_STRINGS)
        return store_string(src, row, key, node, item);
    if (row->type == TRI_OPT_RECORDS)
        return store_record(src, row->record, key, node, item);
    s = is_plain(node) ? tri_opt_scalar(node) : NULL;
    if (s == NULL || !read_scalar(row, s, item))
        return wrong_value(src, row, key, node);
    return TRI_OK;
}

static size_t item_bytes(const struct tri_opt *row)
{
    if (row->type == TRI_OPT_RECORDS)
        return row->record->bytes;
    return row->type == TRI_OPT_STRINGS ? sizeof(const char *) : sizeof(int64_t);
}

static void set_list(const struct tri_opt *row, const void *items, size_t count, bool given,
                     void *value)
{
    if (row->type == TRI_OPT_INTS)
        *(struct tri_opt_ints *)value = (struct tri_opt_ints){items, count, given};
    else if (row->type == TRI_OPT_DOUBLES)
        *(struct tri_opt_doubles *)value = (struct tri_opt_doubles){items, count, given};
    else if (row->type == TRI_OPT_STRINGS)
        *(struct tri_opt_strings *)value = (struct tri_opt_strings){items, count, given};
    else
        *(struct tri_opt_records *)value = (struct tri_opt_records){items, count, given};
}

static tri_status store_list(const struct tri_opt_source *src, const struct tri_opt *row,
                             const char *key, const yaml_node_t *node, void *value)
{
    const bool single = row->type == TRI_OPT_STRINGS && node->type == YAML_SCALAR_NODE;
    size_t count = 1;
    unsigned char *items;

    if (!single && node->type != YAML_SEQUENCE_NODE)
        return wrong_value(src, row, key, node);
    if (!single)
        count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    items = tri_pool_alloc(src->pool, count * item_bytes(row));
    if (items == NULL)
        return out_of_memory(key);
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *item = node;

        if (!single)
            item = yaml_document_get_node(src->doc, node->data.sequence.items.start[i]);
        TRI_TRY(store_item(src, row, key, item, items + i * item_bytes(row)));
    }
    set_list(row, items, count, true, value);
    return TRI_OK;
}

static bool is_list(enum tri_opt_type type)
{
    return type >= TRI_OPT_INTS;
}

tri_status tri_opt_store(const struct tri_opt_source *src, const struct tri_opt *row,
                         const char *key, const yaml_node_t *node, void *base)
{
    void *value = (unsigned char *)base + row->offset;
    const char *s;

    if (is_list(row->type))
        return store_list(src, row, key, node, value);
    if (row->type == TRI_OPT_STRING || row->type == TRI_OPT_PATH)
        return store_string(src, row, key, node, value);
    if (row->type == TRI_OPT_ENUM)
        return store_choice(src, row, key, node, value);
    s = is_plain(node) ? tri_opt_scalar(node) : NULL;
    if (s == NULL || !read_scalar(row, s, value))
        return wrong_value(src, row, key, node);
    return TRI_OK;
}

static void store_zero(const struct tri_opt *row, void *base)
{
    void *value = (unsigned char *)base + row->offset;
    const int64_t zero = 0;
    const char *empty = "";

    if (is_list(row->type))
        set_list(row, NULL, 0, false, value);
    else if (row->type == TRI_OPT_STRING || row->type == TRI_OPT_PATH)
        memcpy(value, &empty, sizeof(empty));
    else if (row->type == TRI_OPT_BOOL)
        *(bool *)value = false;
    else if (row->type == TRI_OPT_ENUM)
        *(int *)value = 0;
    else
        memcpy(value, &zero, sizeof(zero)); /* all bits zero is 0.0 too */
}

tri_status tri_opt_store_default(const struct tri_opt *row, struct tri_pool *pool, void *base)
{
    struct tri_opt_source src = {.name = "default", .pool = pool};
    yaml_document_t doc;
    yaml_node_t *root;
    tri_status st = TRI_OK;

    store_zero(row, base);
    if (row->def == NULL || row->def[0] == '\0')
        return TRI_OK;
    TRI_TRY(tri_opt_parse_yaml("default", false, row->def, strlen(row->def), &doc));
    src.doc = &doc;
    root = yaml_document_get_root_node(&doc);
    if (!tri_opt_is_null(root))
        st = tri_opt_store(&src, row, row->key, root, base);
    yaml_document_delete(&doc);
    return st == TRI_ERR_USAGE ? tri_fail(TRI_ERR_INTERNAL, "option table: %s", tri_error_text())
                               : st;
}

static const struct tri_opt *find_field(const struct tri_opt_record *rec, const char *name)
{
    for (size_t i = 0; i < rec->count; i++) {
        if (strcmp(rec->rows[i].key, name) == 0)
            return &rec->rows[i];
    }
    return NULL;
}

/* The fields of a record, to go behind "known are". */
static tri_status unknown_field(const struct tri_opt_source *src, const struct tri_opt_record *rec,
                                const char *key, const yaml_node_t *node)
{
    const struct tri_opt_section section = {rec->rows, rec->count, 0};
    char nearest[64];

    return tri_opt_fail(src, node, "'%s' has no field '%s'; the nearest is '%s'", key,
                        node_text(node),
                        tri_opt_nearest(&section, 1, node_text(node), nearest, sizeof(nearest)));
}

static tri_status store_record(const struct tri_opt_source *src, const struct tri_opt_record *rec,
                               const char *key, const yaml_node_t *node, void *base)
{
    uint64_t seen = 0; /* bit i: field i was given */

    if (node->type != YAML_MAPPING_NODE)
        return tri_opt_fail(src, node, "an item of '%s' must be a mapping, not '%s'", key,
                            node_text(node));
    TRI_ASSERT(rec->count <= 64);
    for (size_t i = 0; i < rec->count; i++)
        TRI_TRY(tri_opt_store_default(&rec->rows[i], src->pool, base));
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *name = yaml_document_get_node(src->doc, p->key);
        const yaml_node_t *value = yaml_document_get_node(src->doc, p->value);
        const struct tri_opt *row = find_field(rec, node_text(name));
        char full[128];

        if (row == NULL)
            return unknown_field(src, rec, key, name);
        if (seen >> (row - rec->rows) & 1u)
            return tri_opt_fail(src, name, "'%s' of '%s' is given twice", row->key, key);
        seen |= UINT64_C(1) << (row - rec->rows);
        snprintf(full, sizeof(full), "%s.%s", key, row->key);
        if (!tri_opt_is_null(value))
            TRI_TRY(tri_opt_store(src, row, full, value, base));
    }
    for (size_t i = 0; i < rec->count; i++) {
        if (rec->rows[i].def == NULL && !(seen >> i & 1u))
            return tri_opt_fail(src, node, "an item of '%s' lacks '%s'", key, rec->rows[i].key);
    }
    return TRI_OK;
}
