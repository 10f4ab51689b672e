/* Loader: layout, padding, counts, read-ahead, resume at a step (F02), augmentation, the I/O
 * thread. */
#include "data/loader.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "tests/unit/data/fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct tri_dataset *open_or_fail(const char *path, int64_t T)
{
    struct tri_dataset_cfg cfg = {.paths = &path, .npaths = 1, .sequence = T};
    struct tri_dataset *ds = NULL;

    cr_assert_eq(tri_dataset_open(&cfg, &ds), TRI_OK, "%s", tri_error_text());
    return ds;
}

static struct tri_dataset *image_set(int64_t n)
{
    const char *path = temp_path("images.h5");
    const double mean = 0.5, scale = 0.25;
    hid_t f = new_file(path);

    put_images(f, "train", n);
    put_images(f, "validation", 3);
    cr_assert_eq(tri_h5_put_f64(f, path, "mean", -1, &mean), TRI_OK);
    cr_assert_eq(tri_h5_put_f64(f, path, "scale", 1, &scale), TRI_OK);
    H5Fclose(f);
    return open_or_fail(path, 0);
}

static struct tri_loader_cfg config(struct tri_dataset *ds, int64_t batch, int64_t grain,
                                    int64_t first_grain, int64_t ngrains)
{
    return (struct tri_loader_cfg){.dataset = ds,
                                   .split = TRI_SPLIT_TRAIN,
                                   .sampler = {tri_dataset_info(ds)->samples[0], batch, 5, true},
                                   .grain = grain,
                                   .first_grain = first_grain,
                                   .ngrains = ngrains,
                                   .first_step = 1,
                                   .last_step = 1000,
                                   .depth = 2};
}

static struct tri_batch next_or_fail(struct tri_loader *l)
{
    struct tri_batch b;

    cr_assert_eq(tri_loader_next(l, &b), TRI_OK, "%s", tri_error_text());
    return b;
}

/* F01 b: 10 samples, batch 4 on 4 ranks; in the last batch ranks 2 and 3 hold padding only. */
Test(loader, images_are_normalised_and_padded)
{
    struct tri_dataset *ds = image_set(10);

    cr_assert_eq(tri_io_start(), TRI_OK);
    for (int64_t rank = 0; rank < 4; rank++) {
        struct tri_loader_cfg cfg = config(ds, 4, 1, rank, 1);
        struct tri_loader *l;

        cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK, "%s", tri_error_text());
        for (int64_t step = 1; step <= 6; step++) {
            struct tri_batch b = next_or_fail(l);
            const float *x = b.x;
            const int32_t *y = b.y;
            bool real = step % 3 != 0 || rank < 2;
            int64_t id =
                real ? tri_sampler_id(&cfg.sampler, b.position.epoch, b.position.first + rank) : 0;

            cr_assert_eq(b.step, step);
            cr_assert_eq(b.position.count, step % 3 == 0 ? 2 : 4);
            cr_assert_eq(b.samples, real);
            cr_assert_eq(b.targets, real);
            cr_assert_eq(b.nreal[0], real);
            cr_assert_eq(b.global_tokens, b.position.count);
            for (int i = 0; i < 16; i++)
                cr_assert_eq(x[i], real ? ((float)id / 255.0f - 0.5f) / 0.25f : 0.0f);
            cr_assert_eq(y[0], real ? id % 3 : -100);
            if (real)
                cr_assert_eq(b.ids[0], id);
        }
        tri_loader_destroy(l);
    }
    tri_dataset_close(ds);
    tri_io_stop();
}

static void record(struct tri_loader *l, int64_t steps, int64_t *ids)
{
    for (int64_t s = 0; s < steps; s++) {
        struct tri_batch b = next_or_fail(l);

        memcpy(ids + 2 * s, b.ids, 2 * sizeof(*ids));
    }
}

/* F02: 20 samples, batch 2, 3 epochs; a loader created at step 14, or at 11, goes on with the same
 * ids. */
