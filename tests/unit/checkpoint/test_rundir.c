#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/rundir.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

Test(rundir, a_second_job_is_refused_until_the_first_has_gone)
{
    struct model m;
    struct tri_rundir *first = NULL, *second = NULL;
    char path[128];

    model_init(&m);
    (void)snprintf(path, sizeof(path), "%s/a/b", m.root);
    cr_assert_eq(tri_rundir_open(NULL, path, &first), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_rundir_open(NULL, path, &second), TRI_ERR_USAGE);
    cr_assert(strstr(tri_error_text(), "in use"), "%s", tri_error_text());
    tri_rundir_close(first);
    cr_assert_eq(tri_rundir_open(NULL, path, &second), TRI_OK, "%s", tri_error_text());
    tri_rundir_close(second);
    model_finish(&m);
}

Test(rundir, a_dead_owner_does_not_hold_it)
{
    struct model m;
    struct tri_rundir *r = NULL;
    int ready[2];
    char byte;
    pid_t child;

    model_init(&m);
    cr_assert_eq(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        if (tri_rundir_open(NULL, m.root, &r) != TRI_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(tri_rundir_open(NULL, m.root, &r), TRI_ERR_USAGE);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    cr_assert_eq(tri_rundir_open(NULL, m.root, &r), TRI_OK, "%s", tri_error_text());
    tri_rundir_close(r);
    model_finish(&m);
}

Test(rundir, a_file_in_the_way_is_an_error)
{
    struct model m;
    struct tri_rundir *r = NULL;
    char path[128];

    model_init(&m);
    (void)snprintf(path, sizeof(path), "%s/file", m.root);
    cr_assert_eq(tri_write_file(path, "x", 1), TRI_OK);
    cr_assert_eq(tri_rundir_open(NULL, path, &r), TRI_ERR_IO);
    cr_assert(strstr(tri_error_text(), path), "%s", tri_error_text());
    model_finish(&m);
}

/* What a refused job leaves: nothing that was not there before. */
Test(rundir, an_unused_folder_goes_again)
{
    struct model m;
    struct tri_rundir *r = NULL;
    char path[128], parent[128], file[160];

    model_init(&m);
    (void)snprintf(parent, sizeof(parent), "%s/a", m.root);
    (void)snprintf(path, sizeof(path), "%s/a/b//c/", m.root);
    (void)snprintf(file, sizeof(file), "%s/checkpoints/kept", path);
    cr_assert_eq(tri_rundir_open(NULL, path, &r), TRI_OK, "%s", tri_error_text());
    cr_assert(tri_is_folder(path));
    tri_rundir_close(r);
    cr_assert(!tri_is_folder(parent) && tri_is_folder(m.root));

    cr_assert_eq(tri_rundir_open(NULL, path, &r), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_write_file(file, "x", 1), TRI_OK);
    tri_rundir_close(r);
    cr_assert(exists(file));
    model_finish(&m);
}
