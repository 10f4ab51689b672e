/* Comparison of two checkpoints. */
#include "launch/checkpoint_diff.h"

#include "runtime/checkpoint/files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE_ELEMENTS ((int64_t)1 << 16) /* read at once from each side */

/* Both model files, open. */
struct pair {
    const struct tri_checkpoint *c[2];
    int fd[2];
    char *path[2];
    unsigned char *buf[2]; /* PIECE_ELEMENTS of 8 bytes */
    int64_t differences;
};

/* What was found in one tensor. */
struct found {
    int64_t elements; /* that differ in bits */
    double largest;   /* absolute difference among those that are finite on both sides */
};

static double value_at(const unsigned char *buf, int64_t i, enum tri_dtype dtype)
{
    const unsigned char *at = buf + (size_t)i * tri_dtype_bytes(dtype);
    float f;
    double d;
    uint16_t h;
    int32_t w;
    int64_t l;

    switch (dtype) {
    case TRI_F32:
        memcpy(&f, at, sizeof(f));
        return (double)f;
    case TRI_F64:
        memcpy(&d, at, sizeof(d));
        return d;
    case TRI_BF16:
        memcpy(&h, at, sizeof(h));
        return (double)tri_bf16_to_f32(h);
    case TRI_F16:
        memcpy(&h, at, sizeof(h));
        return (double)tri_f16_to_f32(h);
    case TRI_I32:
        memcpy(&w, at, sizeof(w));
        return (double)w;
    case TRI_I64:
        memcpy(&l, at, sizeof(l));
        return (double)l;
    case TRI_U8:
        return (double)*at;
    case TRI_DTYPE_COUNT:
        break;
    }
    return 0;
}

static void compare_piece(const struct pair *p, enum tri_dtype dtype, int64_t count,
                          struct found *f)
{
    size_t elem = tri_dtype_bytes(dtype);

    if (memcmp(p->buf[0], p->buf[1], (size_t)count * elem) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        double distance;
        if (memcmp(p->buf[0] + (size_t)i * elem, p->buf[1] + (size_t)i * elem, elem) == 0)
            continue;
        f->elements++;
        distance = fabs(value_at(p->buf[0], i, dtype) - value_at(p->buf[1], i, dtype));
        if (isfinite(distance) && distance > f->largest)
            f->largest = distance;
    }
}

static tri_status compare_bytes(const struct pair *p, const struct tri_manifest_tensor *a,
                                const struct tri_manifest_tensor *b, struct found *f)
{
    int64_t count = tri_shape_count(&a->shape), elem = (int64_t)tri_dtype_bytes(a->dtype);

    for (int64_t at = 0; at < count; at += PIECE_ELEMENTS) {
        int64_t n = count - at < PIECE_ELEMENTS ? count - at : PIECE_ELEMENTS;
        size_t bytes = (size_t)(n * elem);
        TRI_TRY(tri_pread_all(p->fd[0], p->buf[0], bytes, a->offset + at * elem, p->path[0]));
        TRI_TRY(tri_pread_all(p->fd[1], p->buf[1], bytes, b->offset + at * elem, p->path[1]));
        compare_piece(p, a->dtype, n, f);
    }
    return TRI_OK;
}

static tri_status compare_tensor(struct pair *p, const struct tri_manifest_tensor *a, int guess)
{
    const struct tri_manifest *m = &p->c[1]->manifest;
    int i = tri_manifest_find(m, a->name, guess);
    char shape[2][TRI_SHAPE_TEXT];
    struct found f = {0};

    if (i < 0) {
        (void)printf("%s: only in %s\n", a->name, p->c[0]->path);
        p->differences++;
        return TRI_OK;
    }
    if (a->dtype != m->tensor[i].dtype || !tri_shape_equal(&a->shape, &m->tensor[i].shape)) {
        (void)printf("%s: %s %s against %s %s\n", a->name, tri_dtype_name(a->dtype),
                     tri_shape_text(&a->shape, shape[0], sizeof(shape[0])),
                     tri_dtype_name(m->tensor[i].dtype),
                     tri_shape_text(&m->tensor[i].shape, shape[1], sizeof(shape[1])));
        p->differences++;
        return TRI_OK;
    }
    TRI_TRY(compare_bytes(p, a, &m->tensor[i], &f));
    if (f.elements > 0) {
        (void)printf("%s: %" PRId64 " of %" PRId64 " elements differ, by at most %.6g\n", a->name,
                     f.elements, tri_shape_count(&a->shape), f.largest);
        p->differences++;
    }
    return TRI_OK;
}

