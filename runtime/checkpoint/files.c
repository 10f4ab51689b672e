#include "runtime/checkpoint/files.h"

#include "runtime/core/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

tri_status tri_file_fail(const char *verb, const char *path)
{
    return tri_fail(TRI_ERR_IO, "cannot %s '%s': %s", verb, path, strerror(errno));
}

tri_status tri_path_join(const char *a, const char *b, char **out)
{
    char *s = tri_asprintf("%s/%s", a, b);

    if (s == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the path '%s/%s'", a, b);
    *out = s;
    return TRI_OK;
}

bool tri_is_folder(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

tri_status tri_check_output(const char *path, const char *const *input, int n)
{
    struct stat out, in;

    if (stat(path, &out) != 0)
        return TRI_OK; /* new; what cannot be made is found by making it */
    if (!S_ISREG(out.st_mode))
        return tri_fail(TRI_ERR_USAGE, "'%s' is no regular file: it is not replaced", path);
    for (int i = 0; i < n; i++)
        if (input[i] != NULL && stat(input[i], &in) == 0 && in.st_dev == out.st_dev &&
            in.st_ino == out.st_ino)
            return tri_fail(TRI_ERR_USAGE, "'%s' is an input: it is not replaced by the output",
                            path);
    return TRI_OK;
}

tri_status tri_make_folders(const char *path)
{
    char *copy = tri_strdup(path);
    tri_status st = TRI_OK;

    if (copy == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the path '%s'", path);
    for (char *p = copy + 1; st == TRI_OK && *copy != '\0'; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && tri_is_folder(copy)))
            st = tri_file_fail("create the folder", copy);
        *p = c;
        if (c == '\0')
            break;
    }
    tri_free(copy);
    return st;
}

static tri_status remove_entries(const char *path)
{
    DIR *d = opendir(path);
    tri_status st = TRI_OK;

    if (d == NULL)
        return errno == ENOENT ? TRI_OK : tri_file_fail("open the folder", path);
    for (struct dirent *e; st == TRI_OK && (e = readdir(d)) != NULL;) {
        char *inner = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        st = tri_path_join(path, e->d_name, &inner);
        if (st == TRI_OK)
            st = tri_remove_tree(inner);
        tri_free(inner);
    }
    closedir(d);
    return st;
}

tri_status tri_remove_tree(const char *path)
{
    struct stat s;

    if (lstat(path, &s) != 0)
        return errno == ENOENT ? TRI_OK : tri_file_fail("look at", path);
    if (!S_ISDIR(s.st_mode))
        return unlink(path) == 0 || errno == ENOENT ? TRI_OK : tri_file_fail("remove", path);
    TRI_TRY(remove_entries(path));
    return rmdir(path) == 0 || errno == ENOENT ? TRI_OK : tri_file_fail("remove", path);
}

tri_status tri_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tri_status st = TRI_OK;

    if (fd < 0)
        return tri_file_fail("open the folder", path);
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: a file system without it */
        st = tri_file_fail("sync the folder", path);
    close(fd);
    return st;
}

tri_status tri_pwrite_all(int fd, const void *data, size_t bytes, int64_t offset, const char *path)
{
    const unsigned char *p = data;

    while (bytes > 0) {
        size_t piece = bytes < TRI_FILE_PIECE_BYTES ? bytes : TRI_FILE_PIECE_BYTES;
        ssize_t n = pwrite(fd, p, piece, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tri_file_fail("write", path);
        p += n;
        bytes -= (size_t)n;
        offset += n;
    }
    return TRI_OK;
}

tri_status tri_pread_all(int fd, void *data, size_t bytes, int64_t offset, const char *path)
{
    unsigned char *p = data;

    while (bytes > 0) {
        size_t piece = bytes < TRI_FILE_PIECE_BYTES ? bytes : TRI_FILE_PIECE_BYTES;
        ssize_t n = pread(fd, p, piece, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tri_file_fail("read", path);
        if (n == 0)
            return tri_fail(TRI_ERR_DATA, "'%s' ends too early: nothing at byte %lld", path,
                            (long long)offset);
        p += n;
        bytes -= (size_t)n;
        offset += n;
    }
    return TRI_OK;
}

tri_status tri_write_file(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    tri_status st;

    if (fd < 0)
        return tri_file_fail("create", path);
    st = tri_pwrite_all(fd, data, bytes, 0, path);
    if (st == TRI_OK && fsync(fd) != 0)
        st = tri_file_fail("sync", path);
    if (close(fd) != 0 && st == TRI_OK)
        st = tri_file_fail("close", path);
    return st;
}

static tri_status read_open_file(int fd, const char *path, size_t max_bytes, char **data,
                                 size_t *bytes)
{
    struct stat s;
    char *text;
    tri_status st;

    if (fstat(fd, &s) != 0)
        return tri_file_fail("look at", path);
    if (!S_ISREG(s.st_mode))
        return tri_fail(TRI_ERR_DATA, "'%s' is not a file", path);
    if ((uint64_t)s.st_size > max_bytes)
        return tri_fail(TRI_ERR_DATA, "'%s' has %lld bytes, more than the %zu it may have", path,
                        (long long)s.st_size, max_bytes);
    text = tri_calloc((size_t)s.st_size + 1, 1, "file");
    if (text == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate %lld bytes", path,
                        (long long)s.st_size);
    st = tri_pread_all(fd, text, (size_t)s.st_size, 0, path);
    if (st != TRI_OK) {
        tri_free(text);
        return st;
    }
    *data = text;
    *bytes = (size_t)s.st_size;
    return TRI_OK;
}

tri_status tri_read_file(const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    tri_status st;

    if (fd < 0)
        return tri_file_fail("open", path);
    st = read_open_file(fd, path, max_bytes, data, bytes);
    close(fd);
    return st;
}

tri_status tri_replace_link(const char *folder, const char *name, const char *target)
{
    char *link = tri_asprintf("%s/%s", folder, name);
    char *temporary = tri_asprintf("%s/.tmp-link-%s", folder, name);
    tri_status st = TRI_OK;

    if (link == NULL || temporary == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the path '%s/%s'", folder, name);
        goto free_paths;
    }
    if (unlink(temporary) != 0 && errno != ENOENT)
        st = tri_file_fail("remove", temporary);
    else if (symlink(target, temporary) != 0)
        st = tri_file_fail("create the link", temporary);
    else if (rename(temporary, link) != 0) {
        st = tri_file_fail("replace the link", link);
        unlink(temporary);
    }
free_paths:
    tri_free(temporary);
    tri_free(link);
    return st;
}
