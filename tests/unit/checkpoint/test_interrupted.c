/* Saves that fail or are killed leave the previous checkpoint and no partial files. */
#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static tri_status fail_at(void *arg, enum tri_checkpoint_phase phase)
{
    const enum tri_checkpoint_phase *at = arg;

    return phase == *at ? tri_fail(TRI_ERR_IO, "cannot write 'probe': made up") : TRI_OK;
}

static bool has_leftover(const struct model *m, int64_t step)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/checkpoints/.tmp-step-%08lld", m->root, (long long)step);
    return exists(path);
}

Test(interrupted, a_failure_in_any_phase_keeps_the_old_one)
{
    struct model m;
    enum tri_checkpoint_phase at = TRI_CHECKPOINT_LAYOUT;
    int64_t step = 0;

    model_init(&m);
    cr_assert_eq(model_save(&m, 10), TRI_OK);
    m.save.probe = fail_at;
    m.save.probe_arg = &at;
    for (int p = TRI_CHECKPOINT_LAYOUT; p <= TRI_CHECKPOINT_PUBLISH; p++) {
        at = (enum tri_checkpoint_phase)p;
        cr_assert_eq(model_save(&m, 20), TRI_ERR_IO);
        cr_assert(strstr(tri_error_text(), "made up"));
        cr_assert(!has_leftover(&m, 20));
        cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
        cr_assert_eq(step, 10);
        cr_assert(model_is(&m, 10));
    }
    at = TRI_CHECKPOINT_LINK; /* the checkpoint itself is complete by then */
    cr_assert_eq(model_save(&m, 20), TRI_ERR_IO);
    cr_assert_eq(model_resume(&m, &step), TRI_OK);
    cr_assert_eq(step, 20);
    m.save.probe = NULL;
    cr_assert_eq(model_save(&m, 20), TRI_OK, "%s", tri_error_text());
    model_finish(&m);
}

/* A limit on the size of files stops the reservation of space in model.h5, as a quota does. */
Test(interrupted, a_file_too_large_is_an_error_with_its_reason)
{
    struct model m;
    struct rlimit limit = {4096, RLIM_INFINITY};
    float *big = calloc(1 << 20, sizeof(*big));
    int64_t step = 0;

    model_init(&m);
    cr_assert_eq(model_save(&m, 1), TRI_OK);
    m.tensor[0].data = big;
    m.tensor[0].shape = (struct tri_shape){.ndim = 1, .dim = {1 << 20}};
    m.tensor[0].count = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(model_save(&m, 2), TRI_ERR_IO);
    cr_assert(strstr(tri_error_text(), strerror(EFBIG)), "%s", tri_error_text());
    cr_assert(!has_leftover(&m, 2));
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    m.tensor[0].data = m.weight;
    m.tensor[0].shape = (struct tri_shape){.ndim = 2, .dim = {5, 3}};
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 1);
    free(big);
    model_finish(&m);
}

Test(interrupted, a_full_disk_is_an_error_with_its_reason)
{
    struct model m;
    float *big = calloc(1 << 20, sizeof(*big));
    char root[64];
    int64_t step = 0;

    model_init(&m);
    memcpy(root, m.root, sizeof(root));
    /* In a mount namespace of its own, which goes with this process. */
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", root, "tmpfs", 0, "size=1m") != 0) {
        model_finish(&m);
        free(big);
        cr_skip_test("no right to mount a small file system");
    }
    cr_assert_eq(model_save(&m, 1), TRI_OK, "%s", tri_error_text());
    m.tensor[0].data = big;
    m.tensor[0].shape = (struct tri_shape){.ndim = 1, .dim = {1 << 20}};
    m.tensor[0].count = 1 << 20;
    cr_assert_eq(model_save(&m, 2), TRI_ERR_IO);
    cr_assert(strstr(tri_error_text(), strerror(ENOSPC)), "%s", tri_error_text());
    cr_assert(!has_leftover(&m, 2));
    m.tensor[0].data = m.weight;
    m.tensor[0].shape = (struct tri_shape){.ndim = 2, .dim = {5, 3}};
    m.tensor[0].count = WEIGHTS;
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 1);
    cr_assert_eq(model_save(&m, 2), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(umount2(root, MNT_DETACH), 0);
    model_finish(&m);
    free(big);
}

static void save_for_ever(struct model *m)
{
    m->save.keep = 2;
    for (int64_t step = 1;; step = step % 40 + 1)
        if (model_save(m, step) != TRI_OK)
            _exit(3);
}

Test(interrupted, killed_at_any_moment_it_resumes_at_one_step)
{
    struct model m;
    unsigned random = 1;

    model_init(&m);
    for (int round = 0; round < 20; round++) {
        int64_t step = -1;
        int status;
        pid_t child = fork();
        if (child == 0)
            save_for_ever(&m);
        random = random * 1103515245u + 12345u;
        usleep(1000 + (random >> 8) % 40000);
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status), "the save failed by itself");
        cr_assert_eq(tri_checkpoint_clean(m.root), TRI_OK, "%s", tri_error_text());
        cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
        cr_assert(step == 0 || model_is(&m, step));
    }
    model_finish(&m);
}

Test(interrupted, leftovers_are_removed_or_put_back)
{
    struct model m;
    char path[256], old[256];
    int64_t step = 0;

    model_init(&m);
    cr_assert_eq(model_save(&m, 5), TRI_OK);
    (void)snprintf(old, sizeof(old), "%s/checkpoints/.old-step-00000005", m.root);
    cr_assert_eq(rename(model_path(&m, 5, ""), old), 0);
    (void)snprintf(path, sizeof(path), "%s/checkpoints/.tmp-step-00000006/x", m.root);
    cr_assert_eq(tri_make_folders(path), TRI_OK);
    cr_assert_eq(tri_checkpoint_clean(m.root), TRI_OK);
    cr_assert(!has_leftover(&m, 6));
    cr_assert_eq(model_resume(&m, &step), TRI_OK);
    cr_assert_eq(step, 5);
    model_finish(&m);
}
