#include "runtime/plan/mesh.h"

struct tri_mesh tri_mesh_data(int nranks, int rank)
{
    struct tri_mesh m = {.nranks = nranks, .rank = rank};

    for (int a = 0; a < TRI_AXIS_COUNT; a++)
        m.size[a] = 1;
    m.size[TRI_AXIS_DATA] = nranks;
    m.coord[TRI_AXIS_DATA] = rank;
    return m;
}

const char *tri_axis_name(enum tri_axis axis)
{
    static const char *const name[TRI_AXIS_COUNT] = {
        [TRI_AXIS_DATA] = "data",         [TRI_AXIS_TENSOR] = "tensor",
        [TRI_AXIS_PIPELINE] = "pipeline", [TRI_AXIS_CONTEXT] = "context",
        [TRI_AXIS_EXPERT] = "expert",
    };

    return (unsigned)axis < TRI_AXIS_COUNT ? name[axis] : "unknown";
}

tri_status tri_grains_make(const struct tri_mesh *mesh, int64_t batch, int64_t grain,
                           bool deterministic, struct tri_grains *out)
{
    int64_t ranks = mesh->size[TRI_AXIS_DATA];
    int64_t total;

    if (batch < 1 || grain < 1 || batch % grain != 0)
        return tri_fail(TRI_ERR_USAGE,
                        "batch %lld is not a multiple of grain %lld (both must be positive)",
                        (long long)batch, (long long)grain);
    total = batch / grain;
    if (deterministic && (ranks & (ranks - 1)) != 0)
        return tri_fail(TRI_ERR_USAGE,
                        "deterministic needs a power of two of data ranks, not %lld, that divides "
                        "the %lld grains of batch %lld",
                        (long long)ranks, (long long)total, (long long)batch);
    if (total % ranks != 0)
        return tri_fail(TRI_ERR_USAGE,
                        "batch %lld in grains of %lld makes %lld grains, no multiple of %lld data "
                        "ranks",
                        (long long)batch, (long long)grain, (long long)total, (long long)ranks);
    *out = (struct tri_grains){.grain = grain,
                               .total = total,
                               .count = total / ranks,
                               .first = total / ranks * mesh->coord[TRI_AXIS_DATA]};
    return TRI_OK;
}
