/* The option tables: every kind read, refused and printed. */
#include "runtime/core/options.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

struct item {
    const char *name;
    double weight;
    int kind;
};

struct values {
    bool flag;
    int64_t count, threads;
    double rate, eps;
    const char *dir;
    int mode;
    struct tri_opt_ints sizes;
    struct tri_opt_doubles betas;
    struct tri_opt_strings paths;
    struct tri_opt_records items;
};

static const struct tri_opt item_rows[] = {
    {"name", TRI_OPT_STRING, offsetof(struct item, name), NULL, NULL, "its name", NULL},
    {"weight", TRI_OPT_DOUBLE_AUTO, offsetof(struct item, weight), "auto", "[0, inf)", "w", NULL},
    {"kind", TRI_OPT_ENUM, offsetof(struct item, kind), "x", "x|y", "k", NULL},
};
static const struct tri_opt_record item_record = {item_rows, 3, sizeof(struct item)};

#define AT(field) offsetof(struct values, field)
static const struct tri_opt rows[] = {
    {"run.flag", TRI_OPT_BOOL, AT(flag), "false", NULL, "a flag", NULL},
    {"run.count", TRI_OPT_INT, AT(count), "7", "[1, 100]", "a count", NULL},
    {"run.threads", TRI_OPT_INT_AUTO, AT(threads), "auto", "[1, inf)", "threads", NULL},
    {"run.dir", TRI_OPT_PATH, AT(dir), "", NULL, "a folder", NULL},
    {"optim.lr", TRI_OPT_DOUBLE, AT(rate), "0.1", "(0, 1)", "a rate", NULL},
    {"optim.adam.eps", TRI_OPT_DOUBLE_AUTO, AT(eps), "auto", "[0, inf)", "eps", NULL},
    {"optim.adam.betas", TRI_OPT_DOUBLES, AT(betas), "[0.9, 0.999]", "[0, 1)", "betas", NULL},
    {"optim.mode", TRI_OPT_ENUM, AT(mode), "fast", "slow|fast|true", "a mode", NULL},
    {"optim.sizes", TRI_OPT_INTS, AT(sizes), "null", "[1, inf)", "sizes", NULL},
    {"optim.paths", TRI_OPT_STRINGS, AT(paths), "null", NULL, "paths", NULL},
    {"optim.items", TRI_OPT_RECORDS, AT(items), "null", NULL, "items", &item_record},
};
static const struct tri_opt_section section = {rows, sizeof(rows) / sizeof(rows[0]), 0};

static struct values v;
static struct tri_opts *opts;

static void setup(void)
{
    cr_assert_eq(tri_opts_create(&section, 1, &v, &opts), TRI_OK, "%s", tri_error_text());
}

static void teardown(void)
{
    tri_opts_destroy(opts);
}

TestSuite(options, .init = setup, .fini = teardown);

static void read_ok(const char *yaml)
{
    cr_assert_eq(tri_opts_read_text(opts, "run.yaml", yaml, strlen(yaml)), TRI_OK, "%s",
                 tri_error_text());
}

static void override_ok(const char *text)
{
    cr_assert_eq(tri_opts_override(opts, text), TRI_OK, "%s", tri_error_text());
}

static void refused(const char *yaml, const char *message)
{
    cr_assert_eq(tri_opts_read_text(opts, "run.yaml", yaml, strlen(yaml)), TRI_ERR_USAGE);
    cr_assert_str_eq(tri_error_text(), message);
}

Test(options, defaults)
{
    cr_assert_eq(v.count, 7);
    cr_assert_eq(v.threads, TRI_OPT_AUTO);
    cr_assert_eq(v.eps, (double)TRI_OPT_AUTO);
    cr_assert_eq(v.mode, 1);
    cr_assert_str_eq(v.dir, "");
    cr_assert_not(v.sizes.given);
    cr_assert_eq(v.betas.count, 2);
    cr_assert_eq(v.betas.v[1], 0.999);
    cr_assert_not(tri_opts_given(opts, "run.count"));
}

