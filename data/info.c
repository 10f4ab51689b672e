/* Report on a dataset file. */
#include "data/import.h"

#include "data/dataset_priv.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"

#include <stdio.h>
#include <string.h>

struct reporting {
    const char *path;
    const struct tri_dataset_info *info;
    struct tri_text *out;
};

static const char *kind_text(const struct tri_dataset_info *in)
{
    switch (in->kind) {
    case TRI_DATA_TOKENS:
        return in->explicit_targets ? "tokens and targets" : "tokens";
    case TRI_DATA_IMAGES:
        return "images and labels";
    case TRI_DATA_XY:
        return in->class_targets ? "x and labels y" : "x and y";
    }
    return "unknown";
}

static void report_channels(struct reporting *r, const char *name, const float *v)
{
    int channels = (int)r->info->x_shape[2];

    tri_text_printf(r->out, "%-14s", name);
    for (int c = 0; c < channels; c++)
        tri_text_printf(r->out, "%s%.9g", c == 0 ? "" : ", ", (double)v[c]);
    tri_text_printf(r->out, "\n");
}

static void report_general(struct reporting *r)
{
    const struct tri_dataset_info *in = r->info;
    const char *unit = in->kind == TRI_DATA_TOKENS ? "tokens" : "samples";

    tri_text_printf(r->out, "%-14s%s\n%-14s%s\n", "file", r->path, "kind", kind_text(in));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++)
        tri_text_printf(r->out, "%-14s%lld %s\n", tri_split_names[s], (long long)in->rows[s], unit);
    if (in->vocab > 0)
        tri_text_printf(r->out, "%-14s%lld\n", "vocab", (long long)in->vocab);
    if (in->classes > 0)
        tri_text_printf(r->out, "%-14s%lld\n", "classes", (long long)in->classes);
    if (in->tokenizer[0] != '\0')
        tri_text_printf(r->out, "%-14s%s\n", "tokenizer", in->tokenizer);
    if (in->kind == TRI_DATA_IMAGES) {
        report_channels(r, "mean", in->mean);
        report_channels(r, "scale", in->scale);
    }
}

/* " chunks [64, 28, 28] deflate": how the entry is laid out. */
static void report_layout(struct reporting *r, hid_t d)
{
    hid_t dcpl = H5Dget_create_plist(d);
    hsize_t dims[H5S_MAX_RANK];

    if (H5Pget_layout(dcpl) == H5D_CHUNKED) {
        int rank = H5Pget_chunk(dcpl, H5S_MAX_RANK, dims);

        for (int i = 0; i < rank; i++)
            tri_text_printf(r->out, "%s%llu", i == 0 ? " chunks [" : ", ",
                            (unsigned long long)dims[i]);
        tri_text_printf(r->out, "]");
    } else {
        tri_text_printf(r->out, " contiguous");
    }
    for (int i = 0; i < H5Pget_nfilters(dcpl); i++) {
        char name[64] = "";
        size_t nvalues = 0;
        unsigned flags, config;

        H5Pget_filter2(dcpl, (unsigned)i, &flags, &nvalues, NULL, sizeof(name), name, &config);
        tri_text_printf(r->out, " %s", name);
    }
    H5Pclose(dcpl);
}

static void report_entry(struct reporting *r, hid_t file, const char *entry)
{
    char type_text[64], space_text[256];
    hid_t d, type, space;

    if (!tri_h5_exists(file, entry))
        return;
    d = H5Dopen2(file, entry, H5P_DEFAULT);
    if (d < 0)
        return;
    type = H5Dget_type(d);
    space = H5Dget_space(d);
    tri_text_printf(r->out, "%-20s %s %s", entry,
                    tri_h5_type_text(type, type_text, sizeof(type_text)),
                    tri_h5_space_text(space, space_text, sizeof(space_text)));
    report_layout(r, d);
    tri_text_printf(r->out, "\n");
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(d);
}

static tri_status report_entries(void *arg)
{
    static const char *const entries[] = {"train/tokens",
                                          "train/targets",
                                          "train/images",
                                          "train/labels",
                                          "train/x",
                                          "train/y",
                                          "validation/tokens",
                                          "validation/targets",
                                          "validation/images",
                                          "validation/labels",
                                          "validation/x",
                                          "validation/y",
                                          "merges"};
    struct reporting *r = arg;
    hid_t file;

    TRI_TRY(tri_h5_open(r->path, TRI_ERR_DATA, &file));
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        report_entry(r, file, entries[i]);
    H5Fclose(file);
    return TRI_OK;
}

tri_status tri_data_info(const char *path, struct tri_text *report)
{
    struct tri_dataset_cfg cfg = {.paths = &path, .npaths = 1, .sequence = 1};
    struct reporting r = {.path = path, .out = report};
    int64_t max_id, max_label;
    struct tri_dataset *ds;
    tri_status st;

    TRI_TRY(tri_dataset_open(&cfg, &ds));
    r.info = tri_dataset_info(ds);
    report_general(&r);
    TRI_TRY_GOTO(st, tri_io_call(report_entries, &r), close);
    TRI_TRY_GOTO(st,
                 tri_dataset_check(ds, 0, 1, r.info->vocab, r.info->classes, &max_id, &max_label),
                 close);
    if (max_id >= 0)
        tri_text_printf(report, "%-14s%lld\n", "largest id", (long long)max_id);
    if (max_label >= 0)
        tri_text_printf(report, "%-14s%lld\n", "largest label", (long long)max_label);

close:
    tri_dataset_close(ds);
    return st;
}
