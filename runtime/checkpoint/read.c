/* Finding, checking and loading checkpoints. Rank 0 decides and hands out its manifest; every rank
 * reads and checks for itself. */
#include "runtime/checkpoint/by_rank.h"
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/folder.h"
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

#define OTHER_BYTES 512 /* of a name */

static bool begins_by_rank(const char *name)
{
    return strncmp(name, TRI_BY_RANK_PREFIX, sizeof(TRI_BY_RANK_PREFIX) - 1) == 0;
}

/* The momentum of a gradient is a state of the optimizer, or under momentum correction one of the
 * compression: one may stand in the checkpoint and the other in the run. Writes the other name;
 * false: `name` is neither. */
static bool other_momentum(const char *name, char other[OTHER_BYTES])
{
    static const char *const head[2] = {"state/optimizer/", TRI_BY_RANK_PREFIX};
    static const char *const tail[2] = {"/momentum", "/velocity"};
    size_t n = strlen(name);

    for (int k = 0; k < 2; k++) {
        size_t h = strlen(head[k]), t = strlen(tail[k]);

        if (n > h + t && strncmp(name, head[k], h) == 0 && strcmp(name + n - t, tail[k]) == 0)
            return snprintf(other, OTHER_BYTES, "%s%.*s%s", head[1 - k], (int)(n - h - t), name + h,
                            tail[1 - k]) < OTHER_BYTES;
    }
    return false;
}

/* The state of fp16 that other precisions lack. States of compression are in its units: a
 * checkpoint that holds some cannot do without. */
static bool is_loss_scale(const struct tri_checkpoint *c, const char *name)
{
    if (strcmp(name, "state/loss_scale") != 0)
        return false;
    for (int i = 0; i < c->manifest.ntensor; i++)
        if (begins_by_rank(c->manifest.tensor[i].name))
            return false;
    return true;
}

static bool may_lack(const struct tri_checkpoint *c, const char *name)
{
    char other[OTHER_BYTES];

    return begins_by_rank(name) || is_loss_scale(c, name) ||
           (other_momentum(name, other) && tri_manifest_find(&c->manifest, other, 0) >= 0);
}

static bool may_drop(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                     int ntensor, const char *name)
{
    char other[OTHER_BYTES];
    bool found = begins_by_rank(name) || is_loss_scale(c, name);

    if (!found && other_momentum(name, other))
        for (int k = 0; k < ntensor && !found; k++)
            found = strcmp(tensor[k].name, other) == 0;
    return found;
}

/* *index < 0: the checkpoint does not have it and need not. */
static tri_status check_tensor(const struct tri_checkpoint *c,
                               const struct tri_checkpoint_tensor *t, int guess, int *index)
{
    char want[TRI_SHAPE_TEXT], have[TRI_SHAPE_TEXT];
    int i = tri_manifest_find(&c->manifest, t->name, guess);
    const struct tri_manifest_tensor *s;

    *index = i;
    if (i < 0 && may_lack(c, t->name))
        return TRI_OK;
    if (i < 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "the checkpoint '%s' has no '%s'", c->path, t->name);
    s = &c->manifest.tensor[i];
    if (t->by_rank && tri_by_rank_fits(t, s))
        return TRI_OK;
    if (s->dtype != t->dtype || !tri_shape_equal(&s->shape, &t->shape))
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is %s %s, in the checkpoint '%s' it is %s %s",
                        t->name, tri_dtype_name(t->dtype),
                        tri_shape_text(&t->shape, want, sizeof(want)), c->path,
                        tri_dtype_name(s->dtype), tri_shape_text(&s->shape, have, sizeof(have)));
    return TRI_OK;
}

static tri_status check_no_others(const struct tri_checkpoint *c,
                                  const struct tri_checkpoint_tensor *tensor, int ntensor)
{
    for (int i = 0; i < c->manifest.ntensor; i++) {
        const char *name = c->manifest.tensor[i].name;
        bool known = strcmp(name, TRI_STEP_TENSOR) == 0 ||
                     (i < ntensor && strcmp(tensor[i].name, name) == 0);
        for (int k = 0; k < ntensor && !known; k++)
            known = strcmp(tensor[k].name, name) == 0;
        if (!known && !may_drop(c, tensor, ntensor, name))
            return tri_fail(TRI_ERR_CHECKPOINT,
                            "the checkpoint '%s' has '%s', which this run does not have", c->path,
                            name);
    }
    return TRI_OK;
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
        TRI_TRY(check_tensor(c, &tensor[i], i, &index));
    if (!partial)
        TRI_TRY(check_no_others(c, tensor, ntensor));
    TRI_TRY(open_model(c, &path, &fd));
    for (int i = 0; i < ntensor && st == TRI_OK; i++) {
        st = check_tensor(c, &tensor[i], i, &index);
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

static void log_loss_scale(const struct tri_checkpoint *c,
                           const struct tri_checkpoint_tensor *tensor, int ntensor)
{
    for (int i = 0; i < ntensor; i++)
        if (is_loss_scale(c, tensor[i].name) &&
            tri_manifest_find(&c->manifest, tensor[i].name, i) < 0)
            tri_info("the loss scale is not in the checkpoint: it starts at its initial value");
}

/* A line for each of the three ways in which states by rank differ from the checkpoint's. */
static void log_by_rank(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                        int ntensor)
{
    int fresh = 0, spread = 0, kept = 0, stored = 0;
    long long from = 0, to = 0;

    for (int i = 0; i < ntensor; i++) {
        int k = tri_manifest_find(&c->manifest, tensor[i].name, i);

        if (!begins_by_rank(tensor[i].name))
            continue;
        fresh += k < 0;
        kept += k >= 0;
        if (k < 0 || !tensor[i].by_rank ||
            c->manifest.tensor[k].shape.dim[0] == tensor[i].shape.dim[0])
            continue;
        spread++;
        from = c->manifest.tensor[k].shape.dim[0];
        to = tensor[i].shape.dim[0];
    }
    for (int i = 0; i < c->manifest.ntensor; i++)
        stored += begins_by_rank(c->manifest.tensor[i].name);
    if (spread > 0)
        tri_info("%d states of compression were of %lld ranks: their sums are spread evenly over "
                 "%lld",
                 spread, from, to);
    if (fresh > 0)
        tri_info("%d states of compression are not in the checkpoint: they start fresh", fresh);
    if (stored > kept)
        tri_warn("%d states of compression are dropped: this run does not have them",
                 stored - kept);
}

tri_status tri_checkpoint_load(struct tri_comm *comm, const struct tri_checkpoint *c,
                               const struct tri_checkpoint_tensor *tensor, int ntensor,
                               bool partial)
{
    tri_status st = load_here(c, tensor, ntensor, partial);

    if (st != TRI_OK && c->run_dir != NULL && tri_comm_rank(comm) == 0)
        name_previous_good(c->run_dir, c->manifest.step);
    if (st == TRI_OK && !partial && tri_comm_rank(comm) == 0)
        log_by_rank(c, tensor, ntensor);
    if (st == TRI_OK && tri_comm_rank(comm) == 0)
        log_loss_scale(c, tensor, ntensor);
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
