/* See bench_ways.h. */
#include "launch/bench_ways.h"

#include "collectives/comm_library.h"
#include "collectives/comm_shm.h"
#include "collectives/reduce.h"
#include "runtime/core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SLICES = 64, MAX_NODES = 64, TIMEOUT_MS = 120000, STAGING_BYTES = 4 << 20 };

/* The limit inside a node: each rank reduces its slice of all windows into all of them, as the sum
 * does, and meets nobody. Without windows it takes as many slices of its own buffer. */
static tri_status sum_plain(struct tri_bench_ways *all, const struct tri_bench_way *w,
                            int64_t count, enum tri_dtype dtype)
{
    int size = all->topology.size < MAX_SLICES ? all->topology.size : MAX_SLICES;
    int64_t first = 0, n = count / size;
    void *part[MAX_SLICES];
    const void *from[MAX_SLICES];

    if (w->summed)
        tri_comm_slice(count, size, all->topology.rank, &first, &n);
    for (int r = 0; r < size; r++) {
        part[r] = w->summed ? tri_comm_shm_part(all->shm, w->buf, r)
                            : (unsigned char *)w->buf + (size_t)(r * n) * tri_dtype_bytes(dtype);
        from[r] = part[r];
    }
    return n > 0 ? tri_reduce_many(part, size, from, size, first, n, dtype, TRI_REDUCE_SUM)
                 : TRI_OK;
}

static tri_status sum_link(struct tri_bench_ways *all, const struct tri_bench_way *w, int64_t count,
                           enum tri_dtype dtype)
{
    (void)w;
    return tri_bench_levels_link(all->levels, (size_t)count * tri_dtype_bytes(dtype));
}

static tri_status sum_levels(struct tri_bench_ways *all, const struct tri_bench_way *w,
                             int64_t count, enum tri_dtype dtype)
{
    (void)w;
    return tri_bench_levels_sum(all->levels, count, dtype);
}

static tri_status sum_comm(struct tri_bench_ways *all, const struct tri_bench_way *w, int64_t count,
                           enum tri_dtype dtype)
{
    (void)all;
    if (w->make != NULL)
        tri_comm_mpi_set_algorithm(w->comm, w->make);
    return tri_comm_allreduce(w->comm, w->buf, count, dtype, TRI_REDUCE_SUM, false);
}

/* The real nodes, or those that `nodes` pretends: "2,2". */
static tri_status choose_nodes(struct tri_bench_ways *w, const struct tri_env *env,
                               const char *nodes)
{
    int64_t ranks[MAX_NODES];
    size_t n = 0;
    char *end = NULL;

    w->topology = env->world->topology;
    for (const char *at = nodes; at != NULL && n < MAX_NODES; at = *end == ',' ? end + 1 : NULL) {
        ranks[n] = strtol(at, &end, 10);
        if (end == at || ranks[n++] < 1 || (*end != ',' && *end != '\0'))
            return tri_fail(TRI_ERR_USAGE, "--nodes: '%s' is no list of ranks of each node", nodes);
    }
    if (nodes == NULL)
        return TRI_OK;
    TRI_TRY(tri_topology_alone(&w->topology, env->size));
    w->pretended = true;
    w->topology.rank = env->rank;
    return tri_topology_pretend(&w->topology, ranks, n);
}

