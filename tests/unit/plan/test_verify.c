/* verify: a good program passes; each test breaks one in exactly one way and reads the message. */
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static struct tri_layout *layout;
static struct net net;
static struct tri_program *p;

static void create_program(void)
{
    cr_assert_eq(tri_layout_create(&layout), TRI_OK);
    p = net_program(&net, 2, true, layout);
    cr_assert_eq(tri_plan_verify(p), TRI_OK, "%s", tri_error_text());
}

static void destroy_program(void)
{
    tri_program_destroy(p);
    tri_layout_destroy(layout);
}

TestSuite(verify, .init = create_program, .fini = destroy_program);

static void expect(const char *text)
{
    cr_assert_eq(tri_plan_verify(p), TRI_ERR_INTERNAL, "accepted; expected: %s", text);
    cr_assert_not_null(strstr(tri_error_text(), text), "%s", tri_error_text());
}

static struct tri_instr *instr(const char *name)
{
    return &p->instr[net_instr(p, name)];
}

static struct tri_op *op_of(const char *name)
{
    return &p->graph->op[instr(name)->op];
}

Test(verify, good_programs_pass)
{
    for (int grains = 1; grains <= NET_MAX_GRAINS; grains++) {
        for (int overlap = 0; overlap < 2; overlap++) {
            struct net n;
            struct tri_program *q = net_program(&n, grains, overlap == 1, layout);

            cr_assert_eq(tri_plan_verify(q), TRI_OK, "%s", tri_error_text());
            tri_program_destroy(q);
        }
    }
}

Test(verify, a_wrong_shape)
{
    p->graph->value[net.relu_out].shape.dim[0]++;
    expect("the op table says");
}

Test(verify, a_wrong_dtype)
{
    p->graph->value[net.relu_out].dtype = TRI_I32;
    expect("the op table says");
}

Test(verify, inputs_that_the_op_refuses)
{
    op_of("fc1")->in[1] = net.w2;
    expect("fc1");
}

Test(verify, two_writers)
{
    op_of("sgd.w1")->out[0] = op_of("sgd.b1")->out[0];
    p->graph->value[op_of("sgd.b1")->out[0]].shape = p->graph->value[net.w1].shape;
    op_of("sgd.b1")->in[0] = net.w1; /* both well typed */
    op_of("sgd.b1")->in[1] = op_of("sgd.w1")->in[1];
    expect("is written by op \"sgd.b1\" and by op \"sgd.w1\"");
}

Test(verify, another_writer_than_named)
{
    p->graph->value[net.relu_out].producer = 0;
    expect("as its writer");
}

Test(verify, an_op_that_runs_twice)
{
    instr("drelu")->op = instr("dr")->op;
    expect("runs twice");
}

Test(verify, an_op_that_never_runs)
{
    p->ninstr--;
    expect("never runs");
}

Test(verify, a_collective_on_the_compute_stream)
{
    instr("bucket2")->stream = TRI_STREAM_COMPUTE;
    expect("wrong stream");
}

Test(verify, a_wrong_number)
{
    instr("bucket1")->seq = 2;
    expect("is number 2 of stream 1, not 3");
}

Test(verify, a_wait_that_can_never_end)
{
    instr("bucket2")->wait[TRI_STREAM_COMPUTE] = p->stream_count[TRI_STREAM_COMPUTE];
    expect("can never be complete");
}

Test(verify, a_wait_for_the_own_stream)
{
    instr("drelu")->wait[TRI_STREAM_COMPUTE] = 1;
    expect("waits for its own stream");
}

Test(verify, a_wait_for_one_who_does_not_signal)
{
    p->instr[instr("bucket2") - p->instr - 1].signal = false;
    expect("does not signal");
}

Test(verify, a_count_that_is_too_high)
{
    p->stream_count[TRI_STREAM_INTRA]++;
    expect("has 3 instructions, not 4");
}

Test(verify, a_collective_without_a_wait_for_its_input)
{
    instr("bucket2")->wait[TRI_STREAM_COMPUTE] = 0;
    expect("op \"bucket2\" reads \"dw2");
    cr_assert_not_null(strstr(tri_error_text(), "without a wait"));
}

Test(verify, a_use_without_a_wait_for_the_collective)
{
    instr("sgd.b1")->wait[TRI_STREAM_INTRA] = 0;
    expect("without a wait for op \"bucket1\"");
}

Test(verify, memory_written_while_another_stream_reads_it)
{
    /* A step temporary that is written after bucket2 was issued, put where bucket2 works. */
    tri_vid dr = op_of("dr")->out[0];
    int32_t last = TRI_NONE;

    for (int32_t i = 0; i < p->ninstr; i++)
        if (p->graph->op[p->instr[i].op].kind == TRI_OP_SOFTMAX_XENT_GRAD)
            last = i;
    cr_assert_gt(last, 0);
    for (int32_t i = 0; i < p->ninstr; i++) /* of the last grain, which runs beside bucket2 */
        if (p->graph->op[p->instr[i].op].name != NULL &&
            strcmp(p->graph->op[p->instr[i].op].name, "dr") == 0)
            dr = p->graph->op[p->instr[i].op].out[0];
    p->place[dr] = p->place[net.flat2];
    expect("without a wait");
}

Test(verify, a_read_before_the_write)
{
    struct tri_op *relu = op_of("relu");

    relu->in[0] = op_of("dr")->out[0]; /* same shape, written later */
    expect("op \"relu\" reads");
    cr_assert_not_null(strstr(tri_error_text(), "before it is written"));
}

Test(verify, a_read_after_the_overwrite)
{
    op_of("drelu")->in[1] = net.relu_in; /* relu worked in place on it */
    expect("after op \"relu\" has overwritten it");
}

Test(verify, live_values_in_one_place)
{
    tri_vid logits = op_of("fc2")->out[0];

    p->place[logits].offset = p->place[net.relu_out].offset;
    p->place[op_of("dloss")->out[0]].offset =
        p->place[net.relu_out].offset; /* works in place on the logits */
    expect("overlap");
}

Test(verify, two_persistent_values_in_one_place)
{
    p->place[net.b1].offset = p->place[net.w2].offset;
    expect("overlap while both are live");
}

Test(verify, a_value_without_a_place)
{
    p->place[net.relu_out].storage = TRI_NONE;
    expect("has no place");
}

Test(verify, a_value_outside_its_arena)
{
    p->place[net.w1].offset = p->arena_bytes[TRI_ARENA_PERSISTENT];
    expect("ends behind its arena");
}

Test(verify, a_part_outside_its_bucket)
{
    p->place[net.dw1].offset += 64;
    expect("is not at byte 64 of");
}

Test(verify, scratch_outside_its_arena)
{
    p->kernel[instr("relu")->kernel]->scratch_bytes = p->arena_bytes[TRI_ARENA_STEP] + 1;
    expect("scratch of op \"relu\"");
}

Test(verify, scratch_on_an_input)
{
    p->kernel[instr("fc2")->kernel]->scratch_bytes = 64;
    instr("fc2")->scratch_offset = p->place[net.relu_out].offset;
    expect("an input and scratch that overlap");
}

Test(verify, an_overwritten_output)
{
    p->graph->value[op_of("dloss")->out[0]].role =
        TRI_ROLE_OUTPUT;                   /* the host would read a temporary */
    expect("overlap while both are live"); /* with the second grain's, and the host reads last */
}
