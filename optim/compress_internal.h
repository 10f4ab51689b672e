/* Shared by the files of the compression pass: states, and pieces of gradients. */
#ifndef TRI_OPTIM_COMPRESS_INTERNAL_H
#define TRI_OPTIM_COMPRESS_INTERNAL_H

#include "optim/compress_pass.h"

/* Elements [first, first + shape) of a gradient that are compressed together. */
struct tri_piece {
    struct tri_shape whole, shape;
    int64_t first, count; /* count 0: nothing of it is this rank's */
};

struct tri_piece tri_piece_whole(const struct tri_shape *s);
/* The part of elements [at, at + shape) of a bucket that lies in [first, end). */
struct tri_piece tri_piece_cut(const struct tri_shape *whole, int64_t at, int64_t first,
                               int64_t end);

/* The state "compress/<parameter>/<what>": the same on all ranks, or the contributor's own for a
 * piece. TRI_NONE: the graph has failed. */
tri_vid tri_compress_state(struct tri_graph *g, const char *parameter, const char *what,
                           struct tri_shape shape, enum tri_init_kind init);
tri_vid tri_compress_own_state(struct tri_graph *g, const char *parameter, const char *what,
                               const struct tri_piece *p, enum tri_init_kind init,
                               const struct tri_compress_spec *spec);

/* A gradient as a matrix: first dim x all others. */
void tri_low_rank_matrix(const struct tri_value *v, int64_t *n, int64_t *m);

/* tri_compress_bucket and tri_compress_slice for low rank. */
void tri_low_rank_bucket(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                         const struct tri_compress_spec *spec);
tri_vid tri_low_rank_slice(struct tri_graph *g, const int32_t *sum, int n, const char *name,
                           tri_vid x, int64_t first, int64_t count,
                           const struct tri_compress_spec *spec);
/* The COMMITs that belong to op, if any. */
void tri_low_rank_commit(struct tri_graph *g, const struct tri_op *op, tri_vid scalars);

#endif
