/* Opening a dataset: which entries the files have, whether they fit together, what the attributes
 * say. */
#include "data/dataset_priv.h"

#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const tri_split_names[TRI_SPLIT_COUNT] = {"train", "validation"};

/* The entries of each kind; y is optional for tokens. */
static const struct kind_row {
    const char *x, *y;
    enum tri_column_want want_x, want_y;
    bool y_optional;
} kinds[] = {
    [TRI_DATA_TOKENS] = {"tokens", "targets", TRI_WANT_INTEGERS, TRI_WANT_INTEGERS, true},
    [TRI_DATA_IMAGES] = {"images", "labels", TRI_WANT_BYTES, TRI_WANT_INTEGERS, false},
    [TRI_DATA_XY] = {"x", "y", TRI_WANT_FLOATS, TRI_WANT_NUMBERS, false},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

struct opening {
    const struct tri_dataset_cfg *cfg;
    struct tri_dataset *ds;
    bool have_kind; /* info.kind is decided */
};

static bool has_entry(hid_t file, const char *split, const char *name)
{
    char path[48];

    snprintf(path, sizeof(path), "%s/%s", split, name);
    return tri_h5_exists(file, path);
}

/* The kind of one group, which must be that of all others. */
static tri_status find_kind(struct opening *o, hid_t file, const char *path, const char *split)
{
    int found = -1;

    for (int k = 0; k < KINDS; k++) {
        if (!has_entry(file, split, kinds[k].x))
            continue;
        if (found >= 0)
            return tri_fail(TRI_ERR_DATA,
                            "'%s': group '/%s' has both '%s' and '%s', must have one of them", path,
                            split, kinds[found].x, kinds[k].x);
        found = k;
    }
    if (found < 0)
        return tri_fail(TRI_ERR_DATA, "'%s': group '/%s' has no entry 'tokens', 'images' or 'x'",
                        path, split);
    if (o->have_kind && (enum tri_data_kind)found != o->ds->info.kind)
        return tri_fail(TRI_ERR_DATA, "'%s': group '/%s' holds '%s', the data before it '%s'", path,
                        split, kinds[found].x, kinds[o->ds->info.kind].x);
    o->ds->info.kind = (enum tri_data_kind)found;
    o->have_kind = true;
    return TRI_OK;
}

static tri_status equal_lengths(const struct tri_split_columns *c, const char *path)
{
    int64_t nx = c->x.parts[c->x.nparts - 1].rows, ny = c->y.parts[c->y.nparts - 1].rows;

    if (nx != ny)
        return tri_fail(TRI_ERR_DATA, "'%s': '%s' has %lld rows, '%s' has %lld, must be equal",
                        path, c->x.entry, (long long)nx, c->y.entry, (long long)ny);
    return TRI_OK;
}

/* Adds the columns of one split of one file. */
static tri_status add_split(struct opening *o, enum tri_split s, hid_t file, const char *path)
{
    struct tri_split_columns *c = &o->ds->split[s];
    const char *split = tri_split_names[s];
    const struct kind_row *k;
    bool has_y, first = o->ds->split[0].x.nparts + o->ds->split[1].x.nparts == 0;
    char entry[40];

    TRI_TRY(find_kind(o, file, path, split));
    k = &kinds[o->ds->info.kind];
    has_y = has_entry(file, split, k->y);
    if (!has_y && !k->y_optional)
        return tri_fail(TRI_ERR_DATA, "'%s': group '/%s' has '%s' but no entry '%s'", path, split,
                        k->x, k->y);
    if (k->y_optional && first)
        o->ds->info.explicit_targets = has_y;
    if (k->y_optional && has_y != o->ds->info.explicit_targets)
        return tri_fail(TRI_ERR_DATA, "'%s': group '/%s' has %s '%s', unlike the data before it",
                        path, split, has_y ? "an entry" : "no entry", k->y);
    snprintf(entry, sizeof(entry), "/%s/%s", split, k->x);
    TRI_TRY(tri_column_add(&c->x, k->want_x, path, file, entry));
    if (!has_y)
        return TRI_OK;
    snprintf(entry, sizeof(entry), "/%s/%s", split, k->y);
    TRI_TRY(tri_column_add(&c->y, k->want_y, path, file, entry));
    return equal_lengths(c, path);
}

/* One positive integer attribute; files that state it must agree. */
static tri_status merge_count(hid_t file, const char *path, const char *name, int64_t *v)
{
    int64_t x;
    int n;

    TRI_TRY(tri_h5_attr_i64(file, path, name, 1, &x, &n));
    if (n == 0)
        return TRI_OK;
    if (x < 1 || x > INT32_MAX)
        return tri_fail(TRI_ERR_DATA, "'%s': attribute '%s' is %lld, must be 1..%d", path, name,
                        (long long)x, INT32_MAX);
    if (*v != 0 && *v != x)
        return tri_fail(TRI_ERR_DATA, "'%s': attribute '%s' is %lld, in the file before it %lld",
                        path, name, (long long)x, (long long)*v);
    *v = x;
    return TRI_OK;
}

/* A tokenizer implies the vocabulary where the file does not state one. */
static tri_status merge_tokenizer(struct opening *o, hid_t file, const char *path)
{
    struct tri_dataset_info *in = &o->ds->info;
    char name[sizeof(in->tokenizer)];

    TRI_TRY(tri_h5_attr_string(file, path, "tokenizer", name, sizeof(name)));
    if (name[0] == '\0')
        return TRI_OK;
    if (strcmp(name, "byte") != 0 && strcmp(name, "bpe") != 0)
        return tri_fail(TRI_ERR_DATA,
                        "'%s': attribute 'tokenizer' is '%s', must be 'byte' or 'bpe'", path, name);
    if (in->tokenizer[0] != '\0' && strcmp(in->tokenizer, name) != 0)
        return tri_fail(TRI_ERR_DATA,
                        "'%s': attribute 'tokenizer' is '%s', in the file before it '%s'", path,
                        name, in->tokenizer);
    snprintf(in->tokenizer, sizeof(in->tokenizer), "%s", name);
    if (in->vocab == 0 && strcmp(name, "byte") == 0)
        in->vocab = 256;
    if (in->vocab == 0 && tri_h5_exists(file, "merges")) {
        hid_t d = H5Dopen2(file, "merges", H5P_DEFAULT), space = H5Dget_space(d);

        in->vocab = 256 + H5Sget_simple_extent_npoints(space) / 2;
        H5Sclose(space);
        H5Dclose(d);
    }
    return TRI_OK;
}

/* mean or scale: a scalar or one value a channel, spread over the channels. */
static tri_status read_channels(hid_t file, const char *path, const char *name, int channels,
                                float unset, bool positive, float *out)
{
    double v[TRI_DATA_MAX_CHANNELS];
    int n;

    TRI_TRY(tri_h5_attr_f64(file, path, name, TRI_DATA_MAX_CHANNELS, v, &n));
    if (n > 1 && n != channels)
        return tri_fail(TRI_ERR_DATA, "'%s': attribute '%s' has %d values, images have %d channels",
                        path, name, n, channels);
    for (int c = 0; c < channels; c++) {
        double x = n == 0 ? (double)unset : v[n == 1 ? 0 : c];

        if (!isfinite(x) || (positive && !(x > 0)))
            return tri_fail(TRI_ERR_DATA, "'%s': attribute '%s' is %g, must be %s", path, name, x,
                            positive ? "a positive number" : "a finite number");
        out[c] = (float)x;
    }
    return TRI_OK;
}

static tri_status merge_channels(struct opening *o, hid_t file, const char *path, bool first)
{
    struct tri_dataset_info *in = &o->ds->info;
    const struct tri_column *x = &o->ds->split[o->ds->split[0].x.nparts > 0 ? 0 : 1].x;
    int channels = x->rank == 3 ? (int)x->shape[2] : 1;
    float mean[TRI_DATA_MAX_CHANNELS], scale[TRI_DATA_MAX_CHANNELS];

    if (x->rank == 3 && x->shape[2] > TRI_DATA_MAX_CHANNELS)
        return tri_fail(TRI_ERR_DATA, "'%s': '%s' has %lld channels, at most %d are allowed", path,
                        x->entry, (long long)x->shape[2], TRI_DATA_MAX_CHANNELS);
    TRI_TRY(read_channels(file, path, "mean", channels, 0.0f, false, mean));
    TRI_TRY(read_channels(file, path, "scale", channels, 1.0f, true, scale));
    if (!first && (memcmp(mean, in->mean, sizeof(float) * (size_t)channels) != 0 ||
                   memcmp(scale, in->scale, sizeof(float) * (size_t)channels) != 0))
        return tri_fail(TRI_ERR_DATA,
                        "'%s': attributes 'mean' and 'scale' differ from the file before it", path);
    memcpy(in->mean, mean, sizeof(float) * (size_t)channels);
    memcpy(in->scale, scale, sizeof(float) * (size_t)channels);
    return TRI_OK;
}

static tri_status add_entries(struct opening *o, hid_t file, const char *path, bool first)
{
    bool any = false;

    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        if (!tri_h5_exists(file, tri_split_names[s]))
            continue;
        any = true;
        TRI_TRY(add_split(o, (enum tri_split)s, file, path));
    }
    if (!any)
        return tri_fail(TRI_ERR_DATA, "'%s': has neither a group 'train' nor a group 'validation'",
                        path);
    TRI_TRY(merge_count(file, path, "vocab", &o->ds->info.vocab));
    TRI_TRY(merge_count(file, path, "classes", &o->ds->info.classes));
    TRI_TRY(merge_tokenizer(o, file, path));
    if (o->ds->info.kind == TRI_DATA_IMAGES)
        TRI_TRY(merge_channels(o, file, path, first));
    return TRI_OK;
}

