/* Options: the walk over YAML mappings, lookup of keys, printing of whole sections. */
#include "runtime/core/options.h"
#include "runtime/core/options_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 128 };

/* What happened to one row so far. */
struct row_state {
    bool given;
    size_t line; /* of this file, from 1; 0: not in it */
};

struct tri_opts {
    const struct tri_opt_section *sections;
    size_t nsections;
    unsigned char *base;
    struct tri_pool pool;
    struct row_state *states; /* one a row, in the order of the sections */
    size_t nrows;
};

struct found {
    const struct tri_opt *row;
    void *base;
    struct row_state *state;
};

static bool find_row(const struct tri_opts *o, const char *key, struct found *out)
{
    size_t first = 0;

    for (size_t s = 0; s < o->nsections; s++) {
        const struct tri_opt_section *section = &o->sections[s];

        for (size_t r = 0; r < section->count; r++) {
            if (strcmp(section->rows[r].key, key) != 0)
                continue;
            *out =
                (struct found){&section->rows[r], o->base + section->offset, &o->states[first + r]};
            return true;
        }
        first += section->count;
    }
    return false;
}

/* Is `key` itself, or a dotted part in front of it, `prefix`? */
static bool is_below(const char *key, const char *prefix)
{
    const size_t n = strlen(prefix);

    return strncmp(key, prefix, n) == 0 && (key[n] == '\0' || key[n] == '.');
}

static bool is_prefix(const struct tri_opt_section *sections, size_t nsections, const char *prefix)
{
    for (size_t s = 0; s < nsections; s++) {
        for (size_t r = 0; r < sections[s].count; r++) {
            if (is_below(sections[s].rows[r].key, prefix))
                return true;
        }
    }
    return false;
}

static tri_status set_defaults(struct tri_opts *o)
{
    for (size_t s = 0; s < o->nsections; s++) {
        const struct tri_opt_section *section = &o->sections[s];

        for (size_t r = 0; r < section->count; r++)
            TRI_TRY(tri_opt_store_default(&section->rows[r], &o->pool, o->base + section->offset));
    }
    return TRI_OK;
}

tri_status tri_opts_create(const struct tri_opt_section *sections, size_t nsections, void *base,
                           struct tri_opts **out)
{
    tri_status st = TRI_OK;
    struct tri_opts *o = tri_calloc(1, sizeof(*o), "options");

    if (o == NULL)
        return tri_fail(TRI_ERR_NOMEM, "options: out of memory");
    o->sections = sections;
    o->nsections = nsections;
    o->base = base;
    for (size_t s = 0; s < nsections; s++)
        o->nrows += sections[s].count;
    o->states = tri_calloc(o->nrows, sizeof(*o->states), "option states");
    if (o->states == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "options: out of memory");
        goto destroy;
    }
    TRI_TRY_GOTO(st, set_defaults(o), destroy);
    *out = o;
    return TRI_OK;

destroy:
    tri_opts_destroy(o);
    return st;
}

void tri_opts_destroy(struct tri_opts *o)
{
    if (o == NULL)
        return;
    tri_pool_finish(&o->pool);
    tri_free(o->states);
    tri_free(o);
}

static tri_status unknown_key(const struct tri_opts *o, const struct tri_opt_source *src,
                              const yaml_node_t *node, const char *key)
{
    char nearest[KEY_BYTES];

    return tri_opt_fail(src, node, "unknown option '%s'; the nearest is '%s'", key,
                        tri_opt_nearest(o->sections, o->nsections, key, nearest, sizeof(nearest)));
}

static tri_status set_row(const struct tri_opt_source *src, const struct found *f, const char *key,
                          const yaml_node_t *at, const yaml_node_t *value)
{
    if (f->state->line != 0)
        return tri_opt_fail(src, at, "'%s' is given twice (first on line %zu)", key,
                            f->state->line);
    f->state->line = at->start_mark.line + 1;
    f->state->given = !tri_opt_is_null(value);
    if (!f->state->given)
        return tri_opt_store_default(f->row, src->pool, f->base);
    return tri_opt_store(src, f->row, key, value, f->base);
}

