/* Written like a checkpoint: HDF5 makes the layout only, space is reserved, and the numbers go by
 * pwrite, so that a full disk is an error with its reason (HDF5 1.10 does not survive one). */
#include "launch/predictions.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tri_predictions {
    char *path, *temp;
    int64_t n, rows, cols; /* a sample is rows x cols; labels has one entry a row */
    struct tri_shape sample;
    bool labels;
    int64_t outputs_at, labels_at; /* bytes from the start of the file */
    int fd;
    int32_t *argmax; /* rows */
};

/* A contiguous dataset with its space allocated and not filled; *offset: its first byte. */
static tri_status add_dataset(hid_t file, const struct tri_predictions *p, const char *name,
                              hid_t type, int ndim, const hsize_t *dim, int64_t *offset)
{
    hid_t space = H5Screate_simple(ndim, dim, NULL);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    hid_t set;
    haddr_t at;

    H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    at = set >= 0 ? H5Dget_offset(set) : HADDR_UNDEF;
    if (set >= 0)
        H5Dclose(set);
    H5Pclose(plist);
    H5Sclose(space);
    if (at == HADDR_UNDEF)
        return tri_h5_fail(TRI_ERR_IO, p->temp, "cannot create", name);
    *offset = (int64_t)at;
    return TRI_OK;
}

static tri_status make_layout(void *arg)
{
    struct tri_predictions *p = arg;
    hsize_t dim[TRI_MAX_DIMS + 1] = {(hsize_t)p->n};
    hid_t file;
    tri_status st;

    tri_h5_quiet();
    for (int i = 0; i < p->sample.ndim; i++)
        dim[i + 1] = (hsize_t)p->sample.dim[i];
    file = tri_h5_create(p->temp);
    if (file < 0)
        return tri_h5_fail(TRI_ERR_IO, p->temp, "cannot create", NULL);
    st = add_dataset(file, p, "outputs", H5T_IEEE_F32LE, p->sample.ndim + 1, dim, &p->outputs_at);
    if (st == TRI_OK && p->labels)
        st = add_dataset(file, p, "labels", H5T_STD_I32LE, p->sample.ndim, dim, &p->labels_at);
    if (H5Fclose(file) < 0 && st == TRI_OK)
        st = tri_h5_fail(TRI_ERR_IO, p->temp, "cannot close", NULL);
    return st;
}

static tri_status reserve(struct tri_predictions *p)
{
    int64_t end = p->outputs_at + p->n * p->rows * p->cols * (int64_t)sizeof(float);
    int err;

    if (p->labels && p->labels_at + p->n * p->rows * (int64_t)sizeof(int32_t) > end)
        end = p->labels_at + p->n * p->rows * (int64_t)sizeof(int32_t);
    p->fd = open(p->temp, O_RDWR | O_CLOEXEC);
    if (p->fd < 0)
        return tri_file_fail("open", p->temp);
    err = posix_fallocate(p->fd, 0, end);
    if (err != 0) {
        errno = err;
        return tri_file_fail("reserve space for", p->temp);
    }
    return TRI_OK;
}

tri_status tri_predictions_create(const char *path, int64_t n, const struct tri_shape *sample,
                                  bool labels, struct tri_predictions **out)
{
    struct tri_predictions *p = tri_calloc(1, sizeof(*p), "predictions");
    tri_status st;

    if (p == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the predictions");
    p->fd = -1;
    p->n = n;
    p->sample = *sample;
    p->cols = labels ? tri_shape_cols(sample) : 1;
    p->rows = tri_shape_count(sample) / p->cols;
    p->labels = labels;
    p->path = tri_strdup(path);
    p->temp = tri_asprintf("%s.tmp", path);
    p->argmax = tri_calloc((size_t)p->rows, sizeof(*p->argmax), "predicted labels");
    if (p->path == NULL || p->temp == NULL || p->argmax == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the predictions");
    else
        st = tri_io_call(make_layout, p);
    if (st == TRI_OK)
        st = reserve(p);
    if (st != TRI_OK) {
        (void)!tri_predictions_close(p, false);
        return st;
    }
    *out = p;
    return TRI_OK;
}

static void argmax_rows(const struct tri_predictions *p, const float *outputs)
{
    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = outputs + r * p->cols;
        int32_t best = 0;

        for (int32_t c = 1; c < p->cols; c++)
            if (x[c] > x[best])
                best = c;
        p->argmax[r] = best;
    }
}

tri_status tri_predictions_write(struct tri_predictions *p, int64_t first, int64_t count,
                                 const float *outputs)
{
    int64_t elements = p->rows * p->cols;

    TRI_TRY(tri_pwrite_all(p->fd, outputs, (size_t)(count * elements) * sizeof(float),
                           p->outputs_at + first * elements * (int64_t)sizeof(float), p->temp));
    for (int64_t i = 0; p->labels && i < count; i++) {
        argmax_rows(p, outputs + i * elements);
        TRI_TRY(tri_pwrite_all(p->fd, p->argmax, (size_t)p->rows * sizeof(int32_t),
                               p->labels_at + (first + i) * p->rows * (int64_t)sizeof(int32_t),
                               p->temp));
    }
    return TRI_OK;
}

tri_status tri_predictions_close(struct tri_predictions *p, bool keep)
{
    tri_status st = TRI_OK;

    if (p == NULL)
        return TRI_OK;
    if (p->fd >= 0) {
        if (keep && fsync(p->fd) != 0)
            st = tri_file_fail("write", p->temp);
        if (close(p->fd) != 0 && keep && st == TRI_OK)
            st = tri_file_fail("write", p->temp);
        if (keep && st == TRI_OK && rename(p->temp, p->path) != 0)
            st = tri_file_fail("create", p->path);
    }
    if ((!keep || st != TRI_OK) && p->temp != NULL)
        unlink(p->temp);
    tri_free(p->argmax);
    tri_free(p->temp);
    tri_free(p->path);
    tri_free(p);
    return st;
}