static tri_status compare_tensors(struct pair *p)
{
    const struct tri_manifest *a = &p->c[0]->manifest, *b = &p->c[1]->manifest;

    for (int i = 0; i < a->ntensor; i++)
        TRI_TRY(compare_tensor(p, &a->tensor[i], i));
    for (int i = 0; i < b->ntensor; i++) {
        if (tri_manifest_find(a, b->tensor[i].name, i) >= 0)
            continue;
        (void)printf("%s: only in %s\n", b->tensor[i].name, p->c[1]->path);
        p->differences++;
    }
    return TRI_OK;
}

/* "7" or "0.25" of an item; "-" for none. */
static const char *item_text(const struct tri_checkpoint_item *item, char *buf, size_t bytes)
{
    if (item == NULL)
        (void)snprintf(buf, bytes, "-");
    else if (item->real)
        (void)snprintf(buf, bytes, "%.17g", item->value);
    else
        (void)snprintf(buf, bytes, "%" PRId64, item->integer);
    return buf;
}

static const struct tri_checkpoint_item *find_item(const struct tri_manifest *m, const char *key)
{
    for (int i = 0; i < m->nitem; i++)
        if (strcmp(m->item[i].key, key) == 0)
            return &m->item[i];
    return NULL;
}

/* Items of checkpoint k against those of the other; the second pass only reports what the first
 * cannot see. */
static void compare_items(struct pair *p, int k)
{
    const struct tri_manifest *a = &p->c[k]->manifest, *b = &p->c[1 - k]->manifest;
    char text[2][64];

    for (int i = 0; i < a->nitem; i++) {
        const struct tri_checkpoint_item *other = find_item(b, a->item[i].key);
        item_text(&a->item[i], text[k], sizeof(text[k]));
        item_text(other, text[1 - k], sizeof(text[1 - k]));
        if (strcmp(text[0], text[1]) == 0 || (k == 1 && other != NULL))
            continue;
        (void)printf("%s: %s against %s\n", a->item[i].key, text[0], text[1]);
        p->differences++;
    }
}

static void compare_fields(struct pair *p, int k)
{
    const struct tri_manifest *a = &p->c[k]->manifest;

    for (int i = 0; i < a->nfield; i++) {
        const char *other = tri_checkpoint_field(p->c[1 - k], a->field[i].key);
        const char *text[2];
        text[k] = a->field[i].value;
        text[1 - k] = other != NULL ? other : "-";
        if (strcmp(text[0], text[1]) == 0 || (k == 1 && other != NULL))
            continue;
        (void)printf("%s: '%s' against '%s'\n", a->field[i].key, text[0], text[1]);
        p->differences++;
    }
}

static tri_status open_side(struct pair *p, int k)
{
    TRI_TRY(tri_path_join(p->c[k]->path, "model.h5", &p->path[k]));
    p->fd[k] = open(p->path[k], O_RDONLY | O_CLOEXEC);
    if (p->fd[k] < 0)
        return tri_file_fail("open", p->path[k]);
    p->buf[k] = tri_calloc((size_t)PIECE_ELEMENTS, 8, "piece of a tensor");
    if (p->buf[k] == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a piece of a tensor");
    return TRI_OK;
}

tri_status tri_checkpoint_diff(const struct tri_checkpoint *a, const struct tri_checkpoint *b,
                               bool *equal)
{
    struct pair p = {.c = {a, b}, .fd = {-1, -1}};
    tri_status st = TRI_OK;

    for (int k = 0; k < 2 && st == TRI_OK; k++)
        st = open_side(&p, k);
    if (st == TRI_OK) {
        if (a->manifest.step != b->manifest.step)
            (void)printf("step: %" PRId64 " against %" PRId64 "\n", a->manifest.step,
                         b->manifest.step);
        for (int k = 0; k < 2; k++) {
            compare_items(&p, k);
            compare_fields(&p, k);
        }
        st = compare_tensors(&p); /* the step is one of them */
    }
    for (int k = 0; k < 2; k++) {
        tri_free(p.buf[k]);
        if (p.fd[k] >= 0)
            close(p.fd[k]);
        tri_free(p.path[k]);
    }
    *equal = st == TRI_OK && p.differences == 0;
    return st;
}
