/* Image transform: one table look-up an element, at a place that the augmentation chooses. */
#include "data/transform.h"

#include "data/loader.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

tri_status tri_transform_init(struct tri_transform *t, const struct tri_dataset_info *info,
                              bool augment, uint64_t seed)
{
    *t = (struct tri_transform){.H = info->x_shape[0],
                                .W = info->x_shape[1],
                                .C = info->x_shape[2],
                                .augment = augment,
                                .seed = seed};
    t->table = tri_calloc((size_t)t->C * 256, sizeof(*t->table), "pixel table");
    if (t->table == NULL)
        return tri_fail(TRI_ERR_NOMEM, "loader: cannot allocate the pixel table");
    for (int64_t c = 0; c < t->C; c++)
        for (int v = 0; v < 256; v++)
            t->table[c * 256 + v] = ((float)v / 255.0f - info->mean[c]) / info->scale[c];
    return TRI_OK;
}

void tri_transform_finish(struct tri_transform *t)
{
    tri_free(t->table);
    t->table = NULL;
}

/* Where output pixel (0, 0) lies in the source, and whether columns run backwards. */
struct window {
    int64_t dy, dx; /* -PAD..PAD */
    bool flip;
};

static struct window choose(const struct tri_transform *t, int64_t epoch, int64_t id)
{
    struct window w = {0, 0, false};

    if (t->augment) {
        struct tri_rng_key key =
            tri_rng_key_make(t->seed, tri_hash_name("data.augment"), (uint64_t)epoch);
        uint32_t r[4];
        uint64_t places = 2 * TRI_AUGMENT_PAD + 1;

        tri_philox4x32(&key, (uint64_t)id, r);
        w.dy = (int64_t)(r[0] * places >> 32) - TRI_AUGMENT_PAD;
        w.dx = (int64_t)(r[1] * places >> 32) - TRI_AUGMENT_PAD;
        w.flip = r[2] >> 31;
    }
    return w;
}

void tri_transform_image(const struct tri_transform *t, int64_t epoch, int64_t id,
                         const uint8_t *src, float *dst)
{
    struct window win = choose(t, epoch, id);

    for (int64_t h = 0; h < t->H; h++) {
        int64_t sh = h + win.dy;

        for (int64_t w = 0; w < t->W; w++, dst += t->C) {
            int64_t sw = (win.flip ? t->W - 1 - w : w) + win.dx;
            bool inside = sh >= 0 && sh < t->H && sw >= 0 && sw < t->W;
            const uint8_t *p = src + (inside ? (sh * t->W + sw) * t->C : 0);

            for (int64_t c = 0; c < t->C; c++)
                dst[c] = t->table[c * 256 + (inside ? p[c] : 0)];
        }
    }
}
