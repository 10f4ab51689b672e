/* Options: one table that parses, documents and prints the configuration.
 *
 * A module describes its section by rows: a dotted key, a type, the place in the section's struct,
 * the default as YAML text, what is allowed, and one sentence of meaning. The same rows read YAML
 * files and `key=value` overrides, print the effective values as YAML that reads back to the same,
 * and make the reference of `trireme config`. Every error names the place (file and line, or the
 * override) and what is allowed. */
#ifndef TRI_RUNTIME_CORE_OPTIONS_H
#define TRI_RUNTIME_CORE_OPTIONS_H

#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* The C type of a value follows its kind. */
enum tri_opt_type {
    TRI_OPT_BOOL,        /* bool */
    TRI_OPT_INT,         /* int64_t */
    TRI_OPT_INT_AUTO,    /* int64_t, "auto" is TRI_OPT_AUTO */
    TRI_OPT_DOUBLE,      /* double */
    TRI_OPT_DOUBLE_AUTO, /* double, "auto" is TRI_OPT_AUTO */
    TRI_OPT_STRING,      /* const char *, never NULL; "" where nothing was given */
    TRI_OPT_PATH,        /* as STRING */
    TRI_OPT_ENUM,        /* int: the place in the choices */
    TRI_OPT_INTS,        /* struct tri_opt_ints */
    TRI_OPT_DOUBLES,     /* struct tri_opt_doubles */
    TRI_OPT_STRINGS,     /* struct tri_opt_strings; a single text is a list of one */
    TRI_OPT_RECORDS      /* struct tri_opt_records: a list of mappings */
};

#define TRI_OPT_AUTO (-1) /* value of the *_AUTO kinds where the choice is left open */

/* Lists. `given` is false for null (nothing given), which differs from the empty list []. */
struct tri_opt_ints {
    const int64_t *v;
    size_t count;
    bool given;
};
struct tri_opt_doubles {
    const double *v;
    size_t count;
    bool given;
};
struct tri_opt_strings {
    const char *const *v;
    size_t count;
    bool given;
};
struct tri_opt_records {
    const void *v; /* array of the record's struct */
    size_t count;
    bool given;
};

/* One option. `allowed`: choices "a|b|c" for ENUM (in the order of the values), an interval such as
 * "[0, 1)" or "[1, inf)" for numbers (also those in lists), else NULL. `def` is YAML text; NULL
 * makes the option required. */
struct tri_opt {
    const char *key;
    enum tri_opt_type type;
    size_t offset; /* in the section's struct, or in the record */
    const char *def;
    const char *allowed;
    const char *help;                    /* one sentence with units */
    const struct tri_opt_record *record; /* RECORDS: what an item looks like */
};

struct tri_opt_record {
    const struct tri_opt *rows; /* plain keys, no RECORDS inside */
    size_t count;
    size_t bytes; /* size of the struct */
};

/* The rows of one module and where its struct lies in the whole configuration. */
struct tri_opt_section {
    const struct tri_opt *rows;
    size_t count;
    size_t offset;
};

/* Values of some sections; owns the strings and lists that they point at. */
struct tri_opts;

/* Sets every default in `base` (the struct of all sections). Borrows sections and base until
 * destroy. Local. TRI_ERR_NOMEM; TRI_ERR_INTERNAL for a default that its own row refuses. */
tri_status tri_opts_create(const struct tri_opt_section *sections, size_t nsections, void *base,
                           struct tri_opts **out) TRI_CHECKED;
void tri_opts_destroy(struct tri_opts *o);

/* Reads a YAML mapping. TRI_ERR_USAGE: not readable, broken syntax, unknown key (names the nearest
 * known one), duplicate key, wrong type, out of range. null puts an option back to its default.
 * Local. */
tri_status tri_opts_read_file(struct tri_opts *o, const char *path) TRI_CHECKED;
/* The same from memory; `name` stands for the file in messages. Local. */
tri_status tri_opts_read_text(struct tri_opts *o, const char *name, const char *text,
                              size_t len) TRI_CHECKED;
/* One override "dotted.key=YAML value"; wins over everything before. TRI_ERR_USAGE as above.
 * Local. */
tri_status tri_opts_override(struct tri_opts *o, const char *assignment) TRI_CHECKED;
/* TRI_ERR_USAGE when a required option is missing. Local. */
tri_status tri_opts_check_required(const struct tri_opts *o) TRI_CHECKED;

/* Was the key given by a file or an override, rather than left to its default? Local. */
bool tri_opts_given(const struct tri_opts *o, const char *key);
/* All values as YAML, sections in order of the tables; reading it gives the same values. Local. */
void tri_opts_print(const struct tri_opts *o, struct tri_text *out);

/* Reference text: every option that is `key` or lies below it (NULL: all): key, type, allowed
 * values, default, meaning. TRI_ERR_USAGE for an unknown key. Local. */
tri_status tri_opts_describe(const struct tri_opt_section *sections, size_t nsections,
                             const char *key, struct tri_text *out) TRI_CHECKED;

/* Text of choice `value` in "a|b|c" as a string in static storage per thread, valid until the next
 * call. Local. */
const char *tri_opt_choice(const char *allowed, int value);

TRI_END_DECLS
#endif
