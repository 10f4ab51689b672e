/* Pairs of .npy files to images + labels or x + y. */
#include "data/import.h"

#include "data/dataset_priv.h"
#include "data/image_set.h"
#include "data/npy.h"
#include "data/writer.h"
#include "runtime/checkpoint/files.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <stdio.h>
#include <string.h>

enum { PIECE_ELEMENTS = 1 << 20 };

struct importing {
    const struct tri_import_npy *a;
    struct tri_npy x[TRI_SPLIT_COUNT], y[TRI_SPLIT_COUNT]; /* rank 0: none */
    struct tri_text *report;
};

/* The HDF5 type of the elements as stored. */
static hid_t stored_type(const struct tri_npy *n)
{
    hid_t base;

    switch (n->kind) {
    case 'f': /* HDF5 has no predefined half: 16-bit floats are made of the 32-bit type's fields */
        base = H5Tcopy(n->elem_bytes == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
        if (n->elem_bytes == 2) {
            H5Tset_fields(base, 15, 10, 5, 0, 10);
            H5Tset_size(base, 2);
            H5Tset_ebias(base, 15);
        }
        break;
    case 'i':
        base = H5Tcopy(H5T_STD_I64LE);
        H5Tset_size(base, n->elem_bytes);
        break;
    default:
        base = H5Tcopy(H5T_STD_U64LE);
        H5Tset_size(base, n->elem_bytes);
    }
    if (n->big_endian)
        H5Tset_order(base, H5T_ORDER_BE);
    return base;
}

/* Converts elements to a native type in pieces and hands each to `put`. Types are closed by the
 * caller. */
static tri_status convert(const struct tri_npy *n, hid_t from, hid_t to, size_t to_bytes, void *out,
                          struct tri_writer *w, int index)
{
    size_t count = n->data_bytes / n->elem_bytes,
           widest = to_bytes > n->elem_bytes ? to_bytes : n->elem_bytes;
    char *buf = tri_calloc(PIECE_ELEMENTS, widest, "conversion");
    tri_status st = TRI_OK;

    if (buf == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory to convert it", n->path);
    for (size_t i = 0; i < count && st == TRI_OK;) {
        size_t m = count - i < PIECE_ELEMENTS ? count - i : PIECE_ELEMENTS;

        memcpy(buf, (const char *)n->data + i * n->elem_bytes, m * n->elem_bytes);
        if (H5Tconvert(from, to, m, buf, NULL, H5P_DEFAULT) < 0)
            st = tri_h5_fail(TRI_ERR_DATA, n->path, "cannot convert", "elements");
        else if (out != NULL)
            memcpy((char *)out + i * to_bytes, buf, m * to_bytes);
        else
            st = tri_writer_put(w, index, i * to_bytes, buf, m * to_bytes);
        i += m;
    }
    tri_free(buf);
    return st;
}

static tri_status check_pair(const struct tri_npy *x, const struct tri_npy *y)
{
    if (x->dims[0] != y->dims[0])
        return tri_fail(TRI_ERR_DATA, "'%s' has %lld rows, '%s' %lld, must be equal", x->path,
                        (long long)x->dims[0], y->path, (long long)y->dims[0]);
    if (y->kind != 'f' && y->rank != 1)
        return tri_fail(TRI_ERR_DATA, "'%s': integer targets must be [N], it has %d axes", y->path,
                        y->rank);
    return TRI_OK;
}

static tri_status check_splits(const struct tri_npy *train, const struct tri_npy *validation)
{
    bool same =
        train->rank == validation->rank && (train->kind == 'f') == (validation->kind == 'f');

    for (int d = 1; d < train->rank && same; d++)
        same = train->dims[d] == validation->dims[d];
    if (!same)
        return tri_fail(TRI_ERR_DATA, "'%s' and '%s' differ in the shape or kind of their rows",
                        train->path, validation->path);
    return TRI_OK;
}

/* Bytes of 3 or 4 axes with integer labels, in both splits. */
static bool are_images(const struct importing *m)
{
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        const struct tri_npy *x = &m->x[s];

        if (x->rank == 0)
            continue;
        if (x->kind != 'u' || x->elem_bytes != 1 || x->rank < 3 || x->rank > 4 ||
            m->y[s].kind == 'f')
            return false;
    }
    return true;
}

static tri_status write_images(struct importing *m)
{
    struct tri_image_set set[TRI_SPLIT_COUNT] = {{0}};
    int64_t *labels[TRI_SPLIT_COUNT] = {NULL, NULL};
    tri_status st = TRI_OK;

    for (int s = 0; s < TRI_SPLIT_COUNT && st == TRI_OK; s++) {
        const struct tri_npy *x = &m->x[s], *y = &m->y[s];
        hid_t from;

        if (x->rank == 0)
            continue;
        labels[s] = tri_calloc((size_t)y->dims[0] + 1, sizeof(int64_t), "labels");
        if (labels[s] == NULL) {
            st = tri_fail(TRI_ERR_NOMEM, "'%s': no memory for labels", y->path);
            break;
        }
        from = stored_type(y);
        st = convert(y, from, H5T_NATIVE_INT64, sizeof(int64_t), labels[s], NULL, 0);
        H5Tclose(from);
        set[s] = (struct tri_image_set){.rank = x->rank, .pixels = x->data, .labels = labels[s]};
        memcpy(set[s].dims, x->dims, sizeof(set[s].dims));
    }
    if (st == TRI_OK)
        st = tri_image_set_write(set, m->a->out, m->report);
    tri_free(labels[0]);
    tri_free(labels[1]);
    return st;
}

/* The type that an array is written with: floats and integer targets as they are, integer inputs as
 * f32. */
static hid_t written_type(const struct tri_npy *n, bool input)
{
    return input && n->kind != 'f' ? H5Tcopy(H5T_IEEE_F32LE) : stored_type(n);
}

static tri_status put_array(struct tri_writer *w, int index, const struct tri_npy *n, bool input)
{
    hid_t from;
    tri_status st;

    if (!input || n->kind == 'f')
        return tri_writer_put(w, index, 0, n->data, n->data_bytes);
    from = stored_type(n);
    st = convert(n, from, H5T_IEEE_F32LE, sizeof(float), NULL, w, index);
    H5Tclose(from);
    return st;
}

static tri_status write_xy(struct importing *m, struct tri_writer *w)
{
    int at[TRI_SPLIT_COUNT][2];

    TRI_TRY(tri_writer_create(w, m->a->out));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        for (int i = 0; i < 2 && m->x[s].rank > 0; i++) {
            const struct tri_npy *n = i == 0 ? &m->x[s] : &m->y[s];
            hid_t type = written_type(n, i == 0);
            char entry[40];
            tri_status st;

            snprintf(entry, sizeof(entry), "%s/%s", tri_split_names[s], i == 0 ? "x" : "y");
            st = tri_writer_array(w, entry, type, n->rank, n->dims, &at[s][i]);
            H5Tclose(type);
            TRI_TRY(st);
        }
    }
    TRI_TRY(tri_writer_layout(w));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++)
        for (int i = 0; i < 2 && m->x[s].rank > 0; i++)
            TRI_TRY(put_array(w, at[s][i], i == 0 ? &m->x[s] : &m->y[s], i == 0));
    return tri_writer_finish(w);
}

