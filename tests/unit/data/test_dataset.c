/* Datasets: what opens, what is refused and with which words (fault F04), locks (F03). */
#include "data/dataset.h"
#include "runtime/core/h5.h"
#include "tests/unit/data/fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static tri_status open_at(const char *path, int64_t T, struct tri_dataset **ds)
{
    struct tri_dataset_cfg cfg = {.paths = &path, .npaths = 1, .sequence = T};

    return tri_dataset_open(&cfg, ds);
}

static void expect_refused(const char *path, int64_t T, const char *word1, const char *word2)
{
    struct tri_dataset *ds = NULL;

    cr_assert_eq(open_at(path, T, &ds), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), path), "no file in: %s", tri_error_text());
    cr_assert_not_null(strstr(tri_error_text(), word1), "no '%s' in: %s", word1, tri_error_text());
    cr_assert_not_null(strstr(tri_error_text(), word2), "no '%s' in: %s", word2, tri_error_text());
}

/* One column of tokens under both splits. */
static const char *token_file(const char *name, hid_t type, int64_t n, const int64_t *v)
{
    const char *path = temp_path(name);
    hid_t f = new_file(path);

    put_ints(f, "train/tokens", type, n, v);
    put_ints(f, "validation/tokens", type, n, v);
    H5Fclose(f);
    return path;
}

Test(dataset, tokens_are_cut_into_shifted_samples)
{
    const int64_t v[] = {10, 11, 12, 13, 14, 15, 16, 17, 18};
    int32_t x[3 * 3], y[3 * 3];
    const int32_t want_x[] = {10, 11, 12, 13, 14, 15, 16, 17, 0};
    const int32_t want_y[] = {11, 12, 13, 14, 15, 16, 17, 18, -100};
    struct tri_dataset *ds;

    cr_assert_eq(open_at(token_file("t.h5", H5T_STD_U16BE, 9, v), 3, &ds), TRI_OK, "%s",
                 tri_error_text());
    cr_assert_eq(tri_dataset_info(ds)->kind, TRI_DATA_TOKENS);
    cr_assert_eq(tri_dataset_info(ds)->samples[TRI_SPLIT_TRAIN], 3); /* ceil(8 / 3) */
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 3, x, y), TRI_OK);
    cr_assert_arr_eq(x, want_x, sizeof(x));
    cr_assert_arr_eq(y, want_y, sizeof(y));
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 2, 1, x, y), TRI_OK);
    cr_assert_arr_eq(x, want_x + 6, 3 * sizeof(int32_t));
    cr_assert_eq(tri_dataset_tokens(ds, TRI_SPLIT_TRAIN, 1), 3);
    cr_assert_eq(tri_dataset_tokens(ds, TRI_SPLIT_TRAIN, 2), 2);
    tri_dataset_close(ds);
}

Test(dataset, explicit_targets_are_not_shifted)
{
    const int64_t t[] = {1, 2, 3, 4}, u[] = {5, -100, 7, 8};
    const int32_t want_x[] = {1, 2, 3, 4, 0, 0}, want_y[] = {5, -100, 7, 8, -100, -100};
    int32_t x[6], y[6];
    int64_t id, label;
    const char *path = temp_path("e.h5");
    hid_t f = new_file(path);
    struct tri_dataset *ds;

    put_ints(f, "train/tokens", H5T_STD_U8LE, 4, t);
    put_ints(f, "train/targets", H5T_STD_I64BE, 4, u);
    put_ints(f, "validation/tokens", H5T_STD_U8LE, 4, t);
    put_ints(f, "validation/targets", H5T_STD_I16BE, 4, u);
    H5Fclose(f);
    cr_assert_eq(open_at(path, 3, &ds), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_dataset_info(ds)->samples[0], 2);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 2, x, y), TRI_OK);
    cr_assert_arr_eq(x, want_x, sizeof(x));
    cr_assert_arr_eq(y, want_y, sizeof(y));
    cr_assert_eq(tri_dataset_check(ds, 0, 1, 9, 0, &id, &label), TRI_OK);
    cr_assert_eq(id, 8);
    tri_dataset_close(ds);
}

