/* Saving: temporary folder, layout, owned elements of every rank, manifest, rename, links. */
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/model_file.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A save under way; the same manifest on all ranks up to the host state, which only
 * rank 0 needs. */
struct saving {
    struct tri_comm *comm;
    const struct tri_checkpoint_save *save;
    const void *const *owned; /* first owned element of each tensor; NULL: in the whole tensors */
    struct tri_manifest m;    /* tensors of the save, then the step */
    char *folder;             /* RUN_DIR/checkpoints */
    char *temporary, *final;
    char *model;       /* model.h5 in the temporary folder */
    int64_t *exchange; /* 2 numbers a tensor, for offsets and checksums */
};

static bool leads(const struct saving *s)
{
    return tri_comm_rank(s->comm) == 0;
}

static tri_status probe(const struct saving *s, enum tri_checkpoint_phase phase)
{
    return s->save->probe == NULL ? TRI_OK : s->save->probe(s->save->probe_arg, phase);
}

static tri_status check_request(const struct tri_checkpoint_save *save)
{
    for (int i = 0; i < save->ntensor; i++) {
        const struct tri_checkpoint_tensor *t = &save->tensor[i];
        int64_t count = tri_shape_count(&t->shape);
        const char *last = strrchr(t->name, '/');
        if (last == NULL || last[1] == '\0' || strcmp(last, "/.") == 0)
            return tri_fail(TRI_ERR_INTERNAL, "checkpoint: '%s' is no name of a tensor", t->name);
        if (t->first < 0 || t->count < 0 || t->count > count || t->first > count - t->count)
            return tri_fail(TRI_ERR_INTERNAL,
                            "checkpoint: '%s' has no elements %" PRId64 "+%" PRId64, t->name,
                            t->first, t->count);
    }
    return TRI_OK;
}

static tri_status start(struct saving *s)
{
    const struct tri_checkpoint_save *save = s->save;
    char name[TRI_STEP_NAME_BYTES];
    struct tri_manifest *m = &s->m;

    tri_step_name(save->step, name);
    s->folder = tri_asprintf("%s/checkpoints", save->run_dir);
    s->temporary = tri_asprintf("%s/checkpoints/.tmp-%s", save->run_dir, name);
    s->final = tri_checkpoint_path(save->run_dir, save->step);
    s->model = tri_asprintf("%s/checkpoints/.tmp-%s/model.h5", save->run_dir, name);
    m->ntensor = save->ntensor + 1;
    m->tensor = tri_pool_alloc(&m->pool, (size_t)m->ntensor * sizeof(*m->tensor));
    m->item = tri_pool_alloc(&m->pool, ((size_t)save->nitem + 1) * sizeof(*m->item));
    m->field = tri_pool_alloc(&m->pool, ((size_t)save->nfield + 1) * sizeof(*m->field));
    s->exchange = tri_calloc((size_t)m->ntensor * 2, sizeof(*s->exchange), "checkpoint exchange");
    if (!s->folder || !s->temporary || !s->final || !s->model || !m->tensor || !m->item ||
        !m->field || !s->exchange)
        return tri_fail(TRI_ERR_NOMEM, "checkpoint: cannot allocate the manifest");
    for (int i = 0; i < save->ntensor; i++) {
        m->tensor[i].name = save->tensor[i].name;
        m->tensor[i].dtype = save->tensor[i].dtype;
        m->tensor[i].shape = save->tensor[i].shape;
    }
    m->tensor[save->ntensor].name = TRI_STEP_TENSOR;
    m->tensor[save->ntensor].dtype = TRI_I64;
    m->step = save->step;
    if (save->nitem > 0)
        memcpy(m->item, save->item, (size_t)save->nitem * sizeof(*m->item));
    if (save->nfield > 0)
        memcpy(m->field, save->field, (size_t)save->nfield * sizeof(*m->field));
    m->nitem = save->nitem;
    m->nfield = save->nfield;
    return check_request(save);
}

static void finish(struct saving *s)
{
    tri_free(s->exchange);
    tri_free(s->model);
    tri_free(s->final);
    tri_free(s->temporary);
    tri_free(s->folder);
    tri_manifest_finish(&s->m);
}

static tri_status create_layout(void *arg)
{
    struct saving *s = arg;

    return tri_model_file_create(s->model, &s->m);
}

