/* Image sets: statistics of the pixels and the dataset file. */
#include "data/image_set.h"

#include "data/dataset_priv.h"
#include "data/writer.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <math.h>
#include <stdio.h>

struct writing {
    const struct tri_image_set *set;
    const char *out;
    double mean[TRI_DATA_MAX_CHANNELS], scale[TRI_DATA_MAX_CHANNELS];
    int64_t classes;
};

static int channels(const struct tri_image_set *s)
{
    return s->rank == 4 ? (int)s->dims[3] : 1;
}

static int64_t pixel_count(const struct tri_image_set *s)
{
    return s->dims[0] * s->dims[1] * s->dims[2];
}

/* Mean and standard deviation of u8 / 255, exact sums from histograms. A constant channel gets
 * scale 1. */
static void measure(struct writing *w)
{
    const struct tri_image_set *s = &w->set[TRI_SPLIT_TRAIN];
    int C = channels(s);
    int64_t n = pixel_count(s);

    for (int c = 0; c < C; c++) {
        int64_t histogram[256] = {0};
        double sum = 0, squares = 0, mean, variance;

        for (int64_t i = 0; i < n; i++)
            histogram[s->pixels[i * C + c]]++;
        for (int v = 0; v < 256; v++)
            sum += (double)histogram[v] * v;
        mean = sum / (double)n;
        for (int v = 0; v < 256; v++)
            squares += (double)histogram[v] * (v - mean) * (v - mean);
        variance = squares / (double)n;
        w->mean[c] = mean / 255;
        w->scale[c] = variance > 0 ? sqrt(variance) / 255 : 1;
    }
}

static tri_status count_classes(struct writing *w)
{
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        if (w->set[s].rank == 0)
            continue;
        for (int64_t i = 0; i < w->set[s].dims[0]; i++) {
            int64_t v = w->set[s].labels[i];

            if ((v < 0 && v != TRI_IGNORE) || v >= INT32_MAX)
                return tri_fail(TRI_ERR_DATA, "%s labels: row %lld is %lld, must be 0..%d or -100",
                                tri_split_names[s], (long long)i, (long long)v, INT32_MAX - 1);
            if (v >= w->classes)
                w->classes = v + 1;
        }
    }
    if (w->classes == 0)
        return tri_fail(TRI_ERR_DATA, "there are no labels to import");
    return TRI_OK;
}

static tri_status check_shapes(const struct tri_image_set *set)
{
    const struct tri_image_set *t = &set[TRI_SPLIT_TRAIN], *v = &set[TRI_SPLIT_VALIDATION];

    if (t->dims[0] == 0 || pixel_count(t) == 0)
        return tri_fail(TRI_ERR_DATA, "there are no training images to import");
    if (t->rank == 4 && (t->dims[3] < 1 || t->dims[3] > TRI_DATA_MAX_CHANNELS))
        return tri_fail(TRI_ERR_DATA, "images have %lld channels, must be 1..%d",
                        (long long)t->dims[3], TRI_DATA_MAX_CHANNELS);
    if (v->rank == 0)
        return TRI_OK;
    for (int d = 1; d < 4; d++)
        if (v->rank != t->rank || (d < t->rank && v->dims[d] != t->dims[d]))
            return tri_fail(TRI_ERR_DATA, "training and validation images differ in shape");
    return TRI_OK;
}

static tri_status put_labels(struct tri_writer *w, int index, const struct tri_image_set *s)
{
    int32_t *narrow = tri_calloc((size_t)s->dims[0], sizeof(*narrow), "labels");
    tri_status st;

    if (narrow == NULL)
        return tri_fail(TRI_ERR_NOMEM, "'%s': no memory for labels", w->path);
    for (int64_t i = 0; i < s->dims[0]; i++)
        narrow[i] = (int32_t)s->labels[i];
    st = tri_writer_put(w, index, 0, narrow, (size_t)s->dims[0] * sizeof(*narrow));
    tri_free(narrow);
    return st;
}

static tri_status write_all(struct writing *m, struct tri_writer *w)
{
    int C = channels(&m->set[0]), image_at[TRI_SPLIT_COUNT], label_at[TRI_SPLIT_COUNT];
    char entry[40];

    TRI_TRY(tri_writer_create(w, m->out));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        const struct tri_image_set *set = &m->set[s];

        if (set->rank == 0)
            continue;
        snprintf(entry, sizeof(entry), "%s/images", tri_split_names[s]);
        TRI_TRY(tri_writer_array(w, entry, H5T_STD_U8LE, set->rank, set->dims, &image_at[s]));
        snprintf(entry, sizeof(entry), "%s/labels", tri_split_names[s]);
        TRI_TRY(tri_writer_array(w, entry, H5T_STD_I32LE, 1, set->dims, &label_at[s]));
    }
    TRI_TRY(tri_h5_put_f64(w->file, w->path, "mean", C, m->mean));
    TRI_TRY(tri_h5_put_f64(w->file, w->path, "scale", C, m->scale));
    TRI_TRY(tri_h5_put_i64(w->file, w->path, "classes", -1, &m->classes));
    TRI_TRY(tri_writer_layout(w));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        const struct tri_image_set *set = &m->set[s];

        if (set->rank == 0)
            continue;
        TRI_TRY(tri_writer_put(w, image_at[s], 0, set->pixels, (size_t)(pixel_count(set) * C)));
        TRI_TRY(put_labels(w, label_at[s], set));
    }
    return tri_writer_finish(w);
}

static tri_status write_closure(void *arg)
{
    struct tri_writer w;
    tri_status st = write_all(arg, &w);

    tri_writer_destroy(&w);
    return st;
}

tri_status tri_image_set_write(const struct tri_image_set set[TRI_SPLIT_COUNT], const char *out,
                               struct tri_text *report)
{
    struct writing w = {.set = set, .out = out};

    TRI_TRY(check_shapes(set));
    TRI_TRY(count_classes(&w));
    measure(&w);
    TRI_TRY(tri_io_call(write_closure, &w));
    tri_text_printf(
        report, "%s: %lld training and %lld validation images of %lld x %lld x %d, %lld classes\n",
        out, (long long)set[0].dims[0], (long long)set[1].dims[0], (long long)set[0].dims[1],
        (long long)set[0].dims[2], channels(&set[0]), (long long)w.classes);
    return TRI_OK;
}