Test(dataset, files_are_concatenated)
{
    const int64_t a[] = {1, 2, 3, 4, 5}, b[] = {6, 7, 8};
    const char *paths[2] = {token_file("a.h5", H5T_STD_U8LE, 5, a),
                            token_file("b.h5", H5T_STD_I32LE, 3, b)};
    struct tri_dataset_cfg cfg = {.paths = paths, .npaths = 2, .sequence = 7};
    const int32_t want[] = {1, 2, 3, 4, 5, 6, 7}, want_y[] = {2, 3, 4, 5, 6, 7, 8};
    int32_t x[7], y[7];
    struct tri_dataset *ds;

    cr_assert_eq(tri_dataset_open(&cfg, &ds), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_dataset_info(ds)->samples[0], 1);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 1, x, y), TRI_OK);
    cr_assert_arr_eq(x, want, sizeof(x));
    cr_assert_arr_eq(y, want_y, sizeof(y));
    tri_dataset_close(ds);
}

/* F04: 16-bit storage never wraps a larger id; every wrong value is named with file, entry, row and
 * range. */
static void expect_bad_value(const char *name, hid_t type, int64_t bad, int64_t vocab,
                             const char *value)
{
    int64_t v[100] = {0}, id, label;
    struct tri_dataset *ds;
    const char *path;

    v[77] = bad;
    path = token_file(name, type, 100, v);
    cr_assert_eq(open_at(path, 10, &ds), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_dataset_check(ds, 2, 4, vocab, 0, &id, &label), TRI_OK); /* rows 50..74 */
    cr_assert_eq(tri_dataset_check(ds, 3, 4, vocab, 0, &id, &label), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), path));
    cr_assert_not_null(strstr(tri_error_text(), "'/train/tokens' row 77"), "%s", tri_error_text());
    cr_assert_not_null(strstr(tri_error_text(), value), "%s", tri_error_text());
    tri_dataset_close(ds);
}

Test(dataset, ids_out_of_range_are_named)
{
    expect_bad_value("v1.h5", H5T_STD_I32LE, 70000, 70000, "is 70000, must be 0..69999");
    expect_bad_value("v2.h5", H5T_STD_I16BE, -1, 256, "is -1, must be 0..255");
    expect_bad_value("v3.h5", H5T_STD_U16LE, 256, 256, "is 256, must be 0..255");
    expect_bad_value("v4.h5", H5T_STD_I64LE, INT64_C(1) << 40, 0, "is 1099511627776");
    expect_bad_value("v5.h5", H5T_STD_I64LE, -5, 0, "is -5, must not be negative");
}

Test(dataset, large_ids_stay_what_they_are)
{
    int64_t v[10] = {0, 65535, 69999}, id, label;
    int32_t x[9], y[9];
    struct tri_dataset *ds;

    cr_assert_eq(open_at(token_file("w.h5", H5T_STD_I64BE, 10, v), 9, &ds), TRI_OK);
    cr_assert_eq(tri_dataset_check(ds, 0, 1, 70000, 0, &id, &label), TRI_OK, "%s",
                 tri_error_text());
    cr_assert_eq(id, 69999);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 1, x, y), TRI_OK);
    cr_assert_eq(x[1], 65535);
    cr_assert_eq(x[2], 69999);
    tri_dataset_close(ds);
}

Test(dataset, labels_are_checked_and_ignore_is_accepted)
{
    int64_t lab[4] = {0, 2, -100, 1}, id, label;
    hsize_t dims[3] = {4, 2, 2};
    uint8_t px[16] = {0};
    const char *path = temp_path("l.h5");
    hid_t f = new_file(path);
    struct tri_dataset *ds;

    put_array(f, "train/images", H5T_STD_U8BE, H5T_NATIVE_UINT8, 3, dims, px, 2);
    put_ints(f, "train/labels", H5T_STD_I16BE, 4, lab);
    put_images(f, "validation", 0);
    H5Fclose(f);
    expect_refused(path, 0, "/validation/images", "differ in shape");
    f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(f, "validation", H5P_DEFAULT);
    H5Fclose(f);
    cr_assert_eq(open_at(path, 0, &ds), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_dataset_info(ds)->x_rank, 3);
    cr_assert_eq(tri_dataset_info(ds)->x_shape[2], 1);
    cr_assert_eq(tri_dataset_check(ds, 0, 1, 0, 3, &id, &label), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(label, 2);
    cr_assert_eq(tri_dataset_check(ds, 0, 1, 0, 2, &id, &label), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), "'/train/labels' row 1 is 2, must be 0..1 or -100"),
                       "%s", tri_error_text());
    tri_dataset_close(ds);
}

