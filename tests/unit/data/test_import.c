/* Importers: what they write can be read back; damaged inputs leave no output. */
#include "data/dataset.h"
#include "data/import.h"
#include "data/tokenizer.h"
#include "runtime/core/memory.h"
#include "tests/unit/data/fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    cr_assert_not_null(f);
    cr_assert_eq(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static struct tri_dataset *open_or_fail(const char *path, int64_t T)
{
    struct tri_dataset_cfg cfg = {.paths = &path, .npaths = 1, .sequence = T};
    struct tri_dataset *ds = NULL;

    cr_assert_eq(tri_dataset_open(&cfg, &ds), TRI_OK, "%s", tri_error_text());
    return ds;
}

static void expect_info(const char *path, const char *line)
{
    struct tri_text t = {0};

    cr_assert_eq(tri_data_info(path, &t), TRI_OK, "%s", tri_error_text());
    cr_assert_not_null(strstr(t.data, line), "no '%s' in:\n%s", line, t.data);
    tri_text_finish(&t);
}

Test(import, text_as_bytes)
{
    const char *a = temp_path("a.txt"), *b = temp_path("b.txt"), *out = temp_path("out.h5");
    const char *files[2] = {a, b};
    struct tri_import_text args = {.files = files, .nfiles = 2, .validation = 0.2, .out = out};
    struct tri_text report = {0};
    struct tri_dataset *ds;
    int32_t x[7], y[7];

    write_file(a, "hello", 5);
    write_file(b, "world", 5);
    cr_assert_eq(tri_import_text(&args, &report), TRI_OK, "%s", tri_error_text());
    ds = open_or_fail(out, 7);
    cr_assert_eq(tri_dataset_info(ds)->rows[0], 8);
    cr_assert_eq(tri_dataset_info(ds)->rows[1], 2);
    cr_assert_eq(tri_dataset_info(ds)->vocab, 256);
    cr_assert_str_eq(tri_dataset_info(ds)->tokenizer, "byte");
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 1, x, y), TRI_OK);
    for (int i = 0; i < 7; i++)
        cr_assert(x[i] == "hellowor"[i] && y[i] == "hellowor"[i + 1]);
    tri_dataset_close(ds);
    expect_info(out, "uint8 [8] contiguous");
    args.nfiles = 1;
    files[0] = temp_path("none.txt");
    cr_assert_eq(tri_import_text(&args, &report), TRI_ERR_DATA);
    ds = open_or_fail(out, 7); /* the old output is still there */
    tri_dataset_close(ds);
    tri_text_finish(&report);
}

Test(import, text_with_merges)
{
    const char *in = temp_path("in.txt"), *out = temp_path("bpe.h5");
    struct tri_import_text args = {.files = &in, .nfiles = 1, .bpe_vocab = 300, .out = out};
    struct tri_text report = {0};
    struct tri_tokenizer *t;
    struct tri_token_list l = {0};
    struct tri_dataset *ds;
    char text[4000];
    int32_t x[64], y[64];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "she sells sea shells by the sea shore. "[i % 39];
    write_file(in, text, sizeof(text));
    cr_assert_eq(tri_import_text(&args, &report), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_tokenizer_open(out, &t), TRI_OK, "%s", tri_error_text());
    cr_assert_eq(tri_tokenizer_encode(t, (const uint8_t *)text, sizeof(text), &l), TRI_OK);
    ds = open_or_fail(out, 64);
    cr_assert_eq(tri_dataset_info(ds)->vocab, tri_tokenizer_vocab(t));
    cr_assert_eq(tri_dataset_info(ds)->rows[0], l.count);
    cr_assert_lt(l.count, 1200);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 1, x, y), TRI_OK);
    cr_assert_arr_eq(x, l.ids, sizeof(x));
    expect_info(out, "merges");
    tri_dataset_close(ds);
    tri_tokenizer_destroy(t);
    tri_free(l.ids);
    tri_text_finish(&report);
}

static const uint8_t idx_images[] = {0, 0, 8, 3, 0, 0, 0, 2,   0,   0,
                                     0, 1, 0, 0, 0, 2, 0, 255, 255, 0};
static const uint8_t idx_labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 1};

Test(import, idx_plain_and_compressed)
{
    const char *images = temp_path("i"), *labels = temp_path("l.gz"), *out = temp_path("idx.h5");
    struct tri_import_idx args = {
        .images = {images, images}, .labels = {labels, labels}, .out = out};
    struct tri_text report = {0};
    struct tri_dataset *ds;
    uint8_t x[4];
    int32_t y[2];
    gzFile gz = gzopen(labels, "wb");

    write_file(images, idx_images, sizeof(idx_images));
    gzwrite(gz, idx_labels, sizeof(idx_labels));
    gzclose(gz);
    cr_assert_eq(tri_import_idx(&args, &report), TRI_OK, "%s", tri_error_text());
    ds = open_or_fail(out, 0);
    cr_assert_eq(tri_dataset_info(ds)->classes, 4);
    cr_assert_float_eq(tri_dataset_info(ds)->mean[0], 0.5f, 1e-7f);
    cr_assert_float_eq(tri_dataset_info(ds)->scale[0], 0.5f, 1e-7f);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_VALIDATION, 0, 2, x, y), TRI_OK);
    cr_assert(x[0] == 0 && x[1] == 255 && x[2] == 255 && x[3] == 0 && y[0] == 3 && y[1] == 1);
    tri_dataset_close(ds);
    tri_text_finish(&report);
}

