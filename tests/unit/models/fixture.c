#include "tests/unit/models/fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct tri_model_options options_of(enum tri_model_name name)
{
    return (struct tri_model_options){.name = (int)name,
                                      .preset = "",
                                      .init = "",
                                      .layers = TRI_OPT_AUTO,
                                      .heads = TRI_OPT_AUTO,
                                      .width = TRI_OPT_AUTO,
                                      .context = TRI_OPT_AUTO,
                                      .vocab = TRI_OPT_AUTO,
                                      .dropout = TRI_OPT_AUTO,
                                      .classes = TRI_OPT_AUTO,
                                      .depth = TRI_OPT_AUTO,
                                      .stem = TRI_STEM_AUTO};
}

struct tri_data_shape tokens_of(int64_t vocab, int64_t sequence)
{
    return (struct tri_data_shape){
        .task = TRI_TASK_LANGUAGE, .grain = 2, .vocab = vocab, .sequence = sequence};
}

struct tri_data_shape images_of(int64_t size, int64_t channels, int64_t classes)
{
    return (struct tri_data_shape){.task = TRI_TASK_CLASSES,
                                   .grain = 2,
                                   .classes = classes,
                                   .x = TRI_SHAPE(size, size, channels)};
}

struct tri_data_shape values_of(int64_t n, int64_t m)
{
    return (struct tri_data_shape){
        .task = TRI_TASK_VALUES, .grain = 4, .x = TRI_SHAPE(n), .y = TRI_SHAPE(m)};
}

struct tri_graph *build(const struct tri_model_options *o, const struct tri_data_shape *data,
                        bool training)
{
    struct tri_model_dims dims;
    struct tri_graph *g;

    GOOD(tri_model_resolve(o, data, &dims));
    GOOD(tri_model_build(&dims, data, training, 1, &g));
    return g;
}

int64_t count_params(const struct tri_graph *g, int *tensors)
{
    int64_t n = 0;

    *tensors = 0;
    for (int i = 0; i < g->nvalue; i++)
        if (g->value[i].role == TRI_ROLE_PARAM) {
            n += tri_shape_count(&g->value[i].shape);
            ++*tensors;
        }
    return n;
}

int count_ops(const struct tri_graph *g, enum tri_op_kind kind)
{
    int n = 0;

    for (int i = 0; i < g->nop; i++)
        n += g->op[i].kind == kind;
    return n;
}

void has(const struct tri_graph *g, const char *name, enum tri_role role, const char *shape)
{
    tri_vid v = tri_graph_find(g, name);
    struct tri_shape want = {0};
    char text[TRI_SHAPE_TEXT];

    cr_assert_neq(v, TRI_NONE, "'%s' is missing", name);
    for (const char *p = shape; *p != '\0'; p += *p == ',') {
        char *end;

        want.dim[want.ndim++] = strtoll(p, &end, 10);
        p = end;
    }
    cr_assert_eq(g->value[v].role, role, "'%s' has another role", name);
    cr_assert(tri_shape_equal(&g->value[v].shape, &want), "'%s' is %s, not [%s]", name,
              tri_shape_text(&g->value[v].shape, text, sizeof(text)), shape);
}
