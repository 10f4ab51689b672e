/* The choice of the next token of a text. */
#ifndef TRI_LAUNCH_SAMPLING_H
#define TRI_LAUNCH_SAMPLING_H

#include <stdint.h>

struct tri_sampling {
    double temperature; /* 0: always the most likely token */
    int64_t top_k;      /* 0: all tokens */
    uint64_t seed;
};

/* A token that may be drawn. */
struct tri_candidate {
    float logit;
    int32_t id;
};

/* Draws a token from softmax(logits / temperature) over the top_k most likely of `logits`
 * [vocab]; of equal ones the lower id counts as more likely. The random number is a function of
 * the seed and of `position`, that of the token before. work [vocab] is overwritten. Local. */
int32_t tri_sampling_draw(const struct tri_sampling *s, const float *logits, int64_t vocab,
                          int64_t position, struct tri_candidate *work);

#endif
