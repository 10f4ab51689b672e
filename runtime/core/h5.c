/* HDF5 helpers: opening, attributes, one-line error messages. */
#include "runtime/core/h5.h"

#include "runtime/core/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void tri_h5_quiet(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

struct innermost {
    char text[400];
};

static herr_t keep_first(unsigned n, const H5E_error2_t *err, void *arg)
{
    struct innermost *in = arg;

    if (n == 0)
        snprintf(in->text, sizeof(in->text), "%s", err->desc != NULL ? err->desc : "");
    for (char *p = in->text; *p != '\0'; p++) /* a time of day brings its own line end */
        if (*p == '\n')
            *p = ' ';
    return 0;
}

tri_status tri_h5_fail(tri_status code, const char *path, const char *what, const char *object)
{
    struct innermost in = {{0}};

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &in);
    H5Eclear2(H5E_DEFAULT);
    if (in.text[0] == '\0')
        snprintf(in.text, sizeof(in.text), "unknown HDF5 error");
    if (object == NULL)
        return tri_fail(code, "'%s': %s: %s", path, what, in.text);
    return tri_fail(code, "'%s': %s '%s': %s", path, what, object, in.text);
}

tri_status tri_h5_open(const char *path, tri_status code_on_error, hid_t *file)
{
    tri_status st = TRI_OK;
    hid_t fapl, f;

    tri_h5_quiet();
    fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(fapl, true, true);
    f = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    if (f < 0) {
        H5Pset_file_locking(fapl, false, true);
        f = H5Fopen(path, H5F_ACC_RDONLY, fapl);
        if (f < 0)
            st = tri_h5_fail(code_on_error, path, "cannot open as an HDF5 file", NULL);
        else
            tri_warn("'%s' is locked or cannot be locked: reading it without a lock", path);
    }
    H5Pclose(fapl);
    if (st == TRI_OK)
        *file = f;
    return st;
}

hid_t tri_h5_create(const char *path)
{
    hid_t fapl, file, stack;
    int err;

    tri_h5_quiet();
    fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(fapl, false, true);
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    err = errno;
    stack = H5Eget_current_stack(); /* every other call clears it */
    H5Pclose(fapl);
    H5Eset_current_stack(stack);
    errno = err;
    return file;
}

bool tri_h5_exists(hid_t loc, const char *path)
{
    char part[512];
    const char *end = path;

    tri_h5_quiet();
    if (strlen(path) >= sizeof(part))
        return false;
    do {
        end = strchr(end + 1, '/');
        size_t len = end != NULL ? (size_t)(end - path) : strlen(path);
        memcpy(part, path, len);
        part[len] = '\0';
        if (H5Lexists(loc, part, H5P_DEFAULT) <= 0)
            return false;
    } while (end != NULL);
    return true;
}

/* Opens attribute `name` and checks that it holds 1..max numbers; *attr = -1 when there is none. */
static tri_status open_numbers(hid_t obj, const char *path, const char *name, int max, bool floats,
                               hid_t *attr, int *count)
{
    hid_t a, type, space;
    H5T_class_t cls;
    hssize_t n;
    char text[64];

    tri_h5_quiet();
    *attr = -1;
    *count = 0;
    if (H5Aexists(obj, name) <= 0)
        return TRI_OK;
    a = H5Aopen(obj, name, H5P_DEFAULT);
    if (a < 0)
        return tri_h5_fail(TRI_ERR_DATA, path, "cannot open attribute", name);
    type = H5Aget_type(a);
    space = H5Aget_space(a);
    cls = H5Tget_class(type);
    n = H5Sget_simple_extent_npoints(space);
    tri_h5_type_text(type, text, sizeof(text));
    H5Tclose(type);
    H5Sclose(space);
    if ((cls != H5T_INTEGER && !(floats && cls == H5T_FLOAT)) || n < 1 || n > max) {
        H5Aclose(a);
        return tri_fail(TRI_ERR_DATA,
                        "'%s': attribute '%s' has %lld x %s, must be %s, 1 to %d of them", path,
                        name, (long long)n, text, floats ? "numbers" : "integers", max);
    }
    *attr = a;
    *count = (int)n;
    return TRI_OK;
}

static tri_status read_numbers(hid_t obj, const char *path, const char *name, int max, bool floats,
                               void *out, int *count)
{
    tri_status st = TRI_OK;
    hid_t a;
    int n;

    TRI_TRY(open_numbers(obj, path, name, max, floats, &a, &n));
    if (a < 0) {
        *count = 0;
        return TRI_OK;
    }
    if (H5Aread(a, floats ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64, out) < 0)
        st = tri_h5_fail(TRI_ERR_DATA, path, "cannot read attribute", name);
    else
        *count = n;
    H5Aclose(a);
    return st;
}

