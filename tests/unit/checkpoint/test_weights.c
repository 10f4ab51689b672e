#include "tests/unit/checkpoint/fixture.h"

#include <criterion/criterion.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

static void write_doubles(const char *path, const char *name, int rows, int cols)
{
    hsize_t dim[2] = {(hsize_t)rows, (hsize_t)cols};
    double x[64];
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t group = H5Gcreate2(file, "param", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, dim, NULL);
    hid_t set =
        H5Dcreate2(group, name, H5T_IEEE_F64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    for (int i = 0; i < rows * cols; i++)
        x[i] = i + 0.5;
    cr_assert(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Gclose(group);
    cr_assert(H5Fclose(file) >= 0);
}

Test(weights, reads_its_own_checkpoints)
{
    struct model m;

    model_init(&m);
    cr_assert_eq(model_save(&m, 3), TRI_OK);
    model_clear(&m);
    cr_assert_eq(tri_weights_read(model_path(&m, 3, "model.h5"), m.tensor, 2), TRI_OK, "%s",
                 tri_error_text());
    struct model want;
    model_set(&want, 3);
    cr_assert_eq(memcmp(m.weight, want.weight, sizeof(m.weight)), 0);
    cr_assert_eq(memcmp(m.bias, want.bias, sizeof(m.bias)), 0);
    model_finish(&m);
}

Test(weights, converts_foreign_numbers)
{
    struct model m;
    char path[128];

    model_init(&m);
    (void)snprintf(path, sizeof(path), "%s/w.h5", m.root);
    write_doubles(path, "layers.0.weight", 5, 3);
    cr_assert_eq(tri_weights_read(path, m.tensor, 1), TRI_OK, "%s", tri_error_text());
    for (int i = 0; i < WEIGHTS; i++)
        cr_assert_eq(m.weight[i], (float)i + 0.5f);
    model_finish(&m);
}

Test(weights, missing_extra_and_other_shapes_are_named)
{
    struct model m;
    char path[128];

    model_init(&m);
    (void)snprintf(path, sizeof(path), "%s/w.h5", m.root);
    write_doubles(path, "layers.0.weight", 5, 3);
    cr_assert_eq(tri_weights_read(path, m.tensor, 2), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "layers.0.bias"), "%s", tri_error_text());
    write_doubles(path, "head.weight", 5, 3);
    cr_assert_eq(tri_weights_read(path, m.tensor, 1), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "head.weight"), "%s", tri_error_text());
    write_doubles(path, "layers.0.weight", 3, 5);
    cr_assert_eq(tri_weights_read(path, m.tensor, 1), TRI_ERR_CHECKPOINT);
    cr_assert(strstr(tri_error_text(), "[3, 5]"), "%s", tri_error_text());
    cr_assert_eq(tri_weights_read("/nonexistent.h5", m.tensor, 1), TRI_ERR_CHECKPOINT);
    model_finish(&m);
}
