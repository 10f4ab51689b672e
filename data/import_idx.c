/* idx files, the format of MNIST: two zero bytes, an element type, the number of axes, big-endian
 * 32-bit sizes, then the elements. zlib reads plain files as well as compressed ones. */
#include "data/import.h"

#include "data/image_set.h"
#include "runtime/checkpoint/files.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { IDX_U8 = 0x08, PIECE = 1 << 24 };

struct idx {
    int rank;
    int64_t dims[4];
    uint8_t *data;
};

/* Exactly n bytes, in pieces that fit zlib's interface. */
static tri_status read_exactly(gzFile f, const char *path, uint8_t *to, size_t n)
{
    while (n > 0) {
        unsigned want = n < PIECE ? (unsigned)n : PIECE;
        int got = gzread(f, to, want), err;

        if (got < 0)
            return tri_fail(TRI_ERR_DATA, "'%s': cannot read: %s", path, gzerror(f, &err));
        if (got == 0)
            return tri_fail(TRI_ERR_DATA, "'%s': ends %zu bytes too early", path, n);
        to += got;
        n -= (size_t)got;
    }
    return TRI_OK;
}

static tri_status read_header(gzFile f, const char *path, int min_rank, int max_rank, struct idx *x)
{
    uint8_t magic[4], size[4];

    TRI_TRY(read_exactly(f, path, magic, sizeof(magic)));
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != IDX_U8 || magic[3] < min_rank ||
        magic[3] > max_rank)
        return tri_fail(
            TRI_ERR_DATA,
            "'%s': begins with %02x%02x%02x%02x, must be an idx file of bytes with %d to %d axes",
            path, magic[0], magic[1], magic[2], magic[3], min_rank, max_rank);
    x->rank = magic[3];
    for (int d = 0; d < x->rank; d++) {
        TRI_TRY(read_exactly(f, path, size, sizeof(size)));
        x->dims[d] =
            (int64_t)size[0] << 24 | (int64_t)size[1] << 16 | (int64_t)size[2] << 8 | size[3];
    }
    return TRI_OK;
}

static tri_status read_body(gzFile f, const char *path, struct idx *x)
{
    size_t n = 1;
    uint8_t more;
    int got, err;

    for (int d = 0; d < x->rank; d++)
        TRI_TRY(tri_mul_size(n, (size_t)x->dims[d], path, &n));
    x->data = tri_alloc_aligned(n > 0 ? n : 1, "idx file");
    if (x->data == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot hold %zu bytes in memory", path, n);
    TRI_TRY(read_exactly(f, path, x->data, n));
    got = gzread(f, &more, 1);
    if (got < 0)
        return tri_fail(TRI_ERR_DATA, "'%s': cannot read: %s", path, gzerror(f, &err));
    if (got == 1)
        return tri_fail(TRI_ERR_DATA, "'%s': goes on after its %zu elements", path, n);
    return TRI_OK;
}

static tri_status read_idx(const char *path, int min_rank, int max_rank, struct idx *x)
{
    gzFile f = gzopen(path, "rb");
    tri_status st;

    if (f == NULL)
        return tri_fail(TRI_ERR_DATA, "'%s': cannot open: %s", path, strerror(errno));
    gzbuffer(f, 1 << 18);
    st = read_header(f, path, min_rank, max_rank, x);
    if (st == TRI_OK)
        st = read_body(f, path, x);
    if (gzclose(f) == Z_BUF_ERROR && st == TRI_OK) /* the elements were all there, its end is not */
        st = tri_fail(TRI_ERR_DATA, "'%s': is cut off: the end of the compressed data is missing",
                      path);
    return st;
}

/* One split: both files, equal counts. */
static tri_status read_pair(const char *images, const char *labels, struct idx *x, struct idx *y,
                            struct tri_image_set *set)
{
    int64_t *wide;

    TRI_TRY(read_idx(images, 3, 4, x));
    TRI_TRY(read_idx(labels, 1, 1, y));
    if (x->dims[0] != y->dims[0])
        return tri_fail(TRI_ERR_DATA, "'%s' has %lld images, '%s' %lld labels, must be equal",
                        images, (long long)x->dims[0], labels, (long long)y->dims[0]);
    wide = tri_calloc((size_t)y->dims[0] + 1, sizeof(*wide), "labels");
    if (wide == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory for labels", labels);
    for (int64_t i = 0; i < y->dims[0]; i++)
        wide[i] = y->data[i];
    set->rank = x->rank;
    memcpy(set->dims, x->dims, sizeof(set->dims));
    set->pixels = x->data;
    set->labels = wide;
    return TRI_OK;
}

tri_status tri_import_idx(const struct tri_import_idx *a, struct tri_text *report)
{
    struct tri_image_set set[TRI_SPLIT_COUNT] = {{0}};
    struct idx x[TRI_SPLIT_COUNT] = {{0}}, y[TRI_SPLIT_COUNT] = {{0}};
    tri_status st = TRI_OK;

    if (a->images[0] == NULL || a->labels[0] == NULL ||
        (a->images[1] == NULL) != (a->labels[1] == NULL))
        return tri_fail(TRI_ERR_USAGE,
                        "import idx: images and labels must be given in pairs, train first");
    TRI_TRY(tri_check_output(a->out, a->images, TRI_SPLIT_COUNT));
    TRI_TRY(tri_check_output(a->out, a->labels, TRI_SPLIT_COUNT));
    for (int s = 0; s < TRI_SPLIT_COUNT && st == TRI_OK; s++)
        if (a->images[s] != NULL)
            st = read_pair(a->images[s], a->labels[s], &x[s], &y[s], &set[s]);
    if (st == TRI_OK)
        st = tri_image_set_write(set, a->out, report);
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        tri_free(x[s].data);
        tri_free(y[s].data);
        tri_free((void *)(uintptr_t)set[s].labels);
    }
    return st;
}