/* Rank 0: the temporary folder with an empty model.h5 and config.yaml. */
static tri_status prepare_folder(struct saving *s)
{
    const char *config = s->save->config;
    char *path = NULL;
    tri_status st;

    TRI_TRY(tri_make_folders(s->folder));
    TRI_TRY(tri_remove_tree(s->temporary));
    TRI_TRY(tri_make_folders(s->temporary));
    TRI_TRY(tri_io_call(create_layout, s));
    TRI_TRY(tri_path_join(s->temporary, "config.yaml", &path));
    s->m.config_bytes = (int64_t)strlen(config);
    s->m.config_hash = tri_manifest_hash("config.yaml", 0, config, strlen(config));
    st = tri_write_file(path, config, strlen(config));
    tri_free(path);
    return st;
}

static tri_status share_offsets(struct saving *s)
{
    for (int i = 0; i < s->m.ntensor; i++)
        s->exchange[i] = s->m.tensor[i].offset;
    TRI_TRY(
        tri_comm_broadcast(s->comm, s->exchange, (size_t)s->m.ntensor * sizeof(*s->exchange), 0));
    for (int i = 0; i < s->m.ntensor; i++)
        s->m.tensor[i].offset = s->exchange[i];
    return TRI_OK;
}

/* Writes elements [first, first + count), which lie at `from`, and sets the tensor's checksum to
 * this rank's part of it. */
static tri_status write_elements(const struct saving *s, int fd, struct tri_manifest_tensor *t,
                                 const void *from, int64_t first, int64_t count)
{
    size_t elem = tri_dtype_bytes(t->dtype);

    t->checksum =
        tri_hash_elements(tri_hash_name(t->name), (uint64_t)first, from, (size_t)count, elem);
    return tri_pwrite_all(fd, from, (size_t)count * elem, t->offset + first * (int64_t)elem,
                          s->model);
}

static tri_status write_owned(struct saving *s, int fd)
{
    int n = s->save->ntensor;

    for (int i = 0; i < n; i++) {
        const struct tri_checkpoint_tensor *t = &s->save->tensor[i];
        const void *from = s->owned != NULL ? s->owned[i] : tri_checkpoint_owned(t);
        if (t->count > 0)
            TRI_TRY(write_elements(s, fd, &s->m.tensor[i], from, t->first, t->count));
    }
    return write_elements(s, fd, &s->m.tensor[n], &s->save->step, 0, leads(s) ? 1 : 0);
}

static tri_status write_tensors(struct saving *s)
{
    int fd = open(s->model, O_WRONLY | O_CLOEXEC);
    tri_status st;

    if (fd < 0)
        return tri_file_fail("open", s->model);
    st = write_owned(s, fd);
    if (st == TRI_OK && fsync(fd) != 0)
        st = tri_file_fail("sync", s->model);
    if (close(fd) != 0 && st == TRI_OK)
        st = tri_file_fail("close", s->model);
    return st;
}

/* Checksums of all owners added mod 2^64, as halves of 32 bits so that no signed sum overflows. */
static tri_status sum_checksums(struct saving *s)
{
    int n = s->m.ntensor;

    for (int i = 0; i < n; i++) {
        s->exchange[2 * i] = (int64_t)(s->m.tensor[i].checksum & 0xffffffffu);
        s->exchange[2 * i + 1] = (int64_t)(s->m.tensor[i].checksum >> 32);
    }
    TRI_TRY(
        tri_comm_allreduce(s->comm, s->exchange, 2 * (int64_t)n, TRI_I64, TRI_REDUCE_SUM, false));
    for (int i = 0; i < n; i++)
        s->m.tensor[i].checksum =
            (uint64_t)s->exchange[2 * i] + ((uint64_t)s->exchange[2 * i + 1] << 32);
    return TRI_OK;
}

static tri_status hash_layout(struct saving *s)
{
    int fd = open(s->model, O_RDONLY | O_CLOEXEC);
    tri_status st;

    if (fd < 0)
        return tri_file_fail("open", s->model);
    st = tri_model_file_hash(fd, s->model, &s->m, &s->m.layout_hash);
    close(fd);
    return st;
}

/* Rank 0. */
static tri_status write_manifest(struct saving *s)
{
    struct tri_text text = {0};
    char *path = NULL;
    tri_status st;

    TRI_TRY(hash_layout(s));
    TRI_TRY(tri_path_join(s->temporary, "manifest.json", &path));
    tri_manifest_print(&s->m, &text);
    st = text.failed ? tri_fail(TRI_ERR_NOMEM, "cannot allocate the text of '%s'", path)
                     : tri_write_file(path, text.data, text.len);
    tri_text_finish(&text);
    tri_free(path);
    return st == TRI_OK ? tri_sync_folder(s->temporary) : st;
}