/* Shapes of train and validation must agree; fills the sample shapes. */
static tri_status take_shapes(struct tri_dataset *ds)
{
    struct tri_dataset_info *in = &ds->info;
    const struct tri_split_columns *t = &ds->split[0], *v = &ds->split[1];
    const struct tri_split_columns *c = t->x.nparts > 0 ? t : v;

    if (t->x.nparts > 0 && v->x.nparts > 0) {
        const struct tri_column *a[2] = {&t->x, &t->y}, *b[2] = {&v->x, &v->y};

        for (int i = 0; i < 2; i++)
            if (a[i]->rank != b[i]->rank || a[i]->integers != b[i]->integers ||
                memcmp(a[i]->shape, b[i]->shape, sizeof(a[i]->shape)) != 0)
                return tri_fail(TRI_ERR_DATA, "'%s': rows of '%s' and '%s' differ in shape or kind",
                                ds->first_path, a[i]->entry, b[i]->entry);
    }
    if (in->kind == TRI_DATA_TOKENS) {
        in->x_rank = in->y_rank = 1;
        in->x_shape[0] = in->y_shape[0] = in->sequence;
        in->x_count = in->y_count = in->sequence;
        in->class_targets = true;
        return TRI_OK;
    }
    in->x_rank = c->x.rank;
    in->y_rank = c->y.rank;
    memcpy(in->x_shape, c->x.shape, sizeof(in->x_shape));
    memcpy(in->y_shape, c->y.shape, sizeof(in->y_shape));
    in->x_count = c->x.row_count;
    in->y_count = c->y.row_count;
    in->class_targets = c->y.integers;
    if (in->kind == TRI_DATA_IMAGES && in->x_rank == 2) /* [N, H, W] means one channel */
        in->x_shape[in->x_rank++] = 1;
    return TRI_OK;
}

