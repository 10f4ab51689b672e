#include "runtime/checkpoint/manifest.h"

#include "runtime/core/json.h"
#include "runtime/core/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char checksum_mark[] = ",\n\"checksum\": \""; /* starts the last member */

uint64_t tri_manifest_hash(const char *name, int64_t first, const void *data, size_t bytes)
{
    return tri_hash_elements(tri_hash_name(name), (uint64_t)first, data, bytes, 1);
}

size_t tri_manifest_tensor_bytes(const struct tri_manifest_tensor *t)
{
    return (size_t)tri_shape_count(&t->shape) * tri_dtype_bytes(t->dtype);
}

int tri_manifest_find(const struct tri_manifest *m, const char *name, int guess)
{
    if (guess >= 0 && guess < m->ntensor && strcmp(m->tensor[guess].name, name) == 0)
        return guess;
    for (int i = 0; i < m->ntensor; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return i;
    return -1;
}

void tri_manifest_finish(struct tri_manifest *m)
{
    tri_pool_finish(&m->pool);
    *m = (struct tri_manifest){0};
}

static void print_tensor(struct tri_text *out, const struct tri_manifest_tensor *t)
{
    tri_text_printf(out, "{\"name\": ");
    tri_text_json_string(out, t->name);
    tri_text_printf(out, ", \"dtype\": \"%s\", \"shape\": [", tri_dtype_name(t->dtype));
    for (int d = 0; d < t->shape.ndim; d++)
        tri_text_printf(out, "%s%" PRId64, d > 0 ? ", " : "", t->shape.dim[d]);
    tri_text_printf(out, "], \"offset\": %" PRId64 ", \"checksum\": \"%016" PRIx64 "\"}", t->offset,
                    t->checksum);
}

void tri_manifest_print(const struct tri_manifest *m, struct tri_text *out)
{
    size_t begin = out->len;

    tri_text_printf(out, "{\"format\": %d,\n\"step\": %" PRId64 ",\n", TRI_MANIFEST_FORMAT,
                    m->step);
    tri_text_printf(out,
                    "\"files\": {\"model.h5\": {\"bytes\": %" PRId64 ", \"layout\": \"%016" PRIx64
                    "\"}, \"config.yaml\": {\"bytes\": %" PRId64 ", \"checksum\": \"%016" PRIx64
                    "\"}},\n\"state\": {",
                    m->model_bytes, m->layout_hash, m->config_bytes, m->config_hash);
    for (int i = 0; i < m->nitem; i++) {
        tri_text_printf(out, "%s", i > 0 ? ", " : "");
        tri_text_json_string(out, m->item[i].key);
        if (m->item[i].real) /* as text and in base 16: exact, and JSON has no infinity */
            tri_text_printf(out, ": \"%a\"", m->item[i].value);
        else
            tri_text_printf(out, ": %" PRId64, m->item[i].integer);
    }
    tri_text_printf(out, "},\n\"match\": {");
    for (int i = 0; i < m->nfield; i++) {
        tri_text_printf(out, "%s", i > 0 ? ",\n  " : "");
        tri_text_json_string(out, m->field[i].key);
        tri_text_printf(out, ": ");
        tri_text_json_string(out, m->field[i].value);
    }
    tri_text_printf(out, "},\n\"tensors\": [");
    for (int i = 0; i < m->ntensor; i++) {
        tri_text_printf(out, "%s", i > 0 ? ",\n  " : "\n  ");
        print_tensor(out, &m->tensor[i]);
    }
    tri_text_printf(out, "]");
    if (!out->failed)
        tri_text_printf(out, "%s%016" PRIx64 "\"}\n", checksum_mark,
                        tri_manifest_hash("manifest.json", 0, out->data + begin, out->len - begin));
}

static tri_status bad(const char *path, const char *what)
{
    return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: %s", path, what);
}

static bool read_hex(const struct tri_json *j, uint64_t *out)
{
    const char *text = tri_json_string(j);
    char *stop;

    if (text == NULL || strlen(text) != 16)
        return false;
    *out = strtoull(text, &stop, 16);
    return *stop == '\0';
}

static bool read_dtype(const struct tri_json *j, enum tri_dtype *out)
{
    const char *text = tri_json_string(j);

    for (int t = 0; text != NULL && t < TRI_DTYPE_COUNT; t++) {
        if (strcmp(text, tri_dtype_name((enum tri_dtype)t)) == 0) {
            *out = (enum tri_dtype)t;
            return true;
        }
    }
    return false;
}

/* Dims whose product times 8 fits int64_t, so that no later product overflows. */
static bool read_shape(const struct tri_json *j, struct tri_shape *out)
{
    int64_t count = 1;

    if (j == NULL || j->kind != TRI_JSON_ARRAY || j->count > TRI_MAX_DIMS)
        return false;
    out->ndim = j->count;
    j = j->child;
    for (int d = 0; d < out->ndim; d++, j = j->next) {
        if (!tri_json_int(j, &out->dim[d]) || out->dim[d] < 0)
            return false;
        if (out->dim[d] > 0 && count > INT64_MAX / 8 / out->dim[d])
            return false;
        count *= out->dim[d];
    }
    return true;
}

static bool read_tensor(const struct tri_json *j, int64_t model_bytes,
                        struct tri_manifest_tensor *t)
{
    t->name = tri_json_string(tri_json_get(j, "name"));
    if (t->name == NULL || !read_dtype(tri_json_get(j, "dtype"), &t->dtype) ||
        !read_shape(tri_json_get(j, "shape"), &t->shape) ||
        !tri_json_int(tri_json_get(j, "offset"), &t->offset) ||
        !read_hex(tri_json_get(j, "checksum"), &t->checksum))
        return false;
    return t->offset >= 0 && t->offset <= model_bytes &&
           (int64_t)tri_manifest_tensor_bytes(t) <= model_bytes - t->offset;
}

static tri_status read_tensors(struct tri_manifest *m, const struct tri_json *j, const char *path)
{
    if (j == NULL || j->kind != TRI_JSON_ARRAY)
        return bad(path, "no list of tensors");
    m->tensor = tri_pool_alloc(&m->pool, sizeof(*m->tensor) * ((size_t)j->count + 1));
    if (m->tensor == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate %d tensors", path, j->count);
    for (j = j->child; j != NULL; j = j->next, m->ntensor++)
        if (!read_tensor(j, m->model_bytes, &m->tensor[m->ntensor]))
            return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: tensor %d ('%s')", path,
                            m->ntensor,
                            m->tensor[m->ntensor].name ? m->tensor[m->ntensor].name : "no name");
    return TRI_OK;
}

static bool read_item(const struct tri_json *j, struct tri_checkpoint_item *item)
{
    const char *text = tri_json_string(j);
    char *stop;

    item->key = j->key;
    item->real = text != NULL;
    if (!item->real)
        return tri_json_int(j, &item->integer);
    item->value = strtod(text, &stop);
    return stop != text && *stop == '\0';
}

static tri_status read_items(struct tri_manifest *m, const struct tri_json *j, const char *path)
{
    if (j == NULL || j->kind != TRI_JSON_OBJECT)
        return bad(path, "no host state");
    m->item = tri_pool_alloc(&m->pool, sizeof(*m->item) * ((size_t)j->count + 1));
    if (m->item == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate the host state", path);
    for (j = j->child; j != NULL; j = j->next, m->nitem++)
        if (!read_item(j, &m->item[m->nitem]))
            return bad(path, j->key);
    return TRI_OK;
}

static tri_status read_fields(struct tri_manifest *m, const struct tri_json *j, const char *path)
{
    if (j == NULL || j->kind != TRI_JSON_OBJECT)
        return bad(path, "no settings to match");
    m->field = tri_pool_alloc(&m->pool, sizeof(*m->field) * ((size_t)j->count + 1));
    if (m->field == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate the settings", path);
    for (j = j->child; j != NULL; j = j->next, m->nfield++) {
        m->field[m->nfield].key = j->key;
        m->field[m->nfield].value = tri_json_string(j);
        if (m->field[m->nfield].value == NULL)
            return bad(path, j->key);
    }
    return TRI_OK;
}

/* Start of the last member, found from the end: its form is fixed. */
static bool checksum_is_right(const char *text, size_t bytes)
{
    size_t mark = sizeof(checksum_mark) - 1, tail = mark + 16 + 3;
    char want[17];
    uint64_t hash;

    if (bytes < tail || memcmp(text + bytes - tail, checksum_mark, mark) != 0)
        return false;
    hash = tri_manifest_hash("manifest.json", 0, text, bytes - tail);
    (void)snprintf(want, sizeof(want), "%016" PRIx64, hash);
    return memcmp(text + bytes - 19, want, 16) == 0 && memcmp(text + bytes - 3, "\"}\n", 3) == 0;
}

tri_status tri_manifest_parse(struct tri_manifest *m, const char *text, size_t bytes,
                              const char *path)
{
    struct tri_json *j = NULL;
    const struct tri_json *model, *config;
    int64_t format = 0;

    *m = (struct tri_manifest){0};
    if (!checksum_is_right(text, bytes))
        return bad(path, "its checksum does not fit its text");
    if (tri_json_parse(&m->pool, text, bytes, path, &j) != TRI_OK)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: no JSON", path);
    if (!tri_json_int(tri_json_get(j, "format"), &format) || format != TRI_MANIFEST_FORMAT)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' has format %" PRId64 ", this program reads %d",
                        path, format, TRI_MANIFEST_FORMAT);
    model = tri_json_get(tri_json_get(j, "files"), "model.h5");
    config = tri_json_get(tri_json_get(j, "files"), "config.yaml");
    if (!tri_json_int(tri_json_get(j, "step"), &m->step) || m->step < 0 ||
        !tri_json_int(tri_json_get(model, "bytes"), &m->model_bytes) || m->model_bytes < 0 ||
        !read_hex(tri_json_get(model, "layout"), &m->layout_hash) ||
        !tri_json_int(tri_json_get(config, "bytes"), &m->config_bytes) || m->config_bytes < 0 ||
        !read_hex(tri_json_get(config, "checksum"), &m->config_hash))
        return bad(path, "a member is missing or wrong");
    TRI_TRY(read_tensors(m, tri_json_get(j, "tensors"), path));
    TRI_TRY(read_items(m, tri_json_get(j, "state"), path));
    return read_fields(m, tri_json_get(j, "match"), path);
}
