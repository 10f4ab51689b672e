/* A step allocates nothing and takes no lock on the compute thread: calls are counted by
 * interposition. */
#include "runtime/exec/exec.h"
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Sanitizers bring a malloc of their own. */
#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

static _Thread_local bool watching;
static _Thread_local int calls;
static int (*lock_mutex)(pthread_mutex_t *m);

void *malloc(size_t bytes)
{
    calls += watching;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    calls += watching;
    return __libc_calloc(count, bytes);
}

void *realloc(void *p, size_t bytes)
{
    calls += watching;
    return __libc_realloc(p, bytes);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    calls += watching;
    if (lock_mutex == NULL) {
        void *found = dlsym(RTLD_NEXT, "pthread_mutex_lock");

        memcpy(&lock_mutex, &found,
               sizeof(found)); /* ISO C has no cast from object to function pointers */
    }
    return lock_mutex(m);
}

Test(steady, a_step_allocates_nothing_and_takes_no_lock)
{
    struct net net;
    struct tri_layout *layout;
    struct tri_program *p;
    struct tri_memory memory;
    struct tri_exec *x;
    struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT] = {{NULL}};
    void *probe;

    cr_assert_eq(tri_layout_create(&layout), TRI_OK);
    p = net_program(&net, 3, true, layout);
    cr_assert_eq(tri_memory_create(&memory, tri_device_cpu(), layout, &p, 1, NULL, NULL), TRI_OK);
    cr_assert_eq(tri_exec_create(p, &memory, comms, &x), TRI_OK);
    cr_assert_eq(tri_exec_run(x), TRI_OK);
    watching = true;
    for (int step = 0; step < 20; step++)
        if (tri_exec_run(x) != TRI_OK)
            break;
    watching = false;
    cr_assert_eq(calls, 0);
    watching = true; /* the counter does count */
    probe = malloc(1);
    watching = false;
    free(probe);
    cr_assert_eq(calls, 1);
    tri_exec_destroy(x);
    tri_memory_destroy(&memory);
    tri_program_destroy(p);
    tri_layout_destroy(layout);
}

#endif
