/* Mailboxes per pair of ranks; a rank runs until it waits for a message that is not there yet. */
#include "collectives/simulate.h"

#include "runtime/core/memory.h"

#include <string.h>

struct message {
    struct message *next;
    size_t bytes;
    unsigned char data[];
};

/* Oldest message first. */
struct mailbox {
    struct message *first, *last;
};

struct pending {
    int peer;
    void *data;
    size_t bytes;
};

struct node {
    struct tri_link link;
    struct world *world;
    struct tri_run run;
    struct pending *pending; /* receives of the round that wait */
    int npending, pending_cap;
    int rank;
    bool done;
};

struct world {
    int size;
    struct node *node;
    struct mailbox *box; /* [from * size + to] */
    uint64_t moved;      /* messages sent or received: no progress without a change */
};

static tri_status send_simulated(struct tri_link *l, int peer, const void *data, size_t bytes)
{
    struct node *n = (struct node *)l;
    struct mailbox *box = &n->world->box[n->rank * n->world->size + peer];
    struct message *msg = tri_calloc(1, sizeof(*msg) + bytes, "simulated message");

    if (msg == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a message of %zu bytes", bytes);
    msg->bytes = bytes;
    memcpy(msg->data, data, bytes);
    if (box->last != NULL)
        box->last->next = msg;
    else
        box->first = msg;
    box->last = msg;
    n->world->moved++;
    return TRI_OK;
}

static tri_status recv_simulated(struct tri_link *l, int peer, void *data, size_t bytes)
{
    struct node *n = (struct node *)l;

    if (n->npending == n->pending_cap) {
        int cap = 2 * n->pending_cap + 4;
        void *p = tri_realloc(n->pending, (size_t)cap, sizeof(*n->pending), "simulated receives");

        if (p == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot allocate %d receives", cap);
        n->pending = p;
        n->pending_cap = cap;
    }
    n->pending[n->npending++] = (struct pending){.peer = peer, .data = data, .bytes = bytes};
    return TRI_OK;
}

/* Takes the oldest message for a receive; *got: there was one. */
static tri_status take(struct node *n, const struct pending *p, bool *got)
{
    struct mailbox *box = &n->world->box[p->peer * n->world->size + n->rank];
    struct message *msg = box->first;
    size_t bytes;

    *got = msg != NULL;
    if (msg == NULL)
        return TRI_OK;
    bytes = msg->bytes;
    if (bytes == p->bytes)
        memcpy(p->data, msg->data, bytes);
    box->first = msg->next;
    if (box->first == NULL)
        box->last = NULL;
    tri_free(msg);
    n->world->moved++;
    if (bytes != p->bytes)
        return tri_fail(TRI_ERR_INTERNAL, "rank %d expects %zu bytes from rank %d, which sent %zu",
                        n->rank, p->bytes, p->peer, bytes);
    return TRI_OK;
}

static tri_status test_simulated(struct tri_link *l, bool *done)
{
    struct node *n = (struct node *)l;
    int left = 0;

    for (int i = 0; i < n->npending; i++) {
        bool got;

        TRI_TRY(take(n, &n->pending[i], &got));
        if (!got)
            n->pending[left++] = n->pending[i];
    }
    n->npending = left;
    *done = left == 0;
    return TRI_OK;
}

static tri_status check_empty(const struct world *w)
{
    for (int from = 0; from < w->size; from++)
        for (int to = 0; to < w->size; to++)
            if (w->box[from * w->size + to].first != NULL)
                return tri_fail(TRI_ERR_INTERNAL,
                                "rank %d sent %zu bytes that rank %d never received", from,
                                w->box[from * w->size + to].first->bytes, to);
    return TRI_OK;
}

static tri_status run_all(struct world *w)
{
    int left = w->size;

    while (left > 0) {
        uint64_t before = w->moved;
        int before_left = left;

        for (int r = 0; r < w->size; r++) {
            struct node *n = &w->node[r];

            if (n->done)
                continue;
            TRI_TRY(tri_run_poll(&n->run, &n->link, &n->done));
            left -= n->done ? 1 : 0;
        }
        if (left == before_left && w->moved == before)
            return tri_fail(TRI_ERR_INTERNAL, "%d of %d ranks wait for messages that nobody sends",
                            left, w->size);
    }
    return check_empty(w);
}

static void finish_world(struct world *w)
{
    for (int i = 0; w->box != NULL && i < w->size * w->size; i++) {
        for (struct message *msg = w->box[i].first, *next; msg != NULL; msg = next) {
            next = msg->next;
            tri_free(msg);
        }
    }
    for (int r = 0; w->node != NULL && r < w->size; r++) {
        tri_free(w->node[r].run.area[TRI_AREA_SCRATCH]);
        tri_free(w->node[r].pending);
    }
    tri_free(w->box);
    tri_free(w->node);
}

tri_status tri_simulate(int size, const struct tri_rounds *plan, void *const *data, size_t elem,
                        tri_reduce_fn *reduce)
{
    struct world w = {.size = size};
    tri_status st = TRI_OK;

    w.node = tri_calloc((size_t)size, sizeof(*w.node), "simulated ranks");
    w.box = tri_calloc((size_t)size * (size_t)size, sizeof(*w.box), "simulated mailboxes");
    if (w.node == NULL || w.box == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate %d simulated ranks", size);
    for (int r = 0; st == TRI_OK && r < size; r++) {
        struct node *n = &w.node[r];

        n->link = (struct tri_link){send_simulated, recv_simulated, test_simulated};
        n->world = &w;
        n->rank = r;
        n->run = (struct tri_run){.plan = &plan[r], .elem = elem, .reduce = reduce, .rank = r};
        n->run.area[TRI_AREA_DATA] = data[r];
        n->run.area[TRI_AREA_SCRATCH] =
            tri_calloc((size_t)plan[r].scratch + 1, elem, "simulated scratch");
        if (n->run.area[TRI_AREA_SCRATCH] == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "cannot allocate a scratch of %lld elements",
                          (long long)plan[r].scratch);
    }
    if (st == TRI_OK)
        st = run_all(&w);
    finish_world(&w);
    return st;
}
