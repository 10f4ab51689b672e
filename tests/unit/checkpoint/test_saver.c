/* Saving from a copy in a thread: later changes of the tensors do not show, failures come with the
 * next call. */
#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/saver.h"
#include "runtime/core/io_thread.h"

#include <criterion/criterion.h>
#include <string.h>

static tri_status fail_in_manifest(void *arg, enum tri_checkpoint_phase phase)
{
    (void)arg;
    return phase == TRI_CHECKPOINT_MANIFEST ? tri_fail(TRI_ERR_IO, "made up") : TRI_OK;
}

Test(saver, saves_what_was_there_when_it_began)
{
    struct model m;
    struct tri_saver *s = NULL;
    char key[32] = "updates";
    int64_t step = 0;

    cr_assert_eq(tri_io_start(), TRI_OK);
    model_init(&m);
    m.item[0].key = key;
    cr_assert_eq(tri_saver_create(NULL, &s), TRI_OK);
    for (int64_t n = 1; n <= 20; n++) {
        model_set(&m, n);
        cr_assert_eq(tri_saver_begin(s, &m.save), TRI_OK, "%s", tri_error_text());
        model_clear(&m);
        memset(key, 'x', 4); /* texts are copied as well */
        memcpy(key, "updates", 8);
    }
    cr_assert_eq(tri_saver_wait(s), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(model_resume(&m, &step), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(step, 20);
    cr_assert(model_is(&m, 20));
    tri_saver_destroy(s);
    tri_io_stop();
    model_finish(&m);
}

Test(saver, a_failure_comes_with_the_next_call)
{
    struct model m;
    struct tri_saver *s = NULL;
    int64_t step = -1;

    model_init(&m);
    cr_assert_eq(tri_saver_create(NULL, &s), TRI_OK);
    m.save.probe = fail_in_manifest;
    model_set(&m, 1);
    cr_assert_eq(tri_saver_begin(s, &m.save), TRI_OK);
    cr_assert_eq(tri_saver_wait(s), TRI_ERR_IO);
    cr_assert_str_eq(tri_error_text(), "made up");
    cr_assert_eq(tri_saver_wait(s), TRI_OK);
    cr_assert_eq(model_resume(&m, &step), TRI_OK);
    cr_assert_eq(step, 0);
    tri_saver_destroy(s);
    model_finish(&m);
}

/* Only the owned part is copied: parts of two ranks fill one file. */
Test(saver, a_part_lands_where_it_belongs)
{
    struct model m;
    struct tri_saver *s = NULL;
    struct tri_checkpoint *c = NULL;

    model_init(&m);
    model_set(&m, 3);
    m.tensor[0].first = 6;
    m.tensor[0].count = 4;
    cr_assert_eq(tri_saver_create(NULL, &s), TRI_OK);
    cr_assert_eq(tri_saver_begin(s, &m.save), TRI_OK);
    cr_assert_eq(tri_saver_wait(s), TRI_OK, "%s", tri_error_text());
    tri_saver_destroy(s);
    cr_assert_eq(tri_checkpoint_open(NULL, m.root, &c), TRI_OK);
    float want[4];
    memcpy(want, m.weight + 6, sizeof(want));
    model_clear(&m);
    /* The elements that nobody owned break the checksum; they are there all the same. */
    cr_assert_eq(tri_checkpoint_load(NULL, c, m.tensor, NTENSOR, false), TRI_ERR_CHECKPOINT);
    cr_assert_eq(memcmp(m.weight + 6, want, sizeof(want)), 0);
    tri_checkpoint_close(c);
    model_finish(&m);
}
