/* memory: who shares, who is apart, and the layout of persistent values. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tri_layout *layout;

static void create_layout(void)
{
    cr_assert_eq(tri_layout_create(&layout), TRI_OK);
}

static void destroy_layout(void)
{
    tri_layout_destroy(layout);
}

TestSuite(memory, .init = create_layout, .fini = destroy_layout);

Test(memory, parts_and_their_chains_live_inside_the_bucket)
{
    struct net net;
    struct tri_program *p = net_program(&net, 3, true, layout);
    const struct tri_place *flat = &p->place[net.flat1];
    tri_vid v = net.dw1;

    cr_assert_eq(flat->arena, TRI_ARENA_EXCHANGE);
    cr_assert_eq(p->place[net.db1].offset, flat->offset);
    for (int k = 0; k < 3; k++) { /* the total and the totals that it was added to */
        cr_assert_eq(p->place[v].storage, flat->storage);
        cr_assert_eq(p->place[v].offset, flat->offset + 64);
        v = p->graph->op[p->graph->value[v].producer].in[3];
    }
    cr_assert_eq(v, TRI_NONE);
    tri_program_destroy(p);
}

Test(memory, an_op_works_in_place_when_nobody_needs_its_input)
{
    struct net net;
    struct tri_program *p = net_program(&net, 1, true, layout);

    cr_assert_eq(p->place[net.relu_in].storage, p->place[net.relu_out].storage);
    cr_assert_eq(p->place[net.relu_in].offset, p->place[net.relu_out].offset);
    cr_assert_eq(p->place[net.w1].arena, TRI_ARENA_PERSISTENT);
    cr_assert_eq(p->place[net.stats].arena, TRI_ARENA_PERSISTENT);
    cr_assert_eq(p->arena_bytes[TRI_ARENA_PERSISTENT], tri_layout_bytes(layout));
    tri_program_destroy(p);
}

Test(memory, an_input_that_is_needed_later_is_kept)
{
    struct net net = net_create(1);
    struct tri_program *p;
    tri_vid late;

    late =
        tri_graph_op1(net.g, TRI_OP_ADD, "late", (tri_vid[]){net.relu_in, net.relu_out}, 2, NULL);
    net.g->value[late].role = TRI_ROLE_OUTPUT;
    cr_assert_eq(tri_plan_schedule(net.g, tri_kernels_ref, NULL, 1, true, &p), TRI_OK);
    cr_assert_eq(tri_plan_memory(p, layout), TRI_OK);
    cr_assert_neq(p->place[net.relu_in].storage, p->place[net.relu_out].storage);
    cr_assert_eq(tri_plan_verify(p), TRI_OK, "%s", tri_error_text());
    tri_program_destroy(p);
}

Test(memory, programs_share_persistent_places)
{
    struct net a, b;
    struct tri_program *p = net_program(&a, 1, true, layout), *q = net_program(&b, 2, true, layout);
    size_t offset;

    cr_assert_eq(p->place[a.w2].offset, q->place[b.w2].offset);
    cr_assert_eq(tri_layout_place(layout, "param/w2", 4 * NET_H * NET_V, &offset), TRI_OK);
    cr_assert_eq(offset, p->place[a.w2].offset);
    cr_assert_eq(tri_layout_place(layout, "param/w2", 4, &offset), TRI_ERR_INTERNAL);
    tri_program_destroy(p);
    tri_program_destroy(q);
}

Test(memory, a_layout_grows)
{
    size_t offset;
    char name[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "param/%d", i);
        cr_assert_eq(tri_layout_place(layout, name, 100, &offset), TRI_OK);
        cr_assert_eq(offset, (size_t)i * 128);
    }
    cr_assert_eq(tri_layout_place(layout, "param/17", 100, &offset), TRI_OK);
    cr_assert_eq(offset, 17 * 128);
    cr_assert_eq(tri_layout_bytes(layout), 128000);
}

/* Schedules and plans net's graph, which must fail with `text` in the message. */
static void expect_refusal(struct net *net, const char *text)
{
    struct tri_program *p;

    cr_assert_eq(tri_plan_schedule(net->g, tri_kernels_ref, NULL, 1, true, &p), TRI_OK);
    cr_assert_eq(tri_plan_memory(p, layout), TRI_ERR_INTERNAL);
    cr_assert_not_null(strstr(tri_error_text(), text), "%s", tri_error_text());
    tri_program_destroy(p);
}

Test(memory, a_persistent_part_is_refused)
{
    struct net net = net_create(1);

    tri_graph_op1(net.g, TRI_OP_PACK, "bad", &net.w1, 1, NULL);
    expect_refusal(&net, "is persistent");
}

Test(memory, a_part_of_two_packs_is_refused)
{
    struct net net = net_create(1);

    tri_graph_op1(net.g, TRI_OP_PACK, "bad", &net.dw2, 1, NULL);
    expect_refusal(&net, "is in a pack already");
}

Test(memory, a_piece_of_another_value_is_refused_as_part)
{
    struct net net = net_create(1);
    struct tri_attrs attrs = {.view = {.offset = 4, .shape = tri_shape_make(1, (int64_t[]){8})}};
    tri_vid view = tri_graph_op1(net.g, TRI_OP_VIEW, "view", &net.relu_out, 1, &attrs);

    tri_graph_op1(net.g, TRI_OP_PACK, "bad", &view, 1, NULL);
    expect_refusal(&net, "is a piece of another value");
}

Test(memory, arenas_stay_near_the_live_bytes)
{
    for (int grains = 1; grains <= NET_MAX_GRAINS; grains++) {
        struct net net;
        struct tri_program *p = net_program(&net, grains, true, layout);

        cr_assert_geq(p->arena_bytes[TRI_ARENA_STEP], p->live_bytes);
        cr_assert_leq((double)p->arena_bytes[TRI_ARENA_STEP], 1.1 * (double)p->live_bytes);
        tri_program_destroy(p);
    }
}
