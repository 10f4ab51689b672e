/* A recursive-descent JSON reader over one text in memory. */
#include "runtime/core/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32

struct reader {
    struct tri_pool *pool;
    const char *begin, *at, *end;
    const char *name; /* of the text, for messages */
};

static tri_status parse_value(struct reader *r, int depth, struct tri_json **out);

static tri_status bad(const struct reader *r, const char *what)
{
    return tri_fail(TRI_ERR_DATA, "'%s': %s at byte %td", r->name, what, r->at - r->begin);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_hex4(struct reader *r, uint32_t *out)
{
    uint32_t v = 0;

    if (r->end - r->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return false;
        v = v << 4 | digit;
    }
    *out = v;
    return true;
}

/* UTF-8 of one code point; returns the bytes written (at most 4). */
static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* After a backslash: appends the decoded character at `to`, which has room since an escape is never
 * shorter than its UTF-8. */
static tri_status read_escape(struct reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    const char *hit;

    if (r->at == r->end)
        return bad(r, "string without end");
    if (*r->at != 'u') {
        hit = *r->at == '\0' ? NULL : strchr(from, *r->at);
        if (hit == NULL)
            return bad(r, "unknown escape");
        *(*to)++ = into[hit - from];
        r->at++;
        return TRI_OK;
    }
    r->at++;
    if (!read_hex4(r, &c) || c == 0)
        return bad(r, "wrong \\u escape");
    if (c >= 0xd800 && c < 0xdc00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return bad(r, "half a surrogate pair");
        r->at += 2;
        if (!read_hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return bad(r, "half a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *to += put_utf8(*to, c);
    return TRI_OK;
}

static tri_status parse_string(struct reader *r, const char **out)
{
    const char *close;
    char *text, *to;

    if (!take(r, '"'))
        return bad(r, "expected a string");
    for (close = r->at; close < r->end && *close != '"'; close++)
        if (*close == '\\' && close + 1 < r->end)
            close++;
    text = to = tri_pool_alloc(r->pool, (size_t)(close - r->at) + 1);
    if (text == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate a string", r->name);
    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\') {
            r->at++;
            TRI_TRY(read_escape(r, &to));
        } else if ((unsigned char)*r->at < 0x20) {
            return bad(r, "control character in a string");
        } else {
            *to++ = *r->at++;
        }
    }
    if (!take(r, '"'))
        return bad(r, "string without end");
    *out = text;
    return TRI_OK;
}

static tri_status parse_number(struct reader *r, struct tri_json *j)
{
    const char *from = r->at;
    char *text, *stop;

    while (r->at < r->end && *r->at != '\0' && strchr("+-.eE0123456789", *r->at) != NULL)
        r->at++;
    text = tri_pool_alloc(r->pool, (size_t)(r->at - from) + 1);
    if (text == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate a number", r->name);
    memcpy(text, from, (size_t)(r->at - from));
    strtod(text, &stop);
    if (stop == text || *stop != '\0')
        return bad(r, "expected a value");
    j->kind = TRI_JSON_NUMBER;
    j->text = text;
    return TRI_OK;
}

/* Members of an array or object, after the opening bracket. */
static tri_status parse_members(struct reader *r, int depth, struct tri_json *j)
{
    bool object = j->kind == TRI_JSON_OBJECT;
    struct tri_json **link = &j->child;

    if (depth == MAX_DEPTH)
        return bad(r, "nested too deeply");
    if (take(r, object ? '}' : ']'))
        return TRI_OK;
    do {
        const char *key = NULL;
        if (object) {
            TRI_TRY(parse_string(r, &key));
            if (!take(r, ':'))
                return bad(r, "expected ':'");
        }
        TRI_TRY(parse_value(r, depth + 1, link));
        (*link)->key = key;
        link = &(*link)->next;
        j->count++;
    } while (take(r, ','));
    return take(r, object ? '}' : ']') ? TRI_OK : bad(r, "expected ',' or a closing bracket");
}

static bool take_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static tri_status parse_value(struct reader *r, int depth, struct tri_json **out)
{
    struct tri_json *j = tri_pool_alloc(r->pool, sizeof(*j));

    if (j == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate a value", r->name);
    *out = j;
    skip_space(r);
    if (r->at < r->end && *r->at == '"') {
        j->kind = TRI_JSON_STRING;
        return parse_string(r, &j->text);
    }
    if (take(r, '{')) {
        j->kind = TRI_JSON_OBJECT;
        return parse_members(r, depth, j);
    }
    if (take(r, '[')) {
        j->kind = TRI_JSON_ARRAY;
        return parse_members(r, depth, j);
    }
    if (take_word(r, "null"))
        return TRI_OK;
    if (take_word(r, "true")) {
        j->kind = TRI_JSON_TRUE;
        return TRI_OK;
    }
    if (take_word(r, "false")) {
        j->kind = TRI_JSON_FALSE;
        return TRI_OK;
    }
    return parse_number(r, j);
}

tri_status tri_json_parse(struct tri_pool *pool, const char *text, size_t bytes, const char *name,
                          struct tri_json **out)
{
    struct reader r = {.pool = pool, .begin = text, .at = text, .end = text + bytes, .name = name};
    struct tri_json *j = NULL;

    TRI_TRY(parse_value(&r, 0, &j));
    skip_space(&r);
    if (r.at != r.end)
        return bad(&r, "text after the value");
    *out = j;
    return TRI_OK;
}

const struct tri_json *tri_json_get(const struct tri_json *j, const char *key)
{
    if (j == NULL || j->kind != TRI_JSON_OBJECT)
        return NULL;
    for (const struct tri_json *m = j->child; m != NULL; m = m->next)
        if (strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

bool tri_json_int(const struct tri_json *j, int64_t *out)
{
    char *stop;
    long long v;

    if (j == NULL || j->kind != TRI_JSON_NUMBER)
        return false;
    errno = 0;
    v = strtoll(j->text, &stop, 10);
    if (errno != 0 || *stop != '\0')
        return false;
    *out = (int64_t)v;
    return true;
}

bool tri_json_double(const struct tri_json *j, double *out)
{
    if (j == NULL || j->kind != TRI_JSON_NUMBER)
        return false;
    *out = strtod(j->text, NULL);
    return true;
}

const char *tri_json_string(const struct tri_json *j)
{
    return j != NULL && j->kind == TRI_JSON_STRING ? j->text : NULL;
}
