/* Small HDF5 files for the tests of data/, in a temporary folder that is removed at the end of the
 * test's process. */
#ifndef TESTS_UNIT_DATA_FIXTURE_H
#define TESTS_UNIT_DATA_FIXTURE_H

#include <hdf5.h>
#include <stdint.h>

/* Path of `name` in the temporary folder of this process (static memory, good for 8 calls). */
const char *temp_path(const char *name);

/* Creates a file with the groups train and validation. */
hid_t new_file(const char *path);
/* Writes a dataset of file type `file_type` from values of memory type `mem_type`; chunk > 0:
 * chunked by rows, with gzip. */
void put_array(hid_t file, const char *entry, hid_t file_type, hid_t mem_type, int rank,
               const hsize_t *dims, const void *v, hsize_t chunk);
void put_ints(hid_t file, const char *entry, hid_t file_type, int64_t n, const int64_t *v);
/* Tokens 0, 1, ..., n - 1 (mod 1000) as `file_type`. */
void put_ramp(hid_t file, const char *entry, hid_t file_type, int64_t n);
/* Images u8 [n, 4, 4] (image i filled with i) and labels i % 3. */
void put_images(hid_t file, const char *split, int64_t n);

#endif
