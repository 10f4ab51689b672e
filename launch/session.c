/* Memory and executors of the programs of a run. */
#include "launch/session.h"

#include "amp/precision_pass.h"
#include "launch/hierarchy.h"
#include "models/init.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <string.h>

#define MAX_PROGRAMS      (4 + TRI_COMPRESS_MAX_STAGES)
#define MAX_EXTRA_TENSORS 1 /* tri_session_keep */

static int list_programs(const struct tri_session *s, struct tri_program **p)
{
    struct tri_program *one[] = {s->train, s->eval, s->extra[0], s->extra[1]};
    int n = 0;

    for (int i = 0; i < 4; i++)
        if (one[i] != NULL)
            p[n++] = one[i];
    for (int k = 0; k < s->nwarm; k++)
        p[n++] = s->warm[k];
    return n;
}

size_t tri_session_arena_bytes(const struct tri_session *s, enum tri_arena arena)
{
    struct tri_program *all[MAX_PROGRAMS];
    int n = list_programs(s, all);
    size_t most = 0;

    for (int i = 0; i < n; i++)
        if (all[i]->arena_bytes[arena] > most)
            most = all[i]->arena_bytes[arena];
    return most;
}

tri_status tri_session_scratch(const struct tri_session *s, const struct tri_topology *t,
                               bool shared, size_t *bytes)
{
    size_t most, need;

    TRI_TRY(tri_hierarchy_scratch(s->train, t, shared, &most));
    for (int k = 0; k < s->nwarm; k++) {
        TRI_TRY(tri_hierarchy_scratch(s->warm[k], t, shared, &need));
        most = need > most ? need : most;
    }
    *bytes = most;
    return TRI_OK;
}

tri_status tri_session_compile_warmup(struct tri_session *s, const struct tri_compile_spec *spec,
                                      int64_t warmup)
{
    int n = warmup > 0 ? tri_compress_stages(&spec->exchange.compress) : 0;

    for (int k = 0; k < n; k++) {
        struct tri_compile_spec stage = *spec;

        stage.exchange.compress = tri_compress_stage(&spec->exchange.compress, k);
        TRI_TRY(tri_compile_train(&stage, s->layout, NULL, &s->warm[k]));
        s->nwarm++;
    }
    return TRI_OK;
}

/* The program whose graph names everything that is kept. */
static const struct tri_program *main_program(const struct tri_session *s,
                                              const struct tri_exec **x)
{
    *x = s->train != NULL ? s->train_exec : s->eval != NULL ? s->eval_exec : s->extra_exec[0];
    return s->train != NULL ? s->train : s->eval != NULL ? s->eval : s->extra[0];
}

static bool is_kept(const struct tri_value *v)
{
    return v->role == TRI_ROLE_PARAM || (v->role == TRI_ROLE_STATE && !v->transient);
}

static bool beside_params(const struct tri_value *v)
{
    return v->role == TRI_ROLE_PARAM || v->buffer;
}

/* The shape with the number of rows in front. */
static struct tri_shape by_rank(const struct tri_by_rank *b)
{
    int64_t dim[TRI_MAX_DIMS] = {b->rows};

    for (int d = 0; d < b->whole.ndim; d++)
        dim[d + 1] = b->whole.dim[d];
    return tri_shape_make(b->whole.ndim + 1, dim);
}

static void add_tensor(struct tri_session *s, const struct tri_exec *x, const struct tri_value *v,
                       tri_vid id, int rank, int size)
{
    const struct tri_by_rank *own = v->by_rank;
    struct tri_shape shape = own != NULL ? by_rank(own) : v->shape;
    int64_t count = tri_shape_count(&shape), first = count * rank / size;
    int64_t end = count * (rank + 1) / size;

    if (own != NULL) {
        first = own->row * tri_shape_count(&own->whole) + own->first;
        end = first + own->count;
    }

    s->tensor[s->ntensor] = (struct tri_checkpoint_tensor){
        .name = tri_pool_printf(&s->pool, "%s/%s", beside_params(v) ? "param" : "state", v->name),
        .dtype = v->dtype,
        .shape = shape,
        .by_rank = own != NULL,
        .data = tri_exec_value(x, id),
        .first = first,
        .count = end - first,
    };
    s->kept[s->ntensor] = (struct tri_kept){.name = v->name, .param = v->role == TRI_ROLE_PARAM};
    s->ntensor++;
}

