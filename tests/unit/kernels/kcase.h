/* One comparison of a kernel of the CPU or of a device with the reference: a signature, its input
 * data, and what each output may differ by. */
#ifndef TRI_TESTS_UNIT_KERNELS_KCASE_H
#define TRI_TESTS_UNIT_KERNELS_KCASE_H

#include "runtime/kernels/kernels.h"

#define KCASE_ARGS 48
#define KCASE_EPS  0x1p-23 /* one unit in the last place of a float in [1, 2) */

#define SHAPE(...)                                                                                 \
    ((struct tri_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

/* How output o relates to an input's memory: kcase_run tries MAY both ways, MUST only shared. */
struct kcase {
    struct tri_kernel_desc d;
    struct tri_arg in[KCASE_ARGS], out[KCASE_ARGS];
    void *data[KCASE_ARGS]; /* contents of each input, owned */
    enum tri_alias alias[KCASE_ARGS];
    int alias_in[KCASE_ARGS];
    /* |got - want| <= abs + rel |want| + near max |want|, the maximum over the output */
    double abs[KCASE_ARGS], rel[KCASE_ARGS], near[KCASE_ARGS];
    double half_abs[KCASE_ARGS], half_near[KCASE_ARGS]; /* kcase_half */
    int64_t grain;
};

/* Where the kernels under test run from now on: a device, or NULL for the CPU. The reference always
 * runs on the CPU. */
void kcase_on(struct tri_device *device);
/* Inputs are drawn anew: each seed has its own. */
void kcase_seed(uint64_t seed);
/* Ends the test with a message: each runner defines it (kcase_criterion.c, parity.c). */
void kcase_failed(const char *fmt, ...) TRI_PRINTF(1, 2) __attribute__((noreturn));
#define KCASE_CHECK(cond, ...)                                                                     \
    do {                                                                                           \
        if (!(cond))                                                                               \
            kcase_failed(__VA_ARGS__);                                                             \
    } while (0)

void kcase_init(struct kcase *c, enum tri_op_kind kind, const struct tri_attrs *attrs);
/* Adds an input, uniform in [lo, hi) (whole numbers for integer types), and returns its contents
 * for changes. */
void *kcase_in(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double lo, double hi);
void kcase_absent(struct kcase *c);
void kcase_out(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double abs,
               double rel);
/* An output that may differ by `near` of its largest element. */
void kcase_out_near(struct kcase *c, enum tri_dtype dtype, struct tri_shape shape, double near);
void kcase_out_absent(struct kcase *c);
/* A device may round parts of the last output to 16 bits on the way: with 16-bit arguments it may
 * differ by abs + near max |want| more, in units of 2^-8 (bf16) or 2^-11 (f16). */
void kcase_half(struct kcase *c, double abs, double near);
/* The last output may or must share memory with input i. */
void kcase_alias(struct kcase *c, enum tri_alias alias, int i);

/* Prepares and runs `ops` and the reference over guarded memory, compares, and frees the inputs.
 * False when `ops` does not support the signature. Differences fail and name `what`. On the CPU
 * with 1 and 2 threads; on a device twice, and both times must give the same bits. Then once more
 * with bf16 and with f16 where the op table's half_in and half_out allow it, with the kernel that
 * tri_kernel_prepare takes. */
bool kcase_run(struct kcase *c, const struct tri_kernel_ops *ops, const char *what);

/* Runs the CPU table and the reference for each instruction set of the processor, compares, asserts
 * that no bit depends on the number of threads (1 and 3), and frees the inputs. */
void kcase_check(struct kcase *c);

/* Runs all cases of a kind; the number that `ops` supported. -1: the kind has no cases. */
int kcases_of(enum tri_op_kind kind, const struct tri_kernel_ops *ops);

#endif
