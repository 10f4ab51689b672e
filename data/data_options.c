/* The rows of section data. */
#include "data/data_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_data_options, field)
const struct tri_opt tri_data_rows[] = {
    {"data.path", TRI_OPT_STRINGS, AT(path), "null", NULL,
     "HDF5 file of the dataset, or a list of files whose samples follow one another", NULL},
    {"data.batch", TRI_OPT_INT, AT(batch), "32", "[1, 1e12]",
     "samples of a step, over all ranks and grains", NULL},
    {"data.grain", TRI_OPT_INT_AUTO, AT(grain), "auto", "[1, 1e12]",
     "samples of a grain, the unit of computation; auto is batch / data ranks, when deterministic "
     "batch / gcd(batch, 8)",
     NULL},
    {"data.sequence", TRI_OPT_INT_AUTO, AT(sequence), "auto", "[1, 1e9]",
     "tokens of a sample of text; auto takes the model's context", NULL},
    {"data.shuffle", TRI_OPT_BOOL, AT(shuffle), "true", NULL,
     "a new random order of the samples every epoch; false keeps the order of the file", NULL},
    {"data.augment", TRI_OPT_BOOL, AT(augment), "false", NULL,
     "images in training are shifted by up to 4 pixels (padded with zeros) and half of them "
     "mirrored",
     NULL},
    {"data.workers", TRI_OPT_INT, AT(workers), "1", "[0, 64]",
     "batches that are prepared ahead; 0 prepares each when it is needed", NULL},
};
const size_t tri_data_row_count = sizeof(tri_data_rows) / sizeof(tri_data_rows[0]);
#undef AT

tri_status tri_data_options_check(const struct tri_data_options *data)
{
    for (size_t i = 0; i < data->path.count; i++) {
        if (data->path.v[i][0] == '\0')
            return tri_fail(TRI_ERR_USAGE, "'data.path' must not hold an empty path");
    }
    if (data->grain != TRI_OPT_AUTO && data->batch % data->grain != 0)
        return tri_fail(TRI_ERR_USAGE, "'data.batch' %lld is not divisible by 'data.grain' %lld",
                        (long long)data->batch, (long long)data->grain);
    return TRI_OK;
}
