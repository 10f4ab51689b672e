/* Agreements of ranks, and the order of collectives. */
#include "tests/unit/exec/fake_comm.h"
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(agree, one_rank_keeps_its_own)
{
    cr_assert_eq(tri_comm_agree(NULL, tri_fail(TRI_ERR_DATA, "bad")), TRI_ERR_DATA);
    cr_assert_str_eq(tri_error_text(), "bad");
    cr_assert_eq(tri_comm_same(NULL, "a", 1, "letters"), TRI_OK);
}

static int share_failure(struct tri_comm *c, void *arg)
{
    tri_status st = TRI_OK;

    (void)arg;
    if (tri_comm_agree(c, TRI_OK) != TRI_OK)
        return 1;
    if (c->rank == 2)
        st = tri_fail(TRI_ERR_DATA, "file is torn");
    if (c->rank == 1)
        st = tri_fail(TRI_ERR_USAGE, "wrong key");
    if (tri_comm_agree(c, st) != TRI_ERR_DATA)
        return 2;
    if (strncmp(tri_error_text(), "rank 1 on ", 10) != 0 ||
        strstr(tri_error_text(), "wrong key") == NULL)
        return 3;
    return 0;
}

Test(agree, the_lowest_failing_rank_speaks_for_all)
{
    struct fake_world w;

    fake_world_init(&w, 4);
    fake_world_run(&w, share_failure, NULL);
    fake_world_finish(&w);
}

static int compare_data(struct tri_comm *c, void *arg)
{
    char text[16];

    (void)arg;
    if (tri_comm_same(c, "equal", 5, "text") != TRI_OK)
        return 1;
    snprintf(text, sizeof(text), "%s", c->rank == 2 ? "else" : "same");
    if (tri_comm_same(c, text, 4, "text") != TRI_ERR_USAGE ||
        strstr(tri_error_text(), "text of rank 2") == NULL)
        return 2;
    if (tri_comm_same(c, "abcdef", c->rank == 1 ? 3 : 6, "length") != TRI_ERR_USAGE)
        return 3;
    return 0;
}

Test(agree, different_data_names_the_rank)
{
    struct fake_world w;

    fake_world_init(&w, 3);
    fake_world_run(&w, compare_data, NULL);
    fake_world_finish(&w);
}

/* Criterion's checks belong to the main thread: programs are made there. */
static int agree_programs(struct tri_comm *c, void *arg)
{
    struct tri_program **p = arg;

    return tri_plan_agree(p[c->rank], c, NULL) == TRI_OK ? 0 : 1;
}

static int disagree_programs(struct tri_comm *c, void *arg)
{
    struct tri_program **p = arg;

    if (tri_plan_agree(p[c->rank], c, NULL) != TRI_ERR_USAGE)
        return 1;
    return strstr(tri_error_text(), "collective 2 is \"other\" (48 of f32), but \"bucket2\"") !=
                   NULL
               ? 0
               : 2;
}

Test(agree, the_order_of_collectives_is_compared)
{
    struct fake_world w;
    struct net net[2];
    struct tri_program *p[2] = {net_program(&net[0], 2, true, NULL),
                                net_program(&net[1], 2, true, NULL)};

    fake_world_init(&w, 2);
    fake_world_run(&w, agree_programs, p);
    p[1]->graph->op[p[1]->instr[net_instr(p[1], "bucket2")].op].name = "other";
    fake_world_run(&w, disagree_programs, p);
    fake_world_finish(&w);
    tri_program_destroy(p[0]);
    tri_program_destroy(p[1]);
}
