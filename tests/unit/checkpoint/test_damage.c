/* Every damage of a checkpoint is found, names its file, and is never taken for a fresh start. */
#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/files.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct model m;

static void set_up(void)
{
    model_init(&m);
    cr_assert_eq(model_save(&m, 1), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(model_save(&m, 2), TRI_OK, "%s", tri_error_text());
}

static void tear_down(void)
{
    model_finish(&m);
}

TestSuite(damage, .init = set_up, .fini = tear_down);

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;

    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    int fd = open(path, O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);

    close(fd);
    return size;
}

static void expect_refused(const char *word)
{
    int64_t step = -1;

    cr_assert_eq(model_resume(&m, &step), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), word), "%s", tri_error_text());
    cr_assert(strstr(tri_error_text(), "step-00000001"), "%s", tri_error_text());
}

/* All bytes of small files, a prime stride through model.h5. */
static void flip_everywhere(const char *name, off_t stride)
{
    char path[256];
    off_t size;

    (void)snprintf(path, sizeof(path), "%s", model_path(&m, 2, name));
    size = size_of(path);
    cr_assert(size > 0);
    for (off_t at = 0; at < size; at += stride) {
        flip(path, at);
        expect_refused(name);
        flip(path, at);
    }
    flip(path, size - 1);
    expect_refused(name);
}

Test(damage, any_byte_of_the_model)
{
    flip_everywhere("model.h5", 13);
}

Test(damage, any_byte_of_the_manifest)
{
    flip_everywhere("manifest.json", 7);
}

Test(damage, any_byte_of_the_configuration)
{
    flip_everywhere("config.yaml", 1);
}

Test(damage, a_weight_is_named)
{
    struct tri_checkpoint *c = NULL;

    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_OK);
    flip(model_path(&m, 2, "model.h5"), c->manifest.tensor[2].offset + 5);
    tri_checkpoint_close(c);
    expect_refused("'state/optimizer/layers.0.weight/momentum'");
}

Test(damage, a_shorter_file)
{
    static const char *const name[] = {"model.h5", "manifest.json", "config.yaml"};

    for (int i = 0; i < 3; i++) {
        const char *path = model_path(&m, 2, name[i]);
        cr_assert_eq(truncate(path, size_of(path) - 1), 0);
        expect_refused(name[i]);
        cr_assert_eq(model_save(&m, 2), TRI_OK, "%s", tri_error_text());
    }
}

Test(damage, a_missing_file)
{
    static const char *const name[] = {"model.h5", "manifest.json", "config.yaml"};

    for (int i = 0; i < 3; i++) {
        cr_assert_eq(unlink(model_path(&m, 2, name[i])), 0);
        expect_refused(name[i]);
        cr_assert_eq(model_save(&m, 2), TRI_OK, "%s", tri_error_text());
    }
}

Test(damage, a_file_of_another_step)
{
    char from[256];

    (void)snprintf(from, sizeof(from), "%s", model_path(&m, 1, "model.h5"));
    cr_assert_eq(unlink(model_path(&m, 2, "model.h5")), 0);
    cr_assert_eq(link(from, model_path(&m, 2, "model.h5")), 0);
    expect_refused("is of step 1, its manifest of step 2");
}

Test(damage, a_manifest_of_another_step)
{
    char from[256];

    (void)snprintf(from, sizeof(from), "%s", model_path(&m, 1, "manifest.json"));
    cr_assert_eq(unlink(model_path(&m, 2, "manifest.json")), 0);
    cr_assert_eq(link(from, model_path(&m, 2, "manifest.json")), 0);
    expect_refused("holds the manifest of step 1");
}

Test(damage, a_huge_manifest_is_not_read)
{
    cr_assert_eq(truncate(model_path(&m, 2, "manifest.json"), (off_t)1 << 40), 0);
    expect_refused("more than");
}

/* A manifest whose own hash is right but whose sizes lie: nothing is allocated or read by them. */
Test(damage, a_forged_size)
{
    struct tri_manifest f = {0};
    struct tri_manifest_tensor t = {.name = "param/w", .dtype = TRI_F64, .offset = 64};
    struct tri_text text = {0};

    f.tensor = &t;
    f.ntensor = 1;
    f.model_bytes = 4096;
    t.shape = (struct tri_shape){.ndim = 2, .dim = {INT64_MAX / 16, 2}};
    tri_manifest_print(&f, &text);
    f = (struct tri_manifest){0};
    cr_assert_eq(tri_manifest_parse(&f, text.data, text.len, "m"), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "'param/w'"), "%s", tri_error_text());
    tri_manifest_finish(&f);
    tri_text_finish(&text);
}

Test(damage, without_a_good_one_it_says_so)
{
    int64_t step;

    flip(model_path(&m, 1, "config.yaml"), 0);
    flip(model_path(&m, 2, "config.yaml"), 0);
    cr_assert_eq(model_resume(&m, &step), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "no older one is good"), "%s", tri_error_text());
}
