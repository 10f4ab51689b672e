#include "runtime/checkpoint/rundir.h"

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/files.h"
#include "runtime/core/host.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OWNER_BYTES 320

struct tri_rundir {
    int lock;        /* open file with the lock, -1 on ranks other than 0 */
    char *path;      /* of rank 0, else NULL */
    size_t existing; /* bytes of path that were there before; 0: none of it */
    bool made_lock, made_checkpoints;
};

/* Says who holds the lock, from the file that the owner filled in. */
static tri_status fail_in_use(int fd, const char *path)
{
    char owner[OWNER_BYTES] = "";
    ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);

    owner[n > 0 ? n : 0] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
    return tri_fail(TRI_ERR_USAGE, "the run folder '%s' is in use by another job (%s)", path,
                    owner[0] != '\0' ? owner : "unknown process");
}

/* An open-file-description lock: unlike a process lock it is not lost when something else closes
 * the file. */
static tri_status take_lock(int fd, const char *path)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char host[TRI_HOST_BYTES], owner[OWNER_BYTES];
    int n;

    if (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            return fail_in_use(fd, path);
        tri_warn("the file system of '%s' gives no locks (%s): another job in the same run folder "
                 "would not be noticed",
                 path, strerror(errno));
    }
    tri_host_name(host, sizeof(host));
    n = snprintf(owner, sizeof(owner), "process %ld on host %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0)
        return tri_file_fail("write the lock of", path);
    return tri_pwrite_all(fd, owner, (size_t)n, 0, path);
}

static tri_status open_lock(const char *path, int *out, bool *made)
{
    char *name = NULL;
    tri_status st;
    int fd;

    TRI_TRY(tri_path_join(path, ".lock", &name));
    *made = access(name, F_OK) != 0;
    fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    st = fd < 0 ? tri_file_fail("create", name) : TRI_OK;
    tri_free(name);
    TRI_TRY(st);
    st = take_lock(fd, path);
    if (st != TRI_OK) {
        close(fd);
        return st;
    }
    *out = fd;
    return TRI_OK;
}

/* Length of the longest part of `path` that is a folder; 0: none, or the working folder. */
static size_t existing_part(char *path)
{
    size_t n = strlen(path);

    while (n > 0) {
        char c = path[n];
        bool there;

        path[n] = '\0';
        there = tri_is_folder(path);
        path[n] = c;
        if (there)
            break;
        while (n > 0 && path[n - 1] != '/')
            n--;
        while (n > 0 && path[n - 1] == '/')
            n--;
    }
    return n;
}

/* Removes what open_here has made, as far as nothing was put into it. rmdir refuses the rest. */
static void remove_unused(struct tri_rundir *r)
{
    char *inner = NULL, *lock = NULL;

    if (!r->made_checkpoints || tri_path_join(r->path, "checkpoints", &inner) != TRI_OK)
        return;
    if (rmdir(inner) == 0 && r->made_lock && tri_path_join(r->path, ".lock", &lock) == TRI_OK &&
        unlink(lock) == 0) {
        for (size_t n = strlen(r->path); n > r->existing; n--) {
            if ((r->path[n] != '\0' && r->path[n] != '/') || r->path[n - 1] == '/')
                continue;
            r->path[n] = '\0';
            if (rmdir(r->path) != 0)
                break;
        }
    }
    tri_free(lock);
    tri_free(inner);
}

static tri_status open_here(const char *path, struct tri_rundir *r)
{
    char *inner = NULL;
    tri_status st;

    r->path = tri_strdup(path);
    if (r->path == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the path '%s'", path);
    r->existing = existing_part(r->path);
    TRI_TRY(tri_make_folders(path));
    TRI_TRY(open_lock(path, &r->lock, &r->made_lock));
    TRI_TRY(tri_path_join(path, "checkpoints", &inner));
    r->made_checkpoints = !tri_is_folder(inner);
    st = tri_make_folders(inner);
    tri_free(inner);
    return st == TRI_OK ? tri_checkpoint_clean(path) : st;
}

tri_status tri_rundir_open(struct tri_comm *comm, const char *path, struct tri_rundir **out)
{
    struct tri_rundir *r = tri_calloc(1, sizeof(*r), "run folder");
    tri_status st = TRI_OK;

    if (r == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a run folder");
    else
        r->lock = -1;
    if (st == TRI_OK && tri_comm_rank(comm) == 0)
        st = open_here(path, r);
    st = tri_comm_agree(comm, st);
    if (st != TRI_OK) {
        tri_rundir_close(r);
        return st;
    }
    *out = r;
    return TRI_OK;
}

void tri_rundir_close(struct tri_rundir *r)
{
    if (r == NULL)
        return;
    if (r->lock >= 0) {
        remove_unused(r);
        close(r->lock);
    }
    tri_free(r->path);
    tri_free(r);
}
