/* The line about machines, from made-up ones and from this one. */
#include "collectives/machine.h"
#include "runtime/core/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { MAX_RANKS = 16 };

static struct tri_machine machine[MAX_RANKS];

/* Checks the line of `size` ranks on nodes of ranks[0], ranks[1], ... ranks. */
static void expect(int size, const int64_t *ranks, size_t nodes, const char *want)
{
    struct tri_topology t;
    struct tri_text text = {0};

    cr_assert_eq(tri_topology_alone(&t, size), TRI_OK);
    cr_assert(nodes == 1 || tri_topology_pretend(&t, ranks, nodes) == TRI_OK);
    tri_machine_print(&t, machine, &text);
    cr_assert_str_eq(text.data, want);
    tri_text_finish(&text);
    tri_topology_finish(&t);
}

static void set_all(struct tri_machine m)
{
    for (int r = 0; r < MAX_RANKS; r++)
        machine[r] = m;
}

Test(machine, line)
{
    set_all((struct tri_machine){
        .cores = 8, .numa_domains = 2, .numa = 1, .link_mbit = 25000, .link = "eth0"});
    expect(1, NULL, 1,
           "1 rank on 1 node; a node has 8 cores in 2 NUMA domains, 1 of 1 ranks stay inside one");
    expect(
        4, (const int64_t[]){2, 2}, 2,
        "4 ranks on 2 nodes (2 each, by debug.nodes); a node has 8 cores in 2 NUMA domains, 4 of "
        "4 ranks stay inside one; link eth0 of 25 Gbit/s");
    machine[1].numa = -1;
    machine[2].cores = 4;
    machine[2].link_mbit = 100;
    expect(
        4, (const int64_t[]){3, 1}, 2,
        "4 ranks on 2 nodes (3, 1, by debug.nodes); a node has 4 to 8 cores in 2 NUMA domains, 3 "
        "of 4 ranks stay inside one; link eth0 of 100 Mbit/s");
    set_all((struct tri_machine){.cores = 1, .numa = -1});
    expect(11, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 3}, 9,
           "11 ranks on 9 nodes (1 to 3, by debug.nodes); a node has 1 core; rate of the link "
           "unknown");
}

Test(machine, this_one)
{
    struct tri_machine m;

    tri_machine_read(&m);
    cr_assert_gt(m.cores, 0);
    cr_assert_geq(m.numa_domains, 0);
    cr_assert_geq(m.link_mbit, 0);
}
