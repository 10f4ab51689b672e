/* Which tensors of a run and of a checkpoint belong together, and which may stand on one side only.
 */
#include "runtime/checkpoint/tensors.h"

#include "runtime/checkpoint/by_rank.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/core/log.h"

#include <stdio.h>
#include <string.h>

#define OTHER_BYTES 512 /* of a name */

static bool begins_by_rank(const char *name)
{
    return strncmp(name, TRI_BY_RANK_PREFIX, sizeof(TRI_BY_RANK_PREFIX) - 1) == 0;
}

/* The momentum of a gradient is a state of the optimizer, or under momentum correction one of the
 * compression: one may stand in the checkpoint and the other in the run. Writes the other name;
 * false: `name` is neither. */
static bool other_momentum(const char *name, char other[OTHER_BYTES])
{
    static const char *const head[2] = {"state/optimizer/", TRI_BY_RANK_PREFIX};
    static const char *const tail[2] = {"/momentum", "/velocity"};
    size_t n = strlen(name);

    for (int k = 0; k < 2; k++) {
        size_t h = strlen(head[k]), t = strlen(tail[k]);

        if (n > h + t && strncmp(name, head[k], h) == 0 && strcmp(name + n - t, tail[k]) == 0)
            return snprintf(other, OTHER_BYTES, "%s%.*s%s", head[1 - k], (int)(n - h - t), name + h,
                            tail[1 - k]) < OTHER_BYTES;
    }
    return false;
}

static bool has_name_of_loss_scale(const char *name)
{
    return strcmp(name, "state/loss_scale") == 0;
}

/* The state of fp16 that other precisions lack. States of compression are in its units: a
 * checkpoint that holds some cannot do without. */
static bool is_loss_scale(const struct tri_checkpoint *c, const char *name)
{
    if (!has_name_of_loss_scale(name))
        return false;
    for (int i = 0; i < c->manifest.ntensor; i++)
        if (begins_by_rank(c->manifest.tensor[i].name))
            return false;
    return true;
}

static bool may_lack(const struct tri_checkpoint *c, const char *name)
{
    char other[OTHER_BYTES];

    return begins_by_rank(name) || is_loss_scale(c, name) ||
           (other_momentum(name, other) && tri_manifest_find(&c->manifest, other, 0) >= 0);
}

static bool may_drop(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                     int ntensor, const char *name)
{
    char other[OTHER_BYTES];
    bool found = begins_by_rank(name) || is_loss_scale(c, name);

    if (!found && other_momentum(name, other))
        for (int k = 0; k < ntensor && !found; k++)
            found = strcmp(tensor[k].name, other) == 0;
    return found;
}

/* The run has a loss scale and the checkpoint none, or the other way round. */
static tri_status refuse_units(const struct tri_checkpoint *c)
{
    return tri_fail(TRI_ERR_CHECKPOINT,
                    "the checkpoint '%s' holds states of compression, which are in units of the "
                    "loss scale: precision.compute cannot change to or from fp16 here",
                    c->path);
}

tri_status tri_tensor_find(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *t,
                           int guess, int *index)
{
    char want[TRI_SHAPE_TEXT], have[TRI_SHAPE_TEXT];
    int i = tri_manifest_find(&c->manifest, t->name, guess);
    const struct tri_manifest_tensor *s;

    *index = i;
    if (i < 0 && may_lack(c, t->name))
        return TRI_OK;
    if (i < 0 && has_name_of_loss_scale(t->name))
        return refuse_units(c);
    if (i < 0)
        return tri_fail(TRI_ERR_CHECKPOINT, "the checkpoint '%s' has no '%s'", c->path, t->name);
    s = &c->manifest.tensor[i];
    if (t->by_rank && tri_by_rank_fits(t, s))
        return TRI_OK;
    if (s->dtype != t->dtype || !tri_shape_equal(&s->shape, &t->shape))
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' is %s %s, in the checkpoint '%s' it is %s %s",
                        t->name, tri_dtype_name(t->dtype),
                        tri_shape_text(&t->shape, want, sizeof(want)), c->path,
                        tri_dtype_name(s->dtype), tri_shape_text(&s->shape, have, sizeof(have)));
    return TRI_OK;
}

tri_status tri_tensors_check_rest(const struct tri_checkpoint *c,
                                  const struct tri_checkpoint_tensor *tensor, int ntensor)
{
    for (int i = 0; i < c->manifest.ntensor; i++) {
        const char *name = c->manifest.tensor[i].name;
        bool known = strcmp(name, TRI_STEP_TENSOR) == 0 ||
                     (i < ntensor && strcmp(tensor[i].name, name) == 0);
        for (int k = 0; k < ntensor && !known; k++)
            known = strcmp(tensor[k].name, name) == 0;
        if (!known && has_name_of_loss_scale(name) && !may_drop(c, tensor, ntensor, name))
            return refuse_units(c);
        if (!known && !may_drop(c, tensor, ntensor, name))
            return tri_fail(TRI_ERR_CHECKPOINT,
                            "the checkpoint '%s' has '%s', which this run does not have", c->path,
                            name);
    }
    return TRI_OK;
}

static void log_loss_scale(const struct tri_checkpoint *c,
                           const struct tri_checkpoint_tensor *tensor, int ntensor)
{
    for (int i = 0; i < ntensor; i++)
        if (is_loss_scale(c, tensor[i].name) &&
            tri_manifest_find(&c->manifest, tensor[i].name, i) < 0)
            tri_info("the loss scale is not in the checkpoint: it starts at its initial value");
}

/* A line for each of the three ways in which states by rank differ from the checkpoint's. */
static void log_by_rank(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                        int ntensor)
{
    int fresh = 0, spread = 0, kept = 0, stored = 0;
    long long from = 0, to = 0;

    for (int i = 0; i < ntensor; i++) {
        int k = tri_manifest_find(&c->manifest, tensor[i].name, i);

        if (!begins_by_rank(tensor[i].name))
            continue;
        fresh += k < 0;
        kept += k >= 0;
        if (k < 0 || !tensor[i].by_rank ||
            c->manifest.tensor[k].shape.dim[0] == tensor[i].shape.dim[0])
            continue;
        spread++;
        from = c->manifest.tensor[k].shape.dim[0];
        to = tensor[i].shape.dim[0];
    }
    for (int i = 0; i < c->manifest.ntensor; i++)
        stored += begins_by_rank(c->manifest.tensor[i].name);
    if (spread > 0)
        tri_info("%d states of compression were of %lld ranks: their sums are spread evenly over "
                 "%lld",
                 spread, from, to);
    if (fresh > 0)
        tri_info("%d states of compression are not in the checkpoint: they start fresh", fresh);
    if (stored > kept)
        tri_warn("%d states of compression are dropped: this run does not have them",
                 stored - kept);
}

void tri_tensors_report(const struct tri_checkpoint *c, const struct tri_checkpoint_tensor *tensor,
                        int ntensor)
{
    log_by_rank(c, tensor, ntensor);
    log_loss_scale(c, tensor, ntensor);
}
