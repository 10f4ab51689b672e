/* Kernels: one table slot per op kind and device.
 *
 * A slot is prepared once for a signature (kind, attributes, shapes, dtypes) and then run any
 * number of times with different buffers; instructions with equal signatures share one prepared
 * kernel. `run` never allocates, synchronises or prints. The reference table (ref/) has every op,
 * naive and in double accumulation: it is the oracle of the kernel suite. The CPU table (cpu/)
 * overrides slots; where it is NULL or its prepare answers TRI_ERR_UNSUPPORTED the reference
 * serves. */
#ifndef TRI_RUNTIME_KERNELS_KERNELS_H
#define TRI_RUNTIME_KERNELS_KERNELS_H

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"
#include "runtime/device/device.h"
#include "runtime/graph/graph.h"

#include <stddef.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* Shape and type of one argument; ndim < 0: absent. */
struct tri_arg {
    enum tri_dtype dtype;
    struct tri_shape shape;
};

#define TRI_ARG_ABSENT (-1)

/* Signature of a kernel. Borrowed during prepare only. */
struct tri_kernel_desc {
    enum tri_op_kind kind;
    struct tri_attrs attrs;
    int nin, nout;
    const struct tri_arg *in;  /* nin */
    const struct tri_arg *out; /* nout */
    int nthreads;              /* OpenMP threads that a run may use */
    struct tri_device *device; /* that the kernel will run on; NULL: the CPU */
};

/* Buffers of one run. in[i] / out[o] is NULL where the argument is absent. Outputs may alias inputs
 * where the op's alias rule says so. */
struct tri_kernel_args {
    void *const *in;
    void *const *out;
    void *scratch; /* scratch_bytes, 64-byte aligned, contents undefined */
    int64_t grain; /* global number, 0 outside grains: index base of randomness */
    void *stream;  /* of the device, to enqueue on; the CPU has none */
};

/* A prepared kernel. Implementations put it first in their own struct. */
struct tri_kernel {
    const struct tri_kernel_ops *ops;
    size_t scratch_bytes; /* set by prepare; planned like any other memory */
};

struct tri_kernel_ops {
    const char *name; /* "matmul_onednn": shown by plan and traces */
    /* Prepares for the signature; TRI_ERR_UNSUPPORTED without a message means "take the reference".
     * Mandatory. */
    tri_status (*prepare)(const struct tri_kernel_desc *d, struct tri_kernel **out);
    /* Runs on the calling thread and its OpenMP team. Mandatory. */
    tri_status (*run)(const struct tri_kernel *k, const struct tri_kernel_args *a);
    void (*destroy)(struct tri_kernel *k); /* mandatory, accepts NULL */
};

/* TRI_OP_COUNT entries; NULL where the table has no kernel of the kind. */
extern const struct tri_kernel_ops *const tri_kernels_ref[TRI_OP_COUNT];
extern const struct tri_kernel_ops *const tri_kernels_cpu[TRI_OP_COUNT];
/* Name and version of the library of products that they use, such as "oneDNN 2.6.3". Local. */
void tri_kernels_cpu_library(char *out, size_t bytes);
/* Kernels of a CUDA device: buffers lie in its memory, run enqueues on args->stream. Only in builds
 * with CUDA; reach it through tri_device.kernels. */
extern const struct tri_kernel_ops *const tri_kernels_cuda[TRI_OP_COUNT];

/* Prepares the kernel of d from `table`; else, for 16-bit arguments, around the f32 kernel (see
 * widen.h); else on the CPU from the reference, and on another device TRI_ERR_UNSUPPORTED naming
 * kind, types and device. Local. */
tri_status tri_kernel_prepare(const struct tri_kernel_ops *const *table,
                              const struct tri_kernel_desc *d, struct tri_kernel **out) TRI_CHECKED;

/* Instruction sets our own SIMD kernels may use, in rising order. The best that the processor has
 * is taken, or `limit` if lower. */
enum tri_isa { TRI_ISA_SCALAR, TRI_ISA_AVX2, TRI_ISA_AVX512, TRI_ISA_COUNT };
enum tri_isa tri_cpu_isa(void);             /* in use now */
void tri_cpu_isa_limit(enum tri_isa limit); /* call before any prepare */
const char *tri_isa_name(enum tri_isa isa);

TRI_END_DECLS
#endif
