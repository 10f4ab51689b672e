/* YAML documents out of text, and the nearest known key for a wrong one. */
#include "runtime/core/options_value.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

static tri_status syntax_error(const char *name, bool has_lines, const yaml_parser_t *p)
{
    const char *problem = p->problem == NULL ? "not readable" : p->problem;

    if (p->error == YAML_MEMORY_ERROR)
        return tri_fail(TRI_ERR_NOMEM, "%s: out of memory", name);
    if (p->error == YAML_READER_ERROR)
        return tri_fail(TRI_ERR_USAGE, "%s: broken YAML at byte %zu: %s", name, p->problem_offset,
                        problem);
    if (!has_lines)
        return tri_fail(TRI_ERR_USAGE, "%s: broken YAML: %s", name, problem);
    return tri_fail(TRI_ERR_USAGE, "%s:%zu:%zu: broken YAML: %s%s%s", name,
                    p->problem_mark.line + 1, p->problem_mark.column + 1, problem,
                    p->context == NULL ? "" : " ", p->context == NULL ? "" : p->context);
}

/* Deep nesting costs libyaml quadratic time and much stack; no option needs it. What else is wrong
 * with the text is left to the loader. */
static tri_status check_depth(const char *name, const char *text, size_t len)
{
    yaml_parser_t p;
    yaml_event_t e;
    tri_status st = TRI_OK;
    int depth = 0;

    if (!yaml_parser_initialize(&p))
        return tri_fail(TRI_ERR_NOMEM, "%s: out of memory", name);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    for (bool end = false; !end && st == TRI_OK && yaml_parser_parse(&p, &e);) {
        end = e.type == YAML_STREAM_END_EVENT;
        if (e.type == YAML_SEQUENCE_START_EVENT || e.type == YAML_MAPPING_START_EVENT)
            depth++;
        if (e.type == YAML_SEQUENCE_END_EVENT || e.type == YAML_MAPPING_END_EVENT)
            depth--;
        if (depth > MAX_DEPTH)
            st = tri_fail(TRI_ERR_USAGE, "%s: lists and mappings are nested more than %d deep",
                          name, MAX_DEPTH);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&p);
    return st;
}

/* After the first document there must be nothing: a second one would be silently ignored. */
static tri_status check_end(const char *name, bool has_lines, yaml_parser_t *p)
{
    yaml_document_t rest;
    tri_status st = TRI_OK;

    if (!yaml_parser_load(p, &rest))
        return syntax_error(name, has_lines, p);
    if (yaml_document_get_root_node(&rest) != NULL)
        st = tri_fail(TRI_ERR_USAGE, "%s: more than one YAML document", name);
    yaml_document_delete(&rest);
    return st;
}

/* An empty text has no root node; everywhere else it is as good as null. */
static bool add_null_root(yaml_document_t *doc)
{
    static const yaml_char_t nothing[] = "";

    return yaml_document_get_root_node(doc) != NULL ||
           yaml_document_add_scalar(doc, NULL, nothing, 0, YAML_PLAIN_SCALAR_STYLE) != 0;
}

tri_status tri_opt_parse_yaml(const char *name, bool has_lines, const char *text, size_t len,
                              yaml_document_t *doc)
{
    yaml_parser_t p;
    bool at_end;
    tri_status st = TRI_OK;

    TRI_TRY(check_depth(name, text, len));
    if (!yaml_parser_initialize(&p))
        return tri_fail(TRI_ERR_NOMEM, "%s: out of memory", name);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    if (!yaml_parser_load(&p, doc)) {
        st = syntax_error(name, has_lines, &p);
        goto delete_parser;
    }
    at_end = yaml_document_get_root_node(doc) == NULL;
    if (!at_end)
        TRI_TRY_GOTO(st, check_end(name, has_lines, &p), delete_document);
    if (add_null_root(doc))
        goto delete_parser;
    st = tri_fail(TRI_ERR_NOMEM, "%s: out of memory", name);

delete_document:
    yaml_document_delete(doc);
delete_parser:
    yaml_parser_delete(&p);
    return st;
}

/* Edit distance of a and b (b below 128 bytes), two rows of the table at a time. */
static int levenshtein(const char *a, const char *b)
{
    int row[128];
    const int n = (int)strlen(b);

    if (n >= 128)
        return INT_MAX / 2;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        int corner = row[0];

        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int replace = corner + (a[i - 1] != b[j - 1]);
            const int shorter = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

            corner = row[j];
            row[j] = replace < shorter ? replace : shorter;
        }
    }
    return row[n];
}

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot == NULL ? key : dot + 1;
}

/* The whole keys compared, or the last parts at the price of 2: "lr" and "data.lr" are near
 * "optimizer.lr". */
static int distance(const char *wrong, const char *key)
{
    const int whole = levenshtein(wrong, key);
    const int part = levenshtein(last_part(wrong), last_part(key)) + 2;

    return part < whole ? part : whole;
}

/* Keeps the nearest of what it is shown. */
struct search {
    const char *wrong;
    int best;
    char *buffer;
    size_t bytes;
};

static void show(struct search *s, const char *key, size_t len)
{
    char text[128];
    int d;

    if (len >= sizeof(text))
        return;
    memcpy(text, key, len);
    text[len] = '\0';
    d = distance(s->wrong, text);
    if (d < s->best) {
        s->best = d;
        snprintf(s->buffer, s->bytes, "%s", text);
    }
}

const char *tri_opt_nearest(const struct tri_opt_section *sections, size_t nsections,
                            const char *wrong, char *buffer, size_t bytes)
{
    struct search s = {wrong, INT_MAX, buffer, bytes};

    buffer[0] = '\0';
    for (size_t i = 0; i < nsections; i++) {
        for (size_t r = 0; r < sections[i].count; r++) {
            const char *key = sections[i].rows[r].key;

            for (const char *dot = strchr(key, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
                show(&s, key, (size_t)(dot - key));
            show(&s, key, strlen(key));
        }
    }
    return buffer;
}
