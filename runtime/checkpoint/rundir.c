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
    int lock; /* open file with the lock, -1 on ranks other than 0 */
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

static tri_status open_lock(const char *path, int *out)
{
    char *name = NULL;
    tri_status st;
    int fd;

    TRI_TRY(tri_path_join(path, ".lock", &name));
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

static tri_status open_here(const char *path, struct tri_rundir *r)
{
    char *inner = NULL;
    tri_status st;

    TRI_TRY(tri_make_folders(path));
    TRI_TRY(open_lock(path, &r->lock));
    TRI_TRY(tri_path_join(path, "checkpoints", &inner));
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
    if (r->lock >= 0)
        close(r->lock);
    tri_free(r);
}