Test(dataset, wrong_entries_are_refused)
{
    const char *path = temp_path("bad.h5");
    const float fl[12] = {0};
    hsize_t dims[3] = {2, 3, 2};
    hid_t f = new_file(path);

    H5Fclose(f);
    expect_refused(path, 4, "'/train'", "no entry 'tokens'");
    f = new_file(path);
    put_array(f, "train/tokens", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, dims, fl, 0);
    H5Fclose(f);
    expect_refused(path, 4, "'/train/tokens' must be integers [N]", "is float32 [2]");
    f = new_file(path);
    put_array(f, "train/tokens", H5T_STD_I32LE, H5T_NATIVE_FLOAT, 3, dims, fl, 0);
    H5Fclose(f);
    expect_refused(path, 4, "must be integers [N]", "is int32 [2, 3, 2]");
    f = new_file(path);
    put_images(f, "train", 5);
    H5Ldelete(f, "train/labels", H5P_DEFAULT);
    H5Fclose(f);
    expect_refused(path, 4, "no entry 'labels'", "/train");
    f = new_file(path);
    put_images(f, "train", 5);
    H5Ldelete(f, "train/labels", H5P_DEFAULT);
    put_ramp(f, "train/labels", H5T_STD_I32LE, 4);
    H5Fclose(f);
    expect_refused(path, 4, "'/train/images' has 5 rows", "'/train/labels' has 4");
}

Test(dataset, files_that_are_no_datasets_are_refused)
{
    const char *path = temp_path("cut.h5");
    hid_t f = new_file(path);
    struct stat sb;
    FILE *text;

    put_ramp(f, "train/tokens", H5T_STD_I64LE, 5000);
    put_ramp(f, "validation/tokens", H5T_STD_I64LE, 5000);
    H5Fclose(f);
    cr_assert_eq(stat(path, &sb), 0);
    cr_assert_eq(truncate(path, sb.st_size - 1024), 0);
    expect_refused(path, 4, "truncated file", "cannot open");
    text = fopen(path, "w");
    fputs("not an HDF5 file", text);
    fclose(text);
    expect_refused(path, 4, "cannot open", "signature");
    unlink(path);
    expect_refused(path, 4, "cannot open", "No such file");
}

Test(dataset, empty_splits_and_attributes)
{
    const char *path = temp_path("m.h5");
    struct tri_dataset_cfg cfg = {
        .paths = &path, .npaths = 1, .sequence = 4, .need = {true, false}};
    struct tri_dataset *ds;
    const double two[2] = {0.5, 0.25}, zero = 0;
    const int64_t vocab = 300;
    hid_t f = new_file(path);

    put_ramp(f, "train/tokens", H5T_STD_U8LE, 1); /* one token has no target: 0 samples */
    put_ramp(f, "validation/tokens", H5T_STD_U8LE, 9);
    tri_status st = tri_h5_put_i64(f, path, "vocab", -1, &vocab);
    cr_assert_eq(st, TRI_OK);
    H5Fclose(f);
    cr_assert_eq(tri_dataset_open(&cfg, &ds), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), "no samples in '/train'"), "%s", tri_error_text());
    cfg.need[0] = false;
    cr_assert_eq(tri_dataset_open(&cfg, &ds), TRI_OK);
    cr_assert_eq(tri_dataset_info(ds)->vocab, 300);
    tri_dataset_close(ds);
    f = new_file(path);
    put_images(f, "train", 4);
    put_images(f, "validation", 4);
    cr_assert_eq(tri_h5_put_f64(f, path, "mean", 2, two), TRI_OK);
    H5Fclose(f);
    expect_refused(path, 0, "'mean' has 2 values", "1 channels");
    f = new_file(path);
    put_images(f, "train", 4);
    put_images(f, "validation", 4);
    cr_assert_eq(tri_h5_put_f64(f, path, "scale", -1, &zero), TRI_OK);
    H5Fclose(f);
    expect_refused(path, 0, "'scale' is 0", "positive");
}

/* F03 b: another process holds an exclusive lock. */
Test(dataset, a_refused_lock_does_not_matter)
{
    const int64_t v[] = {1, 2, 3, 4};
    const char *path = token_file("lock.h5", H5T_STD_U8LE, 4, v);
    struct tri_dataset *ds;
    int ready[2], end[2], fd;
    char c;
    pid_t pid;

    cr_assert_eq(pipe(ready), 0);
    cr_assert_eq(pipe(end), 0);
    pid = fork();
    if (pid == 0) {
        fd = open(path, O_RDWR);
        if (flock(fd, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        close(end[1]);
        _exit(read(end[0], &c, 1) != 0);
    }
    cr_assert_eq(read(ready[0], &c, 1), 1);
    cr_assert_eq(open_at(path, 2, &ds), TRI_OK, "%s", tri_error_text());
    tri_dataset_close(ds);
    close(end[1]);
    waitpid(pid, NULL, 0);
}
