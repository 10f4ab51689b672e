/* oneDNN primitives as prepared kernels.
 *
 * A kernel is a short list of primitives over memories; a memory is an input, an output or a piece
 * of the kernel's planned scratch. prepare builds the list once, run only binds addresses and
 * executes. Scratchpads are planned too (user mode). Building is sticky: after the first failure
 * the builders do nothing and tri_onednn_finish tells it. oneDNN runs on the OpenMP team of the
 * calling thread. */
#ifndef TRI_RUNTIME_KERNELS_CPU_ONEDNN_H
#define TRI_RUNTIME_KERNELS_CPU_ONEDNN_H

#include "runtime/kernels/kernels.h"

#include <dnnl.h>
#include <stdbool.h>

#define TRI_ONEDNN_MEMORIES 12
#define TRI_ONEDNN_STEPS    4
#define TRI_ONEDNN_ARGS     8

enum tri_onednn_place { TRI_ONEDNN_IN, TRI_ONEDNN_OUT, TRI_ONEDNN_SCRATCH };

struct tri_onednn_memory {
    dnnl_memory_t memory;
    enum tri_onednn_place place;
    size_t at; /* IN, OUT: index of the argument; SCRATCH: offset in bytes */
};

struct tri_onednn_step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[TRI_ONEDNN_ARGS];
    int narg;
};

struct tri_onednn_kernel {
    struct tri_kernel base;
    dnnl_stream_t stream;
    struct tri_onednn_memory memory[TRI_ONEDNN_MEMORIES];
    struct tri_onednn_step step[TRI_ONEDNN_STEPS];
    int nmemory, nstep;
    int nthreads;         /* team of a run; oneDNN also lays out its work for it while preparing */
    int caller_threads;   /* of the preparing thread, given back by tri_onednn_finish */
    dnnl_status_t status; /* first failure while building */
};

/* Argument of a primitive: which of the kernel's memories plays which part (DNNL_ARG_...). */
struct tri_onednn_arg {
    int arg, memory;
};

/* The process's CPU engine, made at first use; NULL when oneDNN has none. Any thread. */
dnnl_engine_t tri_onednn_engine(void);

/* An empty kernel; ended by tri_onednn_finish, which hands it out or, after a failure, destroys it:
 * TRI_ERR_UNSUPPORTED without message for forms that oneDNN does not implement. Local. */
tri_status tri_onednn_begin(const struct tri_kernel_ops *ops, int nthreads,
                            struct tri_onednn_kernel **out) TRI_CHECKED;
tri_status tri_onednn_finish(struct tri_onednn_kernel *k, struct tri_kernel **out) TRI_CHECKED;

/* Adds a memory and returns its index. IN, OUT: argument number `index`; SCRATCH: reserves its
 * bytes, index is ignored. */
int tri_onednn_add_memory(struct tri_onednn_kernel *k, enum tri_onednn_place place, int index,
                          const dnnl_memory_desc_t *md);
/* oneDNN's choice for an operation, with a planned scratchpad; asked for formats before its step is
 * added. Takes attr (may be NULL), borrows the rest. NULL after a failure; else owned by the caller
 * until add_step takes it. */
dnnl_primitive_desc_t tri_onednn_describe(struct tri_onednn_kernel *k, const_dnnl_op_desc_t op,
                                          const_dnnl_primitive_desc_t hint,
                                          dnnl_primitive_attr_t attr);
/* Appends the primitive of pd, which it takes, with n arguments. NULL pd: nothing (a failure
 * before). */
void tri_onednn_add_step(struct tri_onednn_kernel *k, dnnl_primitive_desc_t pd,
                         const struct tri_onednn_arg *args, int n);
/* Appends to = from, or to += from, between two formats of one tensor. */
void tri_onednn_add_reorder(struct tri_onednn_kernel *k, int from, int to, bool accumulate);
/* A scratch memory of format `want` filled from the plain memory `plain`, or `plain` itself when
 * the formats are equal. */
int tri_onednn_add_converted(struct tri_onednn_kernel *k, int plain,
                             const dnnl_memory_desc_t *want);

/* run and destroy of such kernels. */
tri_status tri_onednn_run(const struct tri_kernel *k, const struct tri_kernel_args *a);
void tri_onednn_destroy(struct tri_kernel *k);

/* Dense descriptor of ndim <= 4 dims in a format; dims as oneDNN names them (NCHW, OIHW). */
dnnl_memory_desc_t tri_onednn_md(int ndim, const int64_t *dim, dnnl_format_tag_t tag);
/* dims of an NHWC tensor in the order NCHW. */
void tri_onednn_nchw(const struct tri_shape *nhwc, int64_t dim[4]);

#endif
