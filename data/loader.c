/* Loader: a ring of slots, each filled by one job of the I/O thread.
 *
 * A job sorts the rank's sample ids, merges consecutive ids into runs (one HDF5 selection each),
 * reads a run into the scratch buffers and places its samples where the order of use wants them.
 * After 16 MB it lets other I/O go first. */
#include "data/loader.h"

#include "data/transform.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"

#include <stdlib.h>
#include <string.h>

struct wanted {
    int64_t id, place; /* place: sample slot in the batch, 0..ngrains * grain - 1 */
};

struct slot {
    struct tri_loader *loader;
    struct tri_io_job job;
    struct tri_batch batch;
    char *x, *y;
    int32_t *nreal;
    int64_t *ids;
    struct wanted *wanted; /* sorted by id */
    int64_t next;          /* first of `wanted` that is not read yet */
};

struct tri_loader {
    struct tri_loader_cfg cfg;
    struct tri_transform transform;
    size_t x_bytes, y_bytes; /* of one sample in a batch */
    size_t raw_bytes;        /* of one sample's input as stored */
    int64_t run_samples;     /* most samples of one read */
    char *raw_x, *raw_y;     /* of one read; I/O thread only */
    struct slot *slots;
    int nslots;
    int64_t taken;  /* step of the batch that the caller holds; first_step - 1 at the start */
    int64_t posted; /* last step posted */
};