Test(import, damaged_idx_leaves_no_output)
{
    const char *images = temp_path("i"), *labels = temp_path("l"), *out = temp_path("no.h5");
    struct tri_import_idx args = {.images = {images}, .labels = {labels}, .out = out};
    struct tri_text report = {0};

    write_file(labels, idx_labels, sizeof(idx_labels));
    write_file(images, idx_images, sizeof(idx_images) - 1);
    cr_assert_eq(tri_import_idx(&args, &report), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), "too early"), "%s", tri_error_text());
    write_file(images, "\x1f\x8b garbage after a gzip header", 28);
    cr_assert_eq(tri_import_idx(&args, &report), TRI_ERR_DATA);
    write_file(images, idx_labels, sizeof(idx_labels));
    cr_assert_eq(tri_import_idx(&args, &report), TRI_ERR_DATA);
    cr_assert_not_null(strstr(tri_error_text(), "must be an idx file"), "%s", tri_error_text());
    cr_assert_neq(access(out, F_OK), 0);
    args.labels[0] = NULL;
    cr_assert_eq(tri_import_idx(&args, &report), TRI_ERR_USAGE);
    tri_text_finish(&report);
}

/* A version 1 file with the given dictionary and elements. */
static void write_npy(const char *path, const char *dict, const void *data, size_t bytes)
{
    uint8_t buf[512] = "\x93NUMPY\x01";
    size_t n = strlen(dict);

    buf[8] = (uint8_t)n;
    memcpy(buf + 10, dict, n);
    memcpy(buf + 10 + n, data, bytes);
    write_file(path, buf, 10 + n + bytes);
}

Test(import, npy_floats_and_images)
{
    const char *x = temp_path("x.npy"), *y = temp_path("y.npy"), *out = temp_path("npy.h5");
    struct tri_import_npy args = {.x = {x}, .y = {y}, .out = out};
    const uint16_t half[4] = {0x3c00, 0xc000, 0x3800, 0x7c00}; /* 1, -2, 0.5, inf */
    const uint8_t be[16] = {0, 0, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x9c};
    const uint8_t px[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tri_text report = {0};
    struct tri_dataset *ds;
    float fx[8];
    uint8_t bytes[8];
    int32_t lab[2];

    write_npy(x, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }", half, 8);
    write_npy(y, "{'descr': '>i8', 'fortran_order': False, 'shape': (2,), }", be, 16);
    cr_assert_eq(tri_import_npy(&args, &report), TRI_OK, "%s", tri_error_text());
    ds = open_or_fail(out, 0);
    cr_assert_eq(tri_dataset_info(ds)->kind, TRI_DATA_XY);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 2, fx, lab), TRI_OK);
    cr_assert(fx[0] == 1 && fx[1] == -2 && fx[2] == 0.5f && fx[3] > 1e38f);
    cr_assert(lab[0] == 2 && lab[1] == -100);
    tri_dataset_close(ds);
    write_npy(x, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2), }", px, 8);
    cr_assert_eq(tri_import_npy(&args, &report), TRI_OK, "%s", tri_error_text());
    ds = open_or_fail(out, 0);
    cr_assert_eq(tri_dataset_info(ds)->kind, TRI_DATA_IMAGES);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 2, bytes, lab), TRI_OK);
    cr_assert_arr_eq(bytes, px, 8);
    tri_dataset_close(ds);
    write_npy(x, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }", px, 8);
    cr_assert_eq(tri_import_npy(&args, &report), TRI_OK, "%s", tri_error_text());
    ds = open_or_fail(out, 0);
    cr_assert_eq(tri_dataset_read(ds, TRI_SPLIT_TRAIN, 0, 2, fx, lab), TRI_OK);
    cr_assert(fx[0] == 513 && fx[3] == 2055);
    tri_dataset_close(ds);
    tri_text_finish(&report);
}

Test(import, wrong_npy_is_refused)
{
    const char *x = temp_path("x.npy"), *y = temp_path("y.npy"), *out = temp_path("npy.h5");
    struct tri_import_npy args = {.x = {x}, .y = {y}, .out = out};
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 99999999999999999999), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }",
        "{",
    };
    const float v[4] = {1, 2, 3, 4};
    struct tri_text report = {0};

    write_npy(y, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", v, 8);
    for (size_t i = 0; i < sizeof(dicts) / sizeof(dicts[0]); i++) {
        write_npy(x, dicts[i], v, 16);
        cr_assert_eq(tri_import_npy(&args, &report), TRI_ERR_DATA, "case %zu", i);
    }
    cr_assert_neq(access(out, F_OK), 0);
    tri_text_finish(&report);
}
