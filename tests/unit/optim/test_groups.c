/* Which rate and decay a parameter gets. */
#include "optim/groups.h"
#include "tests/unit/optim/fixture.h"

#include <criterion/criterion.h>
#include <string.h>

enum { OPEN = TRI_OPT_AUTO };

static const struct tri_param_info *info(const struct tri_graph *g, const char *name)
{
    tri_vid v = tri_graph_find(g, name);

    cr_assert_neq(v, TRI_NONE);
    return g->value[v].param;
}

Test(groups, without_rules_matrices_decay_and_vectors_do_not)
{
    const struct tri_group_rules rules = {.lr = 0.1, .weight_decay = 0.01};
    struct tri_graph *g = grain_graph();
    struct tri_text report = {0};

    GOOD(tri_pass_groups(g, &rules, &report));
    for (int i = 0; i < g->nvalue; i++) {
        const struct tri_value *v = &g->value[i];

        if (v->role == TRI_ROLE_PARAM)
            cr_expect(v->param->lr == 0.1 && !v->param->frozen &&
                          v->param->weight_decay == (v->shape.ndim == 2 ? 0.01 : 0),
                      "'%s'", v->name);
    }
    cr_assert_str_eq(report.data, "group '*': 2 tensors, 7035 elements, lr 0.1, weight decay 0.01\n"
                                  "group '*': 4 tensors, 1021 elements, lr 0.1, weight decay 0\n");
    tri_text_finish(&report);
    tri_graph_destroy(g);
}

Test(groups, the_first_rule_that_matches_wins)
{
    const struct tri_group_options rule[] = {
        {.match = "first.weight", .lr = 0.5, .weight_decay = OPEN},
        {.match = "first.*", .lr = OPEN, .weight_decay = 0.2},
        {.match = "norm.*", .lr = 0, .weight_decay = OPEN, .freeze = true}};
    const struct tri_group_rules rules = {.lr = 0.1, .weight_decay = 0.01, rule, 3};
    struct tri_graph *g = grain_graph();

    GOOD(tri_pass_groups(g, &rules, NULL));
    cr_assert(info(g, "first.weight")->lr == 0.5 && info(g, "first.weight")->weight_decay == 0.01);
    /* A rule's decay is for every kind of parameter. */
    cr_assert(info(g, "first.bias")->lr == 0.1 && info(g, "first.bias")->weight_decay == 0.2);
    cr_assert(info(g, "norm.weight")->frozen && info(g, "norm.bias")->frozen);
    cr_assert(info(g, "last.bias")->lr == 0.1 && info(g, "last.bias")->weight_decay == 0);
    tri_graph_destroy(g);
}

Test(groups, a_rule_that_takes_nothing_is_an_error)
{
    const struct tri_group_options rule[] = {
        {.match = "first.*", .lr = OPEN, .weight_decay = OPEN},
        {.match = "frist.*", .lr = OPEN, .weight_decay = OPEN}};
    const struct tri_group_rules rules = {.lr = 0.1, .rule = rule, .nrules = 2};
    struct tri_graph *g = grain_graph();

    cr_assert_eq(tri_pass_groups(g, &rules, NULL), TRI_ERR_USAGE);
    cr_assert_not_null(strstr(tri_error_text(), "'frist.*'"));
    tri_graph_destroy(g);
}
