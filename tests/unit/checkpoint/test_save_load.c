#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/files.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Test(save_load, brings_back_every_bit)
{
    struct model m;
    struct tri_checkpoint *c = NULL;
    int64_t step = 0, n = 0;
    double best = 0;

    model_init(&m);
    cr_assert_eq(model_save(&m, 7), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 7);
    cr_assert(model_is(&m, 7));
    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_OK, "%s", tri_error_text());
    cr_assert(tri_checkpoint_integer(c, "updates", &n) && n == 7);
    cr_assert(tri_checkpoint_integer(c, "position", &n) && n == INT64_MAX);
    cr_assert(tri_checkpoint_real(c, "best", &best) && best == 1.0 / 9.0);
    cr_assert(!tri_checkpoint_integer(c, "best", &n));
    cr_assert_str_eq(tri_checkpoint_field(c, "optimizer.name"), "sgd");
    cr_assert_eq(tri_checkpoint_verify(c), TRI_OK);
    tri_checkpoint_close(c);
    model_finish(&m);
}

Test(save_load, host_state_keeps_infinities)
{
    struct model m;
    struct tri_checkpoint *c = NULL;
    double best = 0;

    model_init(&m);
    model_set(&m, 1);
    m.item[1].value = -INFINITY;
    cr_assert_eq(tri_checkpoint_save(NULL, &m.save), TRI_OK);
    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_OK);
    cr_assert(tri_checkpoint_real(c, "best", &best) && best == -INFINITY);
    tri_checkpoint_close(c);
    model_finish(&m);
}

Test(save_load, a_fresh_run_finds_nothing)
{
    struct model m;
    struct tri_checkpoint *c = NULL;
    int64_t step = -1;

    model_init(&m);
    cr_assert_eq(model_resume(&m, &step), TRI_OK);
    cr_assert_eq(step, 0);
    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_ERR_CHECKPOINT);
    model_finish(&m);
}

Test(save_load, never_refuses_a_used_folder)
{
    struct model m;
    struct tri_checkpoint *c = NULL;

    model_init(&m);
    cr_assert_eq(tri_checkpoint_find(NULL, m.root, "never", &c), TRI_OK);
    cr_assert_null(c);
    cr_assert_eq(model_save(&m, 1), TRI_OK);
    cr_assert_eq(tri_checkpoint_find(NULL, m.root, "never", &c), TRI_ERR_USAGE);
    model_finish(&m);
}

Test(save_load, keeps_the_newest_and_the_best)
{
    struct model m;
    char link[128];
    char target[PATH_MAX];
    ssize_t n;

    model_init(&m);
    m.save.keep = 2;
    for (int64_t step = 1; step <= 5; step++) {
        m.save.best = step == 2;
        cr_assert_eq(model_save(&m, step), TRI_OK, "%s", tri_error_text());
    }
    for (int64_t step = 1; step <= 5; step++)
        cr_assert_eq(exists(model_path(&m, step, "manifest.json")), step == 2 || step >= 4);
    (void)snprintf(link, sizeof(link), "%s/checkpoints/latest", m.root);
    n = readlink(link, target, sizeof(target) - 1);
    cr_assert(n > 0);
    target[n] = '\0';
    cr_assert_str_eq(target, "step-00000005");
    model_finish(&m);
}

Test(save_load, a_run_taken_back_drops_its_later_steps)
{
    struct model m;
    char best[128];
    int64_t step = 0;

    model_init(&m);
    for (step = 1; step <= 4; step++) {
        m.save.best = step == 4;
        cr_assert_eq(model_save(&m, step), TRI_OK);
    }
    m.save.best = false;
    cr_assert_eq(model_save(&m, 3), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 3);
    (void)snprintf(best, sizeof(best), "%s/checkpoints/best", m.root);
    cr_assert(!exists(best));
    cr_assert(exists(model_path(&m, 1, "manifest.json")));
    model_finish(&m);
}

Test(save_load, replaces_a_checkpoint_of_the_same_step)
{
    struct model m;
    int64_t step = 0;

    model_init(&m);
    model_set(&m, 3);
    m.save.step = 9;
    cr_assert_eq(tri_checkpoint_save(NULL, &m.save), TRI_OK);
    model_set(&m, 4);
    m.save.step = 9;
    cr_assert_eq(tri_checkpoint_save(NULL, &m.save), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 9);
    cr_assert(model_is(&m, 4));
    model_finish(&m);
}

Test(save_load, equal_contents_give_equal_files)
{
    struct model m[2];
    static const char *const file[] = {"model.h5", "manifest.json", "config.yaml"};

    for (int k = 0; k < 2; k++) {
        model_init(&m[k]);
        cr_assert_eq(model_save(&m[k], 20), TRI_OK);
        sleep(k == 0 ? 1 : 0); /* a time stamp would differ */
    }
    for (int f = 0; f < 3; f++) {
        char *text[2];
        size_t bytes[2];
        for (int k = 0; k < 2; k++)
            cr_assert_eq(
                tri_read_file(model_path(&m[k], 20, file[f]), 1 << 20, &text[k], &bytes[k]),
                TRI_OK);
        cr_assert_eq(bytes[0], bytes[1]);
        cr_assert_eq(memcmp(text[0], text[1], bytes[0]), 0, "%s", file[f]);
        tri_free(text[0]);
        tri_free(text[1]);
    }
    model_finish(&m[0]);
    model_finish(&m[1]);
}

Test(save_load, a_mismatch_names_both_values)
{
    struct model m;
    struct tri_checkpoint *c = NULL;
    struct tri_checkpoint_field other = {"optimizer.name", "adamw"};

    model_init(&m);
    cr_assert_eq(model_save(&m, 1), TRI_OK);
    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_OK);
    cr_assert_eq(tri_checkpoint_match(c, m.field, 2), TRI_OK);
    cr_assert_eq(tri_checkpoint_match(c, &other, 1), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "'adamw'") && strstr(tri_error_text(), "'sgd'"));
    m.tensor[0].shape.dim[0] = 3;
    m.tensor[0].shape.dim[1] = 5;
    cr_assert_eq(tri_checkpoint_load(NULL, c, m.tensor, NTENSOR, false), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "[5, 3]") && strstr(tri_error_text(), "[3, 5]"), "%s",
              tri_error_text());
    m.tensor[0].shape.dim[0] = 5;
    m.tensor[0].shape.dim[1] = 3;
    cr_assert_eq(tri_checkpoint_load(NULL, c, m.tensor, 2, false), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "momentum"));
    cr_assert_eq(tri_checkpoint_load(NULL, c, m.tensor, 2, true), TRI_OK);
    tri_checkpoint_close(c);
    model_finish(&m);
}
