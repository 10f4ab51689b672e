/* Operation graphs of cuDNN: built from tensors and operations, planned once, run any number of
 * times. Building is sticky: after the first failure every call does nothing, and tri_cudnn_plan
 * tells it. All calls are Local; one thread at a time uses a handle. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_CUDNN_GRAPH_H
#define TRI_RUNTIME_KERNELS_CUDA_CUDNN_GRAPH_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

#include <cudnn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_CUDNN_MAX_DESCS 192
#define TRI_CUDNN_MAX_OPS   32
#define TRI_CUDNN_MAX_BOUND 16 /* tensors that lie in memory */
#define TRI_CUDNN_MAX_PLANS 4

/* Zero-initialise; tri_cudnn_finish frees. */
struct tri_cudnn_graph {
    cudnnHandle_t handle;                               /* borrowed */
    cudnnBackendDescriptor_t desc[TRI_CUDNN_MAX_DESCS]; /* all, owned; the plan leans on them */
    cudnnBackendDescriptor_t op[TRI_CUDNN_MAX_OPS];
    int ndesc, nop;
    int64_t bound; /* tensors in memory so far: the next one's number */
    cudnnStatus_t status;
    const char *failed;                                 /* what failed first */
    cudnnBackendDescriptor_t plan[TRI_CUDNN_MAX_PLANS]; /* nplan, best first */
    size_t plan_bytes[TRI_CUDNN_MAX_PLANS];             /* workspace of each */
    int nplan;
    int chosen;             /* the plan that tri_cudnn_run takes */
    size_t workspace_bytes; /* of that plan */
};

/* A tensor of four dimensions (three for a batch of matrices) with strides in elements. */
struct tri_cudnn_tensor {
    cudnnDataType_t type;
    int ndim;
    int64_t dim[4], stride[4];
};

typedef cudnnBackendDescriptor_t tri_cudnn_desc; /* NULL after a failure */

cudnnDataType_t tri_cudnn_type(enum tri_dtype t);

/* A tensor that lies in memory: they are numbered 0, 1, ... in the order of the calls, which is the
 * order of the pointers of tri_cudnn_run. Aligned to TRI_ALIGN_BYTES. */
tri_cudnn_desc tri_cudnn_bound(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t);
/* The same, aligned to less. */
tri_cudnn_desc tri_cudnn_bound_at(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t,
                                  int64_t alignment);
/* One f32 that the host gives with each run: its pointer is one to memory of the process. */
tri_cudnn_desc tri_cudnn_number(struct tri_cudnn_graph *g, int ndim);
/* A tensor between two operations, that exists nowhere. */
tri_cudnn_desc tri_cudnn_between(struct tri_cudnn_graph *g, const struct tri_cudnn_tensor *t);

/* Window of a convolution over two spatial dimensions, the same in both. */
struct tri_cudnn_window {
    int64_t stride, pad;
};
/* kind: CUDNN_BACKEND_OPERATION_CONVOLUTION_{FORWARD,BACKWARD_DATA,BACKWARD_FILTER}_DESCRIPTOR;
 * x, w, y or their gradients, all with dims as NCHW; sums in f32. */
void tri_cudnn_convolution(struct tri_cudnn_graph *g, cudnnBackendDescriptorType_t kind,
                           const struct tri_cudnn_window *win, tri_cudnn_desc x, tri_cudnn_desc w,
                           tri_cudnn_desc y);
/* c = a b over the last two dimensions, summed in f32. */
void tri_cudnn_matmul(struct tri_cudnn_graph *g, tri_cudnn_desc a, tri_cudnn_desc b,
                      tri_cudnn_desc c);
/* y = mode(x), mode(x, b) or, for BINARY_SELECT, t ? x : b; absent operands NULL; in f32 but for
 * GEN_INDEX (i32: the index along `axis`, -1 elsewhere) and CMP_GE (boolean). */
void tri_cudnn_pointwise(struct tri_cudnn_graph *g, cudnnPointwiseMode_t mode, tri_cudnn_desc x,
                         tri_cudnn_desc b, tri_cudnn_desc t, tri_cudnn_desc y, int64_t axis);
/* y = sum or maximum of x over the dimensions in which y has 1, in f32. */
void tri_cudnn_reduce(struct tri_cudnn_graph *g, cudnnReduceTensorOp_t what, tri_cudnn_desc x,
                      tri_cudnn_desc y);
/* y = x with other dimensions or strides of the same elements. */
void tri_cudnn_reshape(struct tri_cudnn_graph *g, tri_cudnn_desc x, tri_cudnn_desc y);

/* Takes the first engine that the heuristics offer, which gives the same bits in each run, needs at
 * most workspace_limit and, with `exact`, multiplies f32 as f32. TRI_ERR_UNSUPPORTED without a
 * message: no engine; TRI_ERR_INTERNAL: the graph could not be built. */
tri_status tri_cudnn_plan(struct tri_cudnn_graph *g, bool exact,
                          size_t workspace_limit) TRI_CHECKED;
/* The same, with up to `most` (at most TRI_CUDNN_MAX_PLANS) plans to choose from. */
tri_status tri_cudnn_plans(struct tri_cudnn_graph *g, bool exact, size_t workspace_limit,
                           int most) TRI_CHECKED;
/* Takes plan i of those from now on. */
void tri_cudnn_choose(struct tri_cudnn_graph *g, int i);

/* Enqueues the plan on `stream` with `n` bound tensors at ptr[0..n) and workspace_bytes at
 * `workspace` (aligned to 256). */
tri_status tri_cudnn_run(const struct tri_cudnn_graph *g, void *const *ptr, int n, void *workspace,
                         void *stream) TRI_CHECKED;

void tri_cudnn_finish(struct tri_cudnn_graph *g);

TRI_END_DECLS
#endif
