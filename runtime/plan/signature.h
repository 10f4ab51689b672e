/* Prepared kernels of a program, one for each distinct signature. */
#ifndef TRI_RUNTIME_PLAN_SIGNATURE_H
#define TRI_RUNTIME_PLAN_SIGNATURE_H

#include "runtime/plan/program.h"

/* A hash table from signatures to the kernels of `program`. Borrows program and table. */
struct tri_signatures {
    struct tri_program *program;
    const struct tri_kernel_ops *const *table;
    struct tri_device *device;
    int nthreads;
    struct tri_pool pool; /* signature bytes */
    struct tri_signature_slot *slot;
    size_t cap;            /* power of two, at most half used */
    int kernel_cap;        /* allocated entries of program->kernel */
    unsigned char *buffer; /* the signature being looked up */
    struct tri_arg *arg;   /* arguments of the op being looked up */
    int max_args;          /* of any op with a kernel, inputs and outputs together */
};

tri_status tri_signatures_init(struct tri_signatures *s, struct tri_program *program,
                               const struct tri_kernel_ops *const *table, struct tri_device *device,
                               int nthreads) TRI_CHECKED;
void tri_signatures_finish(struct tri_signatures *s);
/* Index in program->kernel of the kernel for op, prepared at its first use. The message of a
 * failure names the op. Local. */
tri_status tri_signatures_kernel(struct tri_signatures *s, const struct tri_op *op,
                                 int32_t *kernel) TRI_CHECKED;

#endif