/* Swaps the new folder with a complete one of the same step, or, on file systems that cannot, moves
 * the old one aside first. */
static tri_status replace_folder(const struct saving *s)
{
    char name[TRI_STEP_NAME_BYTES];
    char *old;
    tri_status st = TRI_OK;

    if (renameat2(AT_FDCWD, s->temporary, AT_FDCWD, s->final, RENAME_EXCHANGE) == 0)
        return tri_remove_tree(s->temporary);
    if (errno != EINVAL && errno != ENOSYS)
        return tri_file_fail("replace", s->final);
    tri_step_name(s->save->step, name);
    old = tri_asprintf("%s/.old-%s", s->folder, name);
    if (old == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a path in '%s'", s->folder);
    st = tri_remove_tree(old);
    if (st == TRI_OK && rename(s->final, old) != 0)
        st = tri_file_fail("rename", s->final);
    if (st == TRI_OK && rename(s->temporary, s->final) != 0) {
        st = tri_file_fail("rename", s->temporary);
        (void)rename(old, s->final);
    }
    if (st == TRI_OK)
        st = tri_remove_tree(old);
    tri_free(old);
    return st;
}

/* Rank 0. */
static tri_status publish(struct saving *s)
{
    if (tri_is_folder(s->final))
        TRI_TRY(replace_folder(s));
    else if (rename(s->temporary, s->final) != 0)
        return tri_file_fail("rename", s->temporary);
    return tri_sync_folder(s->folder);
}

/* Rank 0. Old checkpoints go last, when the new one and its links are durable. */
static tri_status link_and_prune(struct saving *s)
{
    char name[TRI_STEP_NAME_BYTES];

    tri_step_name(s->save->step, name);
    TRI_TRY(tri_replace_link(s->folder, "latest", name));
    if (s->save->best)
        TRI_TRY(tri_replace_link(s->folder, "best", name));
    TRI_TRY(tri_sync_folder(s->folder));
    return tri_checkpoint_prune(s->save->run_dir, s->save->keep, s->save->step);
}

/* Runs one phase: its work where this rank has a part in it, then the agreement of all. */
static tri_status run_phase(struct saving *s, enum tri_checkpoint_phase phase, bool mine,
                            tri_status (*work)(struct saving *))
{
    tri_status st = probe(s, phase);

    if (st == TRI_OK && mine)
        st = work(s);
    return tri_comm_agree(s->comm, st);
}

static tri_status save_all(struct saving *s)
{
    bool lead = leads(s);

    TRI_TRY(run_phase(s, TRI_CHECKPOINT_LAYOUT, lead, prepare_folder));
    TRI_TRY(share_offsets(s));
    TRI_TRY(run_phase(s, TRI_CHECKPOINT_WRITE, true, write_tensors));
    TRI_TRY(sum_checksums(s));
    TRI_TRY(run_phase(s, TRI_CHECKPOINT_MANIFEST, lead, write_manifest));
    TRI_TRY(run_phase(s, TRI_CHECKPOINT_PUBLISH, lead, publish));
    return run_phase(s, TRI_CHECKPOINT_LINK, lead, link_and_prune);
}

/* After a failure: partial files go, the message of the failure stays. */
static void discard(const struct saving *s)
{
    char *text = tri_strdup(tri_error_text());

    if (tri_remove_tree(s->temporary) != TRI_OK)
        tri_warn("%s", tri_error_text());
    if (text != NULL)
        tri_error_set(text);
    tri_free(text);
}

const void *tri_checkpoint_owned(const struct tri_checkpoint_tensor *t)
{
    const unsigned char *data = t->data;

    if (t->by_rank)
        return data;
    return t->count > 0 ? data + (size_t)t->first * tri_dtype_bytes(t->dtype) : NULL;
}

tri_status tri_checkpoint_save_owned(struct tri_comm *comm, const struct tri_checkpoint_save *save,
                                     const void *const *owned)
{
    struct saving s = {.comm = comm, .save = save, .owned = owned};
    tri_status st = tri_comm_agree(comm, start(&s));

    if (st == TRI_OK) {
        st = save_all(&s);
        if (st != TRI_OK && leads(&s))
            discard(&s);
    }
    finish(&s);
    return st;
}

tri_status tri_checkpoint_save(struct tri_comm *comm, const struct tri_checkpoint_save *save)
{
    return tri_checkpoint_save_owned(comm, save, NULL);
}
