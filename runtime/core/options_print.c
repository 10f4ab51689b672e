/* Values of options as YAML, and the words for what an option accepts. */
#include "runtime/core/options_value.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* May stand without quotes: a safe alphabet, and no word or number that YAML reads as something
 * else. */
static bool is_plain_text(const char *s)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on",
                                        "off",  "null",  "y",   "n"};

    if (!isalpha((unsigned char)s[0]) && s[0] != '/' && s[0] != '_')
        return false;
    for (const char *c = s; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && strchr("_./-+", *c) == NULL)
            return false;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(s, words[i]) == 0)
            return false;
    }
    return true;
}

static void print_string(const char *s, struct tri_text *out)
{
    if (is_plain_text(s)) {
        tri_text_printf(out, "%s", s);
        return;
    }
    tri_text_printf(out, "\"");
    for (; *s != '\0'; s++) {
        const unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            tri_text_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            tri_text_printf(out, "\\x%02x", c);
        else
            tri_text_printf(out, "%c", c);
    }
    tri_text_printf(out, "\"");
}

/* The shortest decimal text that reads back to the same double. */
static void print_double(double x, struct tri_text *out)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x) /* bit-equal but for the sign of zero */
            break;
    }
    tri_text_printf(out, "%s", text);
}

static void print_record(const struct tri_opt_record *rec, const unsigned char *item,
                         struct tri_text *out)
{
    struct tri_pool pool = {0};
    void *defaults = tri_pool_alloc(&pool, rec->bytes);
    const char *comma = "";

    tri_text_printf(out, "{");
    for (size_t i = 0; i < rec->count; i++) {
        const struct tri_opt *row = &rec->rows[i];
        const bool is_default = row->def != NULL && defaults != NULL &&
                                tri_opt_store_default(row, &pool, defaults) == TRI_OK &&
                                tri_opt_equal(row, item, defaults);

        if (is_default)
            continue;
        tri_text_printf(out, "%s%s: ", comma, row->key);
        tri_opt_print_value(row, item, out);
        comma = ", ";
    }
    tri_text_printf(out, "}");
    tri_pool_finish(&pool);
}

/* Item i of a list value. */
static void print_item(const struct tri_opt *row, const void *value, size_t i, struct tri_text *out)
{
    const struct tri_opt_records *records = value;

    if (row->type == TRI_OPT_INTS)
        tri_text_printf(out, "%lld", (long long)((const struct tri_opt_ints *)value)->v[i]);
    else if (row->type == TRI_OPT_DOUBLES)
        print_double(((const struct tri_opt_doubles *)value)->v[i], out);
    else if (row->type == TRI_OPT_STRINGS)
        print_string(((const struct tri_opt_strings *)value)->v[i], out);
    else
        print_record(row->record, (const unsigned char *)records->v + i * row->record->bytes, out);
}

/* All list structs begin alike: pointer, count, given. */
static const struct tri_opt_records *as_list(const void *value)
{
    return value;
}

static void print_list(const struct tri_opt *row, const void *value, struct tri_text *out)
{
    const struct tri_opt_records *list = as_list(value);

    if (!list->given) {
        tri_text_printf(out, "null");
        return;
    }
    tri_text_printf(out, "[");
    for (size_t i = 0; i < list->count; i++) {
        tri_text_printf(out, "%s", i == 0 ? "" : ", ");
        print_item(row, value, i, out);
    }
    tri_text_printf(out, "]");
}

void tri_opt_print_value(const struct tri_opt *row, const void *base, struct tri_text *out)
{
    const void *value = (const unsigned char *)base + row->offset;
    int64_t i = 0;
    double d = 0;

    switch (row->type) {
    case TRI_OPT_BOOL:
        tri_text_printf(out, "%s", *(const bool *)value ? "true" : "false");
        break;
    case TRI_OPT_INT:
    case TRI_OPT_INT_AUTO:
        memcpy(&i, value, sizeof(i));
        if (row->type == TRI_OPT_INT_AUTO && i == TRI_OPT_AUTO)
            tri_text_printf(out, "auto");
        else
            tri_text_printf(out, "%lld", (long long)i);
        break;
    case TRI_OPT_DOUBLE:
    case TRI_OPT_DOUBLE_AUTO:
        memcpy(&d, value, sizeof(d));
        if (row->type == TRI_OPT_DOUBLE_AUTO && d == (double)TRI_OPT_AUTO)
            tri_text_printf(out, "auto");
        else
            print_double(d, out);
        break;
    case TRI_OPT_STRING:
    case TRI_OPT_PATH:
        print_string(*(const char *const *)value, out);
        break;
    case TRI_OPT_ENUM:
        tri_text_printf(out, "%s", tri_opt_choice(row->allowed, *(const int *)value));
        break;
    default:
        print_list(row, value, out);
    }
}

bool tri_opt_equal(const struct tri_opt *row, const void *base_a, const void *base_b)
{
    struct tri_text a = {0}, b = {0};
    bool equal;

    tri_opt_print_value(row, base_a, &a);
    tri_opt_print_value(row, base_b, &b);
    equal = !a.failed && !b.failed && strcmp(a.data, b.data) == 0;
    tri_text_finish(&a);
    tri_text_finish(&b);
    return equal;
}

static void print_choices(const char *allowed, struct tri_text *out)
{
    for (const char *sep = ""; *allowed != '\0'; sep = ", ") {
        const size_t n = strcspn(allowed, "|");

        tri_text_printf(out, "%s%.*s", sep, (int)n, allowed);
        allowed += n + (allowed[n] == '|');
    }
}

void tri_opt_print_kind(const struct tri_opt *row, struct tri_text *out)
{
    static const char *const words[] = {
        [TRI_OPT_BOOL] = "true or false",
        [TRI_OPT_INT] = "an integer",
        [TRI_OPT_INT_AUTO] = "auto or an integer",
        [TRI_OPT_DOUBLE] = "a number",
        [TRI_OPT_DOUBLE_AUTO] = "auto or a number",
        [TRI_OPT_STRING] = "a text",
        [TRI_OPT_PATH] = "a path",
        [TRI_OPT_ENUM] = "one of ",
        [TRI_OPT_INTS] = "a list of integers",
        [TRI_OPT_DOUBLES] = "a list of numbers",
        [TRI_OPT_STRINGS] = "a text or a list of texts",
        [TRI_OPT_RECORDS] = "a list of mappings",
    };

    tri_text_printf(out, "%s", words[row->type]);
    if (row->type == TRI_OPT_ENUM)
        print_choices(row->allowed, out);
    else if (row->allowed != NULL)
        tri_text_printf(out, " in %s", row->allowed);
}
