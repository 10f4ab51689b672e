/* Weights from an HDF5 file of any origin: /param/<name>, converted to our number types by the
 * library. */
#include "runtime/checkpoint/checkpoint.h"

#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#define GROUP "param"

struct request {
    const char *path;
    const struct tri_checkpoint_tensor *tensor;
    int ntensor;
};

static hid_t native_type(enum tri_dtype dtype)
{
    switch (dtype) {
    case TRI_F32:
        return H5T_NATIVE_FLOAT;
    case TRI_F64:
        return H5T_NATIVE_DOUBLE;
    case TRI_I32:
        return H5T_NATIVE_INT32;
    case TRI_I64:
        return H5T_NATIVE_INT64;
    case TRI_U8:
        return H5T_NATIVE_UINT8;
    case TRI_BF16:
    case TRI_F16:
    case TRI_DTYPE_COUNT:
        break;
    }
    return H5I_INVALID_HID;
}

/* The shape of a data set; false when it is no simple space of at most TRI_MAX_DIMS dimensions. */
static bool read_shape(hid_t set, struct tri_shape *shape)
{
    hid_t space = H5Dget_space(set);
    hsize_t dim[TRI_MAX_DIMS] = {0};
    int n = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    bool good = n >= 0 && n <= TRI_MAX_DIMS && H5Sget_simple_extent_dims(space, dim, NULL) == n;

    *shape = (struct tri_shape){.ndim = good ? n : 0};
    for (int d = 0; d < shape->ndim; d++)
        shape->dim[d] = (int64_t)dim[d];
    if (space >= 0)
        H5Sclose(space);
    return good;
}

static bool is_number(hid_t set)
{
    hid_t type = H5Dget_type(set);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);

    if (type >= 0)
        H5Tclose(type);
    return class == H5T_FLOAT || class == H5T_INTEGER;
}

static tri_status read_set(const char *path, hid_t set, const struct tri_checkpoint_tensor *t)
{
    char want[TRI_SHAPE_TEXT], have[TRI_SHAPE_TEXT];
    struct tri_shape shape;

    if (!is_number(set) || !read_shape(set, &shape))
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s': '%s' holds no numbers", path, t->name);
    if (!tri_shape_equal(&shape, &t->shape))
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' has shape %s, in '%s' it has %s", t->name,
                        tri_shape_text(&t->shape, want, sizeof(want)), path,
                        tri_shape_text(&shape, have, sizeof(have)));
    if (H5Dread(set, native_type(t->dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, t->data) < 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s': cannot read '%s'", path, t->name);
    return TRI_OK;
}

static tri_status read_one(const char *path, hid_t file, const struct tri_checkpoint_tensor *t)
{
    hid_t set;
    tri_status st;

    if (native_type(t->dtype) < 0)
        return tri_fail(TRI_ERR_UNSUPPORTED, "'%s': weights of type %s cannot be read", t->name,
                        tri_dtype_name(t->dtype));
    if (H5Lexists(file, t->name, H5P_DEFAULT) <= 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' has no '%s', which the model needs", path,
                        t->name);
    set = H5Dopen2(file, t->name, H5P_DEFAULT);
    if (set < 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s': '%s' is no data set", path, t->name);
    st = read_set(path, set, t);
    H5Dclose(set);
    return st;
}

/* Visits each member of /param: one that no tensor has ends the walk with a failure. */
static herr_t visit_member(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    const struct request *r = arg;

    (void)group;
    (void)info;
    for (int i = 0; i < r->ntensor; i++)
        if (strcmp(r->tensor[i].name + sizeof(GROUP), name) == 0)
            return 0;
    tri_fail(TRI_ERR_CHECKPOINT, "'%s' has '%s/%s', which the model does not have", r->path, GROUP,
             name);
    return -1;
}

static tri_status check_extra(struct request *r, hid_t file)
{
    hid_t group = H5Gopen2(file, GROUP, H5P_DEFAULT);
    herr_t walked;

    if (group < 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' has no group '%s'", r->path, GROUP);
    tri_error_set("");
    walked = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_member, r);
    H5Gclose(group);
    if (walked >= 0)
        return TRI_OK;
    return tri_error_text()[0] != '\0'
               ? TRI_ERR_CHECKPOINT
               : tri_fail(TRI_ERR_CHECKPOINT, "'%s': cannot list the group '%s'", r->path, GROUP);
}

static tri_status read_weights(void *arg)
{
    struct request *r = arg;
    hid_t file;
    tri_status st;

    TRI_TRY(tri_h5_open(r->path, TRI_ERR_CHECKPOINT, &file));
    st = check_extra(r, file);
    for (int i = 0; i < r->ntensor && st == TRI_OK; i++)
        st = read_one(r->path, file, &r->tensor[i]);
    H5Fclose(file);
    return st;
}

tri_status tri_weights_read(const char *path, const struct tri_checkpoint_tensor *tensor,
                            int ntensor)
{
    struct request r = {path, tensor, ntensor};

    for (int i = 0; i < ntensor; i++)
        if (strncmp(tensor[i].name, GROUP "/", sizeof(GROUP)) != 0)
            return tri_fail(TRI_ERR_INTERNAL, "'%s' is no parameter", tensor[i].name);
    return tri_io_call(read_weights, &r);
}
