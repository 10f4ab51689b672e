/* Columns: checked opening and reading of rows that may lie in several files. */
#include "data/column.h"

#include "runtime/core/h5.h"
#include "runtime/core/memory.h"

#include <stdio.h>
#include <string.h>

/* A chunk that does not fit into the cache is decompressed again for every row. */
enum { CHUNK_CACHE_CHUNKS = 4, CHUNK_CACHE_MIN = 1 << 20, CHUNK_CACHE_MAX = 64 << 20 };

static tri_status wrong_type(const char *path, const char *entry, const char *must, hid_t type,
                             hid_t space)
{
    char t[64], s[200];

    return tri_fail(TRI_ERR_DATA, "'%s': '%s' must be %s, is %s %s", path, entry, must,
                    tri_h5_type_text(type, t, sizeof(t)), tri_h5_space_text(space, s, sizeof(s)));
}

/* What is wanted against what is there: element class and rank. */
static tri_status check_type(enum tri_column_want want, const char *path, const char *entry,
                             hid_t type, hid_t space)
{
    H5T_class_t cls = H5Tget_class(type);
    int rank = H5Sget_simple_extent_ndims(space);
    bool integers = cls == H5T_INTEGER, floats = cls == H5T_FLOAT;

    switch (want) {
    case TRI_WANT_INTEGERS:
        if (!integers || rank != 1)
            return wrong_type(path, entry, "integers [N]", type, space);
        break;
    case TRI_WANT_BYTES:
        if (!integers || H5Tget_size(type) != 1 || H5Tget_sign(type) != H5T_SGN_NONE || rank < 3 ||
            rank > 4)
            return wrong_type(path, entry, "uint8 [N, H, W] or [N, H, W, C]", type, space);
        break;
    case TRI_WANT_FLOATS:
        if (!floats || rank < 1 || rank > TRI_DATA_MAX_RANK + 1)
            return wrong_type(path, entry, "floating-point numbers [N, ...]", type, space);
        break;
    case TRI_WANT_NUMBERS:
        if (!(floats && rank >= 1 && rank <= TRI_DATA_MAX_RANK + 1) && !(integers && rank == 1))
            return wrong_type(path, entry, "floating-point numbers [N, ...] or integers [N]", type,
                              space);
        break;
    }
    return TRI_OK;
}

static void set_memory_type(struct tri_column *c, enum tri_column_want want, bool integers)
{
    c->integers = integers;
    if (want == TRI_WANT_BYTES) {
        c->mem_type = H5T_NATIVE_UINT8;
        c->elem_bytes = 1;
    } else {
        c->mem_type = integers ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT;
        c->elem_bytes = 4;
    }
}

/* Takes the shape of the first part, or compares with it. */
static tri_status take_shape(struct tri_column *c, enum tri_column_want want, const char *path,
                             hid_t type, hid_t space, int64_t *rows)
{
    hsize_t dims[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dims, NULL) - 1;
    bool integers = H5Tget_class(type) == H5T_INTEGER, same = rank == c->rank;
    size_t count = 1;

    *rows = (int64_t)dims[0];
    if (c->nparts > 0) {
        for (int d = 0; d < rank && same; d++)
            same = c->shape[d] == (int64_t)dims[d + 1];
        if (!same || integers != c->integers)
            return wrong_type(path, c->entry, "of the same shape and kind in all files and splits",
                              type, space);
        return TRI_OK;
    }
    for (int d = 0; d < rank; d++) {
        if (dims[d + 1] == 0)
            return wrong_type(path, c->entry, "without empty axes", type, space);
        TRI_TRY(tri_mul_size(count, dims[d + 1], c->entry, &count));
        c->shape[d] = (int64_t)dims[d + 1];
    }
    c->rank = rank;
    c->row_count = (int64_t)count;
    set_memory_type(c, want, integers);
    return TRI_OK;
}

/* Names the first filter that this HDF5 cannot undo (h5py's lzf, plug-ins). */
static tri_status check_filters(const char *path, const char *entry, hid_t dcpl)
{
    int n = H5Pget_nfilters(dcpl);

    for (int i = 0; i < n; i++) {
        char name[64] = "";
        size_t nvalues = 0;
        unsigned flags, config;
        H5Z_filter_t f =
            H5Pget_filter2(dcpl, (unsigned)i, &flags, &nvalues, NULL, sizeof(name), name, &config);

        if (H5Zfilter_avail(f) <= 0)
            return tri_fail(
                TRI_ERR_DATA,
                "'%s': '%s' is compressed with '%s' (filter %d), which is not available: "
                "use gzip or none",
                path, entry, name, (int)f);
    }
    return TRI_OK;
}

/* A chunk cache that holds a few of the file's chunks. Returns an access list to close. */
static hid_t access_list(hid_t dcpl, hid_t type)
{
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);
    hsize_t dims[H5S_MAX_RANK];

    if (H5Pget_layout(dcpl) == H5D_CHUNKED) {
        int rank = H5Pget_chunk(dcpl, H5S_MAX_RANK, dims);
        double bytes = (double)H5Tget_size(type) * CHUNK_CACHE_CHUNKS;

        for (int d = 0; d < rank; d++)
            bytes *= (double)dims[d];
        if (bytes < CHUNK_CACHE_MIN)
            bytes = CHUNK_CACHE_MIN;
        if (bytes > CHUNK_CACHE_MAX)
            bytes = CHUNK_CACHE_MAX;
        H5Pset_chunk_cache(dapl, 521, (size_t)bytes, 1.0);
    }
    return dapl;
}

