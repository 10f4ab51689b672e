/* One rank: every collective is the identity. */
#include "collectives/comm_self.h"

#include "runtime/core/memory.h"

#include <string.h>

struct self {
    struct tri_comm base;
    char *name;
};

static tri_status allreduce_self(struct tri_comm *c, void *buf, int64_t count, enum tri_dtype dtype,
                                 enum tri_reduce op, bool fixed_tree)
{
    (void)c, (void)buf, (void)count, (void)dtype, (void)op, (void)fixed_tree;
    return TRI_OK;
}

static tri_status reduce_scatter_self(struct tri_comm *c, void *buf, int64_t count,
                                      enum tri_dtype dtype, int slices, bool fixed_tree)
{
    (void)c, (void)buf, (void)count, (void)dtype, (void)slices, (void)fixed_tree;
    return TRI_OK;
}

static tri_status gather_slices_self(struct tri_comm *c, void *buf, int64_t count,
                                     enum tri_dtype dtype, int slices)
{
    (void)c, (void)buf, (void)count, (void)dtype, (void)slices;
    return TRI_OK;
}

static tri_status broadcast_self(struct tri_comm *c, void *buf, size_t bytes, int root)
{
    (void)c, (void)buf, (void)bytes, (void)root;
    return TRI_OK;
}

static tri_status allgather_self(struct tri_comm *c, const void *send, size_t bytes, void *recv)
{
    (void)c;
    if (bytes > 0)
        memmove(recv, send, bytes);
    return TRI_OK;
}

static tri_status barrier_self(struct tri_comm *c)
{
    (void)c;
    return TRI_OK;
}

static uint64_t bytes_sent_self(const struct tri_comm *c)
{
    (void)c;
    return 0;
}

static void destroy_self(struct tri_comm *c)
{
    struct self *s = (struct self *)c;

    tri_free(s->name);
    tri_free(s);
}

static const struct tri_comm_ops self_ops = {
    .name = "self",
    .allreduce = allreduce_self,
    .reduce_scatter = reduce_scatter_self,
    .gather_slices = gather_slices_self,
    .broadcast = broadcast_self,
    .allgather = allgather_self,
    .barrier = barrier_self,
    .bytes_sent = bytes_sent_self,
    .destroy = destroy_self,
};

tri_status tri_comm_self_create(const char *name, struct tri_comm **out)
{
    struct self *s = tri_calloc(1, sizeof(*s), "communicator of one rank");

    if (s == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", name,
                        sizeof(*s));
    s->name = tri_strdup(name);
    if (s->name == NULL) {
        tri_free(s);
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate its name", name);
    }
    s->base = (struct tri_comm){
        .ops = &self_ops, .rank = 0, .size = 1, .name = s->name, .timeout_ms = -1};
    *out = &s->base;
    return TRI_OK;
}