Test(options, reads_every_kind)
{
    read_ok("run: {flag: true, count: 9, threads: 3, dir: 'a b'}\n"
            "optim:\n  lr: 1e-3\n  adam:\n    eps: .5\n    betas: [0, 0.5]\n  mode: true\n"
            "  sizes: []\n  paths: one.h5\n"
            "  items: [{name: 'h.*'}, {name: b, weight: 2, kind: y}]\n");
    cr_assert(v.flag);
    cr_assert_eq(v.count, 9);
    cr_assert_eq(v.threads, 3);
    cr_assert_str_eq(v.dir, "a b");
    cr_assert_eq(v.rate, 1e-3);
    cr_assert_eq(v.eps, 0.5);
    cr_assert_eq(v.betas.v[0], 0.0);
    cr_assert_eq(v.mode, 2);
    cr_assert(v.sizes.given);
    cr_assert_eq(v.sizes.count, 0);
    cr_assert_str_eq(v.paths.v[0], "one.h5");
    cr_assert_eq(v.items.count, 2);
    const struct item *items = v.items.v;
    cr_assert_str_eq(items[0].name, "h.*");
    cr_assert_eq(items[0].weight, (double)TRI_OPT_AUTO);
    cr_assert_eq(items[1].kind, 1);
    cr_assert(tri_opts_given(opts, "optim.adam.eps"));
}

Test(options, overrides_win_and_null_restores_the_default)
{
    read_ok("run:\n  count: 9\n");
    override_ok("run.count=10");
    override_ok("run.count=11");
    override_ok("optim.items=[{name: a, weight: 1}]");
    override_ok("optim.adam={eps: 1}");
    override_ok("optim.paths=[a, b]");
    override_ok("run.dir=x=y");
    cr_assert_eq(v.count, 11);
    cr_assert_eq(v.items.count, 1);
    cr_assert_eq(v.eps, 1.0);
    cr_assert_eq(v.paths.count, 2);
    cr_assert_str_eq(v.dir, "x=y");
    override_ok("run.count=null");
    cr_assert_eq(v.count, 7);
    cr_assert_not(tri_opts_given(opts, "run.count"));
}

Test(options, empty_files_and_sections)
{
    read_ok("");
    read_ok("# nothing\n");
    read_ok("run:\noptim: {}\n");
}

Test(options, names_the_nearest_key)
{
    refused("run:\n  count: 1\n  thread: 2\n",
            "run.yaml:3: unknown option 'run.thread'; the nearest is 'run.threads'");
    refused("lr: 1\n", "run.yaml:1: unknown option 'lr'; the nearest is 'optim.lr'");
    refused("\nrnu: {count: 1}\n", "run.yaml:2: unknown option 'rnu'; the nearest is 'run'");
    refused("optim:\n  items: [{name: a}, {nam: b}]\n",
            "run.yaml:2: 'optim.items' has no field 'nam'; the nearest is 'name'");
    cr_assert_eq(tri_opts_override(opts, "run.cuont=3"), TRI_ERR_USAGE);
    cr_assert_str_eq(tri_error_text(),
                     "run.cuont=3: unknown option 'run.cuont'; the nearest is 'run.count'");
    cr_assert_eq(tri_opts_override(opts, "count"), TRI_ERR_USAGE);
}

Test(options, refuses_wrong_kinds)
{
    refused("run: {count: many}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not 'many'");
    refused("run: {count: 2.5}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not '2.5'");
    refused("run: {count: '3'}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not \"3\"");
    refused("run: {count: 99999999999999999999}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not '99999999999999999999'");
    refused("run: {flag: 1}", "run.yaml:1: 'run.flag' must be true or false, not '1'");
    refused("run: {dir: [a]}", "run.yaml:1: 'run.dir' must be a path, not a list");
    refused("run: {count: {a: 1}}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not a mapping");
    refused("optim: {lr: nan}", "run.yaml:1: 'optim.lr' must be a number in (0, 1), not 'nan'");
    refused("optim: {mode: quick}",
            "run.yaml:1: 'optim.mode' must be one of slow, fast, true, not 'quick'");
    refused("optim: {sizes: 3}",
            "run.yaml:1: 'optim.sizes' must be a list of integers in [1, inf), not '3'");
    refused("optim: {items: [a]}",
            "run.yaml:1: an item of 'optim.items' must be a mapping, not 'a'");
    refused("optim: {items: [{kind: y}]}", "run.yaml:1: an item of 'optim.items' lacks 'name'");
    refused("run: 3", "run.yaml:1: 'run' is a section and must be a mapping of its options");
    refused("- a", "run.yaml:1: the configuration must be a mapping of sections");
}