static int by_id(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Length of the run of consecutive ids that starts at w[0]. */
static int64_t run_length(const struct wanted *w, int64_t n, int64_t most)
{
    int64_t len = 1;

    while (len < n && len < most && w[len].id == w[len - 1].id + 1)
        len++;
    return len;
}

static tri_status read_run(struct slot *s, const struct wanted *w, int64_t n)
{
    struct tri_loader *l = s->loader;

    TRI_TRY(tri_dataset_read(l->cfg.dataset, l->cfg.split, w[0].id, n, l->raw_x, l->raw_y));
    for (int64_t i = 0; i < n; i++) {
        char *x = s->x + (size_t)w[i].place * l->x_bytes;
        const char *raw = l->raw_x + (size_t)i * l->raw_bytes;

        if (tri_dataset_info(l->cfg.dataset)->kind == TRI_DATA_IMAGES)
            tri_transform_image(&l->transform, s->batch.position.epoch, w[i].id, (const void *)raw,
                                (void *)x);
        else
            memcpy(x, raw, l->x_bytes);
        memcpy(s->y + (size_t)w[i].place * l->y_bytes, l->raw_y + (size_t)i * l->y_bytes,
               l->y_bytes);
    }
    return TRI_OK;
}

/* Zeros and "no target" in the samples of grain g from n on. */
static void pad_grain(struct slot *s, int64_t g, int64_t n)
{
    const struct tri_loader *l = s->loader;
    size_t first = (size_t)(g * l->cfg.grain + n), count = (size_t)(l->cfg.grain - n);

    memset(s->x + first * l->x_bytes, 0, count * l->x_bytes);
    memset(s->y + first * l->y_bytes, 0, count * l->y_bytes);
    if (tri_dataset_info(l->cfg.dataset)->class_targets) {
        int32_t *y = (int32_t *)(void *)(s->y + first * l->y_bytes);

        for (size_t i = 0; i < count * l->y_bytes / sizeof(*y); i++)
            y[i] = TRI_IGNORE;
    }
}

static int64_t count_targets(const struct slot *s)
{
    const struct tri_loader *l = s->loader;
    const int32_t *y = (const int32_t *)(const void *)s->y;
    size_t n = (size_t)(l->cfg.ngrains * l->cfg.grain) * l->y_bytes / sizeof(*y);
    int64_t targets = 0;

    if (!tri_dataset_info(l->cfg.dataset)->class_targets)
        return s->batch.samples;
    for (size_t i = 0; i < n; i++)
        targets += y[i] != TRI_IGNORE;
    return targets;
}

static int64_t count_tokens(const struct tri_loader *l, const struct tri_batch_position *p)
{
    int64_t n = 0;

    if (tri_dataset_info(l->cfg.dataset)->kind != TRI_DATA_TOKENS)
        return p->count;
    for (int64_t k = p->first; k < p->first + p->count; k++)
        n += tri_dataset_tokens(l->cfg.dataset, l->cfg.split,
                                tri_sampler_id(&l->cfg.sampler, p->epoch, k));
    return n;
}

/* Decides the samples of the slot's step, pads, and sorts what is to be read. */
static void begin(struct slot *s)
{
    const struct tri_loader *l = s->loader;
    struct tri_batch *b = &s->batch;

    b->position = tri_sampler_at(&l->cfg.sampler, b->step);
    b->samples = 0;
    for (int64_t g = 0; g < l->cfg.ngrains; g++) {
        int64_t first, n;

        n = tri_sampler_grain(&b->position, l->cfg.grain, l->cfg.first_grain + g, &first);
        s->nreal[g] = (int32_t)n;
        for (int64_t i = 0; i < n; i++) {
            int64_t id = tri_sampler_id(&l->cfg.sampler, b->position.epoch, first + i);

            s->ids[b->samples] = id;
            s->wanted[b->samples++] = (struct wanted){id, g * l->cfg.grain + i};
        }
        pad_grain(s, g, n);
    }
    b->global_tokens = count_tokens(l, &b->position);
    qsort(s->wanted, (size_t)b->samples, sizeof(*s->wanted), by_id);
}

/* The job of a slot; called again until all is read. */
static tri_status fill(void *arg)
{
    struct slot *s = arg;
    size_t bytes = 0;

    if (s->next < 0) {
        begin(s);
        s->next = 0;
    }
    while (s->next < s->batch.samples) {
        int64_t n =
            run_length(s->wanted + s->next, s->batch.samples - s->next, s->loader->run_samples);

        if (bytes > 0 && bytes + (size_t)n * s->loader->raw_bytes > TRI_IO_PIECE_BYTES) {
            tri_io_again();
            return TRI_OK;
        }
        TRI_TRY(read_run(s, s->wanted + s->next, n));
        bytes += (size_t)n * s->loader->raw_bytes;
        s->next += n;
    }
    s->batch.targets = count_targets(s);
    return TRI_OK;
}

static struct slot *slot_of(struct tri_loader *l, int64_t step)
{
    return &l->slots[step % l->nslots];
}

/* Posts reads up to `ahead` steps beyond the batch that the caller holds. */
static void post_up_to(struct tri_loader *l, int64_t step)
{
    if (step > l->cfg.last_step)
        step = l->cfg.last_step;
    while (l->posted < step) {
        struct slot *s = slot_of(l, ++l->posted);

        s->batch.step = l->posted;
        s->next = -1;
        tri_io_post(&s->job, fill, s);
    }
}

tri_status tri_loader_next(struct tri_loader *l, struct tri_batch *out)
{
    int64_t step = l->taken + 1, start = tri_now_ns();
    struct slot *s = slot_of(l, step);

    TRI_ASSERT(step <= l->cfg.last_step);
    post_up_to(l, step); /* the first time, and always at depth 0 */
    TRI_TRY(tri_io_wait(&s->job));
    l->taken = step;
    *out = s->batch;
    out->wait_ns = tri_now_ns() - start;
    post_up_to(l, step + l->cfg.depth);
    return TRI_OK;
}

/* Waits for all reads in flight; their failures do not matter any more. */
static void drain(struct tri_loader *l)
{
    for (int i = 0; i < l->nslots; i++) {
        tri_status st = tri_io_wait(&l->slots[i].job);

        (void)st;
    }
}

void tri_loader_seek(struct tri_loader *l, int64_t step, int64_t last_step)
{
    drain(l);
    l->cfg.last_step = last_step;
    l->taken = l->posted = step - 1;
    post_up_to(l, l->taken + l->cfg.depth);
}

static tri_status init_slot(struct tri_loader *l, struct slot *s)
{
    size_t samples, x_all, y_all;

    TRI_TRY(tri_mul_size((size_t)l->cfg.ngrains, (size_t)l->cfg.grain, "batch", &samples));
    TRI_TRY(tri_mul_size(samples, l->x_bytes, "batch inputs", &x_all));
    TRI_TRY(tri_mul_size(samples, l->y_bytes, "batch targets", &y_all));
    s->loader = l;
    s->x = tri_alloc_aligned(x_all, "batch inputs");
    s->y = tri_alloc_aligned(y_all, "batch targets");
    s->nreal = tri_calloc((size_t)l->cfg.ngrains, sizeof(*s->nreal), "batch counts");
    s->ids = tri_calloc(samples, sizeof(*s->ids), "batch ids");
    s->wanted = tri_calloc(samples, sizeof(*s->wanted), "batch order");
    if (!s->x || !s->y || !s->nreal || !s->ids || !s->wanted)
        return tri_fail(TRI_ERR_NOMEM, "loader: cannot allocate a batch of %zu bytes",
                        x_all + y_all);
    s->batch = (struct tri_batch){.x = s->x, .y = s->y, .nreal = s->nreal, .ids = s->ids};
    return TRI_OK;
}

static void set_sizes(struct tri_loader *l)
{
    const struct tri_dataset_info *in = tri_dataset_info(l->cfg.dataset);
    int64_t most;

    l->raw_bytes = tri_dataset_x_bytes(l->cfg.dataset);
    l->x_bytes = (size_t)in->x_count * 4;
    l->y_bytes = (size_t)in->y_count * 4;
    most = (int64_t)(TRI_IO_PIECE_BYTES / (l->raw_bytes + l->y_bytes));
    if (most > l->cfg.ngrains * l->cfg.grain)
        most = l->cfg.ngrains * l->cfg.grain;
    l->run_samples = most < 1 ? 1 : most;
}

tri_status tri_loader_create(const struct tri_loader_cfg *cfg, struct tri_loader **out)
{
    const struct tri_dataset_info *in = tri_dataset_info(cfg->dataset);
    struct tri_loader *l;
    tri_status st = TRI_OK;

    TRI_ASSERT(cfg->grain > 0 && cfg->ngrains > 0 &&
               cfg->sampler.samples == in->samples[cfg->split]);
    if (cfg->augment && in->kind != TRI_DATA_IMAGES)
        return tri_fail(TRI_ERR_USAGE, "data.augment needs images, the data has none");
    l = tri_calloc(1, sizeof(*l), "loader");
    if (l == NULL)
        return tri_fail(TRI_ERR_NOMEM, "loader: cannot allocate %zu bytes", sizeof(*l));
    l->cfg = *cfg;
    l->taken = l->posted = cfg->first_step - 1;
    set_sizes(l);
    if (in->kind == TRI_DATA_IMAGES)
        TRI_TRY_GOTO(st, tri_transform_init(&l->transform, in, cfg->augment, cfg->sampler.seed),
                     destroy);
    l->raw_x = tri_alloc_aligned((size_t)l->run_samples * l->raw_bytes, "read buffer");
    l->raw_y = tri_alloc_aligned((size_t)l->run_samples * l->y_bytes, "read buffer");
    l->slots = tri_calloc((size_t)cfg->depth + 1, sizeof(*l->slots), "loader slots");
    if (!l->raw_x || !l->raw_y || !l->slots) {
        st = tri_fail(TRI_ERR_NOMEM, "loader: cannot allocate its buffers");
        goto destroy;
    }
    l->nslots = cfg->depth + 1;
    for (int i = 0; i < l->nslots; i++)
        TRI_TRY_GOTO(st, init_slot(l, &l->slots[i]), destroy);
    post_up_to(l, l->taken + cfg->depth);
    *out = l;
    return TRI_OK;

destroy:
    tri_loader_destroy(l);
    return st;
}

void tri_loader_destroy(struct tri_loader *l)
{
    if (l == NULL)
        return;
    drain(l);
    for (int i = 0; i < l->nslots; i++) {
        tri_free(l->slots[i].x);
        tri_free(l->slots[i].y);
        tri_free(l->slots[i].nreal);
        tri_free(l->slots[i].ids);
        tri_free(l->slots[i].wanted);
    }
    tri_transform_finish(&l->transform);
    tri_free(l->slots);
    tri_free(l->raw_x);
    tri_free(l->raw_y);
    tri_free(l);
}

size_t tri_loader_x_bytes(const struct tri_loader *l)
{
    return (size_t)l->cfg.grain * l->x_bytes;
}

size_t tri_loader_y_bytes(const struct tri_loader *l)
{
    return (size_t)l->cfg.grain * l->y_bytes;
}
