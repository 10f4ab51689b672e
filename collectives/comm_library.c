/* See comm_library.h. Deadlines do not exist here: MPI's collectives cannot be left. */
#include "collectives/comm_library.h"

#include "runtime/core/memory.h"

#include <limits.h>
#include <mpi.h>

struct comm_library {
    struct tri_comm base;
    MPI_Comm comm;
};

static struct comm_library *self_of(struct tri_comm *c)
{
    return (struct comm_library *)c;
}

static tri_status find_type(enum tri_dtype dtype, MPI_Datatype *out)
{
    if (dtype == TRI_F32)
        *out = MPI_FLOAT;
    else if (dtype == TRI_F64)
        *out = MPI_DOUBLE;
    else if (dtype == TRI_I64)
        *out = MPI_INT64_T;
    else
        return tri_fail(TRI_ERR_UNSUPPORTED, "MPI_Allreduce has no type %s", tri_dtype_name(dtype));
    return TRI_OK;
}

static tri_status allreduce_library(struct tri_comm *c, void *buf, int64_t count,
                                    enum tri_dtype dtype, enum tri_reduce op, bool fixed_tree)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    MPI_Datatype type = MPI_BYTE;

    (void)fixed_tree;
    TRI_TRY(find_type(dtype, &type));
    if (count > INT_MAX)
        return tri_fail(TRI_ERR_UNSUPPORTED, "MPI_Allreduce takes no %lld elements",
                        (long long)count);
    if (MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, type, ops[op], self_of(c)->comm) !=
        MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "rank %d: MPI_Allreduce failed", c->rank);
    return TRI_OK;
}

static tri_status barrier_library(struct tri_comm *c)
{
    if (MPI_Barrier(self_of(c)->comm) != MPI_SUCCESS)
        return tri_fail(TRI_ERR_COMM, "rank %d: MPI_Barrier failed", c->rank);
    return TRI_OK;
}

static void destroy_library(struct tri_comm *c)
{
    struct comm_library *l = self_of(c);

    if (l == NULL)
        return;
    if (l->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&l->comm);
    tri_free(l);
}

static const struct tri_comm_ops library_ops = {
    .name = "MPI",
    .allreduce = allreduce_library,
    .barrier = barrier_library,
    .destroy = destroy_library,
};

tri_status tri_comm_library_create(const void *mpi_comm, const char *name, struct tri_comm **out)
{
    struct comm_library *l = tri_calloc(1, sizeof(*l), "communicator of the MPI library");

    if (l == NULL)
        return tri_fail(TRI_ERR_NOMEM, "communicator '%s': cannot allocate %zu bytes", name,
                        sizeof(*l));
    l->base = (struct tri_comm){.ops = &library_ops, .name = name, .timeout_ms = -1};
    if (MPI_Comm_dup(*(const MPI_Comm *)mpi_comm, &l->comm) != MPI_SUCCESS) {
        l->comm = MPI_COMM_NULL;
        destroy_library(&l->base);
        return tri_fail(TRI_ERR_COMM, "communicator '%s': MPI_Comm_dup failed", name);
    }
    (void)MPI_Comm_set_errhandler(l->comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(l->comm, &l->base.rank);
    (void)MPI_Comm_size(l->comm, &l->base.size);
    *out = &l->base;
    return TRI_OK;
}
