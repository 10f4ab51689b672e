/* Scratch of calls over MPI, by hand. */
#include "collectives/mpi_sum.h"

#include <criterion/criterion.h>

static size_t scratch(int size, int slices, int64_t count, enum tri_dtype dtype)
{
    size_t bytes = 0;

    cr_assert_eq(tri_mpi_scratch(size, slices, count, dtype, &bytes), TRI_OK);
    return bytes;
}

Test(mpi_scratch, a_scattering_half_holds_every_slice)
{
    cr_assert_eq(scratch(4, 4, 4096, TRI_F32), 4 * 4096 / 4 * 4);
    cr_assert_eq(scratch(4, 2, 4096, TRI_F32), 4 * 4096 / 2 * 4);
    /* widened: the sums of f32 and all of the operand */
    cr_assert_eq(scratch(4, 4, 4096, TRI_BF16), 4 * 4096 + 4 * 4096);
}

Test(mpi_scratch, a_sum_holds_its_pieces)
{
    const int64_t count = 1 << 24; /* 64 MiB in pieces of 4 MiB, two under way */

    cr_assert_eq(scratch(2, 0, count, TRI_F32), 2 * (4 << 20) / 2);
    cr_assert_eq(scratch(2, 0, count, TRI_BF16), 2 * ((4 << 20) / 2 + (4 << 20)));
    cr_assert_leq(scratch(2, 0, 100, TRI_F32), 400);
}
