/* The exchange of a foreign model. The program's thread releases buckets by a counter, the engine
 * (a thread, or the program itself inside wait) takes them in order: pack, sum, divide and unpack.
 * Counters run on from round to round, so nothing is reset under a waiting thread. */
#include "optim/exchange.h"

#include "collectives/reduce.h"
#include "collectives/world.h"
#include "optim/exchange_compress.h"
#include "optim/exchange_layout.h"
#include "optim/exchange_pass.h"
#include "optim/optim_options.h"
#include "runtime/core/counter.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"
#include "runtime/core/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Default size: some milliseconds of a shared-memory sum, far above latency. */
enum { BUCKET_BYTES = 8 << 20 };

struct gradient {
    char *name;
    void *ptr; /* borrowed */
    int64_t count;
    enum tri_dtype dtype;
    int bucket;
    bool ready; /* in this round */
};

struct tri_exchange {
    struct tri_topology topology;
    struct tri_comm *comm;
    struct tri_comm *intra, *inter; /* levels; intra NULL: flat */
    struct tri_gradient_options options;
    struct gradient *grad;
    int ngrads, grad_cap;
    bool committed;
    struct tri_exchange_layout layout;
    float *memory; /* the buckets; from the transport */
    struct tri_exchange_compress compress;
    bool finite;                 /* all gradients of this round so far, where any are compressed */
    int *left;                   /* per bucket: gradients that are not ready in this round */
    int next;                    /* first bucket of this round that is not released */
    uint32_t rounds_base;        /* buckets of all rounds before this one */
    struct tri_counter released; /* buckets that may be exchanged, since commit */
    struct tri_counter finished; /* buckets done, since commit */
    uint32_t done;               /* the engine's own count */
    int at;                      /* the engine's next bucket */
    pthread_t engine;
    bool has_engine;
    _Atomic bool stop;
    tri_status failed; /* of the engine: read when finished says so */
    char error[512];
};

static int64_t bucket_bytes(const struct tri_exchange *x)
{
    int64_t bytes = tri_gradient_bucket_bytes(&x->options);

    return bytes == TRI_OPT_AUTO ? BUCKET_BYTES : bytes;
}

/* Collective. */
static tri_status connect_levels(struct tri_exchange *x, const void *mpi_comm)
{
    const struct tri_topology *t = &x->topology;
    bool worth = t->nodes > 1 && t->nodes < t->size;
    bool two = x->options.hierarchy == TRI_HIERARCHY_TWO_LEVEL ||
               (x->options.hierarchy == TRI_HIERARCHY_AUTO && worth);

    TRI_TRY(tri_comm_same(x->comm, &two, sizeof(two), "the hierarchy of the exchange"));
    if (!two || t->size == 1)
        return TRI_OK;
    return tri_comm_agree(x->comm,
                          tri_world_connect_levels(mpi_comm, t, NULL, &x->intra, &x->inter));
}

