/* A dataset of random tokens, for a machine that may lack h5py: make_tokens COUNT VOCAB OUT.h5
 *
 * The r-th most frequent token is about 1 / r as often as the first. Words have such frequencies,
 * which matters to the gradient of the embedding. */
#include "data/writer.h"
#include "runtime/core/h5.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SPREAD = 1000003 }; /* a prime: frequent tokens lie all over the table */

static int32_t draw(uint64_t i, int64_t vocab)
{
    double u = (double)(tri_mix64(i + 1) >> 11) * 0x1p-53;
    int64_t rank = (int64_t)exp(u * log((double)vocab + 1)) - 1;

    return (int32_t)((rank < vocab ? rank : vocab - 1) * SPREAD % vocab);
}

static tri_status write_tokens(struct tri_writer *w, const char *path, const int32_t *token,
                               int64_t count, int64_t vocab)
{
    int index;

    TRI_TRY(tri_writer_create(w, path));
    TRI_TRY(tri_h5_put_i64(w->file, path, "vocab", -1, &vocab));
    TRI_TRY(tri_writer_array(w, "train/tokens", H5T_STD_I32LE, 1, &count, &index));
    TRI_TRY(tri_writer_layout(w));
    TRI_TRY(tri_writer_put(w, index, 0, token, (size_t)count * sizeof(*token)));
    return tri_writer_finish(w);
}

int main(int argc, char **argv)
{
    int64_t count = argc == 4 ? atoll(argv[1]) : 0, vocab = argc == 4 ? atoll(argv[2]) : 0;
    struct tri_writer w = {0};
    int32_t *token;
    tri_status st;

    if (count < 1 || vocab < 2) {
        fprintf(stderr, "usage: make_tokens COUNT VOCAB OUT.h5\n");
        return 2;
    }
    token = tri_calloc((size_t)count, sizeof(*token), "tokens");
    if (token == NULL)
        return EXIT_FAILURE;
    for (int64_t i = 0; i < count; i++)
        token[i] = draw((uint64_t)i, vocab);
    st = write_tokens(&w, argv[3], token, count, vocab);
    if (st != TRI_OK)
        fprintf(stderr, "make_tokens: %s\n", tri_error_text());
    tri_writer_destroy(&w);
    tri_free(token);
    return st == TRI_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
