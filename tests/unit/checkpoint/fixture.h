/* A small model to save and load: a matrix and a bias, their moments, an integer counter, an empty
 * tensor. */
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include "runtime/checkpoint/checkpoint.h"

#define NTENSOR 5
#define WEIGHTS 15

struct model {
    float weight[WEIGHTS], bias[5], moment[WEIGHTS];
    int64_t counter[2];
    char root[64]; /* run folder, a fresh temporary one */
    struct tri_checkpoint_tensor tensor[NTENSOR];
    struct tri_checkpoint_item item[3];
    struct tri_checkpoint_field field[2];
    struct tri_checkpoint_save save;
};

/* Fills all values as functions of `step` and makes the run folder. */
void model_init(struct model *m);
void model_set(struct model *m, int64_t step);
/* Zeroes all values. */
void model_clear(struct model *m);
/* Do all values fit `step`? */
bool model_is(const struct model *m, int64_t step);
/* model_set and save. */
tri_status model_save(struct model *m, int64_t step);
/* Clears, finds with resume "auto" and loads; *step is 0 when there is no checkpoint. */
tri_status model_resume(struct model *m, int64_t *step);
/* RUN/checkpoints/step-.../name; static buffer. */
const char *model_path(const struct model *m, int64_t step, const char *name);
void model_finish(struct model *m);

bool exists(const char *path);

#endif