tri_status tri_exchange_create(MPI_Comm comm, const char *cfg, struct tri_exchange **out)
{
    struct tri_exchange *x;
    tri_status st = TRI_OK;
    int64_t bytes;

    if (!tri_mpi_started())
        return tri_fail(TRI_ERR_USAGE,
                        "MPI is not initialised: call MPI_Init_thread before tri_exchange_create");
    x = tri_calloc(1, sizeof(*x), "exchange");
    if (x == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate an exchange");
    TRI_TRY_GOTO(st, tri_topology_init(&x->topology, &comm), fail);
    TRI_TRY_GOTO(st, tri_world_connect(&comm, &x->topology, "gradient exchange", NULL, &x->comm),
                 fail);
    st = tri_gradient_options_parse(cfg, &x->options);
    TRI_TRY_GOTO(st, tri_comm_agree(x->comm, st), fail);
    bytes = bucket_bytes(x);
    TRI_TRY_GOTO(st, tri_comm_same(x->comm, &bytes, sizeof(bytes), "the bucket size"), fail);
    TRI_TRY_GOTO(st, tri_exchange_compress_agree(&x->options, x->comm), fail);
    TRI_TRY_GOTO(st, connect_levels(x, &comm), fail);
    *out = x;
    return TRI_OK;

fail:
    tri_exchange_destroy(x);
    return st;
}

static tri_status check_gradient(const struct tri_exchange *x, const char *name, const void *ptr,
                                 int64_t count, enum tri_dtype dtype)
{
    if (x->committed)
        return tri_fail(TRI_ERR_USAGE, "parameter '%s' is registered after commit",
                        name != NULL ? name : "");
    if (name == NULL || *name == '\0')
        return tri_fail(TRI_ERR_USAGE, "parameter %d has no name", x->ngrads);
    if (count < 0 || (ptr == NULL && count > 0))
        return tri_fail(TRI_ERR_USAGE, "parameter '%s': %lld elements at %s", name,
                        (long long)count, ptr == NULL ? "NULL" : "an address");
    if (dtype != TRI_F32 && dtype != TRI_BF16 && dtype != TRI_F16)
        return tri_fail(
            TRI_ERR_USAGE, "parameter '%s': gradients are f32, bf16 or f16, not %s", name,
            (unsigned)dtype < TRI_DTYPE_COUNT ? tri_dtype_name(dtype) : "an unknown type");
    for (int i = 0; i < x->ngrads; i++)
        if (strcmp(x->grad[i].name, name) == 0)
            return tri_fail(TRI_ERR_USAGE, "parameter '%s' is registered twice", name);
    return TRI_OK;
}

tri_status tri_exchange_register(struct tri_exchange *x, const char *name, void *ptr, int64_t count,
                                 enum tri_dtype dtype, int *id)
{
    struct gradient g = {.ptr = ptr, .count = count, .dtype = dtype};

    TRI_TRY(check_gradient(x, name, ptr, count, dtype));
    if (x->ngrads == x->grad_cap) {
        int cap = 2 * x->grad_cap + 16;
        void *p = tri_realloc(x->grad, (size_t)cap, sizeof(*x->grad), "gradients");

        if (p == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d gradients", cap);
        x->grad = p;
        x->grad_cap = cap;
    }
    g.name = tri_strdup(name);
    if (g.name == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the name of parameter '%s'", name);
    *id = x->ngrads;
    x->grad[x->ngrads++] = g;
    return TRI_OK;
}

/* One line per registered gradient: what ranks compare. */
static void describe(const struct tri_exchange *x, struct tri_text *t)
{
    for (int i = 0; i < x->ngrads; i++)
        tri_text_printf(t, "'%s' (%lld elements of %s)\n", x->grad[i].name,
                        (long long)x->grad[i].count, tri_dtype_name(x->grad[i].dtype));
    tri_text_printf(t, "the end of the list\n");
}

/* Names the first line in which two lists differ. */
static tri_status compare_lists(const char *mine, const char *first_rank)
{
    for (int i = 0;; i++) {
        size_t a = strcspn(mine, "\n");
        size_t b = strcspn(first_rank, "\n");

        if (a != b || memcmp(mine, first_rank, a) != 0)
            return tri_fail(TRI_ERR_USAGE, "parameter %d is %.*s, on rank 0 it is %.*s", i, (int)a,
                            mine, (int)b, first_rank);
        if (mine[a] == '\0' || mine[a + 1] == '\0')
            return TRI_OK;
        mine += a + 1;
        first_rank += b + 1;
    }
}

static tri_status check_lists(struct tri_exchange *x)
{
    struct tri_text mine = {0};
    uint64_t bytes = 0;
    char *theirs = NULL;
    tri_status st = TRI_OK;

    describe(x, &mine);
    bytes = mine.len;
    if (mine.failed)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the list of parameters");
    TRI_TRY_GOTO(st, tri_comm_agree(x->comm, st), done);
    TRI_TRY_GOTO(st, tri_comm_broadcast(x->comm, &bytes, sizeof(bytes), 0), done);
    theirs = tri_calloc(bytes + 1, 1, "list of parameters");
    if (theirs == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a list of %llu bytes",
                      (unsigned long long)bytes);
    TRI_TRY_GOTO(st, tri_comm_agree(x->comm, st), done);
    if (x->comm->rank == 0)
        memcpy(theirs, mine.data, bytes);
    TRI_TRY_GOTO(st, tri_comm_broadcast(x->comm, theirs, bytes, 0), done);
    st = tri_comm_agree(x->comm, compare_lists(mine.data, theirs));
done:
    tri_free(theirs);
    tri_text_finish(&mine);
    return st;
}

static tri_status make_layout(struct tri_exchange *x)
{
    int64_t *count = tri_calloc((size_t)x->ngrads + 1, sizeof(*count), "sizes of gradients");
    tri_status st;

    if (count == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the sizes of %d gradients", x->ngrads);
    for (int i = 0; i < x->ngrads; i++)
        count[i] = x->grad[i].count;
    st = tri_exchange_layout_make(count, x->ngrads, TRI_FIRST_BUCKET_BYTES, bucket_bytes(x),
                                  &x->layout);
    tri_free(count);
    TRI_TRY(st);
    x->left = tri_calloc((size_t)x->layout.nbuckets + 1, sizeof(*x->left), "states of buckets");
    if (x->left == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the states of %d buckets",
                        x->layout.nbuckets);
    for (int b = 0; b < x->layout.nbuckets; b++)
        for (int k = x->layout.bucket[b].first; k < x->layout.bucket[b].end; k++)
            x->grad[x->ngrads - 1 - k].bucket = b;
    return TRI_OK;
}

/* Whose memory holds the buckets. */
static struct tri_comm *giver(const struct tri_exchange *x)
{
    return x->intra != NULL ? x->intra : x->comm;
}

static tri_status make_memory(struct tri_exchange *x)
{
    size_t bytes = (size_t)x->layout.elements * sizeof(float);
    struct tri_comm *c = giver(x);
    void *p = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (c->ops->alloc != NULL)
        TRI_TRY(c->ops->alloc(c, bytes, &p));
    else
        p = tri_alloc_aligned(bytes, "exchange memory");
    if (p == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate %zu bytes of exchange memory", bytes);
    x->memory = p;
    memset(x->memory, 0, bytes); /* gaps stay 0 for ever */
    return TRI_OK;
}

/* Behind make_layout. */
static tri_status make_compression(struct tri_exchange *x, struct tri_text *report)
{
    struct tri_compress_spec spec = tri_exchange_compress_spec(
        &x->options, &x->topology, x->intra != NULL ? x->topology.slices : 0);
    int64_t *count = tri_calloc((size_t)x->ngrads + 1, sizeof(*count), "sizes of gradients");
    uint64_t *stream = tri_calloc((size_t)x->ngrads + 1, sizeof(*stream), "streams of gradients");
    tri_status st = TRI_OK;

    if (count == NULL || stream == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate the sizes of %d gradients", x->ngrads);
    for (int i = 0; st == TRI_OK && i < x->ngrads; i++) {
        count[i] = x->grad[i].count;
        stream[i] = tri_hash_name(x->grad[i].name);
    }
    if (st == TRI_OK)
        st = tri_exchange_compress_init(&x->compress, &spec, &x->layout, count, stream, x->ngrads,
                                        x->topology.local_rank, report);
    tri_free(stream);
    tri_free(count);
    return st;
}

static tri_status commit_compression(struct tri_exchange *x)
{
    struct tri_text report = {0};
    tri_status st = tri_comm_agree(x->comm, make_compression(x, &report));

    if (st == TRI_OK && x->comm->rank == 0 && report.len > 0)
        tri_info("%.*s", (int)strcspn(report.data, "\n"), report.data);
    tri_text_finish(&report);
    return st;
}

static void begin_round(struct tri_exchange *x)
{
    x->finite = true;
    for (int i = 0; i < x->ngrads; i++)
        x->grad[i].ready = false;
    for (int b = 0; b < x->layout.nbuckets; b++)
        x->left[b] = x->layout.bucket[b].end - x->layout.bucket[b].first;
    x->next = 0;
}

static void pack(const struct gradient *g, float *to)
{
    if (!g->ready)
        memset(to, 0, (size_t)g->count * sizeof(float));
    else if (g->dtype == TRI_F32)
        memcpy(to, g->ptr, (size_t)g->count * sizeof(float));
    else
        tri_reduce_widen(to, g->ptr, g->count, g->dtype);
}

static void unpack(const struct gradient *g, float *from, int size)
{
    float *to = g->dtype == TRI_F32 ? g->ptr : from;
    float n = (float)size;

    for (int64_t i = 0; i < g->count; i++)
        to[i] = from[i] / n;
    if (g->dtype != TRI_F32)
        tri_reduce_narrow(g->ptr, from, g->count, g->dtype);
}

/* The sum of bucket i over all ranks. */
static tri_status sum_bucket(struct tri_exchange *x, int i)
{
    const struct tri_topology *t = &x->topology;
    const struct tri_bucket_range *b = &x->layout.bucket[i];
    float *data = x->memory + b->at;
    int size = x->comm->size;
    bool tree = x->intra == NULL ? (size & (size - 1)) == 0 : tri_topology_regular(t);
    int64_t first, n;

    if (tri_exchange_compresses(&x->compress, i, TRI_LEVEL_ALL))
        return tri_exchange_compress_sum(&x->compress, x->comm, b, x->memory);
    if (x->intra == NULL)
        return tri_comm_allreduce(x->comm, data, b->count, TRI_F32, TRI_REDUCE_SUM, tree);
    TRI_TRY(tri_comm_reduce_scatter(x->intra, data, b->count, TRI_F32, t->slices, tree));
    tri_comm_slice(b->count, t->slices, t->local_rank, &first, &n);
    if (tri_exchange_compresses(&x->compress, i, TRI_LEVEL_INTER))
        TRI_TRY(tri_exchange_compress_sum(&x->compress, x->inter, b, x->memory));
    else if (n > 0)
        TRI_TRY(tri_comm_allreduce(x->inter, data + first, n, TRI_F32, TRI_REDUCE_SUM, tree));
    return tri_comm_gather_slices(x->intra, data, b->count, TRI_F32, t->slices);
}

static tri_status exchange_bucket(struct tri_exchange *x, int bucket)
{
    const struct tri_bucket_range *b = &x->layout.bucket[bucket];
    int size = x->comm->size;

    for (int k = b->first; k < b->end; k++) {
        int i = x->ngrads - 1 - k;

        if (x->grad[i].count > 0)
            pack(&x->grad[i], x->memory + x->layout.at[i]);
    }
    TRI_TRY(sum_bucket(x, bucket));
    for (int k = b->first; k < b->end; k++) {
        int i = x->ngrads - 1 - k;

        unpack(&x->grad[i], x->memory + x->layout.at[i], size);
        if (x->compress.chosen != NULL)
            x->finite = x->finite &&
                        tri_exchange_is_finite(x->grad[i].ptr, x->grad[i].count, x->grad[i].dtype);
    }
    return TRI_OK;
}

/* The next bucket. After a failure buckets only pass by, so that the waiting thread is served. */
static void engine_step(struct tri_exchange *x)
{
    int b = x->at;

    if (x->failed == TRI_OK) {
        x->failed = exchange_bucket(x, b);
        if (x->failed != TRI_OK)
            (void)snprintf(x->error, sizeof(x->error), "bucket %d: %s", b, tri_error_text());
    }
    x->at = b + 1 < x->layout.nbuckets ? b + 1 : 0;
    x->done++;
    tri_counter_set(&x->finished, x->done);
}

static void *engine_main(void *arg)
{
    struct tri_exchange *x = arg;

    for (;;) {
        if (tri_counter_wait(&x->released, x->done + 1, -1) != TRI_OK || atomic_load(&x->stop))
            return NULL;
        engine_step(x);
    }
}

tri_status tri_exchange_commit(struct tri_exchange *x)
{
    tri_status st;

    if (x->committed)
        return tri_fail(TRI_ERR_USAGE, "the exchange is committed twice");
    TRI_TRY(check_lists(x));
    st = make_layout(x);
    TRI_TRY(tri_comm_agree(x->comm, st));
    TRI_TRY(tri_comm_agree(x->comm, make_memory(x)));
    TRI_TRY(commit_compression(x));
    x->committed = true;
    begin_round(x);
    if (x->comm->size == 1 || !x->options.overlap || x->layout.nbuckets == 0)
        return TRI_OK;
    if (!tri_mpi_thread_multiple()) {
        if (x->comm->rank == 0)
            tri_warn("MPI was initialised below MPI_THREAD_MULTIPLE: gradients are exchanged "
                     "inside tri_exchange_wait, "
                     "without overlap");
        return TRI_OK;
    }
    x->has_engine = pthread_create(&x->engine, NULL, engine_main, x) == 0;
    if (!x->has_engine)
        tri_warn(
            "rank %d: no thread for the exchange: gradients are exchanged inside tri_exchange_wait",
            x->comm->rank);
    return TRI_OK;
}

/* Lets the engine have all leading buckets that are complete. */
static void release(struct tri_exchange *x)
{
    int before = x->next;

    while (x->next < x->layout.nbuckets && x->left[x->next] == 0)
        x->next++;
    if (x->next > before)
        tri_counter_set(&x->released, x->rounds_base + (uint32_t)x->next);
}

tri_status tri_exchange_ready(struct tri_exchange *x, int id)
{
    if (!x->committed)
        return tri_fail(TRI_ERR_USAGE, "gradient %d is marked ready before commit", id);
    if (id < 0 || id >= x->ngrads)
        return tri_fail(TRI_ERR_USAGE, "gradient %d is marked ready: there are %d", id, x->ngrads);
    if (x->grad[id].ready)
        return tri_fail(TRI_ERR_USAGE, "gradient '%s' is marked ready twice in a round",
                        x->grad[id].name);
    x->grad[id].ready = true;
    x->left[x->grad[id].bucket]--;
    release(x);
    return TRI_OK;
}

tri_status tri_exchange_wait(struct tri_exchange *x)
{
    uint32_t end;

    if (!x->committed)
        return tri_fail(TRI_ERR_USAGE, "tri_exchange_wait is called before commit");
    end = x->rounds_base + (uint32_t)x->layout.nbuckets;
    memset(x->left, 0, (size_t)x->layout.nbuckets * sizeof(*x->left));
    release(x);
    while (!x->has_engine && x->done != end)
        engine_step(x);
    TRI_TRY(tri_counter_wait(&x->finished, end, -1));
    if (x->failed != TRI_OK) {
        tri_error_set(x->error);
        return x->failed;
    }
    x->rounds_base = end;
    if (x->compress.chosen != NULL)
        tri_exchange_compress_end(&x->compress, !x->finite);
    begin_round(x);
    return TRI_OK;
}

void tri_exchange_destroy(struct tri_exchange *x)
{
    if (x == NULL)
        return;
    if (x->has_engine) {
        atomic_store(&x->stop, true);
        tri_counter_set(&x->released, x->rounds_base + (uint32_t)x->layout.nbuckets + 1);
        (void)pthread_join(x->engine, NULL);
    }
    if (x->memory != NULL && giver(x)->ops->alloc != NULL)
        giver(x)->ops->free(giver(x), x->memory);
    else
        tri_free(x->memory);
    tri_comm_destroy(x->inter);
    tri_comm_destroy(x->intra);
    tri_comm_destroy(x->comm);
    tri_topology_finish(&x->topology);
    tri_exchange_layout_finish(&x->layout);
    tri_exchange_compress_finish(&x->compress);
    for (int i = 0; i < x->ngrads; i++)
        tri_free(x->grad[i].name);
    tri_free(x->grad);
    tri_free(x->left);
    tri_free(x);
}
