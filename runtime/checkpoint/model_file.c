#include "runtime/checkpoint/model_file.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT_TEXT "trireme checkpoint 1"

/* Property lists of one file. */
struct creation {
    hid_t file, links, dataset;
};

/* A little-endian float of two bytes: sign in bit 15, then exponent, then mantissa. */
static hid_t half_type(size_t exponent_bits, size_t mantissa_bits, size_t bias)
{
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);

    if (t < 0)
        return t;
    if (H5Tset_fields(t, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
        H5Tset_precision(t, 16) < 0 || H5Tset_size(t, 2) < 0 || H5Tset_ebias(t, bias) < 0) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

static hid_t file_type(enum tri_dtype dtype)
{
    switch (dtype) {
    case TRI_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case TRI_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TRI_BF16:
        return half_type(8, 7, 127);
    case TRI_F16:
        return half_type(5, 10, 15);
    case TRI_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case TRI_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case TRI_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case TRI_DTYPE_COUNT:
        break;
    }
    return H5I_INVALID_HID;
}

static hid_t make_space(const struct tri_shape *s)
{
    hsize_t dim[TRI_MAX_DIMS];

    if (s->ndim == 0)
        return H5Screate(H5S_SCALAR);
    for (int d = 0; d < s->ndim; d++)
        dim[d] = (hsize_t)s->dim[d];
    return H5Screate_simple(s->ndim, dim, NULL);
}

static tri_status create_dataset(const struct creation *c, const char *path,
                                 struct tri_manifest_tensor *t)
{
    hid_t type = file_type(t->dtype), space = make_space(&t->shape);
    hid_t set = H5I_INVALID_HID;
    haddr_t at = HADDR_UNDEF;
    bool empty = tri_manifest_tensor_bytes(t) == 0;

    if (type >= 0 && space >= 0)
        set = H5Dcreate2(c->file, t->name, type, space, c->links, c->dataset, H5P_DEFAULT);
    if (set >= 0) {
        at = H5Dget_offset(set);
        H5Dclose(set);
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (set < 0 || (at == HADDR_UNDEF && !empty))
        return tri_fail(TRI_ERR_IO, "cannot create '%s' in '%s'", t->name, path);
    t->offset = empty ? 0 : (int64_t)at;
    return TRI_OK;
}

static bool make_lists(struct creation *c)
{
    c->links = H5Pcreate(H5P_LINK_CREATE);
    c->dataset = H5Pcreate(H5P_DATASET_CREATE);
    return c->links >= 0 && c->dataset >= 0 && H5Pset_create_intermediate_group(c->links, 1) >= 0 &&
           H5Pset_layout(c->dataset, H5D_CONTIGUOUS) >= 0 &&
           H5Pset_alloc_time(c->dataset, H5D_ALLOC_TIME_EARLY) >= 0 &&
           H5Pset_fill_time(c->dataset, H5D_FILL_TIME_NEVER) >= 0 &&
           H5Pset_obj_track_times(c->dataset, 0) >= 0;
}

static tri_status fill_layout(struct creation *c, const char *path, struct tri_manifest *m)
{
    if (!make_lists(c))
        return tri_fail(TRI_ERR_IO, "cannot write the layout of '%s'", path);
    TRI_TRY(tri_h5_put_string(c->file, path, "format", FORMAT_TEXT));
    for (int i = 0; i < m->ntensor; i++)
        TRI_TRY(create_dataset(c, path, &m->tensor[i]));
    return TRI_OK;
}

/* Bytes up to the end of the last tensor, which HDF5 may leave out of the file. */
static int64_t end_of_tensors(const struct tri_manifest *m)
{
    int64_t end = 0;

    for (int i = 0; i < m->ntensor; i++) {
        int64_t e = m->tensor[i].offset + (int64_t)tri_manifest_tensor_bytes(&m->tensor[i]);
        end = e > end ? e : end;
    }
    return end;
}

static tri_status reserve_space(const char *path, struct tri_manifest *m)
{
    int fd = open(path, O_RDWR | O_CLOEXEC), error;
    struct stat s;
    tri_status st = TRI_OK;

    if (fd < 0)
        return tri_file_fail("open", path);
    if (fstat(fd, &s) != 0) {
        st = tri_file_fail("look at", path);
        goto close_file;
    }
    m->model_bytes = end_of_tensors(m);
    if (m->model_bytes < s.st_size)
        m->model_bytes = s.st_size;
    error = posix_fallocate(fd, 0, m->model_bytes);
    if (error != 0) {
        errno = error;
        st = tri_file_fail("reserve space for", path);
    }
close_file:
    close(fd);
    return st;
}

/* More than HDF5 needs for groups and headers: 4 KB and its name for each tensor. */
static int64_t layout_bytes_bound(const struct tri_manifest *m)
{
    size_t bytes = (size_t)64 << 10;

    for (int i = 0; i < m->ntensor; i++)
        bytes += ((size_t)4 << 10) + 2 * strlen(m->tensor[i].name);
    return (int64_t)bytes;
}

/* HDF5 must not meet a full disk even for its layout: the space of the whole file is tried first
 * and given back. */
static tri_status try_space(const char *path, const struct tri_manifest *m)
{
    int64_t bytes = layout_bytes_bound(m);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), error;
    tri_status st = TRI_OK;

    if (fd < 0)
        return tri_file_fail("create", path);
    for (int i = 0; i < m->ntensor; i++)
        bytes += (int64_t)tri_manifest_tensor_bytes(&m->tensor[i]);
    error = posix_fallocate(fd, 0, bytes);
    if (error != 0) {
        errno = error;
        st = tri_file_fail("reserve space for", path);
    }
    close(fd);
    return st;
}

tri_status tri_model_file_create(const char *path, struct tri_manifest *m)
{
    struct creation c = {H5I_INVALID_HID, H5I_INVALID_HID, H5I_INVALID_HID};
    tri_status st;

    TRI_TRY(try_space(path, m));
    tri_h5_quiet();
    errno = 0;
    c.file = tri_h5_create(path);
    if (c.file < 0)
        return tri_file_fail("create", path);
    st = fill_layout(&c, path, m);
    if (c.dataset >= 0)
        H5Pclose(c.dataset);
    if (c.links >= 0)
        H5Pclose(c.links);
    if (H5Fclose(c.file) < 0 && st == TRI_OK)
        st = tri_file_fail("close", path);
    return st == TRI_OK ? reserve_space(path, m) : st;
}