static tri_status write_closure(void *arg)
{
    struct importing *m = arg;
    struct tri_writer w;
    tri_status st;

    tri_h5_quiet();
    if (are_images(m))
        return write_images(m);
    st = write_xy(m, &w);
    tri_writer_destroy(&w);
    if (st == TRI_OK)
        tri_text_printf(m->report, "%s: %lld training and %lld validation rows of x and y\n",
                        m->a->out, (long long)m->x[0].dims[0], (long long)m->x[1].dims[0]);
    return st;
}

static tri_status open_pairs(struct importing *m)
{
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        if (m->a->x[s] == NULL)
            continue;
        TRI_TRY(tri_npy_open(m->a->x[s], &m->x[s]));
        TRI_TRY(tri_npy_open(m->a->y[s], &m->y[s]));
        TRI_TRY(check_pair(&m->x[s], &m->y[s]));
    }
    if (m->x[0].dims[0] == 0)
        return tri_fail(TRI_ERR_DATA, "'%s': has no rows", m->a->x[0]);
    if (m->a->x[1] != NULL) {
        TRI_TRY(check_splits(&m->x[0], &m->x[1]));
        TRI_TRY(check_splits(&m->y[0], &m->y[1]));
    }
    return TRI_OK;
}

tri_status tri_import_npy(const struct tri_import_npy *a, struct tri_text *report)
{
    struct importing m = {.a = a, .report = report};
    tri_status st;

    if (a->x[0] == NULL || a->y[0] == NULL || (a->x[1] == NULL) != (a->y[1] == NULL))
        return tri_fail(TRI_ERR_USAGE, "import npy: x and y must be given in pairs, train first");
    TRI_TRY(tri_check_output(a->out, a->x, TRI_SPLIT_COUNT));
    TRI_TRY(tri_check_output(a->out, a->y, TRI_SPLIT_COUNT));
    st = open_pairs(&m);
    if (st == TRI_OK)
        st = tri_io_call(write_closure, &m);
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        tri_npy_close(&m.x[s]);
        tri_npy_close(&m.y[s]);
    }
    return st;
}