tri_status tri_h5_attr_f64(hid_t obj, const char *path, const char *name, int max, double *out,
                           int *count)
{
    return read_numbers(obj, path, name, max, true, out, count);
}

tri_status tri_h5_attr_i64(hid_t obj, const char *path, const char *name, int max, int64_t *out,
                           int *count)
{
    return read_numbers(obj, path, name, max, false, out, count);
}

static tri_status read_string(hid_t a, const char *path, const char *name, hid_t type, char *out,
                              size_t size)
{
    hid_t mem = H5Tcopy(H5T_C_S1);
    tri_status st = TRI_OK;

    H5Tset_cset(mem, H5Tget_cset(type));
    if (H5Tis_variable_str(type) > 0) {
        char *s = NULL;

        H5Tset_size(mem, H5T_VARIABLE);
        if (H5Aread(a, mem, (void *)&s) < 0) {
            st = tri_h5_fail(TRI_ERR_DATA, path, "cannot read attribute", name);
        } else if (s != NULL) {
            snprintf(out, size, "%s", s);
            H5free_memory(s);
        }
    } else { /* converts to our length, NUL-terminated, truncating */
        H5Tset_size(mem, size);
        if (H5Aread(a, mem, out) < 0)
            st = tri_h5_fail(TRI_ERR_DATA, path, "cannot read attribute", name);
    }
    H5Tclose(mem);
    return st;
}

tri_status tri_h5_attr_string(hid_t obj, const char *path, const char *name, char *out, size_t size)
{
    hid_t a, type, space;
    hssize_t n;
    tri_status st;

    tri_h5_quiet();
    out[0] = '\0';
    if (H5Aexists(obj, name) <= 0)
        return TRI_OK;
    a = H5Aopen(obj, name, H5P_DEFAULT);
    if (a < 0)
        return tri_h5_fail(TRI_ERR_DATA, path, "cannot open attribute", name);
    type = H5Aget_type(a);
    space = H5Aget_space(a);
    n = H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(type) == H5T_STRING && n == 1)
        st = read_string(a, path, name, type, out, size);
    else
        st = tri_fail(TRI_ERR_DATA, "'%s': attribute '%s' must be one string", path, name);
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(a);
    return st;
}

static tri_status put(hid_t obj, const char *path, const char *name, int count, hid_t file_type,
                      hid_t mem_type, const void *v)
{
    hsize_t dim = (hsize_t)(count < 0 ? 1 : count);
    tri_status st = TRI_OK;
    hid_t space, a;

    tri_h5_quiet();
    space = count < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dim, NULL);
    a = H5Acreate2(obj, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a < 0 || H5Awrite(a, mem_type, v) < 0)
        st = tri_h5_fail(TRI_ERR_IO, path, "cannot write attribute", name);
    if (a >= 0)
        H5Aclose(a);
    H5Sclose(space);
    return st;
}

tri_status tri_h5_put_f64(hid_t obj, const char *path, const char *name, int count, const double *v)
{
    return put(obj, path, name, count, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, v);
}

tri_status tri_h5_put_i64(hid_t obj, const char *path, const char *name, int count,
                          const int64_t *v)
{
    return put(obj, path, name, count, H5T_STD_I64LE, H5T_NATIVE_INT64, v);
}

tri_status tri_h5_put_string(hid_t obj, const char *path, const char *name, const char *v)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    tri_status st;

    H5Tset_size(type, H5T_VARIABLE); /* h5py shows these as str, strings of fixed length as bytes */
    H5Tset_cset(type, H5T_CSET_UTF8);
    st = put(obj, path, name, -1, type, type, (const void *)&v);
    H5Tclose(type);
    return st;
}

const char *tri_h5_type_text(hid_t type, char *buf, size_t size)
{
    size_t bits = H5Tget_size(type) * 8;
    const char *big = bits > 8 && H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : "";

    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        snprintf(buf, size, "%sint%zu%s", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits, big);
        break;
    case H5T_FLOAT:
        snprintf(buf, size, "float%zu%s", bits, big);
        break;
    case H5T_STRING:
        snprintf(buf, size, "string");
        break;
    case H5T_ENUM:
        snprintf(buf, size, "enumeration");
        break;
    case H5T_COMPOUND:
        snprintf(buf, size, "compound");
        break;
    default:
        snprintf(buf, size, "other type");
    }
    return buf;
}

const char *tri_h5_space_text(hid_t space, char *buf, size_t size)
{
    hsize_t dims[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    size_t len = 0;

    if (rank == 0) {
        snprintf(buf, size, "scalar");
        return buf;
    }
    buf[0] = '\0';
    for (int d = 0; d < rank && len < size; d++)
        len += (size_t)snprintf(buf + len, size - len, "%s%llu%s", d == 0 ? "[" : ", ",
                                (unsigned long long)dims[d], d == rank - 1 ? "]" : "");
    return buf;
}
