/* Every kernel of the CUDA table against the reference: all cases of the kernel suite, with buffers
 * in the memory of the device and inputs that are drawn anew in each run.
 *
 *     test_parity [--tune] [--seed N] [KIND...]
 *
 * A plain program, so that a machine with a GPU needs no test library. Prints the seed and one line
 * a kind; a failure names the case, the element and both values. Ends with 0, with 1 after a
 * failure, with 77 where there is no CUDA device. A kind without a kernel or without a case fails
 * unless it is listed below with its reason. */
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kcase.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NO_DEVICE 77

struct exception {
    enum tri_op_kind kind;
    const char *reason;
};

/* Kinds that the CUDA table may lack. One that it has must not be listed. */
static const struct exception without_kernel[] = {
    {TRI_OP_COUNT, NULL},
};

/* Kinds whose kernel may support no case here. */
static const struct exception without_case[] = {
    {TRI_OP_COUNT, NULL},
};

static jmp_buf failed;

void kcase_failed(const char *fmt, ...)
{
    va_list args;

    printf("  ");
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    printf("\n");
    longjmp(failed, 1);
}

static const char *listed(const struct exception *list, enum tri_op_kind kind)
{
    for (; list->reason != NULL; list++)
        if (list->kind == kind)
            return list->reason;
    return NULL;
}

#define FAILED (-2)

/* kcases_of, or FAILED. */
static int run_cases(enum tri_op_kind kind, const struct tri_kernel_ops *ops)
{
    return setjmp(failed) != 0 ? FAILED : kcases_of(kind, ops);
}

static bool check_cases(enum tri_op_kind kind, const struct tri_kernel_ops *ops)
{
    const char *reason = listed(without_case, kind);
    int ran = run_cases(kind, ops);

    if (ran != FAILED && ran <= 0 && reason != NULL) {
        printf("skip   %s: %s\n", ops->name, reason);
        return true;
    }
    printf("%s %s: %d cases\n", ran > 0 ? "ok    " : "not ok", ops->name, ran < 0 ? 0 : ran);
    return ran > 0;
}

static bool check_kind(const struct tri_device *device, enum tri_op_kind kind)
{
    const struct tri_op_info *info = tri_op_info(kind);
    const struct tri_kernel_ops *ops = device->kernels[kind];
    const char *reason = listed(without_kernel, kind);

    if (info->no_kernel || info->comm)
        return true;
    if (ops == NULL) {
        printf("%s %s: no kernel%s%s\n", reason != NULL ? "skip  " : "not ok", info->name,
               reason != NULL ? ": " : "", reason != NULL ? reason : "");
        return reason != NULL;
    }
    if (reason != NULL) {
        printf("not ok %s: has a kernel, but is listed as without\n", info->name);
        return false;
    }
    return check_cases(kind, ops);
}

/* Sends the cases to the device. */
static bool enter(struct tri_device *device)
{
    if (setjmp(failed) != 0)
        return false;
    kcase_on(device);
    return true;
}

static bool wanted(const char *name, int n, char **names)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return n == 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    struct tri_device *device;
    int first = 1, bad = 0;
    bool tune = argc > 1 && strcmp(argv[1], "--tune") == 0;

    if (tune)
        first++;
    if (argc > first + 1 && strcmp(argv[first], "--seed") == 0) {
        seed = strtoull(argv[first + 1], NULL, 10);
        first += 2;
    }
    if (tri_device_cuda_count() == 0) {
        printf("no CUDA device: nothing is compared\n");
        return NO_DEVICE;
    }
    if (tri_device_cuda_open(0, &device) != TRI_OK) {
        printf("%s\n", tri_error_text());
        return EXIT_FAILURE;
    }
    device->tune = tune;
    printf("%s, seed %" PRIu64 "\n", device->name, seed);
    if (!enter(device))
        return EXIT_FAILURE;
    for (int kind = 0; kind < TRI_OP_COUNT; kind++) {
        kcase_seed(seed);
        if (wanted(tri_op_name((enum tri_op_kind)kind), argc - first, argv + first))
            bad += !check_kind(device, (enum tri_op_kind)kind);
        (void)fflush(stdout);
    }
    kcase_on(NULL);
    tri_device_destroy(device);
    printf("%d kinds failed\n", bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