/* Communicators and buffers. Collective. */
static tri_status open_buffers(struct tri_bench_ways *w, const struct tri_env *env, size_t most)
{
    const struct tri_topology *t = &w->topology;
    tri_status st = TRI_OK;

    w->plain = tri_alloc_aligned(most, "data of a benchmark");
    if (w->plain == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu bytes", most);
    TRI_TRY(tri_comm_agree(env->world->control, st));
    if (t->nodes == 1 && t->size > 1)
        TRI_TRY(tri_comm_shm_create(env->mpi_comm, "bench", STAGING_BYTES, TIMEOUT_MS, &w->shm));
    TRI_TRY(tri_comm_mpi_create(env->mpi_comm, "bench over MPI", TIMEOUT_MS, &w->mpi));
    TRI_TRY(tri_comm_library_create(env->mpi_comm, "bench by MPI", &w->library));
    if (t->nodes > 1)
        TRI_TRY(tri_bench_levels_create(env->mpi_comm, t, most, TIMEOUT_MS, &w->levels));
    return w->shm != NULL ? w->shm->ops->alloc(w->shm, most, &w->window) : TRI_OK;
}

static void add(struct tri_bench_ways *w, struct tri_bench_way way)
{
    TRI_ASSERT(w->count < TRI_BENCH_MAX_WAYS);
    w->way[w->count++] = way;
}

static void add_sum(struct tri_bench_ways *w, const char *name, void *buf, struct tri_comm *comm,
                    tri_rounds_make *make)
{
    add(w,
        (struct tri_bench_way){
            .name = name, .sum = sum_comm, .buf = buf, .comm = comm, .make = make, .summed = true});
}

static void add_all(struct tri_bench_ways *w)
{
    int size = w->topology.size;
    bool shared =
        w->window != NULL && size <= MAX_SLICES && tri_comm_shm_part(w->shm, w->window, 0) != NULL;
    struct tri_bench_way plain = {.name = "plain sum",
                                  .sum = sum_plain,
                                  .buf = shared ? w->window : w->plain,
                                  .summed = shared,
                                  .takes_turns = true};
    struct tri_bench_way levels = {.name = "two-level", .sum = sum_levels, .summed = true};
    struct tri_bench_way link = {.name = "plain link", .sum = sum_link};

    if (w->shm != NULL) {
        add_sum(w, "shm window", w->window, w->shm, NULL);
        add_sum(w, "shm staged", w->plain, w->shm, NULL);
    }
    if (w->levels != NULL) {
        levels.buf = link.buf = tri_bench_levels_buffer(w->levels);
        add(w, levels);
    }
    add_sum(w, "ring", w->plain, w->mpi, tri_rounds_ring);
    if ((size & (size - 1)) == 0)
        add_sum(w, "halving", w->plain, w->mpi, tri_rounds_halving);
    add_sum(w, "MPI_Allreduce", w->plain, w->library, NULL);
    add(w, w->levels != NULL ? link : plain);
}

/* `name` is in the list; then *found is one more. */
static bool listed(const char *list, const char *name, int *found)
{
    size_t n = strlen(name);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) {
            (*found)++;
            return true;
        }
    }
    return false;
}

/* Drops ways that are not in the list, but for the limit, the last one. */
static tri_status keep_named(struct tri_bench_ways *w, const char *names)
{
    int kept = 0, found = 0, wanted = 1;

    if (names == NULL)
        return TRI_OK;
    for (const char *at = names; (at = strchr(at, ',')) != NULL; at++)
        wanted++;
    for (int k = 0; k < w->count; k++)
        if (listed(names, w->way[k].name, &found) || k == w->count - 1)
            w->way[kept++] = w->way[k];
    w->count = kept;
    return found == wanted
               ? TRI_OK
               : tri_fail(TRI_ERR_USAGE,
                          "--algorithms: '%s' names one that these ranks do not have", names);
}

tri_status tri_bench_ways_open(struct tri_bench_ways *w, const struct tri_env *env,
                               const char *nodes, const char *names, size_t most)
{
    TRI_TRY(tri_comm_agree(env->world->control, choose_nodes(w, env, nodes)));
    TRI_TRY(open_buffers(w, env, most));
    add_all(w);
    return keep_named(w, names);
}

void tri_bench_ways_close(struct tri_bench_ways *w)
{
    if (w->window != NULL)
        w->shm->ops->free(w->shm, w->window);
    tri_bench_levels_destroy(w->levels);
    tri_comm_destroy(w->library);
    tri_comm_destroy(w->mpi);
    tri_comm_destroy(w->shm);
    tri_free(w->plain);
    if (w->pretended)
        tri_topology_finish(&w->topology);
    *w = (struct tri_bench_ways){0};
}