Test(loader, position_is_the_step)
{
    struct tri_dataset *ds = image_set(20);
    struct tri_loader_cfg cfg = config(ds, 2, 2, 0, 1);
    int64_t straight[60], again[60];
    const int64_t stops[] = {13, 10, 1};
    struct tri_loader *l;

    cr_assert_eq(tri_io_start(), TRI_OK);
    cfg.last_step = 30;
    cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK);
    record(l, 30, straight);
    tri_loader_destroy(l);
    for (int epoch = 0; epoch < 3; epoch++) {
        uint32_t seen = 0;

        for (int i = 0; i < 20; i++)
            seen |= UINT32_C(1) << straight[20 * epoch + i];
        cr_assert_eq(seen, (UINT32_C(1) << 20) - 1);
    }
    cr_assert_neq(memcmp(straight, straight + 20, 20 * sizeof(int64_t)), 0);
    for (int i = 0; i < 3; i++) {
        cfg.depth = i;
        cfg.first_step = 1;
        cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK);
        record(l, stops[i], again);
        tri_loader_destroy(l); /* with batches in flight */
        cfg.first_step = stops[i] + 1;
        cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK);
        record(l, 30 - stops[i], again + 2 * stops[i]);
        tri_loader_destroy(l);
        cr_assert_arr_eq(again, straight, sizeof(straight));
    }
    tri_dataset_close(ds);
    tri_io_stop();
}

/* The shares of the ranks together are the whole batch, in the order of the grains. */
Test(loader, ranks_share_a_batch)
{
    struct tri_dataset *ds = image_set(21);
    struct tri_loader_cfg whole = config(ds, 8, 2, 0, 4), half = config(ds, 8, 2, 2, 2);
    struct tri_loader *a, *b;

    cr_assert_eq(tri_loader_create(&whole, &a), TRI_OK);
    cr_assert_eq(tri_loader_create(&half, &b), TRI_OK);
    for (int step = 1; step <= 6; step++) {
        struct tri_batch x = next_or_fail(a), y = next_or_fail(b);

        cr_assert_arr_eq((const char *)x.x + 2 * tri_loader_x_bytes(a), y.x,
                         2 * tri_loader_x_bytes(b));
        cr_assert_arr_eq((const char *)x.y + 2 * tri_loader_y_bytes(a), y.y,
                         2 * tri_loader_y_bytes(b));
        cr_assert_arr_eq(x.nreal + 2, y.nreal, 2 * sizeof(int32_t));
    }
    tri_loader_destroy(a);
    tri_loader_destroy(b);
    tri_dataset_close(ds);
}

Test(loader, tokens_in_file_order_for_evaluation)
{
    const char *path = temp_path("tok.h5");
    hid_t f = new_file(path);
    struct tri_dataset *ds;
    struct tri_loader_cfg cfg;
    struct tri_loader *l;

    put_ramp(f, "train/tokens", H5T_STD_U16BE, 5);
    put_ramp(f, "validation/tokens", H5T_STD_U16BE,
             23); /* 22 targets: samples of 4, 4, 4, 4, 4, 2 */
    H5Fclose(f);
    ds = open_or_fail(path, 4);
    cfg = config(ds, 4, 4, 0, 1);
    cfg.split = TRI_SPLIT_VALIDATION;
    cfg.sampler.samples = tri_dataset_info(ds)->samples[TRI_SPLIT_VALIDATION];
    cfg.sampler.shuffle = false;
    cfg.last_step = tri_sampler_steps_per_epoch(&cfg.sampler);
    cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK);
    for (int pass = 0; pass < 2; pass++) {
        struct tri_batch b = next_or_fail(l);
        const int32_t *x = b.x, *y = b.y;

        for (int i = 0; i < 16; i++)
            cr_assert(x[i] == i && y[i] == i + 1);
        cr_assert(b.targets == 16 && b.global_tokens == 16);
        b = next_or_fail(l);
        x = b.x;
        y = b.y;
        cr_assert_eq(b.samples, 2);
        cr_assert(b.targets == 6 && b.global_tokens == 6);
        for (int i = 0; i < 16; i++)
            cr_assert(x[i] == (i < 6 ? 16 + i : 0) && y[i] == (i < 6 ? 17 + i : -100));
        tri_loader_seek(l, 1, cfg.last_step);
    }
    tri_loader_destroy(l);
    tri_dataset_close(ds);
}

