/* Fixture: files written with the HDF5 C interface directly. */
#include "tests/unit/data/fixture.h"

#include "runtime/core/h5.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static void remove_folder(void)
{
    char cmd[128];
    int rc;

    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", folder);
    rc = system(cmd);
    (void)rc;
}

const char *temp_path(const char *name)
{
    static char paths[8][160];
    static int turn;
    char *p = paths[turn++ % 8];

    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "/tmp/tri_data_XXXXXX");
        cr_assert_not_null(mkdtemp(folder));
        atexit(remove_folder);
    }
    snprintf(p, sizeof(paths[0]), "%s/%s", folder, name);
    return p;
}

hid_t new_file(const char *path)
{
    hid_t f;

    tri_h5_quiet();
    f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(f, 0);
    H5Gclose(H5Gcreate2(f, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(f, "validation", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    return f;
}

void put_array(hid_t file, const char *entry, hid_t file_type, hid_t mem_type, int rank,
               const hsize_t *dims, const void *v, hsize_t chunk)
{
    hid_t space = H5Screate_simple(rank, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE), d;
    hsize_t c[8];

    if (chunk > 0) {
        for (int i = 0; i < rank; i++)
            c[i] = i == 0 ? chunk : dims[i];
        H5Pset_chunk(dcpl, rank, c);
        H5Pset_deflate(dcpl, 4);
    }
    d = H5Dcreate2(file, entry, file_type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    cr_assert_geq(d, 0);
    cr_assert_geq(H5Dwrite(d, mem_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v), 0);
    H5Dclose(d);
    H5Pclose(dcpl);
    H5Sclose(space);
}

void put_ints(hid_t file, const char *entry, hid_t file_type, int64_t n, const int64_t *v)
{
    hsize_t dim = (hsize_t)n;

    put_array(file, entry, file_type, H5T_NATIVE_INT64, 1, &dim, v, 0);
}

void put_ramp(hid_t file, const char *entry, hid_t file_type, int64_t n)
{
    int64_t *v = calloc((size_t)n + 1, sizeof(*v));

    for (int64_t i = 0; i < n; i++)
        v[i] = i % 1000;
    put_ints(file, entry, file_type, n, v);
    free(v);
}

void put_images(hid_t file, const char *split, int64_t n)
{
    uint8_t *px = calloc((size_t)n * 16 + 1, 1);
    int64_t *lab = calloc((size_t)n + 1, sizeof(*lab));
    hsize_t dims[3] = {(hsize_t)n, 4, 4};
    char entry[64];

    for (int64_t i = 0; i < n * 16; i++)
        px[i] = (uint8_t)(i / 16);
    for (int64_t i = 0; i < n; i++)
        lab[i] = i % 3;
    snprintf(entry, sizeof(entry), "%s/images", split);
    put_array(file, entry, H5T_STD_U8LE, H5T_NATIVE_UINT8, 3, dims, px, n > 2 ? 2 : 0);
    snprintf(entry, sizeof(entry), "%s/labels", split);
    put_ints(file, entry, H5T_STD_U8LE, n, lab);
    free(px);
    free(lab);
}