static tri_status count_samples(struct opening *o)
{
    struct tri_dataset_info *in = &o->ds->info;

    if (in->kind == TRI_DATA_TOKENS) {
        in->sequence = o->cfg->sequence;
        if (in->sequence < 1)
            return tri_fail(TRI_ERR_USAGE, "data.sequence is %lld, must be positive for tokens",
                            (long long)in->sequence);
    }
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        int64_t n = o->ds->split[s].x.rows;

        in->rows[s] = n;
        if (in->kind == TRI_DATA_TOKENS) {
            if (!in->explicit_targets)
                n = n > 0 ? n - 1 : 0;
            n = n / in->sequence + (n % in->sequence != 0);
        }
        in->samples[s] = n;
        if (o->cfg->need[s] && n == 0)
            return tri_fail(TRI_ERR_DATA, "'%s': there are no samples in '/%s'", o->cfg->paths[0],
                            tri_split_names[s]);
    }
    return TRI_OK;
}

static tri_status open_all(void *arg)
{
    struct opening *o = arg;

    for (int i = 0; i < o->cfg->npaths; i++) {
        const char *path = o->cfg->paths[i];
        tri_status st;
        hid_t file;

        TRI_TRY(tri_h5_open(path, TRI_ERR_DATA, &file));
        st = add_entries(o, file, path, i == 0);
        H5Fclose(file); /* open entries keep the file open */
        TRI_TRY(st);
    }
    TRI_TRY(count_samples(o));
    return take_shapes(o->ds);
}

