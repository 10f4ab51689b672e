#include "runtime/checkpoint/saver.h"

#include "runtime/checkpoint/folder.h"
#include "runtime/core/log.h"

#include <pthread.h>
#include <string.h>

struct tri_saver {
    struct tri_comm *comm;
    pthread_t thread;
    bool running;                    /* a thread to be joined */
    struct tri_checkpoint_save save; /* copy: everything below it lives in pool and copy */
    struct tri_pool pool;
    const void **owned; /* into copy, one a tensor */
    unsigned char *copy;
    size_t copy_bytes;
    tri_status status; /* of the thread, with its message */
    char *text;
};

tri_status tri_saver_create(struct tri_comm *comm, struct tri_saver **out)
{
    struct tri_saver *s = tri_calloc(1, sizeof(*s), "saver");

    if (s == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the saver of checkpoints");
    s->comm = comm;
    *out = s;
    return TRI_OK;
}

static void *run(void *arg)
{
    struct tri_saver *s = arg;

    s->status = tri_checkpoint_save_owned(s->comm, &s->save, s->owned);
    s->text = s->status != TRI_OK ? tri_strdup(tri_error_text()) : NULL;
    return NULL;
}

/* An array of the caller in the pool; NULL for an empty one. */
static bool copy_array(struct tri_pool *pool, const void *from, size_t bytes, void *out)
{
    void *to = bytes > 0 ? tri_pool_alloc(pool, bytes) : NULL;

    if (to != NULL)
        memcpy(to, from, bytes);
    memcpy(out, &to, sizeof(to));
    return to != NULL || bytes == 0;
}

static bool copy_string(struct tri_pool *pool, const char **s)
{
    *s = tri_pool_strdup(pool, *s);
    return *s != NULL;
}

/* Texts and lists of the save, into the pool. */
static bool copy_request(struct tri_saver *s, const struct tri_checkpoint_save *from)
{
    struct tri_checkpoint_save *to = &s->save;
    struct tri_checkpoint_tensor *tensor;
    struct tri_checkpoint_item *item;
    struct tri_checkpoint_field *field;
    size_t n = (size_t)from->ntensor;
    bool good;

    tri_pool_finish(&s->pool);
    *to = *from;
    s->owned = tri_pool_alloc(&s->pool, (n + 1) * sizeof(*s->owned));
    good = s->owned != NULL && copy_string(&s->pool, &to->run_dir) &&
           copy_string(&s->pool, &to->config) &&
           copy_array(&s->pool, from->tensor, n * sizeof(*tensor), &tensor) &&
           copy_array(&s->pool, from->item, (size_t)from->nitem * sizeof(*item), &item) &&
           copy_array(&s->pool, from->field, (size_t)from->nfield * sizeof(*field), &field);
    if (!good)
        return false;
    for (int i = 0; i < to->ntensor && good; i++)
        good = copy_string(&s->pool, &tensor[i].name);
    for (int i = 0; i < to->nitem && good; i++)
        good = copy_string(&s->pool, &item[i].key);
    for (int i = 0; i < to->nfield && good; i++)
        good = copy_string(&s->pool, &field[i].key) && copy_string(&s->pool, &field[i].value);
    to->tensor = tensor;
    to->item = item;
    to->field = field;
    return good;
}

static size_t owned_bytes(const struct tri_checkpoint_tensor *t)
{
    return tri_round_up((size_t)t->count * tri_dtype_bytes(t->dtype), TRI_ALIGN_BYTES);
}

/* Owned elements, one tensor after the other. */
static tri_status copy_elements(struct tri_saver *s, const struct tri_checkpoint_save *from)
{
    size_t bytes = 0;

    for (int i = 0; i < from->ntensor; i++)
        bytes += owned_bytes(&from->tensor[i]);
    if (bytes > s->copy_bytes) {
        tri_free(s->copy);
        s->copy_bytes = 0;
        s->copy = tri_alloc_aligned(bytes, "copy for a checkpoint");
        if (s->copy == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu bytes to save a checkpoint from",
                            bytes);
        s->copy_bytes = bytes;
    }
    bytes = 0;
    for (int i = 0; i < from->ntensor; i++) {
        const struct tri_checkpoint_tensor *t = &from->tensor[i];
        if (t->count > 0)
            memcpy(s->copy + bytes, tri_checkpoint_owned(t),
                   (size_t)t->count * tri_dtype_bytes(t->dtype));
        s->owned[i] = s->copy + bytes;
        bytes += owned_bytes(t);
    }
    return TRI_OK;
}

static tri_status start(struct tri_saver *s, const struct tri_checkpoint_save *save)
{
    if (!copy_request(s, save))
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the description of a checkpoint");
    return copy_elements(s, save);
}

tri_status tri_saver_begin(struct tri_saver *s, const struct tri_checkpoint_save *save)
{
    TRI_TRY(tri_saver_wait(s));
    TRI_TRY(tri_comm_agree(s->comm, start(s, save)));
    if (pthread_create(&s->thread, NULL, run, s) == 0) {
        s->running = true;
        return TRI_OK;
    }
    tri_warn("no thread for saving: the checkpoint is saved at once");
    run(s); /* the others wait for us in their threads */
    return TRI_OK;
}

tri_status tri_saver_wait(struct tri_saver *s)
{
    tri_status st;

    if (s->running)
        (void)pthread_join(s->thread, NULL);
    s->running = false;
    st = s->status;
    if (st != TRI_OK)
        tri_error_set(s->text != NULL ? s->text : "a checkpoint could not be saved");
    tri_free(s->text);
    s->text = NULL;
    s->status = TRI_OK;
    return st;
}

void tri_saver_destroy(struct tri_saver *s)
{
    if (s == NULL)
        return;
    if (tri_saver_wait(s) != TRI_OK)
        tri_warn("%s", tri_error_text());
    tri_free(s->copy);
    tri_pool_finish(&s->pool);
    tri_free(s);
}
