/* Dataset writer: HDF5 for the layout, pwrite for the bytes. */
#include "data/writer.h"

#include "runtime/core/h5.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { METADATA_ROOM = 1 << 20 }; /* free bytes wanted besides the arrays */

static tri_status io_error(const struct tri_writer *w, const char *what, int err)
{
    return tri_fail(TRI_ERR_IO, "'%s': %s: %s", w->path, what, strerror(err));
}

/* Refuses while there is room for metadata, or before there is a file: HDF5 does not survive a full
 * disk, not even in H5Fclose. */
static tri_status check_room(const struct tri_writer *w)
{
    double need = METADATA_ROOM, have;
    struct statvfs fs;

    for (int i = 0; i < w->narrays; i++)
        need += (double)w->bytes[i];
    if (statvfs(w->tmp, &fs) != 0)
        return io_error(w, "cannot look at the free space", errno);
    have = (double)fs.f_bavail * (double)fs.f_frsize;
    if (have < need)
        return tri_fail(TRI_ERR_IO, "'%s': needs %.0f bytes, the disk has %.0f", w->path, need,
                        have);
    return TRI_OK;
}

tri_status tri_writer_create(struct tri_writer *w, const char *path)
{
    int fd;

    *w = (struct tri_writer){.file = -1, .fd = -1};
    w->path = tri_strdup(path);
    w->tmp = tri_asprintf("%s.tmp-%ld", path, (long)getpid());
    if (w->path == NULL || w->tmp == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory to write it", path);
    fd = open(w->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666); /* for a clean reason */
    if (fd < 0)
        return io_error(w, "cannot create", errno);
    close(fd);
    TRI_TRY(check_room(w));
    tri_h5_quiet();
    w->file = tri_h5_create(w->tmp);
    if (w->file < 0)
        return tri_h5_fail(TRI_ERR_IO, path, "cannot create", NULL);
    return TRI_OK;
}

tri_status tri_writer_array(struct tri_writer *w, const char *entry, hid_t type, int rank,
                            const int64_t *dims, int *index)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = H5Pcreate(H5P_LINK_CREATE), space, d;
    tri_status st = TRI_OK;
    hsize_t n[H5S_MAX_RANK];
    size_t bytes = H5Tget_size(type);

    TRI_ASSERT(w->narrays < TRI_WRITER_ARRAYS);
    for (int i = 0; i < rank; i++) {
        n[i] = (hsize_t)dims[i];
        bytes *= (size_t)dims[i];
    }
    H5Pset_create_intermediate_group(lcpl, 1);
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
    space = H5Screate_simple(rank, n, NULL);
    d = H5Dcreate2(w->file, entry, type, space, lcpl, dcpl, H5P_DEFAULT);
    if (d < 0) {
        st = tri_h5_fail(TRI_ERR_IO, w->path, "cannot create", entry);
    } else {
        w->dset[w->narrays] = d;
        w->bytes[w->narrays] = bytes;
        *index = w->narrays++;
    }
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Pclose(lcpl);
    return st;
}

static void close_arrays(struct tri_writer *w)
{
    for (int i = 0; i < w->narrays; i++) {
        if (w->dset[i] >= 0)
            H5Dclose(w->dset[i]);
        w->dset[i] = -1;
    }
}

tri_status tri_writer_layout(struct tri_writer *w)
{
    struct stat sb;
    herr_t rc;
    int err;

    TRI_TRY(check_room(w));
    for (int i = 0; i < w->narrays; i++)
        w->offset[i] = w->bytes[i] > 0 ? (int64_t)H5Dget_offset(w->dset[i]) : 0;
    close_arrays(w);
    rc = H5Fclose(w->file);
    w->file = -1;
    if (rc < 0)
        return tri_h5_fail(TRI_ERR_IO, w->path, "cannot write the layout", NULL);
    w->fd = open(w->tmp, O_WRONLY);
    if (w->fd < 0 || fstat(w->fd, &sb) != 0)
        return io_error(w, "cannot open again", errno);
    err = posix_fallocate(w->fd, 0, sb.st_size);
    if (err != 0)
        return io_error(w, "cannot reserve its space", err);
    return TRI_OK;
}

tri_status tri_writer_put(struct tri_writer *w, int index, size_t offset, const void *data,
                          size_t bytes)
{
    const char *p = data;
    off_t at = (off_t)w->offset[index] + (off_t)offset;

    TRI_ASSERT(offset + bytes <= w->bytes[index]);
    while (bytes > 0) {
        ssize_t n = pwrite(w->fd, p, bytes, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_error(w, "cannot write", n < 0 ? errno : ENOSPC);
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return TRI_OK;
}

tri_status tri_writer_finish(struct tri_writer *w)
{
    int rc = fsync(w->fd);

    if (rc != 0)
        return io_error(w, "cannot sync", errno);
    rc = close(w->fd);
    w->fd = -1;
    if (rc != 0)
        return io_error(w, "cannot close", errno);
    if (rename(w->tmp, w->path) != 0)
        return io_error(w, "cannot rename to it", errno);
    tri_free(w->tmp);
    w->tmp = NULL;
    return TRI_OK;
}

void tri_writer_destroy(struct tri_writer *w)
{
    close_arrays(w);
    if (w->file >= 0)
        H5Fclose(w->file);
    if (w->fd >= 0)
        close(w->fd);
    if (w->tmp != NULL)
        unlink(w->tmp);
    tri_free(w->tmp);
    tri_free(w->path);
    *w = (struct tri_writer){.file = -1, .fd = -1};
}
