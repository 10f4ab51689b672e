/* hwloc prints a complaint of its own where /sys has no CPUs, so it is asked only where they are.
 */
#include "collectives/machine.h"

#include "runtime/core/memory.h"

#include <dirent.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 320 };

static bool has_sysfs(void)
{
    return access("/sys/devices/system/cpu/cpu0/topology", R_OK) == 0;
}

/* The domain whose CPUs hold all that this process may use, or -1. */
static int own_domain(hwloc_topology_t topology)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), domains = hwloc_bitmap_alloc();
    int found = -1;

    if (cpus != NULL && domains != NULL &&
        hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_cpuset_to_nodeset(topology, cpus, domains) == 0 && hwloc_bitmap_weight(domains) == 1)
        found = hwloc_bitmap_first(domains);
    hwloc_bitmap_free(domains);
    hwloc_bitmap_free(cpus);
    return found;
}

static void read_cores(struct tri_machine *m)
{
    hwloc_topology_t topology;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    m->cores = cpus > 0 ? (int32_t)cpus : 0;
    m->numa = -1;
    if (!has_sysfs() || hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) == 0) {
        m->cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        m->numa_domains = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        m->numa = own_domain(topology);
    }
    hwloc_topology_destroy(topology);
}

/* The first number in a file of one line; 0: none. */
static double number_in(const char *path)
{
    FILE *f = fopen(path, "re");
    double x = 0;

    if (f == NULL)
        return 0;
    if (fscanf(f, "%lf", &x) != 1)
        x = 0;
    (void)fclose(f);
    return x;
}

static void take_link(struct tri_machine *m, const char *name, double mbit)
{
    if (mbit < 1 || mbit > INT32_MAX || mbit <= m->link_mbit)
        return;
    m->link_mbit = (int32_t)mbit;
    (void)snprintf(m->link, sizeof(m->link), "%.15s", name);
}

/* The fastest InfiniBand device, "/sys/class/infiniband/<name>/ports/1/rate" in Gbit/s. */
static void read_infiniband(struct tri_machine *m)
{
    DIR *d = opendir("/sys/class/infiniband");
    char path[PATH_BYTES];

    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports/1/rate", e->d_name);
        take_link(m, e->d_name, number_in(path) * 1e3);
    }
    if (d != NULL)
        (void)closedir(d);
}

/* The interface of the default route: destination 0 in /proc/net/route. */
static void read_route(struct tri_machine *m)
{
    FILE *f = fopen("/proc/net/route", "re");
    char name[TRI_LINK_NAME_BYTES], line[PATH_BYTES], path[PATH_BYTES];
    unsigned destination;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%15s %x", name, &destination) != 2 || destination != 0)
            continue;
        (void)snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
        take_link(m, name, number_in(path));
    }
    if (f != NULL)
        (void)fclose(f);
}

void tri_machine_read(struct tri_machine *out)
{
    *out = (struct tri_machine){0};
    read_cores(out);
    read_infiniband(out);
    if (out->link_mbit == 0)
        read_route(out);
}

/* Ranks of each node: "2 each", or the list of a few, or the extremes. */
static void print_nodes(const struct tri_topology *t, struct tri_text *out)
{
    enum { LISTED = 8 };
    int most = 0;

    tri_text_printf(out, "%d rank%s on %d node%s", t->size, t->size == 1 ? "" : "s", t->nodes,
                    t->nodes == 1 ? "" : "s");
    if (t->nodes == 1)
        return;
    for (int n = 0; n < t->nodes; n++) {
        int here = 0;

        for (int r = 0; r < t->size; r++)
            here += t->node_of[r] == n;
        most = here > most ? here : most;
        if (t->nodes <= LISTED && t->slices * t->nodes != t->size)
            tri_text_printf(out, "%s%d", n == 0 ? " (" : ", ", here);
    }
    if (t->slices * t->nodes == t->size)
        tri_text_printf(out, " (%d each", t->slices);
    else if (t->nodes > LISTED)
        tri_text_printf(out, " (%d to %d", t->slices, most);
    tri_text_printf(out, "%s)", t->pretended ? ", by debug.nodes" : "");
}

/* "2 cores" or "2 to 4 cores". */
static void print_range(struct tri_text *out, int low, int high, const char *what)
{
    if (low == high)
        tri_text_printf(out, "%d %s%s", low, what, low == 1 ? "" : "s");
    else
        tri_text_printf(out, "%d to %d %ss", low, high, what);
}

static void print_link(struct tri_text *out, const struct tri_machine *m)
{
    if (m->link_mbit >= 1000)
        tri_text_printf(out, "; link %s of %g Gbit/s", m->link, m->link_mbit * 1e-3);
    else if (m->link_mbit > 0)
        tri_text_printf(out, "; link %s of %d Mbit/s", m->link, m->link_mbit);
    else
        tri_text_printf(out, "; rate of the link unknown");
}

void tri_machine_print(const struct tri_topology *t, const struct tri_machine *machine,
                       struct tri_text *out)
{
    struct tri_machine low = machine[0], high = machine[0];
    const struct tri_machine *link = machine; /* the slowest one, or an unknown one */
    int bound = 0;

    for (int r = 0; r < t->size; r++) {
        const struct tri_machine *m = &machine[r];

        low.cores = m->cores < low.cores ? m->cores : low.cores;
        high.cores = m->cores > high.cores ? m->cores : high.cores;
        low.numa_domains = m->numa_domains < low.numa_domains ? m->numa_domains : low.numa_domains;
        high.numa_domains =
            m->numa_domains > high.numa_domains ? m->numa_domains : high.numa_domains;
        if (m->link_mbit < link->link_mbit)
            link = m;
        bound += m->numa >= 0;
    }
    print_nodes(t, out);
    tri_text_printf(out, "; a node has ");
    print_range(out, low.cores, high.cores, "core");
    if (low.numa_domains > 0) {
        tri_text_printf(out, " in ");
        print_range(out, low.numa_domains, high.numa_domains, "NUMA domain");
    }
    if (high.numa_domains > 1)
        tri_text_printf(out, ", %d of %d ranks stay inside one", bound, t->size);
    if (t->nodes > 1)
        print_link(out, link);
}

tri_status tri_machine_describe(const struct tri_topology *t, struct tri_comm *control,
                                struct tri_text *out)
{
    struct tri_machine own, *all = tri_calloc((size_t)t->size, sizeof(*all), "machines of ranks");
    tri_status st = TRI_OK;

    if (all == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot list the machines of %d ranks", t->size);
    TRI_TRY_GOTO(st, tri_comm_agree(control, st), free_all);
    tri_machine_read(&own);
    if (control != NULL)
        TRI_TRY_GOTO(st, tri_comm_allgather(control, &own, sizeof(own), all), free_all);
    for (int r = 0; control == NULL && r < t->size; r++)
        all[r] = own;
    tri_machine_print(t, all, out);

free_all:
    tri_free(all);
    return st;
}