Test(loader, augmentation_depends_on_epoch_and_id_only)
{
    struct tri_dataset *ds = image_set(9);
    struct tri_loader_cfg one = config(ds, 3, 3, 0, 1), many = config(ds, 3, 1, 1, 2);
    struct tri_loader *a, *b;
    int changed = 0;

    one.augment = many.augment = true;
    cr_assert_eq(tri_loader_create(&one, &a), TRI_OK);
    cr_assert_eq(tri_loader_create(&many, &b), TRI_OK);
    for (int step = 1; step <= 6; step++) {
        struct tri_batch x = next_or_fail(a), y = next_or_fail(b);
        const float *px = x.x;

        cr_assert_arr_eq((const char *)x.x + 64, y.x, 128);
        for (int i = 0; i < 48; i++)
            changed += px[i] != ((float)x.ids[i / 16] / 255.0f - 0.5f) / 0.25f;
    }
    cr_assert_gt(changed, 0);
    tri_loader_destroy(a);
    tri_loader_destroy(b);
    tri_dataset_close(ds);
}

Test(loader, regression_targets)
{
    const char *path = temp_path("xy.h5");
    hid_t f = new_file(path);
    double x[6] = {1, 2, 3, 4, 5, 6}, y[3] = {10, 20, 30};
    hsize_t dims[2] = {3, 2};
    struct tri_dataset *ds;
    struct tri_loader_cfg cfg;
    struct tri_loader *l;
    struct tri_batch b;
    const float want_x[8] = {1, 2, 3, 4, 5, 6, 0, 0}, want_y[4] = {10, 20, 30, 0};

    put_array(f, "train/x", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, 2, dims, x, 1);
    put_array(f, "train/y", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, 1, dims, y, 0);
    H5Ldelete(f, "validation", H5P_DEFAULT);
    H5Fclose(f);
    ds = open_or_fail(path, 0);
    cr_assert(!tri_dataset_info(ds)->class_targets);
    cfg = config(ds, 4, 4, 0, 1);
    cfg.sampler.shuffle = false;
    cr_assert_eq(tri_loader_create(&cfg, &l), TRI_OK);
    b = next_or_fail(l);
    cr_assert_arr_eq(b.x, want_x, sizeof(want_x));
    cr_assert_arr_eq(b.y, want_y, sizeof(want_y));
    cr_assert(b.samples == 3 && b.targets == 3 && b.nreal[0] == 3);
    tri_loader_destroy(l);
    tri_dataset_close(ds);
}

struct counting {
    int calls, total;
    char *log;
    char mark;
};

static tri_status count_calls(void *arg)
{
    struct counting *c = arg;

    c->log[strlen(c->log)] = c->mark;
    if (++c->calls < c->total)
        tri_io_again();
    return TRI_OK;
}

static tri_status fail_here(void *arg)
{
    (void)arg;
    return tri_fail(TRI_ERR_IO, "a message of the other thread");
}

static tri_status hold(void *arg)
{
    while (!atomic_load((atomic_bool *)arg))
        ;
    return TRI_OK;
}

Test(io_thread, pieces_alternate_and_failures_carry_their_message)
{
    char log[16] = "";
    struct counting a = {.total = 3, .log = log, .mark = 'a'},
                    b = {.total = 3, .log = log, .mark = 'b'};
    struct tri_io_job held = {0}, ja = {0}, jb = {0};
    atomic_bool go = false;

    cr_assert_eq(tri_io_start(), TRI_OK);
    tri_io_post(&held, hold, &go);
    tri_io_post(&ja, count_calls, &a);
    tri_io_post(&jb, count_calls, &b);
    atomic_store(&go, true);
    cr_assert_eq(tri_io_wait(&held), TRI_OK);
    cr_assert_eq(tri_io_wait(&ja), TRI_OK);
    cr_assert_eq(tri_io_wait(&jb), TRI_OK);
    cr_assert_str_eq(log, "ababab");
    tri_error_set("");
    cr_assert_eq(tri_io_call(fail_here, NULL), TRI_ERR_IO);
    cr_assert_str_eq(tri_error_text(), "a message of the other thread");
    tri_io_stop();
    cr_assert_eq(tri_io_call(fail_here, NULL), TRI_ERR_IO); /* runs here when there is no thread */
}
