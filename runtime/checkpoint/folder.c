/* Checks of stored bytes against a manifest. */
#include "runtime/checkpoint/folder.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/rng.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int compare_offsets(const void *a, const void *b)
{
    const struct tri_manifest_tensor *const *x = a, *const *y = b;

    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

#define GAP_BYTES ((size_t)64 << 10) /* read at once of the small gaps between tensors */

/* Adds the hash of bytes [from, to) to *sum, through a buffer of GAP_BYTES. */
static tri_status hash_range(int fd, const char *path, int64_t from, int64_t to, void *buf,
                             uint64_t *sum)
{
    while (from < to) {
        size_t n = (size_t)(to - from);
        if (n > GAP_BYTES)
            n = GAP_BYTES;
        TRI_TRY(tri_pread_all(fd, buf, n, from, path));
        *sum += tri_manifest_hash("layout", from, buf, n);
        from += (int64_t)n;
    }
    return TRI_OK;
}

tri_status tri_model_file_hash(int fd, const char *path, const struct tri_manifest *m,
                               uint64_t *out)
{
    const struct tri_manifest_tensor **order =
        tri_calloc((size_t)m->ntensor + 1, sizeof(*order), "tensor order");
    void *buf = tri_alloc_aligned(GAP_BYTES, "piece of a file");
    int64_t at = 0;
    uint64_t sum = 0;
    tri_status st = TRI_OK;

    if (order == NULL || buf == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate %zu bytes", path, GAP_BYTES);
        goto free_all;
    }
    for (int i = 0; i < m->ntensor; i++)
        order[i] = &m->tensor[i];
    qsort(order, (size_t)m->ntensor, sizeof(*order), compare_offsets);
    for (int i = 0; i < m->ntensor; i++) {
        size_t bytes = tri_manifest_tensor_bytes(order[i]);
        if (bytes == 0)
            continue;
        TRI_TRY_GOTO(st, hash_range(fd, path, at, order[i]->offset, buf, &sum), free_all);
        at = order[i]->offset + (int64_t)bytes;
    }
    TRI_TRY_GOTO(st, hash_range(fd, path, at, m->model_bytes, buf, &sum), free_all);
    *out = sum;
free_all:
    tri_free(buf);
    tri_free(order);
    return st;
}

tri_status tri_stored_hash(int fd, const char *path, const struct tri_manifest_tensor *t,
                           void *data, uint64_t *out)
{
    size_t elem = tri_dtype_bytes(t->dtype), bytes = tri_manifest_tensor_bytes(t);
    unsigned char *buf = data;
    uint64_t name = tri_hash_name(t->name), sum = 0;
    tri_status st = TRI_OK;

    if (data == NULL && bytes > 0) {
        buf = tri_alloc_aligned(bytes < TRI_FILE_PIECE_BYTES ? bytes : TRI_FILE_PIECE_BYTES,
                                "piece of a file");
        if (buf == NULL)
            return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate %zu bytes", path,
                            TRI_FILE_PIECE_BYTES);
    }
    /* The size of a piece is a multiple of every element size. */
    for (size_t at = 0; at < bytes && st == TRI_OK;) {
        size_t n = bytes - at < TRI_FILE_PIECE_BYTES ? bytes - at : TRI_FILE_PIECE_BYTES;
        unsigned char *to = data != NULL ? buf + at : buf;
        st = tri_pread_all(fd, to, n, t->offset + (int64_t)at, path);
        if (st == TRI_OK)
            sum += tri_hash_elements(name, at / elem, to, n / elem, elem);
        at += n;
    }
    if (data == NULL)
        tri_free(buf);
    if (st == TRI_OK)
        *out = sum;
    return st;
}

static tri_status check_size(int fd, const char *path, int64_t want)
{
    struct stat s;

    if (fstat(fd, &s) != 0)
        return tri_file_fail("look at", path);
    if (s.st_size != want)
        return tri_fail(TRI_ERR_CHECKPOINT,
                        "'%s' is damaged: it has %lld bytes instead of %" PRId64, path,
                        (long long)s.st_size, want);
    return TRI_OK;
}

/* The step stored inside model.h5: tells a file of another checkpoint from a damaged one. */
static tri_status check_step(int fd, const char *path, const struct tri_manifest *m)
{
    int i = tri_manifest_find(m, TRI_STEP_TENSOR, m->ntensor - 1);
    int64_t step = 0;

    if (i < 0 || m->tensor[i].dtype != TRI_I64 || m->tensor[i].shape.ndim != 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s': the manifest lists no step in it", path);
    TRI_TRY(tri_pread_all(fd, &step, sizeof(step), m->tensor[i].offset, path));
    if (step != m->step)
        return tri_fail(TRI_ERR_CHECKPOINT,
                        "'%s' is of step %" PRId64 ", its manifest of step %" PRId64, path, step,
                        m->step);
    return TRI_OK;
}

static tri_status check_model(int fd, const char *path, const struct tri_manifest *m)
{
    uint64_t hash = 0;

    TRI_TRY(check_size(fd, path, m->model_bytes));
    TRI_TRY(check_step(fd, path, m));
    TRI_TRY(tri_model_file_hash(fd, path, m, &hash));
    if (hash != m->layout_hash)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: the checksum of its layout is wrong",
                        path);
    return TRI_OK;
}

static tri_status check_config(int fd, const char *path, const struct tri_manifest *m)
{
    char *text = NULL;
    size_t bytes = 0;
    uint64_t hash;

    TRI_TRY(check_size(fd, path, m->config_bytes));
    TRI_TRY(tri_read_file(path, (size_t)m->config_bytes, &text, &bytes));
    hash = tri_manifest_hash("config.yaml", 0, text, bytes);
    tri_free(text);
    if (hash != m->config_hash)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: its checksum is wrong", path);
    return TRI_OK;
}

static tri_status check_file(const char *folder, const char *name, const struct tri_manifest *m,
                             tri_status (*check)(int, const char *, const struct tri_manifest *))
{
    char *path = NULL;
    tri_status st;
    int fd;

    TRI_TRY(tri_path_join(folder, name, &path));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        st = check(fd, path, m);
        close(fd);
    } else {
        tri_file_fail("open", path);
        st = TRI_ERR_CHECKPOINT; /* with the message of the line above */
    }
    tri_free(path);
    return st;
}

tri_status tri_folder_check(const char *folder, const struct tri_manifest *m)
{
    char name[TRI_STEP_NAME_BYTES];
    const char *base = strrchr(folder, '/');

    base = base == NULL ? folder : base + 1;
    tri_step_name(m->step, name);
    if (strncmp(base, "step-", 5) == 0 && strcmp(base, name) != 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' holds the manifest of step %" PRId64, folder,
                        m->step);
    TRI_TRY(check_file(folder, "model.h5", m, check_model));
    return check_file(folder, "config.yaml", m, check_config);
}