Test(options, refuses_values_out_of_range)
{
    refused("run: {count: 0}", "run.yaml:1: 'run.count' must be an integer in [1, 100], not '0'");
    refused("run: {count: 101}",
            "run.yaml:1: 'run.count' must be an integer in [1, 100], not '101'");
    refused("run: {threads: -1}",
            "run.yaml:1: 'run.threads' must be auto or an integer in [1, inf), not '-1'");
    refused("optim: {lr: 0}", "run.yaml:1: 'optim.lr' must be a number in (0, 1), not '0'");
    refused("optim: {lr: 1}", "run.yaml:1: 'optim.lr' must be a number in (0, 1), not '1'");
    refused("optim: {adam: {betas: [0.9, 1]}}",
            "run.yaml:1: 'optim.adam.betas' must be a list of numbers in [0, 1), not '1'");
}

Test(options, refuses_duplicates)
{
    refused("run:\n  count: 1\n  count: 2\n",
            "run.yaml:3: 'run.count' is given twice (first on line 2)");
    refused("run: {count: 1}\noptim: {}\nrun: {flag: true}\n",
            "run.yaml:3: 'run' is given twice (first on line 1)");
    refused("run.count: 1\nrun:\n  count: 2\n",
            "run.yaml:3: 'run.count' is given twice (first on line 1)");
}

Test(options, broken_syntax_names_line_and_column)
{
    refused("run:\n  count: [1, 2\noptim: 3\n",
            "run.yaml:3:6: broken YAML: did not find expected ',' or ']' while parsing a flow "
            "sequence");
    refused("run: {}\n---\nrun: {}\n", "run.yaml: more than one YAML document");
    cr_assert_eq(tri_opts_override(opts, "run.dir={"), TRI_ERR_USAGE);
    cr_assert_eq(tri_opts_read_file(opts, "/nowhere/run.yaml"), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "/nowhere/run.yaml"));
    cr_assert_eq(tri_opts_read_file(opts, "/"), TRI_ERR_USAGE);
}

/* An alias that contains itself ends in an unknown key, not in endless descent. */
Test(options, recursive_alias_ends)
{
    const char *yaml = "run: &a\n  run: *a\n";

    cr_assert_eq(tri_opts_read_text(opts, "run.yaml", yaml, strlen(yaml)), TRI_ERR_USAGE);
}

Test(options, print_reads_back)
{
    struct tri_text first = {0}, second = {0};

    override_ok("run.dir=\"it's \\\"odd\\\"\\n: #true\"");
    override_ok("optim.lr=0.1234567890123456789");
    override_ok("optim.sizes=[]");
    override_ok("optim.paths=['true', '1', a/b-c.h5, '']");
    override_ok("optim.items=[{name: 'x.*', weight: 1e-3}, {name: y, kind: y}]");
    tri_opts_print(opts, &first);
    tri_opts_destroy(opts);
    setup();
    read_ok(first.data);
    tri_opts_print(opts, &second);
    cr_assert_str_eq(first.data, second.data);
    cr_assert_str_eq(v.dir, "it's \"odd\"\n: #true");
    cr_assert_eq(v.rate, 0.1234567890123456789);
    cr_assert_str_eq(v.paths.v[3], "");
    tri_text_finish(&first);
    tri_text_finish(&second);
}

Test(options, describes_sections_and_keys)
{
    struct tri_text all = {0}, one = {0};

    cr_assert_eq(tri_opts_describe(&section, 1, NULL, &all), TRI_OK);
    for (size_t i = 0; i < section.count; i++)
        cr_assert_not_null(strstr(all.data, rows[i].key));
    cr_assert_not_null(strstr(all.data, "    kind: one of x, y; default x"));
    cr_assert_eq(tri_opts_describe(&section, 1, "run.count", &one), TRI_OK);
    cr_assert_str_eq(one.data, "run.count: an integer in [1, 100]; default 7\n    a count\n");
    cr_assert_eq(tri_opts_describe(&section, 1, "run.coun", &one), TRI_ERR_USAGE);
    tri_text_finish(&all);
    tri_text_finish(&one);
}
