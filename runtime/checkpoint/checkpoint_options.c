/* The rows of section checkpoint. */
#include "runtime/checkpoint/checkpoint_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_checkpoint_options, field)
const struct tri_opt tri_checkpoint_rows[] = {
    {"checkpoint.every", TRI_OPT_INT, AT(every), "0", "[0, inf)",
     "steps between checkpoints; the end of the run always writes one, 0 writes no other", NULL},
    {"checkpoint.keep", TRI_OPT_INT, AT(keep), "3", "[1, inf)",
     "newest checkpoints that are kept, beside the best one", NULL},
    {"checkpoint.async", TRI_OPT_BOOL, AT(async), "false", NULL,
     "write while training goes on, from a copy of the weights", NULL},
    {"checkpoint.best", TRI_OPT_ENUM, AT(best), "none", "none|loss|accuracy",
     "value of the evaluation by which the link best is chosen", NULL},
};
const size_t tri_checkpoint_row_count =
    sizeof(tri_checkpoint_rows) / sizeof(tri_checkpoint_rows[0]);
#undef AT