/* Opens the entry, checks it and returns it with a suitable chunk cache. */
static tri_status open_entry(struct tri_column *c, enum tri_column_want want, const char *path,
                             hid_t file, hid_t *dset, int64_t *rows)
{
    tri_status st;
    hid_t d = H5Dopen2(file, c->entry, H5P_DEFAULT), type, space, dcpl, dapl;

    if (d < 0)
        return tri_h5_fail(TRI_ERR_DATA, path, "cannot open", c->entry);
    type = H5Dget_type(d);
    space = H5Dget_space(d);
    dcpl = H5Dget_create_plist(d);
    dapl = access_list(dcpl, type);
    st = check_type(want, path, c->entry, type, space);
    if (st == TRI_OK)
        st = take_shape(c, want, path, type, space, rows);
    if (st == TRI_OK)
        st = check_filters(path, c->entry, dcpl);
    H5Dclose(d);
    if (st == TRI_OK) {
        *dset = H5Dopen2(file, c->entry, dapl);
        if (*dset < 0)
            st = tri_h5_fail(TRI_ERR_DATA, path, "cannot open", c->entry);
    }
    H5Pclose(dapl);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
    return st;
}

tri_status tri_column_add(struct tri_column *c, enum tri_column_want want, const char *path,
                          hid_t file, const char *entry)
{
    struct tri_column_part *parts, part = {0};

    tri_h5_quiet();
    snprintf(c->entry, sizeof(c->entry), "%s", entry);
    TRI_TRY(open_entry(c, want, path, file, &part.dset, &part.rows));
    parts = tri_realloc(c->parts, (size_t)c->nparts + 1, sizeof(*parts), "column");
    if (parts != NULL)
        c->parts = parts;
    part.path = tri_strdup(path);
    if (parts == NULL || part.path == NULL) {
        H5Dclose(part.dset);
        tri_free(part.path);
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory to open '%s'", path, entry);
    }
    part.first = c->rows;
    c->parts[c->nparts++] = part;
    c->rows += part.rows;
    return TRI_OK;
}

void tri_column_finish(struct tri_column *c)
{
    for (int i = 0; i < c->nparts; i++) {
        H5Dclose(c->parts[i].dset);
        tri_free(c->parts[i].path);
    }
    tri_free(c->parts);
    tri_free(c->cache);
    *c = (struct tri_column){0};
}

const struct tri_column_part *tri_column_find(const struct tri_column *c, int64_t row)
{
    int i = c->nparts - 1;

    while (i > 0 && row < c->parts[i].first)
        i--;
    return &c->parts[i];
}

static tri_status read_part(const struct tri_column *c, const struct tri_column_part *p,
                            int64_t first, int64_t count, hid_t mem_type, void *out)
{
    hsize_t start[TRI_DATA_MAX_RANK + 1] = {(hsize_t)first},
                                      n[TRI_DATA_MAX_RANK + 1] = {(hsize_t)count};
    hid_t file_space = H5Dget_space(p->dset), mem_space;
    tri_status st = TRI_OK;

    for (int d = 0; d < c->rank; d++)
        n[d + 1] = (hsize_t)c->shape[d];
    mem_space = H5Screate_simple(c->rank + 1, n, NULL);
    if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, n, NULL) < 0 ||
        H5Dread(p->dset, mem_type, mem_space, file_space, H5P_DEFAULT, out) < 0)
        st = tri_h5_fail(TRI_ERR_DATA, p->path, "cannot read", c->entry);
    H5Sclose(mem_space);
    H5Sclose(file_space);
    return st;
}

tri_status tri_column_read(const struct tri_column *c, int64_t first, int64_t count, hid_t mem_type,
                           void *out)
{
    size_t row_bytes = (size_t)c->row_count * H5Tget_size(mem_type);
    char *to = out;

    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= c->rows);
    if (c->cache != NULL && mem_type == c->mem_type) {
        memcpy(out, (const char *)c->cache + (size_t)first * row_bytes, (size_t)count * row_bytes);
        return TRI_OK;
    }
    tri_h5_quiet();
    while (count > 0) {
        const struct tri_column_part *p = tri_column_find(c, first);
        int64_t row = first - p->first, n = p->rows - row < count ? p->rows - row : count;

        TRI_TRY(read_part(c, p, row, n, mem_type, to));
        first += n;
        count -= n;
        to += (size_t)n * row_bytes;
    }
    return TRI_OK;
}

tri_status tri_column_load(struct tri_column *c)
{
    size_t bytes = tri_column_bytes(c);
    tri_status st;
    void *all;

    if (c->cache != NULL || bytes == 0)
        return TRI_OK;
    all = tri_alloc_aligned(bytes, "data cache");
    if (all == NULL)
        return TRI_OK; /* rows are read one by one then */
    st = tri_column_read(c, 0, c->rows, c->mem_type, all);
    if (st != TRI_OK) {
        tri_free(all);
        return st;
    }
    c->cache = all;
    return TRI_OK;
}
