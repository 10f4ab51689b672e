#include "runtime/core/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static tri_status parse(struct tri_pool *pool, const char *text, struct tri_json **j)
{
    return tri_json_parse(pool, text, strlen(text), "text", j);
}

Test(json, reads_every_kind)
{
    struct tri_pool pool = {0};
    struct tri_json *j = NULL;
    int64_t n = 0;
    double x = 0;

    cr_assert_eq(
        parse(&pool,
              " {\"a\": [1, -9223372036854775808, 2.5e3], \"b\": {\"c\": null, \"d\": true},"
              " \"e\": \"x\\n\\u00e9\\ud83d\\ude00\\\"\", \"f\": [], \"g\": {}} \n",
              &j),
        TRI_OK, "%s", tri_error_text());
    cr_assert_eq(j->count, 5);
    cr_assert_eq(tri_json_get(j, "a")->count, 3);
    cr_assert(tri_json_int(tri_json_get(j, "a")->child->next, &n) && n == INT64_MIN);
    cr_assert(!tri_json_int(tri_json_get(j, "a")->child->next->next, &n));
    cr_assert(tri_json_double(tri_json_get(j, "a")->child->next->next, &x) && x == 2500.0);
    cr_assert_eq(tri_json_get(tri_json_get(j, "b"), "d")->kind, TRI_JSON_TRUE);
    cr_assert_str_eq(tri_json_string(tri_json_get(j, "e")), "x\n\xc3\xa9\xf0\x9f\x98\x80\"");
    cr_assert_null(tri_json_get(j, "h"));
    tri_pool_finish(&pool);
}

Test(json, refuses_what_is_wrong)
{
    static const char *const text[] = {
        "",    "{", "[1,]",        "{\"a\" 1}", "\"open",     "\"\\x\"", "\"\\ud8\"",  "nul",
        "1 2", "-", "\"\\u0000\"", "[1 2]",     "{\"a\":1,}", "\"\\",    "\"\\ud83d\""};

    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        struct tri_pool pool = {0};
        struct tri_json *j = NULL;
        cr_assert_eq(parse(&pool, text[i], &j), TRI_ERR_DATA, "%s", text[i]);
        tri_pool_finish(&pool);
    }
}

Test(json, depth_is_bounded)
{
    struct tri_pool pool = {0};
    struct tri_json *j = NULL;
    char deep[4096];

    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    cr_assert_eq(parse(&pool, deep, &j), TRI_ERR_DATA);
    cr_assert(strstr(tri_error_text(), "nested"));
    tri_pool_finish(&pool);
}