/* Two equal keys in one mapping, which would hide a whole section. */
static tri_status check_twice(const struct tri_opt_source *src, const yaml_node_t *map,
                              const yaml_node_pair_t *pair, const char *key)
{
    const yaml_node_t *at = yaml_document_get_node(src->doc, pair->key);

    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
        const yaml_node_t *other = yaml_document_get_node(src->doc, p->key);
        const char *text = tri_opt_scalar(other);

        if (text != NULL && strcmp(text, tri_opt_scalar(at)) == 0)
            return tri_opt_fail(src, at, "'%s' is given twice (first on line %zu)", key,
                                other->start_mark.line + 1);
    }
    return TRI_OK;
}

static tri_status walk(struct tri_opts *o, const struct tri_opt_source *src, const char *prefix,
                       const yaml_node_t *map);

/* One value under its full key: an option, or a section to walk into. */
static tri_status assign(struct tri_opts *o, const struct tri_opt_source *src, const char *key,
                         const yaml_node_t *at, const yaml_node_t *value)
{
    struct found f;

    if (find_row(o, key, &f))
        return set_row(src, &f, key, at, value);
    if (!is_prefix(o->sections, o->nsections, key))
        return unknown_key(o, src, at, key);
    if (tri_opt_is_null(value))
        return TRI_OK;
    if (value->type != YAML_MAPPING_NODE)
        return tri_opt_fail(src, at, "'%s' is a section and must be a mapping of its options", key);
    return walk(o, src, key, value);
}

static tri_status walk(struct tri_opts *o, const struct tri_opt_source *src, const char *prefix,
                       const yaml_node_t *map)
{
    const yaml_node_pair_t *end = map->data.mapping.pairs.top;

    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < end; p++) {
        const yaml_node_t *name = yaml_document_get_node(src->doc, p->key);
        const yaml_node_t *value = yaml_document_get_node(src->doc, p->value);
        const char *text = tri_opt_scalar(name);
        char key[KEY_BYTES];

        if (text == NULL)
            return tri_opt_fail(src, name, "a key must be a plain text");
        if (snprintf(key, sizeof(key), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", text) >=
            (int)sizeof(key))
            return tri_opt_fail(src, name, "unknown option '%s'", key);
        TRI_TRY(check_twice(src, map, p, key));
        TRI_TRY(assign(o, src, key, name, value));
    }
    return TRI_OK;
}

static void forget_lines(struct tri_opts *o)
{
    for (size_t i = 0; i < o->nrows; i++)
        o->states[i].line = 0;
}

tri_status tri_opts_read_text(struct tri_opts *o, const char *name, const char *text, size_t len)
{
    yaml_document_t doc;
    struct tri_opt_source src = {&doc, name, true, &o->pool};
    const yaml_node_t *root;
    tri_status st = TRI_OK;

    TRI_TRY(tri_opt_parse_yaml(name, true, text, len, &doc));
    root = yaml_document_get_root_node(&doc);
    forget_lines(o);
    if (root->type == YAML_MAPPING_NODE)
        st = walk(o, &src, "", root);
    else if (!tri_opt_is_null(root))
        st = tri_opt_fail(&src, root, "the configuration must be a mapping of sections");
    yaml_document_delete(&doc);
    return st;
}

tri_status tri_opts_read_file(struct tri_opts *o, const char *path)
{
    struct tri_text text = {0};
    char block[4096];
    size_t got;
    tri_status st = TRI_OK;
    FILE *f = fopen(path, "rb");

    if (f == NULL)
        return tri_fail(TRI_ERR_USAGE, "cannot open '%s': %s", path, strerror(errno));
    while ((got = fread(block, 1, sizeof(block), f)) > 0 && !text.failed) {
        if (memchr(block, '\0', got) != NULL) {
            st = tri_fail(TRI_ERR_USAGE, "'%s' is no YAML text: it has a NUL byte", path);
            goto close;
        }
        tri_text_printf(&text, "%.*s", (int)got, block);
    }
    if (ferror(f))
        st = tri_fail(TRI_ERR_USAGE, "cannot read '%s': %s", path, strerror(errno));
    else if (text.failed)
        st = tri_fail(TRI_ERR_NOMEM, "'%s': out of memory", path);
    else
        st = tri_opts_read_text(o, path, text.data == NULL ? "" : text.data, text.len);

close:
    fclose(f);
    tri_text_finish(&text);
    return st;
}

