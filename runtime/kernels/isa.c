/* Which instruction sets the processor and the operating system offer. */
#include "runtime/kernels/kernels.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Highest set that may be used. */
static _Atomic int isa_limit = TRI_ISA_AVX512;

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

enum tri_isa tri_cpu_isa(void)
{
    int limit = atomic_load(&isa_limit);

    __builtin_cpu_init();
    if (limit >= TRI_ISA_AVX512 && has_avx2() && has_avx512())
        return TRI_ISA_AVX512;
    if (limit >= TRI_ISA_AVX2 && has_avx2())
        return TRI_ISA_AVX2;
    return TRI_ISA_SCALAR;
}

void tri_cpu_isa_limit(enum tri_isa limit)
{
    atomic_store(&isa_limit, (int)limit);
}

const char *tri_isa_name(enum tri_isa isa)
{
    static const char *const name[TRI_ISA_COUNT] = {"scalar", "avx2", "avx512"};

    return name[isa];
}
