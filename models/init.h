/* Initial values of parameters and states on the host. */
#ifndef TRI_MODELS_INIT_H
#define TRI_MODELS_INIT_H

#include "runtime/graph/graph.h"

#include <stdint.h>

/* Fills out[0..count) with elements first.. of the value `name`: drawn from the Philox stream of
 * (seed, name) by element index, so that any part can be made anywhere. Local. */
void tri_init_fill(const struct tri_init *init, uint64_t seed, const char *name, uint64_t first,
                   size_t count, float *out);

#endif
