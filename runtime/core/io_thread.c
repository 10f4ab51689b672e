/* The I/O thread. Posters push on a lock-free stack (one compare-exchange) and raise a semaphore;
 * the thread takes the whole stack at once and reverses it, which restores the order of posting. */
#include "runtime/core/io_thread.h"

#include "runtime/core/counter.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_t thread;
    sem_t wake;                       /* one unit per post, one for stop */
    _Atomic(struct tri_io_job *) top; /* newest posted job */
    struct tri_counter finished;      /* jobs done, modulo 2^32; outlives every job */
    atomic_bool running;              /* between start and stop */
    atomic_bool stopping;
} io;

static _Thread_local bool on_io_thread;
static _Thread_local bool wants_again; /* set by tri_io_again, taken after each call of a closure */

static bool take_again(tri_status st)
{
    bool again = wants_again && st == TRI_OK;

    wants_again = false;
    return again;
}

/* The job's memory belongs to its owner again from the store to `done` on. */
static void finish(struct tri_io_job *job, tri_status st)
{
    job->status = st;
    if (st != TRI_OK)
        snprintf(job->text, sizeof(job->text), "%s", tri_error_text());
    atomic_store_explicit(&job->done, true, memory_order_release);
}

static void push(struct tri_io_job *job)
{
    struct tri_io_job *top = atomic_load_explicit(&io.top, memory_order_relaxed);

    do
        job->next = top;
    while (!atomic_compare_exchange_weak_explicit(&io.top, &top, job, memory_order_release,
                                                  memory_order_relaxed));
    sem_post(&io.wake);
}

/* Everything posted so far, oldest first. */
static struct tri_io_job *take_all(void)
{
    struct tri_io_job *top = atomic_exchange_explicit(&io.top, NULL, memory_order_acquire);
    struct tri_io_job *oldest = NULL;

    while (top != NULL) {
        struct tri_io_job *next = top->next;

        top->next = oldest;
        oldest = top;
        top = next;
    }
    return oldest;
}

static void *run(void *unused)
{
    (void)unused;
    on_io_thread = true;
    for (;;) {
        struct tri_io_job *job = take_all();

        if (job == NULL) {
            if (atomic_load(&io.stopping) && atomic_load(&io.top) == NULL)
                return NULL;
            while (sem_wait(&io.wake) != 0 && errno == EINTR)
                ;
            continue;
        }
        while (job != NULL) {
            struct tri_io_job *next = job->next; /* the owner may reuse the job once it is done */
            tri_status st = job->fn(job->arg);

            if (take_again(st)) {
                push(job);
            } else {
                finish(job, st);
                tri_counter_set(&io.finished, atomic_load(&io.finished.value) + 1);
            }
            job = next;
        }
    }
}

tri_status tri_io_start(void)
{
    int rc;

    if (atomic_load(&io.running))
        return tri_fail(TRI_ERR_INTERNAL, "the input/output thread runs already");
    if (sem_init(&io.wake, 0, 0) != 0)
        return tri_fail(TRI_ERR_INTERNAL, "input/output thread: %s", strerror(errno));
    atomic_store(&io.stopping, false);
    rc = pthread_create(&io.thread, NULL, run, NULL);
    if (rc != 0) {
        sem_destroy(&io.wake);
        return tri_fail(TRI_ERR_INTERNAL, "cannot start the input/output thread: %s", strerror(rc));
    }
    atomic_store(&io.running, true);
    return TRI_OK;
}

void tri_io_stop(void)
{
    if (!atomic_load(&io.running))
        return;
    atomic_store(&io.stopping, true);
    sem_post(&io.wake);
    pthread_join(io.thread, NULL);
    atomic_store(&io.running, false);
    sem_destroy(&io.wake);
}

static tri_status run_here(tri_io_fn fn, void *arg)
{
    bool outer = wants_again; /* asked for by the closure that calls this one */
    tri_status st;

    wants_again = false;
    do
        st = fn(arg);
    while (take_again(st));
    wants_again = outer;
    return st;
}

void tri_io_post(struct tri_io_job *job, tri_io_fn fn, void *arg)
{
    TRI_ASSERT(!job->posted);
    job->fn = fn;
    job->arg = arg;
    job->posted = true;
    atomic_store_explicit(&job->done, false, memory_order_relaxed);
    if (on_io_thread || !atomic_load(&io.running))
        finish(job, run_here(fn, arg));
    else
        push(job);
}

bool tri_io_done(const struct tri_io_job *job)
{
    return atomic_load_explicit(&job->done, memory_order_acquire);
}

tri_status tri_io_wait(struct tri_io_job *job)
{
    if (!job->posted)
        return TRI_OK;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&io.finished.value, memory_order_acquire);

        if (tri_io_done(job))
            break;
        TRI_TRY(tri_counter_wait(&io.finished, seen + 1, -1));
    }
    job->posted = false;
    if (job->status != TRI_OK)
        tri_error_set(job->text);
    return job->status;
}

tri_status tri_io_call(tri_io_fn fn, void *arg)
{
    struct tri_io_job job = {0};

    if (on_io_thread || !atomic_load(&io.running))
        return run_here(fn, arg);
    tri_io_post(&job, fn, arg);
    return tri_io_wait(&job);
}

void tri_io_again(void)
{
    wants_again = true;
}