static tri_status list_tensors(struct tri_session *s, const struct tri_world *world)
{
    const struct tri_exec *x;
    const struct tri_program *p = main_program(s, &x);
    const struct tri_graph *g = p->graph;
    struct tri_comm *comm = world != NULL ? world->control : NULL;
    size_t n = (size_t)g->nvalue + MAX_EXTRA_TENSORS;

    s->tensor = tri_calloc(n, sizeof(*s->tensor), "list of tensors");
    s->kept = tri_calloc(n, sizeof(*s->kept), "list of tensors");
    if (s->tensor == NULL || s->kept == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot list %d values", g->nvalue);
    for (int params = 1; params >= 0; params--)
        for (int i = 0; i < g->nvalue; i++)
            if (is_kept(&g->value[i]) && beside_params(&g->value[i]) == (params == 1))
                add_tensor(s, x, &g->value[i], i, tri_comm_rank(comm), tri_comm_size(comm));
    return TRI_OK;
}

void tri_session_keep(struct tri_session *s, struct tri_checkpoint_tensor tensor)
{
    s->tensor[s->ntensor] = tensor;
    s->kept[s->ntensor] = (struct tri_kept){.name = tensor.name};
    s->ntensor++;
}

static tri_status create_execs(struct tri_session *s, const struct tri_world *world)
{
    struct tri_comm *comms[TRI_AXIS_COUNT][TRI_LEVEL_COUNT] = {{NULL}};

    if (world != NULL) {
        comms[TRI_AXIS_DATA][TRI_LEVEL_ALL] = world->exchange;
        comms[TRI_AXIS_DATA][TRI_LEVEL_INTRA] = world->intra;
        comms[TRI_AXIS_DATA][TRI_LEVEL_INTER] = world->inter;
    }
    if (s->train != NULL)
        TRI_TRY(tri_exec_create(s->train, &s->memory, comms, &s->train_exec));
    if (s->eval != NULL)
        TRI_TRY(tri_exec_create(s->eval, &s->memory, comms, &s->eval_exec));
    for (int i = 0; i < 2; i++)
        if (s->extra[i] != NULL)
            TRI_TRY(tri_exec_create(s->extra[i], &s->memory, comms, &s->extra_exec[i]));
    for (int k = 0; k < s->nwarm; k++)
        TRI_TRY(tri_exec_create(s->warm[k], &s->memory, comms, &s->warm_exec[k]));
    tri_session_stage(s, s->nwarm);
    return TRI_OK;
}

tri_status tri_session_start(struct tri_session *s, const struct tri_world *world)
{
    struct tri_program *p[MAX_PROGRAMS];
    int n = list_programs(s, p);
    struct tri_comm *exchange = world == NULL          ? NULL
                                : world->intra != NULL ? world->intra
                                                       : world->exchange;
    tri_status st;

    st = tri_memory_create(&s->memory, p[0]->device, s->layout, p, n,
                           world != NULL ? world->control : NULL, exchange);
    if (st == TRI_OK)
        st = create_execs(s, world);
    if (st == TRI_OK)
        st = list_tensors(s, world);
    /* Memory of the transport is given back by all ranks together. */
    st = tri_comm_agree(world != NULL ? world->control : NULL, st);
    if (st != TRI_OK)
        tri_session_finish(s);
    return st;
}

void tri_session_finish(struct tri_session *s)
{
    tri_exec_destroy(s->train_exec);
    tri_exec_destroy(s->eval_exec);
    for (int i = 0; i < 2; i++)
        tri_exec_destroy(s->extra_exec[i]);
    for (int k = 0; k < s->nwarm; k++)
        tri_exec_destroy(s->warm_exec[k]);
    tri_memory_destroy(&s->memory);
    tri_program_destroy(s->train);
    tri_program_destroy(s->eval);
    for (int i = 0; i < 2; i++)
        tri_program_destroy(s->extra[i]);
    for (int k = 0; k < s->nwarm; k++)
        tri_program_destroy(s->warm[k]);
    tri_layout_destroy(s->layout);
    tri_free(s->tensor);
    tri_free(s->kept);
    tri_pool_finish(&s->pool);
    *s = (struct tri_session){0};
}

void tri_session_stage(struct tri_session *s, int k)
{
    s->now = k < s->nwarm ? s->warm[k] : s->train;
    s->now_exec = k < s->nwarm ? s->warm_exec[k] : s->train_exec;
}

void tri_session_graph(struct tri_session *s, bool say)
{
    int n = tri_exec_graph(s->train_exec);

    for (int k = 0; k < s->nwarm; k++)
        (void)tri_exec_graph(s->warm_exec[k]);
    if (!say)
        return;
    if (n == 0)
        tri_warn("device.graph: the %s has no graphs", s->train->device->name);
    else
        tri_info("a step is %d graph%s%s", n, n == 1 ? "" : "s",
                 n == 1 ? "" : ", cut where gradients are handed to MPI and taken back");
}

typedef tri_status copy_value(const struct tri_exec *x, tri_vid v);

static tri_status copy_all(const struct tri_session *s, copy_value *copy)
{
    const struct tri_exec *x;
    const struct tri_program *p = main_program(s, &x);

    for (tri_vid v = 0; v < p->graph->nvalue; v++) {
        enum tri_role role = p->graph->value[v].role;

        if (role == TRI_ROLE_PARAM || role == TRI_ROLE_STATE)
            TRI_TRY(copy(x, v));
    }
    return TRI_OK;
}

tri_status tri_session_pull(const struct tri_session *s)
{
    return copy_all(s, tri_exec_pull);
}

tri_status tri_session_push(const struct tri_session *s)
{
    return copy_all(s, tri_exec_push);
}

static void fill_program(const struct tri_program *p, const struct tri_exec *x, uint64_t seed)
{
    for (int i = 0; i < p->graph->nvalue; i++) {
        const struct tri_value *v = &p->graph->value[i];
        const struct tri_init *init = v->param != NULL ? &v->param->init : &v->init;

        if (v->role != TRI_ROLE_PARAM && v->role != TRI_ROLE_STATE)
            continue;
        if (v->dtype == TRI_F32)
            tri_init_fill(init, seed, v->name, 0, (size_t)tri_shape_count(&v->shape),
                          tri_exec_value(x, i));
        else
            memset(tri_exec_value(x, i), 0, tri_value_bytes(v));
    }
}

tri_status tri_session_fill(struct tri_session *s, uint64_t seed)
{
    const struct tri_exec *x;
    const struct tri_program *p = main_program(s, &x);

    fill_program(p, x, seed);
    return tri_session_push(s);
}

tri_status tri_session_read_weights(struct tri_session *s, struct tri_comm *comm, const char *path)
{
    int n = 0;

    while (n < s->ntensor && strncmp(s->tensor[n].name, "param/", 6) == 0)
        n++;
    TRI_TRY(tri_comm_agree(comm, tri_weights_read(path, s->tensor, n)));
    return tri_session_push(s);
}

tri_status tri_session_round_weights(struct tri_session *s)
{
    const struct tri_graph *g = s->train->graph;

    for (tri_vid v = 0; v < g->nvalue; v++) {
        tri_vid copy = g->value[v].role == TRI_ROLE_PARAM ? tri_precision_copy_of(g, v) : TRI_NONE;

        if (copy == TRI_NONE)
            continue;
        TRI_TRY(tri_exec_pull(s->train_exec, v));
        tri_precision_round(g->value[copy].dtype, tri_exec_value(s->train_exec, v),
                            tri_exec_value(s->train_exec, copy),
                            tri_shape_count(&g->value[v].shape));
        TRI_TRY(tri_exec_push(s->train_exec, copy));
    }
    return TRI_OK;
}

void *tri_session_find(const struct tri_program *p, const struct tri_exec *x, const char *name)
{
    tri_vid v = tri_graph_find(p->graph, name);

    return v == TRI_NONE ? NULL : tri_exec_value(x, v);
}

/* own[i]: hash of this rank's copy of the i-th parameter or buffer, 0 for other states. Returns the
 * sum over parameters. */
static uint64_t hash_own(const struct tri_session *s, uint64_t *own)
{
    uint64_t sum = 0;

    for (int i = 0; i < s->ntensor; i++) {
        const struct tri_checkpoint_tensor *t = &s->tensor[i];

        own[i] = 0;
        if (strncmp(t->name, "param/", 6) != 0)
            continue;
        own[i] = tri_hash_elements(tri_hash_name(s->kept[i].name), 0, t->data,
                                   (size_t)tri_shape_count(&t->shape), tri_dtype_bytes(t->dtype));
        if (s->kept[i].param)
            sum += own[i];
    }
    return sum;
}

/* The value that most ranks have for tensor i (the lowest rank's on a tie). */
static uint64_t majority(const uint64_t *all, int size, int n, int i)
{
    uint64_t best = all[i];
    int votes = 0;

    for (int r = 0; r < size; r++) {
        int same = 0;

        for (int q = 0; q < size; q++)
            same += all[q * n + i] == all[r * n + i];
        if (same > votes) {
            votes = same;
            best = all[r * n + i];
        }
    }
    return 2 * votes > size ? best : 0;
}

static tri_status compare(const struct tri_session *s, const uint64_t *all, int size)
{
    int n = s->ntensor;

    for (int i = 0; i < n; i++) {
        struct tri_text ranks = {0};
        uint64_t good = majority(all, size, n, i);
        tri_status st;

        for (int r = 0; r < size; r++)
            if (all[r * n + i] != good)
                tri_text_printf(&ranks, "%s%d", ranks.len > 0 ? ", " : "", r);
        if (ranks.len == 0)
            continue;
        st = tri_fail(TRI_ERR_NUMERIC, "parameter '%s' differs between replicas: rank %s %s",
                      s->kept[i].name, ranks.data != NULL ? ranks.data : "?",
                      good != 0 ? "holds another copy than the majority"
                                : "hold unlike copies, no majority");
        tri_text_finish(&ranks);
        return st;
    }
    return TRI_OK;
}

tri_status tri_session_hash(const struct tri_session *s, struct tri_comm *comm, bool check,
                            uint64_t *hash)
{
    size_t n = (size_t)s->ntensor;
    int size = tri_comm_size(comm);
    uint64_t *own = tri_calloc(n, sizeof(*own), "hashes");
    uint64_t *all = tri_calloc(n * (size_t)size, sizeof(*all), "hashes of all ranks");
    tri_status st = TRI_OK;

    if (own == NULL || all == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "cannot hash %d tensors", s->ntensor);
        goto free_all;
    }
    TRI_TRY_GOTO(st, tri_session_pull(s), free_all);
    *hash = hash_own(s, own);
    if (!check || size == 1)
        goto free_all;
    TRI_TRY_GOTO(st, tri_comm_allgather(comm, own, n * sizeof(*own), all), free_all);
    st = compare(s, all, size);

free_all:
    tri_free(all);
    tri_free(own);
    return st;
}
