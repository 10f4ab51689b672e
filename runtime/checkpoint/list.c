/* Which checkpoints a run folder holds, and which of them may go. */
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/core/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tri_step_name(int64_t step, char name[TRI_STEP_NAME_BYTES])
{
    (void)snprintf(name, TRI_STEP_NAME_BYTES, "step-%08" PRId64, step);
}

char *tri_checkpoint_path(const char *run_dir, int64_t step)
{
    char name[TRI_STEP_NAME_BYTES];

    tri_step_name(step, name);
    return tri_asprintf("%s/checkpoints/%s", run_dir, name);
}

/* The step of a folder name that tri_step_name writes; false for every other name. */
static bool parse_step_name(const char *name, int64_t *step)
{
    char again[TRI_STEP_NAME_BYTES];

    if (strncmp(name, "step-", 5) != 0)
        return false;
    errno = 0;
    *step = strtoll(name + 5, NULL, 10);
    if (errno != 0 || *step < 0)
        return false;
    tri_step_name(*step, again);
    return strcmp(again, name) == 0;
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static tri_status read_steps(DIR *d, const char *path, int64_t **steps, int *count)
{
    int64_t *list = NULL, step;
    int n = 0, cap = 0;

    errno = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL; errno = 0) {
        if (!parse_step_name(e->d_name, &step))
            continue;
        if (n == cap) {
            int64_t *more = tri_realloc(list, (size_t)cap * 2 + 16, sizeof(*list), "steps");
            if (more == NULL) {
                tri_free(list);
                return tri_fail(TRI_ERR_NOMEM, "'%s': cannot allocate the list of steps", path);
            }
            list = more;
            cap = cap * 2 + 16;
        }
        list[n++] = step;
    }
    if (errno != 0) {
        tri_free(list);
        return tri_file_fail("read the folder", path);
    }
    if (n > 1)
        qsort(list, (size_t)n, sizeof(*list), compare_steps);
    *steps = list;
    *count = n;
    return TRI_OK;
}

tri_status tri_checkpoint_list(const char *run_dir, int64_t **steps, int *count)
{
    char *path = NULL;
    tri_status st;
    DIR *d;

    TRI_TRY(tri_path_join(run_dir, "checkpoints", &path));
    d = opendir(path);
    if (d != NULL) {
        st = read_steps(d, path, steps, count);
        closedir(d);
    } else if (errno == ENOENT) {
        *steps = NULL;
        *count = 0;
        st = TRI_OK;
    } else {
        st = tri_file_fail("open the folder", path);
    }
    tri_free(path);
    return st;
}

/* The step that the link `best` names, -1 without one. */
static int64_t best_step(const char *run_dir)
{
    char *link = tri_asprintf("%s/checkpoints/best", run_dir);
    char target[PATH_MAX];
    ssize_t n = link == NULL ? -1 : readlink(link, target, sizeof(target) - 1);
    int64_t step;

    tri_free(link);
    if (n < 0)
        return -1;
    target[n] = '\0';
    return parse_step_name(target, &step) ? step : -1;
}

/* Removes the link `best` when its checkpoint is gone. */
static tri_status drop_dead_best(const char *run_dir, int64_t best)
{
    char *path, *link;
    tri_status st = TRI_OK;

    if (best < 0)
        return TRI_OK;
    path = tri_checkpoint_path(run_dir, best);
    link = tri_asprintf("%s/checkpoints/best", run_dir);
    if (path == NULL || link == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a path in '%s'", run_dir);
    else if (!tri_is_folder(path) && unlink(link) != 0)
        st = tri_file_fail("remove", link);
    tri_free(link);
    tri_free(path);
    return st;
}

/* The folder gets a temporary name first, so that no moment shows half of a checkpoint. */
static tri_status remove_checkpoint(const char *run_dir, int64_t step)
{
    char name[TRI_STEP_NAME_BYTES];
    char *path = tri_checkpoint_path(run_dir, step), *temporary;
    tri_status st;

    tri_step_name(step, name);
    temporary = tri_asprintf("%s/checkpoints/.tmp-removed-%s", run_dir, name);
    if (path == NULL || temporary == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a path in '%s'", run_dir);
    else
        st = tri_remove_tree(temporary);
    if (st == TRI_OK && rename(path, temporary) != 0)
        st = tri_file_fail("remove", path);
    if (st == TRI_OK)
        st = tri_remove_tree(temporary);
    tri_free(temporary);
    tri_free(path);
    return st;
}

/* Steps beyond the one just saved belong to a past that the run was taken back from. */
static tri_status remove_abandoned(const char *run_dir, const int64_t *steps, int *count,
                                   int64_t step)
{
    for (; *count > 0 && steps[*count - 1] > step; (*count)--) {
        tri_info("removing the checkpoint of step %" PRId64 ": the run was resumed before it",
                 steps[*count - 1]);
        TRI_TRY(remove_checkpoint(run_dir, steps[*count - 1]));
    }
    return TRI_OK;
}

tri_status tri_checkpoint_prune(const char *run_dir, int keep, int64_t step)
{
    int64_t *steps = NULL, best;
    int count = 0;
    tri_status st;

    TRI_TRY(tri_checkpoint_list(run_dir, &steps, &count));
    st = remove_abandoned(run_dir, steps, &count, step);
    best = best_step(run_dir);
    for (int i = 0; keep > 0 && i < count - keep && st == TRI_OK; i++)
        if (steps[i] != best)
            st = remove_checkpoint(run_dir, steps[i]);
    tri_free(steps);
    return st == TRI_OK ? drop_dead_best(run_dir, best) : st;
}

/* An interrupted replacement without an atomic exchange leaves the old folder as .old-step-...; it
 * goes back where no new one stands. */
static tri_status restore_or_remove(const char *folder, const char *entry)
{
    char *old = tri_asprintf("%s/%s", folder, entry);
    char *final = tri_asprintf("%s/%s", folder, entry + sizeof(".old-") - 1);
    tri_status st = TRI_OK;

    if (old == NULL || final == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a path in '%s'", folder);
    else if (tri_is_folder(final))
        st = tri_remove_tree(old);
    else if (rename(old, final) != 0)
        st = tri_file_fail("rename", old);
    tri_free(final);
    tri_free(old);
    return st;
}

static tri_status clean_entry(const char *folder, const char *entry)
{
    char *path = NULL;
    tri_status st;

    if (strncmp(entry, ".old-step-", 10) == 0)
        return restore_or_remove(folder, entry);
    if (strncmp(entry, ".tmp-", 5) != 0)
        return TRI_OK;
    TRI_TRY(tri_path_join(folder, entry, &path));
    tri_info("removing '%s', left by an interrupted save", path);
    st = tri_remove_tree(path);
    tri_free(path);
    return st;
}

tri_status tri_checkpoint_clean(const char *run_dir)
{
    char *path = NULL;
    tri_status st = TRI_OK;
    DIR *d;

    TRI_TRY(tri_path_join(run_dir, "checkpoints", &path));
    d = opendir(path);
    if (d == NULL && errno != ENOENT)
        st = tri_file_fail("open the folder", path);
    if (d != NULL) {
        for (struct dirent *e; st == TRI_OK && (e = readdir(d)) != NULL;)
            st = clean_entry(path, e->d_name);
        closedir(d);
    }
    tri_free(path);
    return st;
}
