/* Text from a language model: one position after the other over key/value caches. */
#ifndef TRI_LAUNCH_GENERATE_H
#define TRI_LAUNCH_GENERATE_H

#include "launch/sampling.h"
#include "launch/session.h"

#include <stdbool.h>
#include <stdint.h>

struct tri_generator;

/* A generator of one sequence: the first `prompt` (>= 1) tokens run in one piece, the others one by
 * one. Local. */
tri_status tri_generator_create(const struct tri_model_dims *dims, int64_t prompt, int threads,
                                struct tri_device *device, struct tri_generator **out) TRI_CHECKED;
void tri_generator_destroy(struct tri_generator *g);
/* The tensors to fill with the model's weights. Local. */
struct tri_session *tri_generator_session(struct tri_generator *g);

/* Runs the prompt (ids [prompt], once) and gives the first new token. Local. */
tri_status tri_generator_start(struct tri_generator *g, const int32_t *ids,
                               const struct tri_sampling *s, int32_t *next) TRI_CHECKED;
/* Runs the last token and gives the next one. *full: the context is used up and no token was made.
 * Local. */
tri_status tri_generator_next(struct tri_generator *g, const struct tri_sampling *s, int32_t *next,
                              bool *full) TRI_CHECKED;

#endif
