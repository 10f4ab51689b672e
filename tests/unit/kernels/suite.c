/* Every kernel of the CPU table against the reference. A kernel without a case here fails.
 * TRI_TEST_ISA in the environment (scalar, avx2, avx512) bounds the instruction set. */
#include "tests/unit/kernels/kcase.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void limit_isa(void)
{
    const char *name = getenv("TRI_TEST_ISA");

    for (int i = 0; name != NULL && i < TRI_ISA_COUNT; i++)
        if (strcmp(name, tri_isa_name((enum tri_isa)i)) == 0)
            tri_cpu_isa_limit((enum tri_isa)i);
}

static void check_kind(enum tri_op_kind kind)
{
    const struct tri_kernel_ops *ops = tri_kernels_cpu[kind];
    int ran;

    if (ops == NULL)
        return;
    limit_isa();
    ran = kcases_of(kind, ops);
    cr_assert(ran >= 0, "%s has no case", ops->name);
    cr_assert(ran > 0, "%s supports no case", ops->name);
}

#define X(kind, text)                                                                              \
    Test(kernels_cpu, kind)                                                                        \
    {                                                                                              \
        check_kind(TRI_OP_##kind);                                                                 \
    }
TRI_OP_LIST(X)
#undef X

Test(kernels_ref, every_kind_but_memory_and_collectives_has_a_kernel)
{
    for (int kind = 0; kind < TRI_OP_COUNT; kind++) {
        bool none = kind == TRI_OP_RESHAPE || kind == TRI_OP_PACK || kind == TRI_OP_VIEW ||
                    tri_op_info((enum tri_op_kind)kind)->comm;

        cr_assert_eq(tri_kernels_ref[kind] == NULL, none, "kind %d", kind);
    }
}