tri_status tri_opts_override(struct tri_opts *o, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    yaml_document_t doc;
    struct tri_opt_source src = {&doc, assignment, false, &o->pool};
    const yaml_node_t *root;
    char key[KEY_BYTES];
    tri_status st;

    if (equals == NULL || equals == assignment || equals - assignment >= KEY_BYTES)
        return tri_fail(TRI_ERR_USAGE, "'%s' is no override of the form key=value", assignment);
    snprintf(key, sizeof(key), "%.*s", (int)(equals - assignment), assignment);
    TRI_TRY(tri_opt_parse_yaml(assignment, false, equals + 1, strlen(equals + 1), &doc));
    root = yaml_document_get_root_node(&doc);
    forget_lines(o);
    st = assign(o, &src, key, root, root);
    yaml_document_delete(&doc);
    return st;
}

tri_status tri_opts_check_required(const struct tri_opts *o)
{
    size_t i = 0;

    for (size_t s = 0; s < o->nsections; s++) {
        for (size_t r = 0; r < o->sections[s].count; r++, i++) {
            const struct tri_opt *row = &o->sections[s].rows[r];
            struct tri_text kind = {0};

            if (row->def != NULL || o->states[i].given)
                continue;
            tri_opt_print_kind(row, &kind);
            (void)tri_fail(TRI_ERR_USAGE, "'%s' is missing: it must be %s", row->key, kind.data);
            tri_text_finish(&kind);
            return TRI_ERR_USAGE;
        }
    }
    return TRI_OK;
}

bool tri_opts_given(const struct tri_opts *o, const char *key)
{
    struct found f;

    return find_row(o, key, &f) && f.state->given;
}

/* Writes "a:\n  b:\n" for the sections of `key` that `previous` was not in; returns the depth of
 * its last part. */
static int open_sections(const char *previous, const char *key, struct tri_text *out)
{
    int depth = 0;
    const char *part = key;

    for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1, depth++) {
        const size_t n = (size_t)(dot - key) + 1;

        if (strncmp(previous, key, n) != 0)
            tri_text_printf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
    }
    return depth;
}

void tri_opts_print(const struct tri_opts *o, struct tri_text *out)
{
    const char *previous = "";

    for (size_t s = 0; s < o->nsections; s++) {
        for (size_t r = 0; r < o->sections[s].count; r++) {
            const struct tri_opt *row = &o->sections[s].rows[r];
            const int depth = open_sections(previous, row->key, out);
            const char *dot = strrchr(row->key, '.');

            tri_text_printf(out, "%*s%s: ", 2 * depth, "", dot == NULL ? row->key : dot + 1);
            tri_opt_print_value(row, o->base + o->sections[s].offset, out);
            tri_text_printf(out, "\n");
            previous = row->key;
        }
    }
}

static void describe_row(const struct tri_opt *row, const char *indent, struct tri_text *out)
{
    tri_text_printf(out, "%s%s: ", indent, row->key);
    tri_opt_print_kind(row, out);
    if (row->def == NULL)
        tri_text_printf(out, "; required\n");
    else
        tri_text_printf(out, "; default %s\n", row->def[0] == '\0' ? "\"\"" : row->def);
    tri_text_printf(out, "%s    %s\n", indent, row->help);
    for (size_t i = 0; row->record != NULL && i < row->record->count; i++)
        describe_row(&row->record->rows[i], "    ", out);
}

tri_status tri_opts_describe(const struct tri_opt_section *sections, size_t nsections,
                             const char *key, struct tri_text *out)
{
    char nearest[KEY_BYTES];

    if (key != NULL && !is_prefix(sections, nsections, key))
        return tri_fail(TRI_ERR_USAGE, "unknown option '%s'; the nearest is '%s'", key,
                        tri_opt_nearest(sections, nsections, key, nearest, sizeof(nearest)));
    for (size_t s = 0; s < nsections; s++) {
        for (size_t r = 0; r < sections[s].count; r++) {
            if (key == NULL || is_below(sections[s].rows[r].key, key))
                describe_row(&sections[s].rows[r], "", out);
        }
    }
    return TRI_OK;
}