static tri_status close_all(void *arg)
{
    struct tri_dataset *ds = arg;

    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        tri_column_finish(&ds->split[s].x);
        tri_column_finish(&ds->split[s].y);
    }
    tri_free(ds->scratch);
    tri_free(ds);
    return TRI_OK;
}

tri_status tri_dataset_open(const struct tri_dataset_cfg *cfg, struct tri_dataset **out)
{
    struct opening o = {.cfg = cfg};
    tri_status st;

    if (cfg->npaths < 1)
        return tri_fail(TRI_ERR_USAGE, "data.path names no file");
    o.ds = tri_calloc(1, sizeof(*o.ds), "dataset");
    if (o.ds == NULL)
        return tri_fail(TRI_ERR_NOMEM, "dataset: cannot allocate %zu bytes", sizeof(*o.ds));
    o.ds->first_path = cfg->paths[0];
    st = tri_io_call(open_all, &o);
    if (st != TRI_OK) {
        tri_dataset_close(o.ds);
        return st;
    }
    o.ds->first_path = o.ds->split[o.ds->split[0].x.nparts > 0 ? 0 : 1].x.parts[0].path;
    *out = o.ds;
    return TRI_OK;
}

void tri_dataset_close(struct tri_dataset *ds)
{
    tri_status st;

    if (ds == NULL)
        return;
    st = tri_io_call(close_all, ds);
    TRI_ASSERT(st == TRI_OK);
}

const struct tri_dataset_info *tri_dataset_info(const struct tri_dataset *ds)
{
    return &ds->info;
}

uint64_t tri_dataset_fingerprint(const struct tri_dataset *ds)
{
    const struct tri_dataset_info *in = &ds->info;
    uint64_t h = tri_mix64((uint64_t)in->kind + 1);

    h = tri_mix64(h ^ (uint64_t)in->rows[TRI_SPLIT_TRAIN]);
    h = tri_mix64(h ^ (uint64_t)(in->explicit_targets * 2 + in->class_targets));
    if (in->kind == TRI_DATA_TOKENS)
        return h;
    for (int d = 0; d < in->x_rank; d++)
        h = tri_mix64(h ^ (uint64_t)in->x_shape[d]);
    for (int d = 0; d < in->y_rank; d++)
        h = tri_mix64(h ^ (uint64_t)in->y_shape[d]);
    return h;
}
