/* Models as a configuration would ask for them. */
#ifndef TRI_TESTS_UNIT_MODELS_FIXTURE_H
#define TRI_TESTS_UNIT_MODELS_FIXTURE_H

#include "models/model.h"
#include "models/model_options.h"

#define GOOD(call) cr_assert_eq(call, TRI_OK, "%s", tri_error_text())

/* Nothing given but the name. */
struct tri_model_options options_of(enum tri_model_name name);
struct tri_data_shape tokens_of(int64_t vocab, int64_t sequence);
struct tri_data_shape images_of(int64_t size, int64_t channels, int64_t classes);
/* Samples of n numbers, answers of m. */
struct tri_data_shape values_of(int64_t n, int64_t m);

/* Resolves and builds; failures are Criterion failures. */
struct tri_graph *build(const struct tri_model_options *o, const struct tri_data_shape *data,
                        bool training);
/* Elements and number of tensors of all parameters. */
int64_t count_params(const struct tri_graph *g, int *tensors);
int count_ops(const struct tri_graph *g, enum tri_op_kind kind);
/* The value of that name has that shape ("2,3") and role. */
void has(const struct tri_graph *g, const char *name, enum tri_role role, const char *shape);

#endif
