/* The exit codes and texts of `trireme checkpoint`. */
#include "tests/unit/checkpoint/fixture.h"

#include "launch/cmd_checkpoint.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Runs the command with standard output in a buffer; the result is the exit code, or -1 for an
 * error. */
static int run(const char *action, const char *a, const char *b, char *buf, size_t bytes)
{
    char word[4][256] = {"checkpoint"};
    char *argv[4] = {word[0], word[1], word[2], word[3]};
    int code = 0, out = dup(STDOUT_FILENO), temporary;
    FILE *file = tmpfile();
    tri_status st;
    ssize_t n;

    cr_assert_not_null(file);
    (void)snprintf(word[1], sizeof(word[1]), "%s", action);
    (void)snprintf(word[2], sizeof(word[2]), "%s", a != NULL ? a : "");
    (void)snprintf(word[3], sizeof(word[3]), "%s", b != NULL ? b : "");
    temporary = fileno(file);
    (void)fflush(stdout);
    dup2(temporary, STDOUT_FILENO);
    st = tri_cmd_checkpoint(2 + (a != NULL) + (b != NULL), argv, &code);
    (void)fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    n = pread(temporary, buf, bytes - 1, 0);
    buf[n > 0 ? n : 0] = '\0';
    (void)fclose(file);
    return st == TRI_OK ? code : -1;
}

static void damage(const char *path)
{
    int fd = open(path, O_WRONLY);

    cr_assert_eq(pwrite(fd, "#", 1, 0), 1);
    close(fd);
}

Test(command, list_and_show_name_what_is_there)
{
    struct model m;
    char buf[8192];

    model_init(&m);
    cr_assert_eq(run("list", m.root, NULL, buf, sizeof(buf)), 0);
    cr_assert(strstr(buf, "holds no checkpoints"));
    m.save.best = true;
    cr_assert_eq(model_save(&m, 1), TRI_OK);
    m.save.best = false;
    cr_assert_eq(model_save(&m, 2), TRI_OK);
    damage(model_path(&m, 1, "config.yaml"));
    cr_assert_eq(run("list", m.root, NULL, buf, sizeof(buf)), 0);
    cr_assert(strstr(buf, " latest") && strstr(buf, " best") && strstr(buf, "damaged"), "%s", buf);
    cr_assert_eq(run("show", m.root, NULL, buf, sizeof(buf)), 0);
    cr_assert(strstr(buf, "step 2") && strstr(buf, "param/layers.0.weight"), "%s", buf);
    cr_assert(strstr(buf, "20 parameters") && strstr(buf, "optimizer.name: sgd"), "%s", buf);
    model_finish(&m);
}

Test(command, verify_says_good_or_damaged)
{
    struct model m;
    char buf[4096];

    model_init(&m);
    cr_assert_eq(model_save(&m, 1), TRI_OK);
    cr_assert_eq(run("verify", m.root, NULL, buf, sizeof(buf)), 0, "%s", buf);
    damage(model_path(&m, 1, "manifest.json"));
    cr_assert_eq(run("verify", m.root, NULL, buf, sizeof(buf)), 2);
    cr_assert(strstr(buf, "manifest.json"), "%s", buf);
    cr_assert_eq(run("verify", "/nonexistent", NULL, buf, sizeof(buf)), -1);
    model_finish(&m);
}

Test(command, diff_finds_one_element)
{
    struct model a, b;
    char buf[4096];

    model_init(&a);
    model_init(&b);
    b.save.config = "run: {dir: elsewhere}\n";
    cr_assert_eq(model_save(&a, 5), TRI_OK);
    cr_assert_eq(model_save(&b, 5), TRI_OK);
    cr_assert_eq(run("diff", a.root, b.root, buf, sizeof(buf)), 0, "%s", buf);
    b.weight[3] += 0.5f;
    cr_assert_eq(tri_checkpoint_save(NULL, &b.save), TRI_OK);
    cr_assert_eq(run("diff", a.root, b.root, buf, sizeof(buf)), 1);
    cr_assert(strstr(buf, "param/layers.0.weight: 1 of 15 elements differ, by at most 0.5"), "%s",
              buf);
    cr_assert_eq(model_save(&b, 6), TRI_OK);
    cr_assert_eq(run("diff", a.root, b.root, buf, sizeof(buf)), 1);
    cr_assert(strstr(buf, "step: 5 against 6") && strstr(buf, "updates: 5 against 6"), "%s", buf);
    model_finish(&a);
    model_finish(&b);
}

Test(command, wrong_use_is_an_error)
{
    char buf[4096];

    cr_assert_eq(run("frobnicate", NULL, NULL, buf, sizeof(buf)), -1);
    cr_assert_eq(run("diff", "one", NULL, buf, sizeof(buf)), -1);
    cr_assert_eq(run("export", "x", NULL, buf, sizeof(buf)), -1);
    cr_assert(strstr(tri_error_text(), "not there yet"));
    cr_assert_eq(run("--help", NULL, NULL, buf, sizeof(buf)), 0);
    cr_assert(strstr(buf, "usage:"));
}
