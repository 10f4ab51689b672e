/* The kernel suite: one case is one signature with data, run by the reference and by the CPU table.
 *
 * Every case runs under each instruction set that the processor has, with one thread and with
 * three. Results must lie within the tolerance of the reference's, and not a bit may depend on the
 * number of threads. */
#ifndef TRI_TESTS_UNIT_KERNELS_COMPARE_H
#define TRI_TESTS_UNIT_KERNELS_COMPARE_H

#include "runtime/kernels/kernels.h"

#include <stdint.h>

#define CASE_ARGS 8

struct kcase {
    struct tri_kernel_desc d; /* in and out point into the arrays below */
    struct tri_arg in[CASE_ARGS], out[CASE_ARGS];
    void *data[CASE_ARGS]; /* of the inputs */
    int alias[CASE_ARGS];  /* input that shares the memory of an output, or -1 */
    double tol[CASE_ARGS]; /* of an output, relative to its largest element */
    int64_t grain;
    uint64_t draws; /* elements drawn so far: every input has numbers of its own */
};

void kcase_init(struct kcase *c, enum tri_op_kind kind);
/* Appends an input of random f32 (rounded to `dtype`) uniform in [lo, hi); returns its data. dims
 * end with 0. */
void *kcase_in(struct kcase *c, enum tri_dtype dtype, double lo, double hi, const int64_t *dims);
/* Appends an integer input, all elements in [lo, hi). */
int32_t *kcase_in_i32(struct kcase *c, int32_t lo, int32_t hi, const int64_t *dims);
/* Appends an i64 or f64 input of n zeros. */
void *kcase_in_zero(struct kcase *c, enum tri_dtype dtype, int64_t n);
void kcase_in_absent(struct kcase *c);
/* Appends an output; tol < 0: not compared. */
void kcase_out(struct kcase *c, enum tri_dtype dtype, int alias, double tol, const int64_t *dims);
void kcase_out_absent(struct kcase *c);
/* Runs and compares all; fails the test with a message; frees the case. */
void kcase_check(struct kcase *c);

#define DIMS(...) ((const int64_t[]){__VA_ARGS__, 0})

#endif
