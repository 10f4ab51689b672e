/* Exchange of the gradients of a foreign model: for programs that own MPI and compute by
 * themselves.
 *
 *     tri_exchange_create(comm, "gradient.bucket_mb=4", &x);
 *     for each parameter: tri_exchange_register(x, name, gradient, count, TRI_F32, &id);
 *     tri_exchange_commit(x);
 *     each step: backward, with tri_exchange_ready(x, id) for each finished gradient;
 *                tri_exchange_wait(x);
 *     tri_exchange_destroy(x);
 *
 * Gradients travel in flat buckets of f32, packed in the reverse order of registration; a bucket
 * starts when all of its gradients are ready and the buckets before it have started, so that all
 * ranks reduce in one order. Sums are taken in f32, divided by the number of ranks, and rounded
 * once to the gradient's type: 16-bit sums neither overflow nor lose small values. With a power of
 * two of ranks the bits of the result do not depend on bucket sizes, transport or overlap.
 *
 * gradient.hierarchy=two_level sums a bucket inside the nodes, then between them, then gives it to
 * all ranks of a node, one phase after the other; auto takes that on several nodes of more than one
 * rank. Bits are then those of the flat sum where the nodes hold equal powers of two of consecutive
 * ranks and are a power of two.
 *
 * gradient.compress.name=fp16|bf16|int8|onebit|topk|randk (with ratio, level, force) compresses as
 * in a training step: with error feedback, between nodes or with level=all between all ranks, and
 * only buckets for which an estimate with assumed rates of the links says that it pays, or all with
 * force=true. commit says in a line what it does. What is not sent waits in a residual of this rank
 * (between nodes: of its slices, so that bits depend on the sizes of buckets) and is added to the
 * gradient of the next round. A value that is not finite makes that gradient not finite on all
 * ranks; in a round that ends with such a gradient all residuals stay as they were, since the
 * program is expected to skip its update. Residuals are in the units of the gradients: a loss scale
 * that changes should be divided out before ready. They start at 0 and cannot be saved. Momentum
 * correction, warm-up and powersgd need an optimizer or matrices, and are refused.
 *
 * Under MPI_THREAD_MULTIPLE a thread exchanges while the program computes. Below that level, or
 * with gradient.overlap=false, all happens in tri_exchange_wait. One object belongs to one thread
 * of the program at a time. */
#ifndef TRI_OPTIM_EXCHANGE_H
#define TRI_OPTIM_EXCHANGE_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

#include <mpi.h>
#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_exchange;

/* comm is duplicated; MPI must be initialised. cfg: gradient.* options as "key=value" separated by
 * blanks, copied, NULL: defaults. TRI_ERR_USAGE for options that are unknown, out of range, without
 * meaning here (gradient.clip_norm; compress.ratio without topk or randk ...) or different between
 * ranks. Collective. */
tri_status tri_exchange_create(MPI_Comm comm, const char *cfg,
                               struct tri_exchange **out) TRI_CHECKED;

/* ptr: count elements of f32, bf16 or f16, borrowed until destroy. *id: 0, 1, ... Before commit.
 * Local. Same on all ranks: name, count, dtype and order. */
tri_status tri_exchange_register(struct tri_exchange *x, const char *name, void *ptr, int64_t count,
                                 enum tri_dtype dtype, int *id) TRI_CHECKED;

/* Compares what the ranks have registered and makes the buckets. A difference fails on all ranks
 * and names rank and parameter. Collective. */
tri_status tri_exchange_commit(struct tri_exchange *x) TRI_CHECKED;

/* This rank's gradient is complete in ptr, which may not be touched until wait returns. Once a
 * round. Local. */
tri_status tri_exchange_ready(struct tri_exchange *x, int id) TRI_CHECKED;

/* Ends the round: every ptr holds the mean over the ranks. Gradients that were not marked ready on
 * this rank count as 0. Collective. */
tri_status tri_exchange_wait(struct tri_exchange *x) TRI_CHECKED;

/* Between rounds. Accepts NULL. Collective. */
void tri_exchange_destroy(struct tri_exchange *x);

TRI_END_DECLS
#endif
