/* Preloaded into the program: counts allocations, file access and locks of the main thread, which
 * is the compute thread, between two steps. A step begins where the trainer asks for its batch.
 *
 * COUNT_FROM, COUNT_TO: first and last step that count. COUNT_FILE: gets one line "steps N", one
 * line "before N" (calls before the first counted step: shows that the counter works) and one line
 * "<function> <object> <symbol> <n>" for each place that called. Calls whose return address lies in
 * oneDNN, OpenMP or MPI are left out; calls from the C library count, since ours may stand
 * behind. Freeing is not counted: OpenMP does it in tail calls, which look like ours. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define PLACES 256

struct place {
    const char *function;
    void *caller;
    long count;
};

static struct place places[PLACES];
static int nplaces;
static long step, before, from = 5, to = 15;
static bool ready;

/* Libraries whose calls are theirs; libstdc++ serves oneDNN alone. */
static const char *const foreign[] = {"libdnnl", "libgomp",   "libmpi",   "libopen-", "mca_",
                                      "libpmix", "libstdc++", "libevent", "libhwloc", "libucp"};

static bool is_foreign(void *caller)
{
    Dl_info info;

    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return false;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (strstr(info.dli_fname, foreign[i]) != NULL)
            return true;
    return false;
}

static void note(const char *function, void *caller)
{
    int i = 0;

    if (!ready || syscall(SYS_gettid) != getpid())
        return;
    before += step < from;
    if (step < from || step > to || is_foreign(caller))
        return;
    while (i < nplaces && (places[i].caller != caller || places[i].function != function))
        i++;
    if (i == PLACES)
        return;
    places[i].function = function;
    places[i].caller = caller;
    places[i].count++;
    nplaces = i < nplaces ? nplaces : i + 1;
}

#define NOTE(function) note(function, __builtin_return_address(0))

/* The next definition of a symbol; ISO C has no cast from object to function pointers. */
#define NEXT(slot, name)                                                                           \
    do {                                                                                           \
        if ((slot) == NULL) {                                                                      \
            void *found = dlsym(RTLD_NEXT, name);                                                  \
            memcpy(&(slot), &found, sizeof(found));                                                \
        }                                                                                          \
    } while (0)

__attribute__((constructor)) static void begin(void)
{
    const char *a = getenv("COUNT_FROM"), *b = getenv("COUNT_TO");

    from = a != NULL ? strtol(a, NULL, 10) : from;
    to = b != NULL ? strtol(b, NULL, 10) : to;
    ready = true;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("COUNT_FILE");
    FILE *f = path != NULL && step > 0 ? fopen(path, "w") : NULL;

    ready = false;
    if (f == NULL)
        return;
    fprintf(f, "steps %ld\nbefore %ld\n", step, before);
    for (int i = 0; i < nplaces; i++) {
        Dl_info info = {0};

        (void)dladdr(places[i].caller, &info);
        fprintf(f, "%s %s %s %ld\n", places[i].function, info.dli_fname ? info.dli_fname : "?",
                info.dli_sname ? info.dli_sname : "?", places[i].count);
    }
    fclose(f);
}

struct tri_loader;
struct tri_batch;
int tri_loader_next(struct tri_loader *l, struct tri_batch *out);

int tri_loader_next(struct tri_loader *l, struct tri_batch *out)
{
    static int (*next)(struct tri_loader *, struct tri_batch *);

    NEXT(next, "tri_loader_next");
    if (syscall(SYS_gettid) == getpid())
        step++;
    return next(l, out);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    NOTE("malloc");
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    NOTE("calloc");
    return __libc_calloc(count, bytes);
}

void *realloc(void *p, size_t bytes)
{
    NOTE("realloc");
    return __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    NOTE("aligned_alloc");
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **p, size_t align, size_t bytes)
{
    NOTE("posix_memalign");
    *p = __libc_memalign(align, bytes);
    return *p == NULL;
}

static int open_any(const char *path, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    NOTE("open");
    return open_any(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);

    NEXT(next, "fopen");
    NOTE("fopen");
    return next(path, mode);
}

ssize_t read(int fd, void *p, size_t bytes)
{
    NOTE("read");
    return syscall(SYS_read, fd, p, bytes);
}

ssize_t write(int fd, const void *p, size_t bytes)
{
    NOTE("write");
    return syscall(SYS_write, fd, p, bytes);
}

ssize_t pread(int fd, void *p, size_t bytes, off_t at)
{
    NOTE("pread");
    return syscall(SYS_pread64, fd, p, bytes, at);
}

ssize_t pwrite(int fd, const void *p, size_t bytes, off_t at)
{
    NOTE("pwrite");
    return syscall(SYS_pwrite64, fd, p, bytes, at);
}

size_t fwrite(const void *p, size_t bytes, size_t count, FILE *f)
{
    static size_t (*next)(const void *, size_t, size_t, FILE *);

    NEXT(next, "fwrite");
    NOTE("fwrite");
    return next(p, bytes, count, f);
}

int vfprintf(FILE *f, const char *format, va_list ap)
{
    static int (*next)(FILE *, const char *, va_list);

    NEXT(next, "vfprintf");
    NOTE("vfprintf");
    return next(f, format, ap);
}

int fsync(int fd)
{
    NOTE("fsync");
    return (int)syscall(SYS_fsync, fd);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    static int (*next)(pthread_mutex_t *);

    NEXT(next, "pthread_mutex_lock");
    NOTE("pthread_mutex_lock");
    return next(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
    static int (*next)(pthread_mutex_t *);

    NEXT(next, "pthread_mutex_trylock");
    NOTE("pthread_mutex_trylock");
    return next(m);
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    static int (*next)(pthread_cond_t *, pthread_mutex_t *);

    NEXT(next, "pthread_cond_wait");
    NOTE("pthread_cond_wait");
    return next(c, m);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
    static int (*next)(pthread_rwlock_t *);

    NEXT(next, "pthread_rwlock_rdlock");
    NOTE("pthread_rwlock_rdlock");
    return next(l);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    static int (*next)(pthread_rwlock_t *);

    NEXT(next, "pthread_rwlock_wrlock");
    NOTE("pthread_rwlock_wrlock");
    return next(l);
}
