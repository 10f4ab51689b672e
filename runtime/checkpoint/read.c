/* Finding, checking and loading checkpoints. Rank 0 decides and hands out its manifest; every rank
 * reads and checks for itself. */
#include "runtime/checkpoint/by_rank.h"
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/tensors.h"
#include "runtime/core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tri_checkpoint_close(struct tri_checkpoint *c)
{
    if (c == NULL)
        return;
    tri_manifest_finish(&c->manifest);
    tri_free(c->run_dir);
    tri_free(c->path);
    tri_free(c);
}

/* What rank 0 found: the path of the folder ("" for none) and the text of its manifest. */
struct found {
    char *path, *text;
    size_t bytes;
    bool newest; /* chosen as the newest of run_dir */
};

static tri_status find_newest(const char *run_dir, struct found *f)
{
    int64_t *steps = NULL;
    int count = 0;
    tri_status st = TRI_OK;

    TRI_TRY(tri_checkpoint_list(run_dir, &steps, &count));
    if (count > 0) {
        f->path = tri_checkpoint_path(run_dir, steps[count - 1]);
        f->newest = true;
        if (f->path == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a path in '%s'", run_dir);
    }
    tri_free(steps);
    return st;
}

static bool has_manifest(const char *folder)
{
    char *path = tri_asprintf("%s/manifest.json", folder);
    bool there = path != NULL && access(path, F_OK) == 0;

    tri_free(path);
    return there;
}

/* A checkpoint folder as it is, or the newest one of a run folder. */
static tri_status find_at(const char *path, struct found *f)
{
    char *inner = NULL;
    bool run;

    if (!tri_is_folder(path))
        return tri_fail(TRI_ERR_CHECKPOINT, "no checkpoint folder '%s'", path);
    TRI_TRY(tri_path_join(path, "checkpoints", &inner));
    run = tri_is_folder(inner) && !has_manifest(path);
    tri_free(inner);
    if (run) {
        TRI_TRY(find_newest(path, f));
        if (f->path == NULL)
            return tri_fail(TRI_ERR_CHECKPOINT, "the run folder '%s' holds no checkpoint", path);
        return TRI_OK;
    }
    f->path = tri_strdup(path);
    if (f->path == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a path");
    for (size_t n = strlen(f->path); n > 1 && f->path[n - 1] == '/'; n--)
        f->path[n - 1] = '\0';
    return TRI_OK;
}

static tri_status read_manifest_text(const char *folder, char **text, size_t *bytes)
{
    char *path = NULL;
    tri_status st;

    TRI_TRY(tri_path_join(folder, "manifest.json", &path));
    st = tri_read_file(path, TRI_MANIFEST_MAX_BYTES, text, bytes);
    tri_free(path);
    return st == TRI_ERR_NOMEM || st == TRI_OK ? st : TRI_ERR_CHECKPOINT; /* message as it is */
}

/* Rank 0's part of find and open. run_dir NULL: open `resume` itself. */
static tri_status decide(const char *run_dir, const char *resume, struct found *f)
{
    if (run_dir == NULL) {
        TRI_TRY(find_at(resume, f));
    } else if (strcmp(resume, "auto") == 0) {
        TRI_TRY(find_newest(run_dir, f));
    } else if (strcmp(resume, "never") == 0) {
        TRI_TRY(find_newest(run_dir, f));
        if (f->path != NULL)
            return tri_fail(TRI_ERR_USAGE,
                            "run.resume is 'never', but '%s' exists; choose another run.dir or "
                            "remove its checkpoints",
                            f->path);
    } else {
        TRI_TRY(find_at(resume, f));
    }
    return f->path == NULL ? TRI_OK : read_manifest_text(f->path, &f->text, &f->bytes);
}

/* Appends the newest good checkpoint below `below` to rank 0's message; it reaches all with the
 * agreement that follows. */
static void name_previous_good(const char *run_dir, int64_t below)
{
    char *good = tri_checkpoint_previous_good(run_dir, below);
    char *text = tri_asprintf(
        "%s; %s%s%s", tri_error_text(),
        good != NULL ? "the previous good checkpoint is '" : "no older one is good",
        good != NULL ? good : "", good != NULL ? "': name it in run.resume to go on from it" : "");

    if (text != NULL)
        tri_error_set(text);
    tri_free(text);
    tri_free(good);
}

/* Step of a folder chosen by number: its name says it even when its manifest is damaged. */
static int64_t step_of_path(const char *path)
{
    const char *base = strrchr(path, '/');

    return strtoll(base + sizeof("/step-") - 1, NULL, 10);
}

/* Makes path, newest flag and manifest text of rank 0 known to all. */
static tri_status share_found(struct tri_comm *comm, struct found *f)
{
    uint64_t head[3] = {f->path != NULL ? strlen(f->path) + 1 : 0, f->bytes, f->newest ? 1 : 0};
    tri_status st = TRI_OK;

    TRI_TRY(tri_comm_broadcast(comm, head, sizeof(head), 0));
    if (head[0] == 0)
        return TRI_OK;
    if (tri_comm_rank(comm) != 0) {
        f->path = tri_calloc((size_t)head[0], 1, "path");
        f->text = tri_calloc((size_t)head[1] + 1, 1, "manifest");
        f->bytes = (size_t)head[1];
        f->newest = head[2] != 0;
        if (f->path == NULL || f->text == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a manifest of %zu bytes", f->bytes);
    }
    TRI_TRY(tri_comm_agree(comm, st));
    TRI_TRY(tri_comm_broadcast(comm, f->path, (size_t)head[0], 0));
    return tri_comm_broadcast(comm, f->text, f->bytes, 0);
}

static tri_status parse_and_check(const struct found *f, struct tri_checkpoint *c)
{
    char *path = NULL;
    tri_status st;

    TRI_TRY(tri_path_join(f->path, "manifest.json", &path));
    st = tri_manifest_parse(&c->manifest, f->text, f->bytes, path);
    tri_free(path);
    return st == TRI_OK ? tri_folder_check(f->path, &c->manifest) : st;
}

static tri_status build(struct found *f, const char *run_dir, struct tri_checkpoint **out)
{
    struct tri_checkpoint *c = tri_calloc(1, sizeof(*c), "checkpoint");
    tri_status st;

    if (c == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a checkpoint");
    st = parse_and_check(f, c);
    if (st == TRI_OK && f->newest) {
        c->run_dir = tri_strdup(run_dir);
        if (c->run_dir == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a path");
    }
    if (st != TRI_OK) {
        tri_checkpoint_close(c);
        return st;
    }
    c->path = f->path;
    f->path = NULL;
    *out = c;
    return TRI_OK;
}

/* Find (run_dir given) and open (NULL) in one. `folder` is where a newest one was looked for. */
static tri_status find(struct tri_comm *comm, const char *run_dir, const char *resume,
                       const char *folder, struct tri_checkpoint **out)
{
    struct found f = {0};
    struct tri_checkpoint *c = NULL;
    bool lead = tri_comm_rank(comm) == 0;
    tri_status st = lead ? decide(run_dir, resume, &f) : TRI_OK;

    if (st == TRI_ERR_CHECKPOINT && f.newest)
        name_previous_good(folder, step_of_path(f.path));
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_found);
    TRI_TRY_GOTO(st, share_found(comm, &f), free_found);
    if (f.path != NULL) {
        st = build(&f, folder, &c);
        if (st == TRI_ERR_CHECKPOINT && f.newest && lead)
            name_previous_good(folder, step_of_path(f.path));
        TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_found);
    }
    *out = c;
    c = NULL;
free_found:
    tri_checkpoint_close(c);
    tri_free(f.text);
    tri_free(f.path);
    return st;
}

tri_status tri_checkpoint_find(struct tri_comm *comm, const char *run_dir, const char *resume,
                               struct tri_checkpoint **out)
{
    bool newest = strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0;

    return find(comm, run_dir, resume, newest ? run_dir : resume, out);
}

tri_status tri_checkpoint_open(struct tri_comm *comm, const char *path, struct tri_checkpoint **out)
{
    return find(comm, NULL, path, path, out);
}

char *tri_checkpoint_previous_good(const char *run_dir, int64_t below)
{
    char *text = tri_strdup(tri_error_text()), *good = NULL;
    int64_t *steps = NULL;
    int count = 0;

    if (tri_checkpoint_list(run_dir, &steps, &count) != TRI_OK)
        count = 0;
    for (int i = count - 1; i >= 0 && good == NULL; i--) {
        struct tri_checkpoint *c = NULL;
        char *path;
        if (steps[i] >= below)
            continue;
        path = tri_checkpoint_path(run_dir, steps[i]);
        if (path != NULL && tri_checkpoint_open(NULL, path, &c) == TRI_OK &&
            tri_checkpoint_verify(c) == TRI_OK) {
            good = path;
            path = NULL;
        }
        tri_checkpoint_close(c);
        tri_free(path);
    }
    tri_free(steps);
    tri_error_set(text != NULL ? text : "");
    tri_free(text);
    return good;
}

const char *tri_checkpoint_field(const struct tri_checkpoint *c, const char *key)
{
    for (int i = 0; i < c->manifest.nfield; i++)
        if (strcmp(c->manifest.field[i].key, key) == 0)
            return c->manifest.field[i].value;
    return NULL;
}

static const struct tri_checkpoint_item *find_item(const struct tri_checkpoint *c, const char *key,
                                                   bool real)
{
    for (int i = 0; i < c->manifest.nitem; i++)
        if (c->manifest.item[i].real == real && strcmp(c->manifest.item[i].key, key) == 0)
            return &c->manifest.item[i];
    return NULL;
}

bool tri_checkpoint_integer(const struct tri_checkpoint *c, const char *key, int64_t *out)
{
    const struct tri_checkpoint_item *item = find_item(c, key, false);

    if (item != NULL)
        *out = item->integer;
    return item != NULL;
}

bool tri_checkpoint_real(const struct tri_checkpoint *c, const char *key, double *out)
{
    const struct tri_checkpoint_item *item = find_item(c, key, true);

    if (item != NULL)
        *out = item->value;
    return item != NULL;
}

tri_status tri_checkpoint_match(const struct tri_checkpoint *c,
                                const struct tri_checkpoint_field *field, int nfield)
{
    for (int i = 0; i < nfield; i++) {
        const char *stored = tri_checkpoint_field(c, field[i].key);
        if (stored == NULL)
            return tri_fail(TRI_ERR_CHECKPOINT, "the checkpoint '%s' does not say its %s", c->path,
                            field[i].key);
        if (strcmp(stored, field[i].value) != 0)
            return tri_fail(TRI_ERR_CHECKPOINT,
                            "%s is '%s', but the checkpoint '%s' was made with '%s'", field[i].key,
                            field[i].value, c->path, stored);
    }
    return TRI_OK;
}

tri_status tri_checkpoint_config(const struct tri_checkpoint *c, char **out)
{
    char *path = NULL, *text = NULL;
    size_t bytes = 0;
    tri_status st;

    TRI_TRY(tri_path_join(c->path, "config.yaml", &path));
    st = tri_read_file(path, (size_t)c->manifest.config_bytes, &text, &bytes);
    if (st == TRI_OK &&
        tri_manifest_hash("config.yaml", 0, text, bytes) != c->manifest.config_hash) {
        st = tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: its checksum is wrong", path);
        tri_free(text);
        text = NULL;
    }
    tri_free(path);
    *out = text;
    return st;
}

/* Reads (data != NULL) or only checks one tensor. */
static tri_status read_tensor(int fd, const char *path, const struct tri_manifest_tensor *t,
                              void *data)
{
    uint64_t hash = 0;

    TRI_TRY(tri_stored_hash(fd, path, t, data, &hash));
    if (hash != t->checksum)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is damaged: the checksum of '%s' is wrong", path,
                        t->name);
    return TRI_OK;
}

static tri_status open_model(const struct tri_checkpoint *c, char **path, int *fd)
{
    TRI_TRY(tri_path_join(c->path, "model.h5", path));
    *fd = open(*path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        tri_file_fail("open", *path);
        tri_free(*path);
        return TRI_ERR_CHECKPOINT; /* with that message */
    }
    return TRI_OK;
}

static tri_status load_here(const struct tri_checkpoint *c,
                            const struct tri_checkpoint_tensor *tensor, int ntensor, bool partial)
{
    char *path = NULL;
    int fd = -1, index = 0;
    tri_status st = TRI_OK;

    for (int i = 0; i < ntensor; i++)
        TRI_TRY(tri_tensor_find(c, &tensor[i], i, &index));
    if (!partial)
        TRI_TRY(tri_tensors_check_rest(c, tensor, ntensor));
    TRI_TRY(open_model(c, &path, &fd));
    for (int i = 0; i < ntensor && st == TRI_OK; i++) {
        st = tri_tensor_find(c, &tensor[i], i, &index);
        if (st != TRI_OK || index < 0)
            continue;
        if (tensor[i].by_rank)
            st = tri_by_rank_read(fd, path, &c->manifest.tensor[index], &tensor[i]);
        else
            st = read_tensor(fd, path, &c->manifest.tensor[index], tensor[i].data);
    }
    close(fd);
    tri_free(path);
    return st;
}

tri_status tri_checkpoint_load(struct tri_comm *comm, const struct tri_checkpoint *c,
                               const struct tri_checkpoint_tensor *tensor, int ntensor,
                               bool partial)
{
    tri_status st = load_here(c, tensor, ntensor, partial);

    if (st != TRI_OK && c->run_dir != NULL && tri_comm_rank(comm) == 0)
        name_previous_good(c->run_dir, c->manifest.step);
    if (st == TRI_OK && !partial && tri_comm_rank(comm) == 0)
        tri_tensors_report(c, tensor, ntensor);
    return tri_comm_agree(comm, st);
}

tri_status tri_checkpoint_verify(const struct tri_checkpoint *c)
{
    char *path = NULL;
    int fd = -1;
    tri_status st;

    TRI_TRY(tri_folder_check(c->path, &c->manifest));
    TRI_TRY(open_model(c, &path, &fd));
    st = TRI_OK;
    for (int i = 0; i < c->manifest.ntensor && st == TRI_OK; i++)
        st = read_tensor(fd, path, &c->manifest.tensor[i], NULL);
    close(fd);
    tri_free(path);
    return st;
}
