/* One stream a name: the start of a parameter depends on nothing but seed, name and index. */
#include "models/init.h"

#include "runtime/core/rng.h"

/* Elements that a thread fills at once: a multiple of 4, the words of a Philox block. */
#define PIECE 65536

static float constant(const struct tri_init *init)
{
    return init->kind == TRI_INIT_CONSTANT ? init->a : init->kind == TRI_INIT_ONE ? 1.0f : 0.0f;
}

static void fill_piece(const struct tri_init *init, const struct tri_rng_key *key, uint64_t first,
                       size_t count, float *out)
{
    float value = constant(init);

    if (init->kind == TRI_INIT_NORMAL)
        tri_rng_fill_normal(key, first, count, 0, init->a, out);
    else if (init->kind == TRI_INIT_UNIFORM)
        tri_rng_fill_uniform(key, first, count, -init->a, init->a, out);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = value;
}

void tri_init_fill(const struct tri_init *init, uint64_t seed, const char *name, uint64_t first,
                   size_t count, float *out)
{
    struct tri_rng_key key = tri_rng_key_make(seed, tri_hash_name(name), 0);
    int64_t npieces = (int64_t)((count + PIECE - 1) / PIECE);

#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < npieces; p++) {
        size_t begin = (size_t)p * PIECE;
        size_t n = count - begin < PIECE ? count - begin : PIECE;

        fill_piece(init, &key, first + begin, n, out + begin);
    }
}
